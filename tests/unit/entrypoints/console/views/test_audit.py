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
    audit_filter,
    audit_page,
)
from understudy.errors import UnknownRoute
from understudy.ports.registry.registry import AuditEntry, AuditFilter, AuditPlace, AuditSubject

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

    only, subject = audit_filter(asked, AT)

    assert only == AuditFilter("dana", "console", AT - timedelta(hours=1))
    assert subject is AuditSubject.POLICY
    command = "understudy audit list churn --actor dana --via console --subject policy --since 3600s"
    assert a_page(asked=asked).command == command


@pytest.mark.parametrize(
    "wrong",
    [{"since": "x"}, {"since": "9" * 30}, {"since": "1_0"}, {"after": "noon"}, {"after": "1.²"}, {"subject": "cat"}],
)
def test_a_filter_that_is_none_is_refused(wrong):
    with pytest.raises(UnknownRoute, match="a filter in the address"):
        audit_filter(audit_asked(wrong), AT)


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
    assert page.older_href == "/models/churn/audit?who=dana&after=50."
    assert second.older_href == "/models/churn/audit?who=dana&after=50.50"
    assert a_page(an_entry()).older_href == ""


def test_the_place_in_an_address_is_that_of_policies_and_of_everything_else():
    assert audit_filter(AuditAsked(after="12.7"), AT)[0].after == AuditPlace(12, 7)
    assert audit_filter(AuditAsked(after=".7"), AT)[0].after == AuditPlace(None, 7)
    assert audit_filter(AuditAsked(), AT)[0] == AuditFilter()
