"""What the champion did in the hour before a rollout: how far its pods wander, and where its tail is."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.routing.policy import Role
from understudy.core.statistics.pod_noise import BLOCK_SECONDS
from understudy.core.windows.histogram import merged
from understudy.core.windows.tail import tail_step_of
from understudy.core.windows.window import MICRO, Window

TAIL_SHARES = ((0.99, 2_000), (0.999, 15_000))
"""Percentiles, and the answers of the hour from which on it can say which latency they are: fifteen are beyond, which
is near enough for a step of 20 %. Whatever the step, both sides are held to it."""


class ChampionBefore(NamedTuple):
    """What a stage keeps of that hour: see :class:`understudy.core.canary.limits.Stage`."""

    blocks: tuple[tuple[float, float, float], ...] = ()
    tail_steps: tuple[int | None, ...] = ()


def champion_before(windows: Sequence[Window], slow_us: int | None) -> ChampionBefore:
    """Return what the champion's windows of that hour say; those in other roles are left out.

    Args:
        windows: Of the champion.
        slow_us: The rollout's threshold τ in microseconds; without one nothing is known of the tail.
    """
    own = [window for window in windows if window.key.role is Role.CHAMPION and window.answered]
    return ChampionBefore(_blocks(own), () if slow_us is None else _tail_steps(own, slow_us))


def _blocks(windows: Sequence[Window]) -> tuple[tuple[float, float, float], ...]:
    sums: dict[int, list[int]] = {}
    for window in windows:
        block = sums.setdefault(window.key.start // BLOCK_SECONDS, [0, 0, 0])
        added = (window.answered, window.log_latency, window.log_latency_squares)
        block[:] = [before + one for before, one in zip(block, added, strict=True)]
    return tuple(
        (float(number), total / MICRO, squares / MICRO) for _, (number, total, squares) in sorted(sums.items())
    )


def _tail_steps(windows: Sequence[Window], slow_us: int) -> tuple[int | None, ...]:
    latencies = merged(window.latencies for window in windows)
    steps: list[int | None] = []
    for share, needed in TAIL_SHARES:
        value = latencies.quantile(share) if latencies.total >= needed else None
        step = None if value is None else tail_step_of(value, slow_us)
        steps.append(None if step in steps else step)  # two percentiles at one step would be one test twice
    return tuple(steps)
