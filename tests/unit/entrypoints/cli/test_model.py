"""How a change of a policy is asked for, and how it is shown."""

from datetime import UTC, datetime

from understudy.entrypoints.cli.model import changes_of, difference_text
from understudy.entrypoints.documents.policies import changes_of as audit_changes
from understudy.ports import AuditEntry, PolicyRecord

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


def test_an_audit_entry_names_versions_by_their_text():
    before = {"champion_version": 7, "challenger_weight": 10, "generation": 1, "updated_by": "dana"}
    after = {"champion_version": 8, "challenger_weight": 10, "generation": 2, "updated_by": "kim"}
    entry = AuditEntry(1, "visits", 2, NOON, "kim", "psql", None, "update", before, after)

    assert audit_changes(entry, {7: "1", 8: "2"}) == {"champion": ["1", "2"]}
    assert audit_changes(entry, {}) == {"champion": ["id 7", "id 8"]}
