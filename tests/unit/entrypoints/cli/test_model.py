"""What a change of a policy means before it is made: does it move traffic, and how is it shown."""

from datetime import UTC, datetime

import pytest

from understudy.entrypoints.cli.audit import changes_of as audit_changes
from understudy.entrypoints.cli.model import changes_of, difference_text, moves_traffic
from understudy.entrypoints.cli.version import problems_of
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


@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        ({"challenger_weight": 50}, True),
        ({"champion": "2", "challenger": None, "challenger_weight": 0}, True),
        ({"challenger": "3"}, True),
        ({"salt": "spring"}, True),
        ({"category_roles": {"vip": "challenger"}}, True),
        ({"shadow": "4"}, False),
        ({"shadow_percent": 1}, False),
        ({"fallback": False}, False),
        ({"generation": 2, "updated_by": "kim"}, False),
    ],
)
def test_only_changes_that_send_calls_elsewhere_move_traffic(changes, moves):
    assert moves_traffic(a_policy(), a_policy(**changes)) is moves


def test_a_challenger_without_weight_moves_no_traffic():
    before = a_policy(challenger=None, challenger_weight=0)

    assert not moves_traffic(before, a_policy(challenger="2", challenger_weight=0))


def test_taking_the_challenger_away_takes_its_weight_away():
    assert changes_of({"challenger": "none", "challenger_weight": None}) == {"challenger": None, "challenger_weight": 0}


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


def test_a_description_of_a_version_is_refused_with_everything_that_is_wrong_with_it():
    problems = problems_of({"framework": 7, "input_schema": {}, "timeout_ms": True, "colour": "red", "endpoints": [1]})

    assert problems == [
        "artifact_path is missing",
        "framework is not str",
        "timeout_ms is not int",
        "colour is no field of a version",
        "endpoints is a list of host:port",
    ]


@pytest.mark.parametrize("described", [None, [], "text", 7])
def test_a_description_is_one_object(described):
    assert problems_of(described) == ["it is not one JSON object"]
