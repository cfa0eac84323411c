"""What a rollout or a rollback did to a policy, where a file would undo it, and what is said of it for a day."""

from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.lifecycle.rollback_moves import NEWS_SECONDS, earlier_rollback, moves_undone, took_back
from understudy.ports.registry.registry import AuditEntry, AuditSubject, PolicyRecord

AT = datetime(2026, 11, 26, 12, 3, 11, tzinfo=UTC)
POLICY = PolicyRecord("churn", "6", "7", 0, None, 100, True, None, {}, None, None, 3, AT, "ci", 1, 1)
ROW = {"champion_version": 6, "challenger_version": 7, "challenger_weight": 0, "arms": [], "guard": "rollback"}


def change(via: str, before: dict[str, Any], after: dict[str, Any], reason: str | None = None) -> AuditEntry:
    rows = ({**ROW, **before}, {**ROW, **after})
    return AuditEntry(9, "churn", 4, AT, "monitor", via, reason, "update", *rows, AuditSubject.POLICY, "churn", None)


SHARES = [{"version_id": 9, "first": 0, "last": 4}]
HALF = {"challenger_weight": 50}
TAKEN = change("rollout", {"challenger_weight": 50}, {})
PROMOTED = change("rollout", {"challenger_weight": 100}, {"champion_version": 7, "challenger_version": None})
TAKEN_BACK = change("cli", {"champion_version": 5}, {}, "rollback to the champion before: latency")
GIVEN = change("cli", {}, {"challenger_weight": 50})
NAMED = change("cli", {"challenger_version": 8}, {})
BY_SQL = change("sql", {"challenger_weight": 50}, {})
AFTER_PROMOTION = POLICY._replace(champion="7", challenger=None)


@pytest.mark.parametrize(
    ("wanted", "policy", "changes", "undone"),
    [
        ({"challenger_weight": 5}, POLICY, [TAKEN, GIVEN], ["challenger_weight"]),
        ({"challenger_weight": 5, "guard": "off"}, POLICY, [TAKEN], ["challenger_weight"]),
        ({"challenger_weight": 5}, POLICY, [BY_SQL, TAKEN], []),
        ({"challenger_weight": 5, "challenger": "8"}, POLICY, [TAKEN], []),
        (
            {"challenger_weight": 5},
            POLICY,
            [NAMED, change("rollout", {"challenger_weight": 50, "challenger_version": 8}, {"challenger_version": 8})],
            [],
        ),
        ({"champion": "6"}, AFTER_PROMOTION, [PROMOTED], ["champion"]),
        ({"challenger_weight": 5, "challenger": "8"}, AFTER_PROMOTION, [PROMOTED], []),
        ({"champion": "5"}, POLICY, [TAKEN_BACK], ["champion"]),
        ({"champion": "5"}, POLICY, [GIVEN], []),
        ({"arms": {"9": 5}}, POLICY, [change("rollout", {"arms": SHARES}, {})], ["arms"]),
        ({"challenger_weight": 5}, POLICY, [], []),
        (
            {"challenger_weight": 5},
            POLICY,
            [change("console", HALF, {}, "aborted by monitor: slow")],
            ["challenger_weight"],
        ),
        (
            {"challenger_weight": 5},
            POLICY,
            [change("console", HALF, {}, "version 7 goes from 10 to 50 %: promoted by monitor")],
            ["challenger_weight"],
        ),
        ({"challenger_weight": 5}, POLICY, [change("console", HALF, {}, "too slow")], []),
    ],
)
def test_a_file_undoes_what_a_rollout_or_a_rollback_did_last(wanted, policy, changes, undone):
    assert list(moves_undone(wanted, policy, changes)) == undone


@pytest.mark.parametrize(
    ("entry", "is_back"),
    [
        (change("rollout", HALF, {}), True),
        (change("sql", HALF, {"challenger_version": None}), True),
        (change("cli", HALF | {"arms": []}, HALF | {"arms": SHARES}), False),
        (change("cli", {"arms": SHARES}, {"arms": []}), True),
        (change("cli", HALF, {"challenger_weight": 5}), False),
        (change("rollout", {"arms": []}, HALF), False),
        (change("rollout", HALF, {"champion_version": 7, "challenger_version": None}), False),
        (change("cli", {"champion_version": 7, "previous_champion": 6, "challenger_version": None}, {}), True),
        (change("rollout", {"champion_version": 7, "previous_champion": 6, "challenger_version": 6}, {}), False),
    ],
)
def test_a_change_takes_calls_back_that_ends_every_share_or_brings_the_champion_before(entry, is_back):
    assert took_back(entry) is is_back


LABELS = {6: "six", 7: "seven", 8: "eight"}
BACK = change("rollout", HALF, {}, "slow")
OVER_HTTP = BACK._replace(
    before={**ROW, "champion_version": "six", "challenger_version": "seven", **HALF},
    after={**ROW, "champion_version": "six", "challenger_version": "seven"},
)
CHAMPION_BACK = change(
    "rollout", {"champion_version": 8, "challenger_version": None, "previous_champion": 6}, {}, "slow"
)
WORDS = "were taken back by monitor via rollout at 26 Nov 12:03:11 UTC: slow"


@pytest.mark.parametrize(
    ("audit", "versions", "seconds", "said"),
    [
        ([BACK], {"seven"}, 60, f"Earlier, calls of version seven {WORDS}"),
        ([OVER_HTTP], {"seven"}, 60, f"Earlier, calls of version seven {WORDS}"),
        ([CHAMPION_BACK], {"eight"}, 60, f"Earlier, calls of version eight {WORDS}"),
        ([CHAMPION_BACK, BACK], {"seven"}, 60, f"Earlier, calls of version seven {WORDS}"),
        ([BACK], {"eight"}, 60, ""),
        ([GIVEN], {"seven"}, 60, ""),
        ([BACK], {"seven"}, NEWS_SECONDS, ""),
        ([], {"seven"}, 60, ""),
    ],
)
def test_a_rollback_of_the_last_day_is_told_of_the_version_whose_calls_were_taken_back(audit, versions, seconds, said):
    assert earlier_rollback(audit, versions, AT.timestamp() + seconds, LABELS) == said
