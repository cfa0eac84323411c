"""How a change of a policy is asked for, and how it is shown."""

from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.core.routing.arms import BucketRange
from understudy.entrypoints.cli.model.change import arm_weights_of, changes_of
from understudy.entrypoints.cli.shared.errors import CommandRefused
from understudy.entrypoints.cli.shared.texts.policy_text import difference_text
from understudy.entrypoints.documents.policies import changes_of as audit_changes
from understudy.ports.registry.registry import AuditEntry, AuditSubject, PolicyRecord

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def a_policy(**changes) -> PolicyRecord:
    return PolicyRecord(
        **{
            "model_name": "visits",
            "champion": "1",
            "challenger": "2",
            "challenger_weight": 10,
            "shadow": None,
            "shadow_percent": 100,
            "fallback": True,
            "salt": None,
            "category_roles": {},
            "rollout_id": None,
            "previous_champion": None,
            "generation": 1,
            "updated_at": NOON,
            "updated_by": "dana",
            "proxies": 1,
            "proxies_on_generation": 1,
            **changes,
        }
    )


def test_what_is_not_named_is_not_changed():
    assert changes_of({"challenger": None, "fallback": False, "salt": "none"}) == {"fallback": False, "salt": None}


def test_a_difference_names_values_before_and_after():
    said = difference_text(a_policy(), a_policy(challenger_weight=50, shadow="4", generation=2))

    assert said == "challenger_weight 10 → 50, shadow - → 4"


def test_further_arms_are_told_by_their_percent():
    before = a_policy(arms=(BucketRange("9", 90, 99),))
    after = a_policy(arms=(BucketRange("8", 80, 89), BucketRange("9", 90, 94), BucketRange("9", 97, 99)))

    assert difference_text(a_policy(), before) == "arms - → 9 10 %"
    assert difference_text(before, after) == "arms 9 10 % → 8 10 %, 9 8 %"


def test_arms_are_asked_for_by_percent_or_all_ended():
    assert arm_weights_of([]) is None
    assert arm_weights_of(["none"]) == {}
    assert arm_weights_of(["9=10", "a=b=0"]) == {"9": 10, "a=b": 0}
    for nonsense in (["9"], ["=5"], ["9=x"], ["9=-1"], ["9=1", "9=2"], ["none", "9=1"]):
        with pytest.raises(CommandRefused, match="is no share of a version"):
            arm_weights_of(nonsense)


def change_of_policy(before: dict[str, Any], after: dict[str, Any]) -> AuditEntry:
    said = (1, "visits", 2, NOON, "kim", "psql", None, "update", before, after)
    return AuditEntry(*said, AuditSubject.POLICY, "visits", None)


def test_an_audit_entry_tells_further_arms_by_their_percent():
    after = {"champion_version": 7, "arms": [{"version_id": 8, "first": 90, "last": 99}]}
    entry = change_of_policy({"champion_version": 7, "arms": []}, after)

    assert audit_changes(entry, {7: "1", 8: "2"}) == {"arms": [{}, {"2": 10}]}


def test_an_audit_entry_names_versions_by_their_text():
    before = {"champion_version": 7, "challenger_weight": 10, "generation": 1, "updated_by": "dana"}
    after = {"champion_version": 8, "challenger_weight": 10, "generation": 2, "updated_by": "kim"}
    entry = change_of_policy(before, after)

    assert audit_changes(entry, {7: "1", 8: "2"}) == {"champion": ["1", "2"]}
    assert audit_changes(entry, {}) == {"champion": ["id 7", "id 8"]}
