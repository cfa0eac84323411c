"""The demo's scenario: the monitor rolls a bad version back, then promotes a good one to champion."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from secrets import token_hex
from typing import NamedTuple

from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.entrypoints.demo.topology import SCENARIO, SCENARIO_MODEL, ScenarioStep, Standing
from understudy.errors import RegistryUnavailable
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, RolloutEventRecord, RolloutStore, RolloutView

PLAN = RolloutPlan(
    (Step(10, 20, 100), Step(50, 20, 300), Step(100, 0, 0)),
    maximum_seconds=600,
    keep_warm_seconds=10,
    canary_limits={
        "min_entities": 30,
        # Judged from the first call on: the scenario ends before the usual half minute does.
        "warm_up_seconds": 0,
        # What less than a minute at 50 calls/s can show, and more than the bad version has time for.
        "detectable_ratio": 15,
        # One machine runs everything: a version alone on a model server is slower or faster by the scheduler's mood.
        "tolerated_latency_ratio": 1.5,
        "lone_latency_ratio": 2.0,
        "tolerated_slow_ratio": 2.0,
    },
)
"""A real rollout, in minutes. The bad version is some ten times slower than the champion."""
PAUSE_SECONDS = 1.0
SALT_BYTES = 6


class Moment(NamedTuple):
    """How a rollout stands, and what happened to it since the moment before."""

    step: ScenarioStep
    view: RolloutView
    events: tuple[RolloutEventRecord, ...]

    @property
    def is_over(self) -> bool:
        """Whether it has ended and every proxy knows."""
        return self.view.record.announced_at is not None


def steps_of(standing: Standing) -> tuple[ScenarioStep, ...]:
    """Return the steps that can be run: a step whose version is the champion, or retired, is left out."""
    return tuple(step for step in SCENARIO if step.version in standing.candidates)


async def play(
    store: RolloutStore, steps: Sequence[ScenarioStep], *, pause_seconds: float = PAUSE_SECONDS
) -> AsyncIterator[Moment]:
    """Start the steps one after the other and yield a moment of each every second; the monitor does the rest.

    Raises:
        UnderstudyError: A rollout could not be started.
    """
    for step in steps:
        actor = Actor("demo", "understudy demo", step.what)
        new = NewRollout(SCENARIO_MODEL, step.version, PLAN, token_hex(SALT_BYTES), None)
        record = await store.start(new, actor)
        async for moment in _watch(store, step, record.id, pause_seconds):
            yield moment


async def _watch(
    store: RolloutStore, step: ScenarioStep, rollout_id: int, pause_seconds: float
) -> AsyncIterator[Moment]:
    told, told_at = 0, None
    while True:
        try:
            view = await store.view(rollout_id)
            changed_at = (view.record.revision, view.record.announced_at)
            events = () if changed_at == told_at else tuple(await store.events(rollout_id))[told:]
        except RegistryUnavailable:
            await asyncio.sleep(pause_seconds)
            continue
        told, told_at = told + len(events), changed_at
        moment = Moment(step, view, events)
        yield moment
        if moment.is_over:
            return
        await asyncio.sleep(pause_seconds)
