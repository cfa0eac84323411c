"""What a rollout or a rollback did to a policy, where a file would undo it, and what is said of it for a day."""

from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.ports.registry.registry import AuditEntry, AuditSubject, PolicyRecord
from understudy.registry.rollback_moves import NEWS_SECONDS, earlier_rollback, moves_undone, newest_words, taken_back

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


ARM = [{"version_id": 3, "first": 80, "last": 99}]
TENTH = {"challenger_weight": 10}


@pytest.mark.parametrize(
    ("entry", "versions"),
    [
        (change("rollout", HALF, {}), {7}),
        (change("sql", HALF, {"challenger_version": None}), {7}),
        (change("cli", HALF | {"arms": []}, HALF | {"arms": SHARES}), set()),
        (change("cli", {"arms": SHARES}, {"arms": []}), {9}),
        (change("cli", TENTH | {"arms": ARM}, TENTH | {"arms": []}), {3}),
        (change("cli", TENTH | {"arms": ARM}, {"challenger_weight": 15, "arms": []}), {3}),
        (change("cli", TENTH | {"arms": ARM}, {"challenger_weight": 0, "arms": []}), {3, 7}),
        (change("cli", HALF, HALF | {"challenger_version": 8}), set()),
        (change("cli", HALF, {"challenger_weight": 5}), set()),
        (change("rollout", {"arms": []}, HALF), set()),
        (change("rollout", HALF, {"champion_version": 7, "challenger_version": None}), set()),
        (change("cli", {"champion_version": 7, "previous_champion": 6, "challenger_version": None}, {}), {7}),
        (
            change("cli", {"champion_version": 8, "previous_champion": 6, **HALF}, {"challenger_weight": 0}),
            {7, 8},
        ),
        (change("rollout", {"champion_version": 7, "previous_champion": 6, "challenger_version": 6}, {}), set()),
    ],
)
def test_calls_are_taken_back_that_went_to_a_version_without_a_share_and_go_to_the_champion_or_the_one_before(
    entry, versions
):
    assert set(taken_back(entry)) == versions


LABELS = {3: "three", 6: "six", 7: "seven", 8: "eight"}
BACK = change("rollout", HALF, {}, "slow")
LABELLED = ROW | {"champion_version": "six", "challenger_version": "seven"}
OVER_HTTP = BACK._replace(before=LABELLED | HALF, after=LABELLED)
CHAMPION_BACK = change(
    "rollout", {"champion_version": 8, "challenger_version": None, "previous_champion": 6}, {}, "slow"
)
TO_ONE = change("cli", {"champion_version": 7, "previous_champion": 6, "challenger_version": None}, {}, "it burns")
TO_ONE_AGAIN = change(
    "cli",
    {"previous_champion": 7, "challenger_version": None},
    {"champion_version": 7, "previous_champion": 6, "challenger_version": None},
    "7 is mended",
)
ARM_ENDED = change("rollout", TENTH | {"arms": ARM}, TENTH | {"arms": []}, "slow")
ARM_ENDED_OVER_HTTP = OVER_HTTP._replace(
    before=LABELLED | TENTH | {"arms": [ARM[0] | {"version": "three"}]}, after=LABELLED | TENTH
)
ROLLED_FORWARD = TO_ONE_AGAIN._replace(reason="rollback to the champion before: slow")
WORDS = "were taken back by the monitor via rollout at 26 Nov 12:03:11 UTC: slow"


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
        ([ARM_ENDED], {"three"}, 60, f"Earlier, calls of version three {WORDS}"),
        ([ARM_ENDED_OVER_HTTP], {"three"}, 60, f"Earlier, calls of version three {WORDS}"),
        ([ARM_ENDED], {"seven"}, 60, ""),
        ([GIVEN, BACK], {"seven"}, 60, ""),
        ([GIVEN, ARM_ENDED], {"three"}, 60, f"Earlier, calls of version three {WORDS}"),
        ([BACK, GIVEN, BACK], {"seven"}, 60, f"Earlier, calls of version seven {WORDS}"),
        ([TO_ONE_AGAIN, TO_ONE], {"six"}, 60, ""),
        ([TO_ONE_AGAIN, TO_ONE], {"seven"}, 60, ""),
        (
            [ROLLED_FORWARD, TO_ONE],
            {"six"},
            60,
            f"Earlier, calls of version six were taken back {newest_words(ROLLED_FORWARD)}",
        ),
    ],
)
def test_a_rollback_of_the_last_day_is_told_of_the_version_whose_calls_were_taken_back(audit, versions, seconds, said):
    assert earlier_rollback(audit, versions, AT.timestamp() + seconds, LABELS) == said
