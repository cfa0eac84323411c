"""Has a champion become worse than the one it replaced? Asked after a promotion, while the old one is kept warm.

No other version gets calls any more, so there is no control of the same seconds. The control is historical: the old
champion's hour before the promotion, whether a rollout was going on then or not. That is weaker than a canary analysis,
because times differ, so half as many errors again and a third more latency are tolerated, and the only verdict that is
acted on is that the old champion comes back.

Each of the old champion's windows counts once. Half an hour has more windows than a short past; if these were compared
with the same past again and again, two minutes with few errors by chance would become half an hour of proof.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Decision
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.routing.policy import Role
from understudy.core.windows.strata import Side, Strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS, Window

REMEMBERED_WINDOWS = 240
"""An hour of the old champion."""
REMEMBERED_SECONDS = float(REMEMBERED_WINDOWS * WINDOW_SECONDS)
LIMITS = CanaryPolicy(
    error_rate_share=0.5,
    slow_tail_share=0.25,
    typical_latency_share=0.25,
    tolerated_error_ratio=1.5,
    tolerated_slow_ratio=1.5,
    tolerated_latency_ratio=1.3,
    lone_latency_ratio=1.6,
)


class Past(NamedTuple):
    """What the old champion did before the promotion, one window for each start, the newest first."""

    side: Side
    has_threshold: NDArray[np.bool_]
    """Whether slow answers were counted in a window, and by the rollout's threshold; shape (windows,)."""


class Watch(NamedTuple):
    """All that a verdict about a new champion rests on, but for the moment of the verdict."""

    strata: Strata
    """The new champion's windows as the challenger's, each beside one of the old champion's."""
    stage: Stage


def past_of(windows: Sequence[Window], stage: Stage, champion_id: int) -> Past:
    """Return what is known of the champion that was replaced.

    Args:
        windows: Of the hour before the promotion; those of other versions and other roles are left out.
        stage: Of the time since the promotion: its last start.
        champion_id: Who was replaced.
    """
    before = [
        window
        for window in windows
        if window.key.model_version_id == champion_id
        and window.key.role is Role.CHAMPION
        and window.key.start + WINDOW_SECONDS <= stage.starts[-1]
    ]
    strata = stratify([_under(window, stage, Role.CHAMPION) for window in before], stage.rollout_id)
    of_others = [window.key.start for window in before if window.key.rollout_id != stage.rollout_id]
    # The threshold may come in the middle of a rollout: until a slow answer was counted, that is not known.
    has_threshold = (np.cumsum(strata.champion["slow_low"]) > 0) & ~np.isin(strata.starts, of_others)
    newest_first = np.arange(len(strata.starts))[::-1][:REMEMBERED_WINDOWS]
    side = Side(strata.champion.sums[newest_first], strata.champion.buckets[:, newest_first])
    return Past(side, has_threshold[newest_first])


def watch_of(past: Past, windows: Sequence[Window], stage: Stage, challenger_id: int, now: float) -> Watch | None:
    """Lay the new champion's windows beside the old one's past; ``None`` when there is no such past.

    Args:
        past: Of the old champion.
        windows: Of the rollout since the promotion; those of other versions are left out.
        stage: Of the time since the promotion: its last start.
        challenger_id: Who is champion now.
        now: Seconds since the epoch.
    """
    promoted_at = stage.starts[-1]
    if not len(past.has_threshold):
        return None
    own = [
        _under(window, stage, Role.CHALLENGER)
        for window in windows
        if window.key.model_version_id == challenger_id
        and window.key.role is not Role.SHADOW
        and window.key.start >= promoted_at
    ]
    strata = _beside(past, stratify(own, stage.rollout_id), now)
    # Later rounds add to windows that were judged before: nothing begins anew in them, and nine are no two minutes.
    return Watch(strata, replace(stage, starts=(promoted_at,), weights_percent={}, rules=Rules.STEPS))


def judge_watch(watch: Watch, now: float) -> Decision:
    """Return the verdict about a new champion at a moment, in seconds since the epoch."""
    return judge(watch.strata, LIMITS, watch.stage, now)


def _under(window: Window, stage: Stage, role: Role) -> Window:
    return replace(window, key=window.key._replace(rollout_id=stage.rollout_id, role=role))


def _beside(past: Past, present: Strata, now: float) -> Strata:
    """Lay the new champion's windows beside the old one's, each of which is used once.

    The first new window gets the last old one, the next one that before, and so on. When the old ones are used up, the
    next new window is added to the first, and so on: with each round the same control is compared with more.
    """
    most = len(past.has_threshold)
    if len(present.starts) > most:  # an open window must not be added to one that has ended
        present = present.until(now - LIMITS.watermark_seconds)
    used = min(most, len(present.starts))
    champion = Side(past.side.sums[:used], past.side.buckets[:, :used])
    challenger = Side(_folded(present.challenger.sums, 0, used), _folded(present.challenger.buckets, 1, used))
    unknown = ~past.has_threshold[:used]
    return Strata(
        present.starts[:used], champion.without_slow(unknown), challenger.without_slow(unknown), present.arrivals
    )


def _folded(values: NDArray[np.float64], axis: int, used: int) -> NDArray[np.float64]:
    """Return the sum of every ``used``-th window along an axis, ``used`` windows in all."""
    number = values.shape[axis]
    if number <= used:
        return values
    missing = [(0, -number % used if place == axis else 0) for place in range(values.ndim)]
    shape = (*values.shape[:axis], -1, used, *values.shape[axis + 1 :])
    folded: NDArray[np.float64] = np.pad(values, missing).reshape(shape).sum(axis=axis)
    return folded
