"""What is kept between ticks decides nothing: a monitor says what one says that reads all windows from the database."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World, one_burst, plain, wandering_pods

from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import stratify
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.rollout.window_cache import WindowCache

POLICY = CanaryPolicy()
STAGE = Stage("fraud", "42", ROLLOUT, (0.0,), 1, 10.0, {1: 10.0})
MINUTES = 150
LOOK_MINUTES = 5
LATE_RATIO = 0.03
RESTART_RATIO = 0.1
WORLDS = (
    plain(400),
    wandering_pods(400, 0.2),
    one_burst(400),
    replace(plain(400), name="errors x4 from minute 60 on", error_factor=4.0, onset_minute=60),
    replace(plain(400), name="all fails from minute 100 on", error_factor=1e6, onset_minute=100),
    replace(plain(400), name="a fifth of the entities lost", lost_ratio=0.2),
)


class Delivery(NamedTuple):
    """A window, and when it comes."""

    at: float
    window: Window


def deliveries(world: World, seed: int) -> Iterator[Delivery]:
    """Yield the windows of three pods that come and go, some of which are late, or come in two parts."""
    random = np.random.default_rng(seed)
    for pod in range(3):
        first, last = sorted(random.choice(MINUTES, 2, replace=False).tolist()) if pod else (0, MINUTES)
        traffic = Traffic(replace(world, requests_per_minute=world.requests_per_minute / 2), 10 * seed + pod)
        for window in traffic.windows(first * PER_MINUTE, (last - first) * PER_MINUTE, 10.0):
            own = replace(window, key=window.key._replace(shipper=f"pod-{pod}"))
            usual = own.key.start + WINDOW_SECONDS + 1.0
            late = usual + float(random.uniform(60, 3_600)) * (random.random() < LATE_RATIO)
            yield Delivery(late, own)
            if random.random() < LATE_RATIO:  # the same window once more, with rows that came after it was closed
                again = replace(own, key=own.key._replace(epoch=1))
                yield Delivery(usual + float(random.uniform(0, 1_200)), again)


def essence(decision: Decision) -> tuple[Verdict, Sequence[object]]:
    """Return all that a verdict says, to ten digits: sums of floats depend on their order in the last one."""
    rows = [[f"{value:.10g}" if isinstance(value, float) else value for value in row] for row in decision.evidence]
    return decision.verdict, rows


@pytest.mark.deep
@pytest.mark.parametrize("world", WORLDS, ids=lambda one: one.name)
async def test_a_monitor_says_at_each_look_what_all_windows_in_the_database_say(world):
    log, random = MemoryPredictionStore(), np.random.default_rng(7)
    waiting = sorted(deliveries(world, 7), key=lambda one: one.at)
    cache, seen = WindowCache(log), []

    for now in range(60 * LOOK_MINUTES, 60 * MINUTES, 60 * LOOK_MINUTES):
        come = [one.window for one in waiting if one.at <= now]
        waiting = waiting[len(come) :]
        log.windows.update((window.key, window) for window in come)
        if random.random() < RESTART_RATIO:
            cache = WindowCache(log)
        strata = await cache.strata(ROLLOUT, float(now), started_at=0.0)
        assert strata is not None
        kept = judge(strata, POLICY, STAGE, float(now))
        anew = judge(stratify(await log.of_rollout(ROLLOUT), ROLLOUT), POLICY, STAGE, float(now))
        assert essence(kept) == essence(anew)
        seen.append(kept.verdict)

    assert (Verdict.ROLL_BACK in seen) == (world.error_factor > 1)
