"""Metrics of open rollouts: asked each minute beside the ticks, kept before they are judged by, and asked for again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest

from understudy.adapters.memory.metric_sources import MemoryMetricSources
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.canary.metric_samples import PAST_SECONDS, MetricPoint, ReadProblem
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS, RolloutPlan
from understudy.core.rollout.state import new_rollout_state
from understudy.errors import NotRegistered, RegistryUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.rollout_store import RecordSeen, RolloutRecord, RolloutStore
from understudy.rollout.checks.metric_check import MAX_UNDER_WAY, MetricCheck, metrics_stored

BASKET = {"name": "basket", "source": "shop", "promql": 'a{v="$version"}'}
PLAN = replace(NAMED_PLANS["default"], canary_limits={"metrics": [BASKET]})
BEGAN = 600_000.0
CHAMPION, CHALLENGER = 'a{v="6"}', 'a{v="7"}'


class Rollouts:
    """Rollouts that began to get traffic, and the points that are stored of them; a plan of ``None`` cannot be read."""

    def __init__(self, *plans: RolloutPlan | None) -> None:
        self.plans = list(plans)
        self.now = BEGAN + 150.0
        self.is_away = False
        self.points: list[MetricPoint] = []
        self.looked: list[int] = []
        self.connections = 0
        self.is_shared = False

    @asynccontextmanager
    async def shared_session(self) -> AsyncIterator[None]:
        self.connections, self.is_shared = self.connections + 1, True
        yield
        self.is_shared = False

    async def open_ids(self) -> Sequence[int]:
        self.connections += not self.is_shared
        return range(1, len(self.plans) + 1)

    async def record(self, rollout_id: int) -> RecordSeen:
        self.looked.append(rollout_id)
        self.connections += not self.is_shared
        plan = self.plans[rollout_id - 1]
        if plan is None:
            raise NotRegistered("there is no such rollout")
        policy = PolicySeen("6", "7", 2, 4, rollout_id)
        state = new_rollout_state(rollout_id, "churn", plan, policy._replace(weight_percent=0), BEGAN)
        state = replace(state, step_starts=(BEGAN,), policy=policy)
        return RecordSeen(RolloutRecord(rollout_id, state, 1, 1, 2, "salt", 9_000, None, "dana", None, None), self.now)

    async def metric_points(self, record: RolloutRecord, since: float) -> Sequence[MetricPoint]:
        return [point for point in self.points if point.at >= since]

    async def add_metric_points(
        self, record: RolloutRecord, points: Sequence[MetricPoint], *, epoch: Epoch | None = None
    ) -> None:
        if self.is_away:
            raise RegistryUnavailable("Postgres is away")
        self.points += points


class World:
    def __init__(self, *plans: RolloutPlan | None) -> None:
        self.rollouts = Rollouts(*plans)
        self.sources = MemoryMetricSources({"shop": {CHAMPION: 3.0, CHALLENGER: 2.0}})
        self.telemetry = MemoryTelemetry()
        self.check = self.next_leader()

    def next_leader(self) -> MetricCheck:
        return MetricCheck(cast("RolloutStore", self.rollouts), self.sources, self.telemetry)

    async def go_on(self, seconds: float = 0.0) -> None:
        """Let time pass, ask, and let the next tick store what came."""
        self.rollouts.now += seconds
        await self.tick()
        await self.check.settle()
        await self.tick()

    async def tick(self) -> None:
        await self.check.tick(cast("Epoch", None))


async def test_both_versions_are_asked_for_each_minute_and_the_champion_for_its_past():
    world = World(PLAN)

    await world.go_on()
    first = world.check.latest(1)
    await world.go_on(10)
    await world.go_on(60)
    (samples,) = world.check.latest(1)

    past = int(BEGAN) - PAST_SECONDS + 60
    assert world.sources.asked == [
        ("shop", CHAMPION, past, 600_120),
        ("shop", CHALLENGER, 600_060, 600_120),
        ("shop", CHAMPION, 600_180, 600_180),
        ("shop", CHALLENGER, 600_180, 600_180),
    ]
    assert first[0].times == (600_060, 600_120)
    assert samples.times == (600_060, 600_120, 600_180)
    assert (samples.champion, samples.challenger) == ((3.0,) * 3, (2.0,) * 3)
    assert samples.past == (3.0,) * 1_440
    assert (samples.problem, samples.asked_at) == (ReadProblem.NONE, 600_180)
    assert world.telemetry.counts["metric_reads_total", "shop", "ok"] == 2


async def test_a_tick_takes_one_connection_however_many_rollouts_there_are():
    world = World(*[PLAN] * 5)

    await world.tick()

    assert world.rollouts.connections == 1
    await world.check.stop()


async def test_what_is_judged_by_is_stored_and_the_next_leader_and_the_command_line_have_the_same():
    world = World(PLAN)
    await world.go_on()

    leader = world.next_leader()
    await leader.tick(cast("Epoch", None))
    record, now = await world.rollouts.record(1)

    assert leader.latest(1) == world.check.latest(1)
    assert await metrics_stored(cast("RolloutStore", world.rollouts), record, now) == world.check.latest(1)
    assert len(world.sources.asked) == 2


async def test_values_that_cannot_be_stored_are_not_judged_by_until_they_are():
    world = World(PLAN)
    world.rollouts.is_away = True
    with pytest.raises(RegistryUnavailable):
        await world.go_on()
    away = world.check.latest(1)
    world.rollouts.is_away = False

    await world.tick()

    assert away[0].times == ()
    assert world.check.latest(1)[0].times == (600_060, 600_120)


@pytest.mark.parametrize(
    ("champion", "challenger", "problem", "word"),
    [
        (3.0, ReadProblem.WRONG_QUERY, ReadProblem.WRONG_QUERY, "unreadable"),
        (ReadProblem.DOWN, ReadProblem.NO_SERIES, ReadProblem.DOWN, "unreadable"),
        (3.0, ReadProblem.NO_SERIES, ReadProblem.NO_SERIES_OF_CHALLENGER, "no_values"),
        (ReadProblem.NO_SERIES, 2.0, ReadProblem.NO_SERIES_OF_CHAMPION, "no_values"),
        (3.0, ReadProblem.NO_NUMBER, ReadProblem.NO_NUMBER_OF_CHALLENGER, "no_values"),
        (ReadProblem.NO_NUMBER, 2.0, ReadProblem.NO_NUMBER_OF_CHAMPION, "no_values"),
        (ReadProblem.NO_NUMBER, ReadProblem.NO_SERIES, ReadProblem.NO_SERIES, "no_values"),
        (ReadProblem.NO_NUMBER, ReadProblem.NO_NUMBER, ReadProblem.NO_NUMBER, "no_values"),
    ],
)
async def test_a_question_without_values_says_why(champion, challenger, problem, word):
    world = World(PLAN)
    world.sources.values["shop"] = {CHAMPION: champion, CHALLENGER: challenger}

    await world.go_on()

    assert world.check.latest(1)[0].problem is problem
    assert world.check.latest(1)[0].times == ()
    assert world.telemetry.counts["metric_reads_total", "shop", word] == 1


async def test_minutes_that_could_not_be_read_are_asked_for_again():
    world = World(PLAN)
    await world.go_on()
    world.sources.values["shop"][CHALLENGER] = ReadProblem.DOWN
    await world.go_on(60)
    await world.go_on(60)
    down = world.check.latest(1)[0]
    world.sources.values["shop"][CHALLENGER] = 2.0

    await world.go_on(60)

    assert (down.problem, down.times[-1]) == (ReadProblem.DOWN, 600_120)
    assert world.check.latest(1)[0].problem is ReadProblem.NONE
    assert world.check.latest(1)[0].times == (600_060, 600_120, 600_180, 600_240, 600_300)


async def test_a_source_that_hangs_holds_up_no_tick_and_no_other_rollout():
    hangs = replace(PLAN, canary_limits={"metrics": [{**BASKET, "promql": 'slow{v="$version"}'}]})
    world = World(hangs, PLAN)
    world.sources.values["shop"] |= {'slow{v="6"}': None, 'slow{v="7"}': None}

    while not world.rollouts.points:
        await world.tick()
        await asyncio.sleep(0)

    assert world.check.latest(2)[0].times == (600_060, 600_120)
    assert world.check.latest(1)[0].asked_at == 0
    assert len(world.sources.asked) == 4
    await world.check.stop()
    assert world.check.latest(1) == ()


async def test_a_source_that_hangs_takes_no_other_ones_questions_however_many_rollouts_ask_it():
    hangs = [{**BASKET, "name": name, "promql": f'slow{{v="$version",n="{name}"}}'} for name in "abcd"]
    other = replace(PLAN, canary_limits={"metrics": [{**BASKET, "source": "office"}]})
    world = World(*[replace(PLAN, canary_limits={"metrics": hangs})] * 6, other)
    world.sources.values |= {
        "shop": {f'slow{{v="{version}",n="{name}"}}': None for version in "67" for name in "abcd"},
        "office": {CHAMPION: 3.0, CHALLENGER: 2.0},
    }

    for _ in range(10):
        await world.tick()
        await asyncio.sleep(0)

    assert world.check.latest(7)[0].times == (600_060, 600_120)
    assert len([source for source, *_ in world.sources.asked if source == "shop"]) == 2 * MAX_UNDER_WAY
    await world.check.stop()


async def test_questions_that_were_cancelled_before_they_began_leave_their_places_to_others():
    world = World(*[PLAN] * MAX_UNDER_WAY)
    await world.tick()
    await world.check.stop()

    await world.go_on()

    assert world.check.latest(1)[0].times == (600_060, 600_120)


async def test_a_rollout_without_metrics_costs_one_look_and_one_that_is_over_is_forgotten():
    world = World(NAMED_PLANS["default"], replace(PLAN, canary_policy="seed"), PLAN)
    await world.go_on()
    await world.go_on()
    world.rollouts.plans.pop()
    await world.go_on()

    assert [world.rollouts.looked.count(known) for known in (1, 2)] == [1, 1]
    assert world.check.latest(1) == world.check.latest(3) == ()


async def test_a_rollout_that_cannot_be_read_keeps_no_other_from_its_own():
    world = World(None, PLAN)

    with pytest.raises(NotRegistered):
        await world.tick()
    await world.check.settle()
    with pytest.raises(NotRegistered):
        await world.tick()

    assert world.check.latest(2)[0].times == (600_060, 600_120)


async def test_a_source_that_no_setting_has_is_counted_as_unknown():
    world = World(replace(PLAN, canary_limits={"metrics": [{**BASKET, "source": "invented"}]}))

    await world.go_on()

    assert world.check.latest(1)[0].problem is ReadProblem.UNKNOWN_SOURCE
    assert world.telemetry.counts["metric_reads_total", "unknown", "unreadable"] == 1
