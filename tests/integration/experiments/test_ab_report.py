"""A/B reports against a real Postgres, compared with figures that are counted from the same rows in plain Python."""

import time
from collections import defaultdict
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import pytest
from worlds.experiment import DAY, HOUR, MODEL, Call, Told, World, arm_by_bucket

from understudy.adapters.postgres.experiments.declarations import PostgresExperimentStore
from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog
from understudy.core.experiments.ab import AbState
from understudy.core.routing.route import bucket_of
from understudy.core.statistics.rank_tests import compare_ranks
from understudy.core.statistics.sample_size import Effect, entities_per_arm
from understudy.errors import NotRegistered, RegistryUnavailable
from understudy.experiments.ab_plan import PlanQuestion, plan_ab
from understudy.experiments.ab_report import NoAnswer, report_ab
from understudy.experiments.declared_tests import MetricChoice, Wanted
from understudy.experiments.declaring import AbQuestion, candidates, declare_test, find_test
from understudy.ports.experiments.experiment_log import Observed

ENTITIES = 1_500
WITHIN = 2 * DAY


class Parts(NamedTuple):
    world: World
    log: PostgresExperimentLog
    store: PostgresExperimentStore


@pytest.fixture
async def parts(database, database_url) -> Parts:
    world = World(database)
    await world.add_versions("6", "7", "8")
    return Parts(
        world,
        PostgresExperimentLog(database_url, timeout_seconds=30),
        PostgresExperimentStore(database_url, timeout_seconds=5),
    )


def a_question(now: float, **changes) -> AbQuestion:
    return AbQuestion(MODEL, "converted", now, None, Wanted(0.05), MetricChoice(WITHIN))._replace(**changes)


async def report(parts: Parts, question: AbQuestion, **more: Any) -> Any:
    return await report_ab(parts.log, parts.store, question, **more)


class Ramp(NamedTuple):
    """Calls and outcomes of a test at 20 % for two days and at 50 % for two more."""

    began: float
    calls: list[Call]
    told: list[Told]


async def a_ramp(world: World) -> Ramp:
    """Write a ramp: most entities come several times, and those of the first days convert more often."""
    rng = np.random.default_rng(8)
    versions = world.versions
    await world.set_policy("6")
    generations = {weight: await world.set_policy("6", "7", weight) for weight in (20, 50)}
    began = time.time() + 1
    calls: list[Call] = []
    told: list[Told] = []
    for number in range(ENTITIES):
        entity = f"cust-{number}"
        first = began + rng.uniform(0, 4 * DAY)
        for at in [*sorted(first + rng.uniform(0, 4 * DAY, rng.integers(0, 4))), first]:
            if at >= began + 4 * DAY:
                continue
            weight = 20 if at < began + 2 * DAY else 50
            assigned = arm_by_bucket(versions, entity, weight, ("6", "7"))
            fell_back = assigned == versions["7"] and rng.random() < 0.1
            calls.append(
                Call(
                    entity,
                    float(at),
                    assigned,
                    generations[weight],
                    served=versions["6"] if fell_back else assigned,
                    role="champion" if fell_back or assigned == versions["6"] else "challenger",
                    status="fallback" if fell_back else "ok",
                    score=float(rng.uniform()),
                )
            )
        rate = 0.4 if first < began + 2 * DAY else 0.2
        if rng.random() < 0.5:  # a past
            calls.append(Call(entity, began - rng.uniform(0, WITHIN), versions["6"], generations[20] - 1))
            if rng.random() < rate:
                told.append(Told(began - rng.uniform(0, WITHIN), entity))
        if rng.random() < rate:
            told.append(Told(first + rng.uniform(0, 2 * WITHIN), entity))
    # What must not count: forced calls, shadows, categories, other metrics, others' outcomes.
    noise = [
        Call("cust-1", began + 1, versions["7"], generations[20], reason="forced", role="challenger"),
        Call("forced-only", began + 1, versions["7"], generations[20], reason="forced", role="challenger"),
        Call("shown-only", began + 1, versions["7"], generations[20], role="shadow"),
        Call("vip", began + 1, versions["6"], generations[20], reason="category"),
    ]
    (forced, *_) = await world.call(noise)
    named = await world.call(calls)
    own = next(call for call in named if call.entity_id == "cust-0" and call.at >= began)
    told += [
        Told(began + 1, "cust-2", name="visited"),
        Told(began + 1, "forced-only"),
        Told(began + 1, "stranger"),
        Told(began + 2, prediction_id=forced.prediction_id),
        Told(own.at + 1, prediction_id=own.prediction_id),
    ]
    await world.tell(told)
    return Ramp(began, named, told)


class Counted(NamedTuple):
    """What plain Python counts: for each arm weights, values and pasts of its closed entities."""

    weights: dict[bool, np.ndarray]
    values: dict[bool, np.ndarray]
    pasts: dict[bool, np.ndarray]
    entered: dict[bool, int]


def counted(world: World, ramp: Ramp, now: float) -> Counted:
    owner = {call.prediction_id: call.entity_id for call in ramp.calls if call.at >= ramp.began}
    events = defaultdict(list)
    for event in ramp.told:
        entity = event.entity_id or owner.get(event.prediction_id)
        if event.name == "converted" and entity:
            events[entity].append(event.at)
    first: dict[str, Call] = {}
    for call in sorted(ramp.calls, key=lambda call: call.at):
        if call.at >= ramp.began:
            first.setdefault(call.entity_id, call)
    known = {call.entity_id for call in ramp.calls if call.at < ramp.began}
    rows: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    entered = {False: 0, True: 0}
    for entity, call in first.items():
        is_b = call.assigned == world.versions["7"]
        entered[is_b] += 1
        if call.at + WITHIN > now:
            continue
        share = 0.2 if call.at < ramp.began + 2 * DAY else 0.5
        value = float(any(np.floor(call.at) <= at < call.at + WITHIN for at in events[entity]))
        past = (
            float(any(ramp.began - WITHIN <= at < ramp.began for at in events[entity])) if entity in known else np.nan
        )
        rows[is_b].append((1 - share if is_b else share, value, past))
    columns = {is_b: np.array(arm).T for is_b, arm in rows.items()}
    weights, values, pasts = ({is_b: arm[place] for is_b, arm in columns.items()} for place in range(3))
    return Counted(weights, values, pasts, entered)


async def test_a_report_over_a_ramp_has_the_figures_that_plain_python_counts(parts):
    ramp = await a_ramp(parts.world)
    now = ramp.began + 5 * DAY

    found = await report(parts, a_question(now, since=ramp.began))

    expected = counted(parts.world, ramp, now)
    assert (found.a.entered, found.b.entered) == (expected.entered[False], expected.entered[True])
    assert (found.a.closed, found.b.closed) == (len(expected.values[False]), len(expected.values[True]))
    assert found.is_share
    means = {
        is_b: float(expected.weights[is_b] @ expected.values[is_b] / expected.weights[is_b].sum())
        for is_b in (False, True)
    }
    assert found.difference.value_a == pytest.approx(means[False], rel=1e-9)
    assert found.difference.value_b == pytest.approx(means[True], rel=1e-9)
    assert found.difference.theta is not None
    # The adjustment takes off theta times the weighted difference of the pasts, who has none counting as the mean.
    everybody = [np.concatenate([side[False], side[True]]) for side in (expected.weights, expected.pasts)]
    known = ~np.isnan(everybody[1])
    mean_past = np.average(everybody[1][known], weights=everybody[0][known])
    past = {
        is_b: np.average(np.nan_to_num(expected.pasts[is_b], nan=mean_past), weights=expected.weights[is_b])
        for is_b in (False, True)
    }
    adjusted = means[True] - means[False] - found.difference.theta * (past[True] - past[False])
    assert found.difference.difference == pytest.approx(adjusted, rel=1e-9)
    # Entities are independent of each other: the error is the spread of what each adds to the adjusted difference.
    variances = []
    for arm in (False, True):
        weights = expected.weights[arm] / expected.weights[arm].mean()
        pasts = weights * (np.nan_to_num(expected.pasts[arm], nan=mean_past) - mean_past)
        own = weights * (expected.values[arm] - means[arm]) - found.difference.theta * (pasts - pasts.mean())
        variances.append(own.var(ddof=1) / len(own))
    # The product takes each deviation with the entity left out, which makes it about 1 / n wider.
    assert found.difference.scales[0].standard_error == pytest.approx(sqrt(sum(variances)), rel=0.01)


async def test_a_ramp_makes_no_difference_where_there_is_none(parts):
    ramp = await a_ramp(parts.world)
    now = ramp.began + 6 * DAY + HOUR

    found = await report(parts, a_question(now, since=ramp.began))

    expected = counted(parts.world, ramp, now)
    naive = expected.values[True].mean() - expected.values[False].mean()
    # Most of A came in the first days, when everybody converts twice as often.
    assert naive < -0.04
    assert abs(found.difference.difference) < 3 * found.difference.standard_error
    assert abs(found.difference.difference) < abs(naive)
    assert found.state is AbState.UNDECIDED
    assert [period.share_b for period in found.split] == [0.2, 0.5]
    assert not found.ratio.is_mismatch


async def test_assigned_and_served_are_kept_apart(parts):
    ramp = await a_ramp(parts.world)
    now = ramp.began + 7 * DAY

    found = await report(parts, a_question(now, since=ramp.began))

    b = parts.world.versions["7"]
    firsts: dict[str, Call] = {}
    for call in sorted(ramp.calls, key=lambda call: call.at):
        if call.at >= ramp.began:
            firsts.setdefault(call.entity_id, call)
    calls = [
        (call, first)
        for call in ramp.calls
        if call.at >= ramp.began and (first := firsts[call.entity_id]).assigned == b and call.at < first.at + WITHIN
    ]
    own = [call for call, _ in calls if call.served == b]
    assert found.b.closed == found.b.entered
    assert (found.b.calls, found.b.own_calls) == (len(calls), len(own))
    assert 0 < found.b.own_calls < found.b.calls


async def test_ranks_are_those_of_the_fullest_period_and_scores_of_the_versions_own_answers(parts):
    ramp = await a_ramp(parts.world)
    now = ramp.began + 7 * DAY

    found = await report(parts, a_question(now, since=ramp.began))

    expected = counted(parts.world, ramp, now)
    first_days = {arm: expected.values[arm][expected.weights[arm] == (0.8 if arm else 0.2)] for arm in (False, True)}
    last_days = {arm: expected.values[arm][expected.weights[arm] == 0.5] for arm in (False, True)}
    told = [
        len(side[False]) * len(side[True]) / (len(side[False]) + len(side[True])) for side in (first_days, last_days)
    ]
    fullest = first_days if told[0] > told[1] else last_days
    assert found.ranks == pytest.approx(compare_ranks(fullest[False], fullest[True]))
    assert found.scores.ranks.mean_a == pytest.approx(0.5, abs=0.05)
    assert sum(found.scores.a_cells) > sum(found.scores.b_cells) > 0


async def test_the_timeline_ends_with_what_is_known_now(parts):
    ramp = await a_ramp(parts.world)
    now = ramp.began + 7 * DAY

    found = await report(parts, a_question(now, since=ramp.began), with_timeline=True)

    last = found.timeline[-1]
    assert len(found.timeline) > 10
    assert (last.difference, last.low, last.high) == pytest.approx(
        (found.difference.difference, found.interval.low, found.interval.high)
    )
    assert last.at == pytest.approx(now)
    assert [point.at for point in found.timeline] == sorted(point.at for point in found.timeline)


async def test_without_traffic_and_without_outcomes_nothing_is_good_or_bad(parts):
    world = parts.world
    await world.set_policy("6", "7")
    now = time.time() + 1

    no_share = await report(parts, a_question(now))
    generation = await world.set_policy("6", "7", 50)
    no_calls = await report(parts, a_question(now + DAY))
    await world.call([Call("cust-1", now, world.versions["6"], generation)])
    await world.tell([Told(now + 1, "cust-1", name="visited")])
    no_outcomes = await report(parts, a_question(now + DAY))

    assert [found.state for found in (no_share, no_calls)] == [NoAnswer.NO_TRAFFIC] * 2
    assert no_outcomes.state is NoAnswer.NO_OUTCOMES
    assert "there are: visited" in no_outcomes.sentence
    assert no_outcomes.a.entered == 1


async def test_a_declared_test_takes_its_looks_keeps_them_and_ends_with_a_winner(parts):
    world, question = parts.world, a_question(time.time() + 40 * DAY, wanted=Wanted(0.5))
    generation = await world.set_policy("6", "7", 50)
    began = time.time() + 1
    calls, told = [], []
    for number in range(2_000):
        at = began + number * 30 * DAY / 2_000
        entity = f"cust-{number}"
        assigned = arm_by_bucket(world.versions, entity, 50, ("6", "7"))
        calls.append(Call(entity, at, assigned, generation))
        if number % (2 if assigned == world.versions["7"] else 5) == 0:
            told.append(Told(at + HOUR, entity))
    await world.call(calls)
    await world.tell(told)
    early = question._replace(now=began + 10 * DAY)

    found = await find_test(parts.log, parts.store, MODEL, "converted")
    declared = await declare_test(parts.log, parts.store, found, early, looks=5, created_by="dana")
    again = await declare_test(parts.log, parts.store, found, early, looks=2, created_by="somebody else")
    states = [(await report(parts, question._replace(now=began + day * DAY))) for day in (4, 10, 20, 30)]

    assert declared.test is not None
    assert again.test == declared.test
    plan = declared.test.plan
    assert plan.declared_at == early.now, "it counts calls from the first share on, ten days before"
    # (2.80 / 0.5)² · 2 (1 - p) / p entities, 3 % more with five looks; 270 entities know p = 0.2 to ± 0.07 (3 sd).
    assert 170 < plan.entities_per_arm < 430
    assert [found.state for found in states] == [AbState.TOO_EARLY, *[AbState.B_BETTER] * 3]
    assert states[1].interval.low > 0
    assert states[2].sentence == states[3].sentence == states[1].sentence
    ended = await find_test(parts.log, parts.store, MODEL, "converted")
    assert ended.test is not None
    assert ended.test.looks == states[1].found.test.looks
    assert len(ended.test.looks) == 1
    figures, at_look = ended.test.looks[0].figures, states[1]
    assert figures is not None
    assert figures[:5] == (*at_look.difference[:2], *at_look.difference[4:7])
    assert (figures.low, figures.high) == at_look.interval[:2]
    assert not ended.test.is_open


class ThreeArms(NamedTuple):
    """Calls of a test in which 8 has the buckets from 90, then from 80 on beside challenger 7 with 30 %."""

    began: float
    owners: dict[str, tuple[str, int]]
    """The version that each entity first met, and in which of the two periods."""
    converted: set[str]


async def three_arms(world: World) -> ThreeArms:
    rng = np.random.default_rng(4)
    await world.set_policy("6")
    generations = [await world.set_policy("6", "7", 30, arms={"8": (first, 99)}) for first in (90, 80)]
    began = time.time() + 1
    calls, owners, converted = [], {}, set()
    for number in range(3_000):
        entity, period = f"cust-{number}", number % 2
        bucket = bucket_of(MODEL, entity)
        label = "7" if bucket < 30 else "8" if bucket >= (90, 80)[period] else "6"
        at = began + period * DAY + rng.uniform(0, DAY)
        calls.append(Call(entity, at, world.versions[label], generations[period], role="challenger"))
        # A vip is no random entity of its arm, whoever has its bucket.
        calls.append(Call(f"vip-{number}", at, world.versions["6"], generations[period], reason="category"))
        owners[entity] = label, period
        if rng.random() < 0.3:
            converted.add(entity)
    await world.call(calls)
    await world.tell([Told(began + 2 * DAY, entity) for entity in converted])
    return ThreeArms(began, owners, converted)


@pytest.mark.parametrize(("label", "shares"), [("8", [10 / 70, 20 / 70]), ("7", [30 / 90, 30 / 80])])
async def test_a_named_arm_is_compared_with_the_champion_by_its_own_share_in_each_period(parts, label, shares):
    found_arms = await three_arms(parts.world)
    question = a_question(found_arms.began + 6 * DAY, since=found_arms.began)

    found = await report(parts, question._replace(version_id=parts.world.versions[label]))

    own = {
        name: [entity for entity, (version, _) in found_arms.owners.items() if version == name] for name in ("6", label)
    }
    assert (found.a.closed, found.b.closed) == (len(own["6"]), len(own[label]))
    assert [period.share_b for period in found.split] == pytest.approx(shares)
    weights = {"6": [*shares], label: [1 - share for share in shares]}
    for name, value in (("6", found.difference.value_a), (label, found.difference.value_b)):
        each = np.array([weights[name][found_arms.owners[entity][1]] for entity in own[name]])
        hits = np.array([entity in found_arms.converted for entity in own[name]])
        assert value == pytest.approx(float(each @ hits / each.sum()), rel=1e-9)
    assert not found.ratio.is_mismatch
    assert found.state is AbState.UNDECIDED


async def test_all_arms_are_counted_and_compared_together_corrected_over_them(parts):
    found_arms = await three_arms(parts.world)
    versions = parts.world.versions
    question = a_question(found_arms.began + 6 * DAY, since=found_arms.began)

    of_7, of_8 = [await report(parts, question._replace(version_id=versions[label])) for label in ("7", "8")]

    assert of_7.arms.version_ids == (versions["6"], versions["7"], versions["8"])
    counts = [sum(version == label for version, _ in found_arms.owners.values()) for label in ("6", "7", "8")]
    assert of_7.arms.ratio.entities == tuple(counts)
    assert of_7.arms.ratio.expected == pytest.approx((3_000 * 0.55, 3_000 * 0.3, 3_000 * 0.15))
    assert not of_7.arms.ratio.is_mismatch
    # The same figures, whichever arm was asked for, and each arm's own difference.
    assert of_7.arms.comparisons == 2
    for result, alone in zip(of_7.arms.results, (of_7, of_8), strict=True):
        assert tuple(result.difference) == pytest.approx(tuple(alone.difference))
    assert [result.comparison.adjusted_p_value for result in of_8.arms.results] == pytest.approx(
        [result.comparison.adjusted_p_value for result in of_7.arms.results]
    )
    for result in of_7.arms.results:
        alone = of_7 if result.version_id == versions["7"] else of_8
        assert result.comparison.low < alone.interval.low
        assert result.comparison.high > alone.interval.high


async def test_arms_that_ended_before_a_report_begins_are_no_part_of_it(parts):
    world = parts.world
    await world.set_policy("6", "7", 30, arms={"8": (90, 99)})
    generation = await world.set_policy("6", "7", 30)
    began = time.time() + 1
    calls = [
        Call(f"cust-{n}", began + n, arm_by_bucket(world.versions, f"cust-{n}", 30, ("6", "7")), generation)
        for n in range(300)
    ]
    await world.call(calls)
    await world.tell([Told(call.at + 1, call.entity_id) for call in calls[::3]])

    found = await report(parts, a_question(began + 3 * DAY, since=began))

    assert found.b.entered > 0
    assert found.arms is None


async def test_a_loss_in_another_arm_leaves_no_verdict_for_any(parts):
    found_arms = await three_arms(parts.world)
    lost = "DELETE FROM PredictionLog WHERE model_version_id = $1 AND bucket BETWEEN 90 AND 94"
    await parts.world.database.execute(lost, parts.world.versions["8"])

    found = await report(
        parts, a_question(found_arms.began + 6 * DAY, since=found_arms.began, version_id=parts.world.versions["7"])
    )

    assert not found.ratio.is_mismatch
    assert found.state is AbState.INVALID
    assert "the 3 arms have" in found.sentence
    assert found.arms.results == ()


async def test_tests_of_two_arms_share_alpha_and_the_second_has_all_of_it_when_the_first_has_won(parts):
    world = parts.world
    generation = await world.set_policy("6", "7", 30, arms={"8": (70, 99)})
    began = time.time() + 1
    calls, told = [], []
    for number in range(3_000):
        entity = f"cust-{number}"
        bucket = bucket_of(MODEL, entity)
        label = "7" if bucket < 30 else "8" if bucket >= 70 else "6"
        calls.append(Call(entity, began + number, world.versions[label], generation, role="challenger"))
        if number % {"6": 5, "7": 2, "8": 5}[label] == 0:
            told.append(Told(began + number + HOUR, entity))
    await world.call(calls)
    await world.tell(told)
    question = a_question(began + 4 * DAY, since=began, wanted=Wanted(0.5))
    declared = {}
    for label in ("8", "7"):
        asked = question._replace(version_id=world.versions[label])
        found = await find_test(parts.log, parts.store, MODEL, "converted", world.versions[label])
        after = await declare_test(parts.log, parts.store, found, asked, looks=2, created_by="dana")
        assert after.test is not None
        declared[label] = after.test

    winner = await report(parts, question._replace(version_id=world.versions["7"]))
    after = await report(parts, question._replace(version_id=world.versions["8"]))

    assert declared["8"].plan.beside == (world.versions["7"],)
    assert (winner.state, winner.alpha) == (AbState.B_BETTER, 0.025)
    assert "97.5 % interval" in winner.sentence
    assert (after.state, after.alpha) == (AbState.NO_DIFFERENCE, 0.05)
    assert "95 % interval" in after.sentence


async def test_a_report_of_two_arms_has_no_figures_of_others_and_the_whole_alpha(parts):
    ramp = await a_ramp(parts.world)

    found = await report(parts, a_question(ramp.began + 7 * DAY, since=ramp.began))

    assert (found.arms, found.alpha) == (None, 0.05)


async def test_an_arm_that_lost_entities_has_no_verdict(parts):
    found_arms = await three_arms(parts.world)
    lost = "DELETE FROM PredictionLog WHERE model_version_id = $1 AND bucket BETWEEN 90 AND 94"
    await parts.world.database.execute(lost, parts.world.versions["8"])

    found = await report(
        parts, a_question(found_arms.began + 6 * DAY, since=found_arms.began, version_id=parts.world.versions["8"])
    )

    assert found.ratio.is_mismatch
    assert found.state is AbState.INVALID


async def test_without_a_name_the_challenger_is_compared_or_the_only_arm(parts):
    world = parts.world
    await world.set_policy("6", "7", 30, arms={"8": (90, 99)})
    beside = await find_test(parts.log, parts.store, MODEL, "converted")
    await world.set_policy("6", "7", 0, arms={"8": (90, 99)})
    alone = await find_test(parts.log, parts.store, MODEL, "converted")

    assert beside.challenger_id == world.versions["7"]
    assert alone.challenger_id == world.versions["8"]
    await world.set_policy("6", None, 0, arms={"8": (90, 99), "7": (80, 89)})
    assert candidates(await parts.log.allocations(MODEL)) == [world.versions["7"], world.versions["8"]]
    with pytest.raises(NotRegistered, match="has several further arms") as refused:
        await find_test(parts.log, parts.store, MODEL, "converted")
    assert "--version VERSION" in refused.value.next_step


async def test_a_declared_test_of_an_arm_is_found_by_its_name_and_planned_by_its_share(parts):
    found_arms = await three_arms(parts.world)
    arm, now = parts.world.versions["8"], found_arms.began + 6 * DAY
    question = a_question(now, since=found_arms.began, version_id=arm)
    found = await find_test(parts.log, parts.store, MODEL, "converted", arm)

    declared = await declare_test(parts.log, parts.store, found, question, looks=5, created_by="dana")
    sizes = await plan_ab(
        parts.log, PlanQuestion(MODEL, "converted", Wanted(0.05), MetricChoice(WITHIN), 5, now, version_id=arm)
    )

    assert declared.test is not None
    assert (await find_test(parts.log, parts.store, MODEL, "converted", arm)).test == declared.test
    assert (await find_test(parts.log, parts.store, MODEL, "converted")).test is None
    assert (sizes.baseline.share_b, sizes.baseline.share_a) == (0.2, 0.5)


async def test_a_look_that_somebody_else_takes_at_the_same_moment_is_not_free(parts):
    world = parts.world
    generation = await world.set_policy("6", "7", 50)
    began = time.time() + 1
    rng = np.random.default_rng(1)
    calls = [
        Call(f"cust-{n}", began + n, arm_by_bucket(world.versions, f"cust-{n}", 50, ("6", "7")), generation)
        for n in range(1_000)
    ]
    await world.call(calls)
    await world.tell([Told(call.at + 1, call.entity_id) for call in calls if rng.random() < 0.3])
    question = a_question(began + 3 * DAY)
    found = await find_test(parts.log, parts.store, MODEL, "converted")
    declared = await declare_test(
        parts.log, parts.store, found, question._replace(wanted=Wanted(0.3)), looks=5, created_by="dana"
    )
    assert declared.test is not None
    record = declared.test.record

    first = await parts.store.record(record, {"looks": []}, ends=False)
    second = await parts.store.record(record, {"looks": []}, ends=False)

    assert (first, second) == (True, False)


async def test_a_broken_split_blocks_the_verdict(parts):
    world = parts.world
    generation = await world.set_policy("6", "7", 50)
    began = time.time() + 1
    calls = [
        Call(f"cust-{n}", began + n, arm_by_bucket(world.versions, f"cust-{n}", 50, ("6", "7")), generation)
        for n in range(1_000)
    ]
    lost = [call for call in calls if call.assigned == world.versions["7"]][:200]
    await world.call([call for call in calls if call not in lost])
    await world.tell([Told(call.at + 1, call.entity_id) for call in calls[:300]])

    found = await report(parts, a_question(began + 3 * DAY))

    assert found.state is AbState.INVALID
    assert found.interval is None
    assert "sample ratio" in found.sentence


async def a_test_of_latencies(world: World) -> tuple[float, list[Call]]:
    """Write calls of entities with a latency level of their own, twice as slow in B, and amounts of 1 to 9."""
    rng = np.random.default_rng(6)
    generation = await world.set_policy("6", "7", 50)
    began = time.time() + 1
    calls, told = [], []
    for number in range(800):
        entity = f"cust-{number}"
        assigned = arm_by_bucket(world.versions, entity, 50, ("6", "7"))
        slower = 2 if assigned == world.versions["7"] else 1
        level = 10_000 * slower * rng.lognormal(0, 0.3)
        for place in range(60 if number == 0 else 4):
            is_cached, has_failed = place == 1, place == 2
            calls.append(
                Call(
                    entity,
                    began + number + place,
                    assigned,
                    generation,
                    cache_hit=is_cached,
                    status="timeout" if has_failed else "ok",
                    latency_us=900_000_000 if is_cached or has_failed else int(level * rng.lognormal(0, 0.2)),
                )
            )
        told += [Told(began + number + HOUR, entity, float(rng.integers(1, 10))) for _ in range(2)]
        told.append(Told(began - HOUR, entity, 1e6))
    await world.call(calls)
    await world.tell(told)
    return began, calls


async def test_quantiles_of_latency_are_of_answered_calls_that_no_cache_answered(parts):
    began, calls = await a_test_of_latencies(parts.world)

    found = await report(parts, a_question(began + HOUR, since=began, quantiles=Observed.LATENCY))

    arms = {
        label: [
            call.latency_us / 1e3
            for call in calls
            if call.assigned == parts.world.versions[label] and not call.cache_hit and call.status == "ok"
        ]
        for label in ("6", "7")
    }
    median = found.quantiles.differences[0]
    # One entity has more values than are read: a sample of them counts for all.
    assert median.value_a == pytest.approx(float(np.median(arms["6"])), rel=0.02)
    assert median.value_b == pytest.approx(float(np.median(arms["7"])), rel=0.02)
    assert median.low > 0
    assert found.quantiles.entities_a + found.quantiles.entities_b == 800


async def test_quantiles_of_outcomes_are_of_those_within_the_time_of_closed_entities(parts):
    began, _ = await a_test_of_latencies(parts.world)

    early = await report(parts, a_question(began + HOUR, since=began, quantiles=Observed.VALUE))
    found = await report(parts, a_question(began + 3 * DAY, since=began, quantiles=Observed.VALUE))

    assert early.quantiles.gap
    assert 1 <= found.quantiles.differences[0].value_a <= 9
    assert found.quantiles.differences[0].low <= 0 <= found.quantiles.differences[0].high
    assert found.quantiles.differences[2].value_b <= 9


async def test_a_share_has_no_quantiles_and_a_report_that_is_not_asked_for_any_has_none(parts):
    ramp = await a_ramp(parts.world)
    question = a_question(ramp.began + 7 * DAY, since=ramp.began)

    asked = await report(parts, question._replace(quantiles=Observed.VALUE))
    plain = await report(parts, question)

    assert "no quantiles" in asked.quantiles.gap
    assert plain.quantiles is None
    assert plain == asked._replace(quantiles=None)


async def test_a_metric_of_amounts_per_call_is_a_ratio_of_sums(parts):
    world = parts.world
    generation = await world.set_policy("6", "7", 50)
    began = time.time() + 1
    rng = np.random.default_rng(2)
    calls, told, sums = [], [], {False: [0.0, 0.0], True: [0.0, 0.0]}
    for number in range(600):
        entity = f"cust-{number}"
        assigned = arm_by_bucket(world.versions, entity, 50, ("6", "7"))
        times = int(rng.integers(1, 6))
        calls += [Call(entity, began + number + place, assigned, generation) for place in range(times)]
        amounts = rng.exponential(10, int(rng.integers(0, 4)))
        told += [Told(began + number + HOUR, entity, float(amount)) for amount in amounts]
        arm = sums[assigned == world.versions["7"]]
        arm[0] += float(amounts.sum())
        arm[1] += times
    await world.call(calls)
    await world.tell(told)

    found = await report(parts, a_question(began + 3 * DAY, choice=MetricChoice(WITHIN, per_call=True)))

    assert not found.is_share
    assert found.difference.value_a == pytest.approx(sums[False][0] / sums[False][1])
    assert found.difference.value_b == pytest.approx(sums[True][0] / sums[True][1])


async def test_a_plan_has_the_champions_own_figures_and_todays_traffic(parts):
    ramp = await a_ramp(parts.world)
    now = ramp.began + 4 * DAY
    question = PlanQuestion(MODEL, "converted", Wanted(0.2), MetricChoice(WITHIN), looks=1, now=now)

    sizes = await plan_ab(parts.log, question)
    with_five = await plan_ab(parts.log, question._replace(looks=5))

    closed = counted(parts.world, ramp, now).values[False]
    assert sizes.baseline.entities == len(closed)
    assert sizes.baseline.value == pytest.approx(closed.mean())
    assert sizes.baseline.variance == pytest.approx(closed.var(ddof=1), rel=0.01)
    assert sizes.one_look == entities_per_arm(
        Effect(0.2 * sizes.baseline.value, sizes.baseline.variance, sizes.baseline.variance)
    )
    # Five O'Brien-Fleming looks cost 2.5 % (Jennison & Turnbull 2000, table 2.4 has 1.028 for the exact boundary).
    assert with_five.with_looks / sizes.one_look == pytest.approx(1.026, abs=0.005)
    # Today half of the entities meet the challenger, so both ways to split take the same time.
    assert sizes.days_even == sizes.days_today
    entered = sum(1 for call in ramp.calls if call.at >= ramp.began)
    assert 0 < sizes.baseline.entities_per_day < entered


async def test_without_outcomes_a_plan_goes_by_seed_003s_assumption_and_says_so(parts):
    await parts.world.set_policy("6")
    question = PlanQuestion(MODEL, "bought", Wanted(0.05), MetricChoice(WITHIN), looks=1, now=time.time() + 1)

    sizes = await plan_ab(parts.log, question)

    assert (sizes.one_look, sizes.seed.entities_per_arm if sizes.seed else None) == (6_281, 3_137)
    assert "'bought'" in sizes.baseline.gap
    assert (sizes.days_even, sizes.days_today) == (None, None)
    with pytest.raises(ValueError, match="bought"):
        await plan_ab(parts.log, question._replace(wanted=Wanted(0.005, is_relative=False)))


async def test_a_question_that_takes_too_long_ends_with_what_to_ask_instead(parts, database_url):
    await parts.world.set_policy("6", "7", 50)
    impatient = PostgresExperimentLog(database_url, timeout_seconds=2)
    async with parts.world.database.transaction():
        await parts.world.database.execute("LOCK TABLE predictionlog IN ACCESS EXCLUSIVE MODE")

        with pytest.raises(RegistryUnavailable) as refused:
            await report_ab(impatient, parts.store, a_question(time.time() + DAY))

    assert "--since" in refused.value.next_step
