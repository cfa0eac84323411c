import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import pytest
from builders import a_policy, a_version
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.routing.arms import BucketRange, Split, arm_percents, bucket_ranges, further_arms, moved_percent
from understudy.core.routing.buckets import BUCKETS
from understudy.core.routing.policy import Role
from understudy.core.routing.route import choose_route

NAMES = ("b", "c", "d")
# Three cuts of the hundred, so that what is left of them is the champion's.
weights = st.tuples(*[st.integers(0, 100)] * 3).map(
    lambda cuts: dict(zip(NAMES, (high - low for low, high in pairwise((0, *sorted(cuts)))), strict=True))
)
histories = st.lists(weights, min_size=1, max_size=6)
ramps = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=5).map(
    lambda growths: [
        dict(zip(NAMES, map(sum, zip(*growths[: end + 1], strict=True)), strict=True)) for end in range(len(growths))
    ]
)


def after(history: Iterable[Mapping[str, int]], champion: str = "a") -> Sequence[BucketRange]:
    ranges = bucket_ranges({}, champion)
    for step in history:
        ranges = bucket_ranges(step, champion, ranges)
    return ranges


def owners(ranges: Sequence[BucketRange]) -> list[str]:
    return [next(arm for arm, first, last in ranges if first <= bucket <= last) for bucket in range(BUCKETS)]


@settings(max_examples=40)
@given(histories)
def test_every_arm_has_its_percent_of_the_buckets_and_every_bucket_one_arm(history):
    found = owners(after(history))

    assert {arm: found.count(arm) for arm in NAMES} == history[-1]
    assert found.count("a") == 100 - sum(history[-1].values())


@settings(max_examples=40)
@given(histories, weights)
def test_no_change_could_move_fewer_entities(history, step):
    before = after(history)

    moved = moved_percent(before, bucket_ranges(step, "a", before))

    # What an arm loses must move, and nothing else has to.
    had, shares = owners(before), {**step, "a": 100 - sum(step.values())}
    assert moved == sum(max(0, had.count(arm) - share) for arm, share in shares.items())


@settings(max_examples=40)
@given(ramps)
def test_while_challengers_only_grow_an_entity_leaves_the_champion_once_and_never_comes_back(ramp):
    stages = [owners(after(ramp[: place + 1])) for place in range(len(ramp))]

    for path in zip(*stages, strict=True):
        moves = [(old, new) for old, new in pairwise(path) if old != new]
        assert len(moves) <= 1
        assert all(old == "a" for old, _ in moves)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=6), st.text(min_size=1, max_size=20))
def test_with_one_challenger_the_ranges_are_the_policys_whatever_the_weight_was_before(history, entity_id):
    ranges = after([{"b": weight} for weight in history])

    route = choose_route(a_policy(challenger=a_version("2"), challenger_weight=history[-1]), entity_id)

    assert (owners(ranges)[route.bucket] == "b") == (route.role is Role.CHALLENGER)


def test_a_challenger_that_becomes_champion_keeps_its_entities_and_takes_the_old_champions():
    before = bucket_ranges({"b": 20, "c": 10}, "a")

    after_promotion = bucket_ranges({"c": 10}, "b", before)

    assert after_promotion == (BucketRange("b", 0, 19), BucketRange("c", 20, 29), BucketRange("b", 30, 99))
    assert moved_percent(before, after_promotion) == 70


def test_the_lowest_of_the_freed_buckets_go_to_the_challengers_first_on_every_machine():
    ranges = after([{"b": 10, "c": 10}, {"b": 5, "c": 5, "d": 5}])

    assert [owners(ranges)[bucket] for bucket in (4, 5, 9, 10, 14, 15, 19, 20)] == list("bddccaaa")


def test_an_arm_grows_in_a_second_range_rather_than_push_another_aside():
    ranges = after([{"b": 10, "c": 10}, {"b": 15, "c": 10}])

    assert ranges == (
        BucketRange("b", 0, 9),
        BucketRange("c", 10, 19),
        BucketRange("b", 20, 24),
        BucketRange("a", 25, 99),
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"b": 60, "c": 41}, "together 101 percent"),
        ({"b": -1}, "b has -1"),
        ({"b": 1.5}, "b has 1.5"),
        ({"a": 10}, "a is the champion"),
    ],
)
def test_weights_that_cannot_be_are_refused_with_the_arm_named(asked, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        bucket_ranges(asked, "a")


@pytest.mark.parametrize(
    "broken",
    [(BucketRange("a", 0, 98),), (BucketRange("a", 0, 99), BucketRange("b", 5, 5)), (BucketRange("a", 1, 100),)],
)
def test_ranges_that_are_no_partition_are_refused(broken):
    with pytest.raises(ValueError, match="exactly once"):
        bucket_ranges({"b": 5}, "a", broken)


# A challenger's weight and the weights of two further arms, one after the other.
splits = st.lists(
    st.tuples(*[st.integers(0, 100)] * 3).map(lambda cuts: [high - low for low, high in pairwise((0, *sorted(cuts)))]),
    min_size=1,
    max_size=5,
)


def a_split(steps: Iterable[Sequence[int]]) -> Split:
    split = Split("a", "b")
    for weight, *others in steps:
        wanted = split._replace(challenger_weight=weight)
        split = wanted._replace(arms=further_arms(split, wanted, dict(zip("cd", others, strict=True))))
    return split


@pytest.mark.deep
@settings(max_examples=60)
@given(splits)
def test_beside_further_arms_the_challenger_has_the_buckets_below_its_weight(steps):
    found = a_split(steps)

    assert arm_percents(found.arms) == {arm: share for arm, share in zip("cd", steps[-1][1:], strict=True) if share}
    assert [arm == "b" for arm in owners(found.ranges)] == [bucket < steps[-1][0] for bucket in range(BUCKETS)]


@pytest.mark.deep
@settings(max_examples=60)
@given(splits, st.sampled_from(["c", "d"]), st.integers(0, 100))
def test_no_other_ranges_of_further_arms_could_move_fewer_entities(steps, arm, share):
    before = a_split(steps)
    others = arm_percents(before.arms)
    wanted = {**others, arm: min(share, 100 - before.challenger_weight - sum(others.values()) + others.get(arm, 0))}

    after_change = before._replace(arms=further_arms(before, before, wanted))

    had = owners(before.ranges)
    shares = {**wanted, "b": before.challenger_weight}
    shares["a"] = 100 - sum(shares.values())
    least = sum(max(0, had.count(name) - shares.get(name, 0)) for name in "abcd")
    assert moved_percent(before.ranges, after_change.ranges) == least


def test_further_arms_begin_at_the_top_and_leave_the_challenger_room_to_grow():
    first = further_arms(Split("6", "7", 20), Split("6", "7", 20), {"9": 10})
    second = further_arms(Split("6", "7", 20, first), Split("6", "7", 20), {"9": 10, "8": 10})

    assert first == (BucketRange("9", 90, 99),)
    assert second == (BucketRange("8", 80, 89), BucketRange("9", 90, 99))
    assert further_arms(Split("6", "7", 20, second), Split("6", "7", 80), {"9": 10, "8": 10}) == second


def test_a_challenger_that_grows_into_an_arm_moves_only_what_it_takes():
    before = Split("6", "7", 10, (BucketRange("9", 15, 24),))

    grown = before._replace(challenger_weight=20)
    after_growth = grown._replace(arms=further_arms(before, grown, {"9": 10}))

    assert after_growth.arms == (BucketRange("9", 20, 24), BucketRange("9", 95, 99))
    assert moved_percent(before.ranges, after_growth.ranges) == 15


def test_champion_and_challenger_are_no_further_arms():
    with pytest.raises(ValueError, match="6 is the champion"):
        further_arms(Split("6", "7", 20), Split("6", "7", 20), {"6": 10})
    with pytest.raises(ValueError, match="7 is the challenger"):
        further_arms(Split("6", "7", 20), Split("6", "7", 20), {"7": 10})


def test_a_challenger_that_becomes_an_arm_keeps_its_entities_and_an_arm_that_becomes_challenger_leaves_its_buckets():
    before = Split("6", "7", 10, (BucketRange("9", 90, 99),))

    assert further_arms(before, Split("6"), {"7": 10, "9": 10}) == (BucketRange("7", 0, 9), BucketRange("9", 90, 99))
    assert further_arms(before, Split("6", "9", 10), {"7": 10}) == (BucketRange("7", 90, 99),)


def test_an_arm_that_becomes_champion_keeps_its_entities():
    before = Split("6", "7", 10, (BucketRange("8", 80, 89), BucketRange("9", 90, 99)))

    after_promotion = Split("9", "7", 10, further_arms(before, Split("9", "7", 10), {"8": 10}))

    assert after_promotion.arms == (BucketRange("8", 80, 89),)
    assert moved_percent(before.ranges, after_promotion.ranges) == 70
