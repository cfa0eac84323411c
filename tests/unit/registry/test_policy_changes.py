"""What a change of a policy means before it is made."""

from datetime import UTC, datetime

import pytest

from understudy.core.routing.arms import BucketRange
from understudy.errors import PolicyRefused
from understudy.ports.registry.registry import PolicyRecord
from understudy.registry.policy_changes import (
    complete_changes,
    differences,
    moved_entities_percent,
    moves_traffic,
    with_arms,
)

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


def test_beside_further_arms_a_salt_moves_traffic_without_a_challengers_weight():
    before = a_policy(challenger=None, challenger_weight=0, arms=(BucketRange("9", 90, 99),))

    assert moves_traffic(before, a_policy(challenger=None, challenger_weight=0))
    assert moves_traffic(before, before._replace(salt="spring"))
    assert not moves_traffic(before, before._replace(challenger="2"))


def test_arms_that_are_not_named_keep_their_buckets():
    before = a_policy(arms=(BucketRange("9", 90, 99),))

    changes = with_arms(before, {"shadow": "4"}, {"8": 10})

    assert changes == {"shadow": "4", "arms": (BucketRange("8", 80, 89), BucketRange("9", 90, 99))}
    assert moved_entities_percent(before, before._replace(**changes)) == 10
    assert with_arms(before, {}, {"9": 0}) == with_arms(before, {}, {}) == {"arms": ()}


def test_arms_make_room_for_the_challenger_that_grows_in_the_same_change():
    before = a_policy(challenger_weight=10, arms=(BucketRange("9", 15, 24),))

    changes = with_arms(before, {"challenger_weight": 20}, {"9": 10})

    assert changes["arms"] == (BucketRange("9", 20, 24), BucketRange("9", 95, 99))


def test_a_first_policy_may_have_arms():
    assert with_arms(None, {"champion": "1"}, {"9": 10})["arms"] == (BucketRange("9", 90, 99),)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"9": 91}, "together 101 percent"),
        ({"1": 5}, "1 is the champion"),
        ({"2": 5}, "2 is the challenger"),
        ({"9": 101}, "9 has 101"),
    ],
)
def test_what_arms_cannot_have_is_refused(weights, said):
    with pytest.raises(PolicyRefused, match=said):
        with_arms(a_policy(), {}, weights)


def test_nobody_can_say_who_moves_when_all_are_drawn_anew():
    assert moved_entities_percent(a_policy(), a_policy(salt="spring")) is None


def test_taking_the_challenger_away_takes_its_weight_away():
    assert complete_changes({"challenger": None}) == {"challenger": None, "challenger_weight": 0}


@pytest.mark.parametrize(
    "changes",
    [{}, {"challenger": "3"}, {"challenger_weight": 5}, {"shadow": None}, {"challenger": None, "challenger_weight": 5}],
)
def test_a_weight_that_was_named_and_any_other_change_stay_as_they_are(changes):
    assert complete_changes(changes) == changes


def test_differences_are_of_the_policy_and_not_of_its_record():
    after = a_policy(challenger_weight=50, generation=2, updated_by="kim", proxies=3)

    assert differences(a_policy(), after) == {"challenger_weight": (10, 50)}
    assert differences(None, after)["champion"] == (None, "1")
