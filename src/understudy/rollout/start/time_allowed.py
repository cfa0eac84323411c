"""Time allowed: what a challenger will have for a call, by callers' deadlines, and whether its latency fits in."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from understudy.core.routing.policy import Role
from understudy.core.windows.caller_deadlines import least_deadline_us
from understudy.core.windows.histogram import merged, value_of
from understudy.core.windows.window import Window
from understudy.ports.registry.registry import VersionRecord

ENOUGH_CALLS = 200
"""Answered calls of a version that its 95th percentile is taken from."""
MANY_HURRIED = 0.05
"""Share of the last hour's calls from which on it is said that callers' deadlines leave too few to judge by."""
_MAX_TIMEOUT_MS = 60_000
_US_IN_MS = 1_000
_MORE_TIME = "UPDATE ModelVersion SET timeout_ms = {} WHERE id = {}"


class Allowed(NamedTuple):
    """What a call of a challenger may take when its caller sets no deadline."""

    whose: VersionRecord
    """Its ``timeout_ms`` holds: the champion's where that may stand in, else the challenger's own."""
    budget_ratio: float
    """The challenger's share of it: 1 where no champion stands in."""
    judged_ratio: float
    """The share of a caller's deadline that versions are compared by, whether the champion stands in or not."""

    @property
    def milliseconds(self) -> float:
        """The challenger's time."""
        return self.whose.timeout_ms * self.budget_ratio


def champion_p95_us(windows: Sequence[Window], champion_id: int) -> int | None:
    """Return the 95th percentile of the champion's latency in microseconds; ``None`` from too few calls.

    Hurried calls are among them: the callers of a model may all have short deadlines.
    """
    return _p95_us([w for w in windows if w.key.model_version_id == champion_id and w.key.role is Role.CHAMPION])


def deadline_warnings(
    windows: Sequence[Window], champion: VersionRecord, challenger: VersionRecord, allowed: Allowed
) -> tuple[str, ...]:
    """Return in words what keeps a challenger from answering in its time, or from being judged; nothing otherwise.

    Args:
        windows: Of both versions in the last hour. The challenger's are those of a shadow; without enough of them
            the champion's say how long an equal version takes.
        champion: Who may stand in.
        challenger: Who will be asked.
        allowed: What a call of the challenger's may take.
    """
    found = (_share_words(windows, champion, challenger, allowed), _hurried_words(windows, champion, allowed))
    return tuple(words for words in found if words is not None)


def _share_words(
    windows: Sequence[Window], champion: VersionRecord, challenger: VersionRecord, allowed: Allowed
) -> str | None:
    own = _p95_us([window for window in windows if window.key.model_version_id == challenger.id])
    p95_us = champion_p95_us(windows, champion.id) if own is None else own
    if p95_us is None or p95_us <= allowed.milliseconds * _US_IN_MS:
        return None
    took_ms = p95_us / _US_IN_MS
    who = (
        f"{challenger.version} takes {took_ms:,.0f} ms (its p95 of the last hour)"
        if own is not None
        else f"a version as fast as {champion.version} takes {took_ms:,.0f} ms (the champion's p95 of the last hour)"
    )
    return f"{who} and has {allowed.milliseconds:,.0f} ms for a call{_remedy(allowed, took_ms)}"


def _remedy(allowed: Allowed, took_ms: float) -> str:
    asked, version = min(_MAX_TIMEOUT_MS, ceil(took_ms / allowed.budget_ratio)), allowed.whose
    change = _MORE_TIME.format(asked, version.id)
    if allowed.budget_ratio >= 1:
        return f", the timeout_ms of {version.version}; it would fail. → {change}"
    ratio = ceil(100 * took_ms / version.timeout_ms) / 100
    ways = [change]
    ways += [f"UNDERSTUDY_CHALLENGER_BUDGET_RATIO={ratio:g} in the proxies"] if ratio < 1 else []
    share = f"{100 * allowed.budget_ratio:g} % of the {version.timeout_ms:,} ms of {version.version}"
    return f": {share}, which then has time to stand in. It would fail. → {', or '.join(ways)}"


def _hurried_words(windows: Sequence[Window], champion: VersionRecord, allowed: Allowed) -> str | None:
    slow_us = champion_p95_us(windows, champion.id)
    if slow_us is None:
        return None
    own = [w for w in windows if w.key.model_version_id == champion.id and w.key.role is Role.CHAMPION]
    least_us = least_deadline_us(slow_us, allowed.judged_ratio, is_compared=True)
    deadlines = merged(window.deadlines for window in own)
    hurried = sum(count for cell, count in deadlines.counts.items() if value_of(cell) < least_us)
    calls = sum(window.metric_calls for window in own)
    if hurried < MANY_HURRIED * calls:
        return None
    return (
        f"{100 * hurried / calls:.0f} % of the last hour's calls had deadlines of their callers below "
        f"{least_us / _US_IN_MS:,.0f} ms, {least_us / slow_us:.3g} times the p95 of {champion.version}: too short to "
        "judge a version by, so the rollout does not count them. → Set longer deadlines, or a larger "
        "UNDERSTUDY_CHALLENGER_BUDGET_RATIO (docs/explanation/rollouts.md)"
    )


def _p95_us(windows: Sequence[Window]) -> int | None:
    latencies = merged(window.latencies for window in windows)
    return None if latencies.total < ENOUGH_CALLS else max(1, round(latencies.quantile(0.95) or 0))
