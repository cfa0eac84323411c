"""The page of the audit: filters, what changed, and which policies may be restored."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from understudy.entrypoints.console.views.audit import (
    SHOWN,
    AuditAsked,
    AuditPage,
    AuditSeen,
    audit_asked,
    audit_page,
    audit_wanted,
)
from understudy.errors import UnknownRoute
from understudy.ports.registry.registry import AuditEntry, AuditFilter, AuditPlace, AuditSubject
from understudy.ports.rollout.rollout_store import RolloutAct, RolloutActFilter

AT = datetime(2026, 11, 20, 13, 0, tzinfo=UTC)
ROW: dict[str, Any] = {"champion_version": 6, "challenger_version": None, "challenger_weight": 0, "arms": []}
SHARES = [{"version_id": 7, "first": 90, "last": 99}]


def an_entry(generation: int = 2, after: dict[str, Any] | None = None, **changes: Any) -> AuditEntry:
    rows = (ROW, ROW | (after or {}))
    said = (1, "churn", generation, AT, "dana", "cli", "go", "update", *rows, AuditSubject.POLICY, "churn", None)
    return AuditEntry(*said)._replace(**changes)


def a_page(*entries: AuditEntry, asked: AuditAsked = AuditAsked(), generation: int = 3) -> AuditPage:  # noqa: B008
    return audit_page(AuditSeen("churn", entries, {6: "6", 7: "7"}, generation), asked)


def test_filters_are_the_registrys_and_the_commands():
    asked = audit_asked({"who": "dana ", "via": "console", "since": "3600", "subject": "policy", "page": "2"})

    wanted = audit_wanted(asked, AT)

    assert wanted.changes == AuditFilter("dana", "console", AT - timedelta(hours=1))
    assert wanted.subject is AuditSubject.POLICY
    command = "understudy audit list churn --actor dana --via console --subject policy --since 3600s"
    assert a_page(asked=asked).command == command


@pytest.mark.parametrize(
    "wrong",
    [
        {"since": "x"},
        {"since": "9" * 30},
        {"since": "1_0"},
        {"after": "noon"},
        {"after": "1.²"},
        {"after": "1.2.3.4"},
        {"subject": "cat"},
    ],
)
def test_a_filter_that_is_none_is_refused(wrong):
    with pytest.raises(UnknownRoute, match="a filter in the address"):
        audit_wanted(audit_asked(wrong), AT)


def test_a_change_has_its_fields_before_and_after_and_its_older_policy_can_be_restored():
    [row] = a_page(an_entry(after={"challenger_version": 7, "arms": SHARES})).rows

    assert row.fields == (("challenger", "-", "7"), ("arms", "none", "7 10 %"))
    assert (row.what, row.reason) == ("policy, generation 2", "go")
    assert row.restore_href == "/models/churn/acts/restore?from=2"


@pytest.mark.parametrize(
    "entry",
    [
        an_entry(3),
        an_entry(2)._replace(after=None, action="delete"),
        an_entry()._replace(subject=AuditSubject.VERSION, generation=None, version="7", before={}, after={}),
    ],
)
def test_the_policy_that_holds_and_what_is_none_are_not_restored(entry):
    assert [row.restore_href for row in a_page(entry).rows] == [""]


def test_older_changes_are_behind_an_address_that_keeps_the_filters():
    entries = [an_entry(id=number) for number in range(99, 99 - SHOWN - 1, -1)]
    others = [one._replace(subject=AuditSubject.VERSION, generation=None, version="7") for one in entries]

    page = a_page(*entries, asked=AuditAsked(who="dana"))
    second = a_page(*others, asked=AuditAsked(who="dana", after="50."))

    assert len(page.rows) == SHOWN
    assert page.older_href == "/models/churn/audit?who=dana&after=50.."
    assert second.older_href == "/models/churn/audit?who=dana&after=50.50."
    assert a_page(an_entry()).older_href == ""


def test_the_place_in_an_address_is_that_of_policies_of_everything_else_and_of_acts():
    def places(after: str) -> tuple[AuditPlace | None, int | None]:
        wanted = audit_wanted(AuditAsked(after=after), AT)
        return wanted.changes and wanted.changes.after, wanted.acts and wanted.acts.before_id

    assert places("12.7.3") == (AuditPlace(12, 7), 3)
    assert places(".7") == (AuditPlace(None, 7), None)
    assert places("") == (AuditPlace(), None)


def an_act(**changes: Any) -> RolloutAct:
    return RolloutAct(7, 3, AT, "paused by ana: lunch", "ana")._replace(**changes)


def test_acts_on_rollouts_stand_among_the_changes_each_with_its_rollout():
    later = an_act(id=8, at=AT + timedelta(hours=1), reason="goes on by ana")
    seen = AuditSeen("churn", [an_entry(changed_at=AT + timedelta(minutes=1))], {}, 3, [later, an_act()])

    page = audit_page(seen, AuditAsked())

    assert page.sentence == "The newest act on a rollout: 20 Nov 14:00:00 UTC by ana."
    assert [row.what for row in page.rows] == ["rollout 3", "policy, generation 2", "rollout 3"]
    assert [(row.who, row.text, row.reason) for row in page.rows[::2]] == [
        ("ana", "goes on", ""),
        ("ana", "paused", "lunch"),
    ]
    assert page.rows[0].href == "/models/churn/rollouts/3"
    assert (page.command, page.acts_command) == ("understudy audit list churn", "understudy rollout show churn 3")


def test_older_acts_are_behind_the_same_address_as_older_changes():
    acts = [an_act(id=number, at=AT + timedelta(seconds=number)) for number in range(99, 99 - SHOWN, -1)]
    seen = AuditSeen("churn", [an_entry()], {}, 3, acts)

    page = audit_page(seen, AuditAsked(after="12.7."))

    assert {row.what for row in page.rows} == {"rollout 3"}
    assert page.older_href == "/models/churn/audit?after=12.7.50"


@pytest.mark.parametrize(
    ("asked", "has_changes", "acts"),
    [
        (AuditAsked(who="ana", since="60"), True, RolloutActFilter("ana", AT - timedelta(minutes=1))),
        (AuditAsked(subject="rollout"), False, RolloutActFilter()),
        (AuditAsked(subject="version"), True, None),
        (AuditAsked(via="console"), True, None),
    ],
)
def test_acts_are_like_no_way_that_they_were_done_with_and_are_of_rollouts(asked, has_changes, acts):
    wanted = audit_wanted(asked, AT)

    assert (wanted.changes is not None, wanted.acts) == (has_changes, acts)


def test_acts_alone_are_shown_in_a_terminal_by_their_rollout():
    page = audit_page(AuditSeen("churn", (), {}, 3, [an_act()]), AuditAsked(subject="rollout"))

    assert (page.command, page.acts_command) == ("understudy rollout show churn 3", "")
