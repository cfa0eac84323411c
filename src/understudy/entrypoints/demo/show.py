"""The demo's show: a bad version is taken back by the monitor, then a good one becomes champion by itself."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from secrets import token_hex
from typing import NamedTuple

from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.entrypoints.demo.topology import ACTS, ACTS_MODEL, Act, Standing
from understudy.errors import RegistryUnavailable
from understudy.ports.registry import Origin
from understudy.ports.rollout_store import NewRollout, RolloutEventRecord, RolloutStore, RolloutView

PLAN = RolloutPlan(
    (Step(10, 20, 100), Step(50, 20, 300), Step(100, 0, 0)),
    maximum_seconds=600,
    keep_warm_seconds=10,
    canary_limits={
        "min_entities": 30,
        # Judged from the first call on: the show is over before the usual half minute is.
        "warm_up_seconds": 0,
        # What less than a minute at 50 calls/s can show, and more than the bad version has time for.
        "detectable_ratio": 15,
        # One machine runs everything: a version alone on a model server is slower or faster by the scheduler's mood.
        "tolerated_latency_ratio": 1.5,
        "lone_latency_ratio": 2.0,
        "tolerated_slow_ratio": 2.0,
    },
)
"""The way of a real rollout, in minutes. The bad version is some ten times slower than the champion."""
PAUSE_SECONDS = 1.0
SALT_BYTES = 6


class Moment(NamedTuple):
    """How a rollout stands, and what happened to it since the moment before."""

    act: Act
    view: RolloutView
    events: tuple[RolloutEventRecord, ...]

    @property
    def is_over(self) -> bool:
        """Whether it has ended and every proxy knows."""
        return self.view.record.announced_at is not None


def acts_of(standing: Standing) -> tuple[Act, ...]:
    """Return what can be shown: an act whose version is champion by now, or retired, is left out."""
    return tuple(act for act in ACTS if act.version in standing.candidates)


async def play(
    store: RolloutStore, acts: Sequence[Act], *, pause_seconds: float = PAUSE_SECONDS
) -> AsyncIterator[Moment]:
    """Start the acts one after the other and give a moment of each every second; the monitor does the rest.

    Raises:
        UnderstudyError: A rollout could not be started.
    """
    for act in acts:
        origin = Origin("demo", "understudy demo", act.what)
        new = NewRollout(ACTS_MODEL, act.version, PLAN, token_hex(SALT_BYTES), None)
        record = await store.start(new, origin)
        async for moment in _watch(store, act, record.id, pause_seconds):
            yield moment


async def _watch(store: RolloutStore, act: Act, rollout_id: int, pause_seconds: float) -> AsyncIterator[Moment]:
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
        moment = Moment(act, view, events)
        yield moment
        if moment.is_over:
            return
        await asyncio.sleep(pause_seconds)
