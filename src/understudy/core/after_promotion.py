"""Has a champion become worse than the one it replaced? Asked while the old one is kept warm.

Nobody else gets calls any more, so there is no control in the same seconds. The last hour of the old champion stands in
for one: its windows are laid beside the new champion's, again and again. That is weaker than a canary analysis, because
times differ, so half as many errors again and a third more latency are tolerated, and nothing is concluded from it but
that the old champion should come back.
"""

from collections.abc import Sequence
from dataclasses import replace

from understudy.core.canary import evaluate
from understudy.core.canary_policy import CanaryPolicy, Stage
from understudy.core.decision import Decision
from understudy.core.policy import Role
from understudy.core.windows import WINDOW_SECONDS, Window, merge_windows

REMEMBERED_WINDOWS = 240
"""An hour of the old champion."""
LIMITS = CanaryPolicy(
    tolerated_error_ratio=1.5, tolerated_slow_ratio=1.5, tolerated_latency_ratio=1.3, lone_latency_ratio=1.6
)


def judge_after_promotion(
    windows: Sequence[Window], stage: Stage, champion_id: int, challenger_id: int, now: float
) -> Decision | None:
    """Return what the old champion's past says about the new champion; ``None`` when there is no such past.

    Args:
        windows: Of the rollout, before and after the promotion.
        stage: Of the time since the promotion: its last start.
        champion_id: Who was replaced.
        challenger_id: Who is champion now.
        now: Seconds since the epoch.
    """
    promoted_at = stage.starts[-1]
    before = [
        w for w in windows if w.key.model_version_id == champion_id and w.key.start + WINDOW_SECONDS <= promoted_at
    ]
    past = _by_start([w for w in before if w.key.role is Role.CHAMPION])[-REMEMBERED_WINDOWS:]
    present = _by_start([w for w in windows if w.key.model_version_id == challenger_id and w.key.start >= promoted_at])
    if not past:
        return None
    side_by_side: list[Window] = []
    for number, window in enumerate(present):
        control = past[number % len(past)]
        side_by_side.append(replace(window, key=window.key._replace(role=Role.CHALLENGER)))
        side_by_side.append(replace(control, key=control.key._replace(start=window.key.start)))
    unsplit = replace(stage, starts=(promoted_at,), weights_percent={})
    return evaluate(side_by_side, LIMITS, unsplit, now)


def _by_start(windows: Sequence[Window]) -> list[Window]:
    """Return one window for each start, oldest first, those of several shippers added up."""
    starts: dict[int, list[Window]] = {}
    for window in windows:
        starts.setdefault(window.key.start, []).append(window)
    return [merge_windows(starts[start][0].key, starts[start]) for start in sorted(starts)]
