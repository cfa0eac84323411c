"""Decides on how many servers a version is to be that may be on more or fewer, by what its calls amount to."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Final

from understudy.core.loading.replicas import (
    FALL_SECONDS,
    RISE_SECONDS,
    SPAN_SECONDS,
    LoadSeen,
    SpanLoad,
    replicas_needed,
)
from understudy.core.loading.wanted import ManagedVersion, Why
from understudy.core.windows.histogram import merged
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.ports.loading.placement_store import LoadingFacts
from understudy.ports.monitoring.lease import Epoch

ReadWindows = Callable[[Sequence[int], float, float], Awaitable[Sequence[Window]]]
"""Returns the windows of versions from one moment to another, in seconds since the epoch: ``WindowLog.of_versions``."""
LATE_SECONDS: Final = 90
"""Windows that are younger may still come, or grow: they are read again."""
_MICRO: Final = 1e6
_P95: Final = 0.95


class ReplicaWatch:
    """Reads the windows of versions whose calls decide, as a job of the leading monitor, and counts replicas by them.

    A new leader goes on from rows: placements say how many replicas there were, and agents' records when one was
    removed.

    Args:
        read: Reads the windows of all proxies.
        now: The monotonic clock, in seconds.
        concurrency: Calls that one server answers at once.
    """

    def __init__(self, read: ReadWindows, *, now: Callable[[], float], concurrency: int) -> None:
        self._read_windows = read
        self._now = now
        self._concurrency = concurrency
        self._epoch: Epoch | None = None
        self._counts: dict[int, int] = {}
        self._fell_at: dict[int, float] = {}
        self._read_at = 0.0
        """Postgres' time, in seconds since the epoch."""
        self._kept: dict[int, dict[int, Sequence[Window]]] = {}
        """Windows of all proxies, by version and start."""
        self._known: frozenset[int] = frozenset()
        """Versions whose windows of the last ``FALL_SECONDS`` have all been read: nothing is concluded of others."""

    def counts(self, versions: Sequence[ManagedVersion], facts: LoadingFacts, epoch: Epoch) -> Mapping[int, int]:
        """Return on how many servers each version is to be that may be on more or fewer."""
        if epoch != self._epoch:  # another monitor may have led meanwhile
            self._epoch, self._counts, self._fell_at, self._known = epoch, {}, {}, frozenset()
        self._read_at = facts.read_at
        ranged = [one for one in versions if one.replicas is not None and one.replicas.is_range and one.why is not None]
        placed = Counter(place[0] for place in facts.placed if place not in facts.idle) if ranged else {}
        self._counts = {one.version_id: self._count(one, placed.get(one.version_id, 0), facts) for one in ranged}
        return self._counts

    async def tick(self, _epoch: Epoch) -> None:
        """Read the windows that are new, and all that count of a version that is new."""
        oldest, youngest = int(self._read_at) - FALL_SECONDS - SPAN_SECONDS, int(self._read_at - LATE_SECONDS)
        asked = frozenset(self._counts)
        known = asked & self._known
        read = {**await self._read(asked - known, oldest), **await self._read(known, youngest)}
        older = {
            one: {start: windows for start, windows in self._kept[one].items() if oldest <= start < youngest}
            for one in known
        }
        self._kept = {one: {**older.get(one, {}), **read.get(one, {})} for one in asked}
        self._known = asked

    async def _read(self, version_ids: frozenset[int], since: int) -> Mapping[int, Mapping[int, Sequence[Window]]]:
        """Return windows by version and start, of versions that have any."""
        read: dict[int, dict[int, list[Window]]] = defaultdict(lambda: defaultdict(list))
        if version_ids:
            for window in await self._read_windows(sorted(version_ids), since, self._read_at):
                read[window.key.model_version_id][window.key.start].append(window)
        return read

    def _count(self, version: ManagedVersion, placed: int, facts: LoadingFacts) -> int:
        version_id, now = version.version_id, self._now()
        assert version.replicas is not None
        # While a version moves it has more placements than replicas: they count only where no earlier count is known.
        before = self._counts.get(version_id, placed)
        rests = version_id not in facts.lately_removed and now - self._fell_at.get(version_id, -inf) >= FALL_SECONDS
        may_fall = rests and Why.ROLLOUT not in version.reasons
        load = self._load_of(version_id)
        count = replicas_needed(version.replicas, before, load, concurrency=self._concurrency, may_fall=may_fall)
        if count < before:
            self._fell_at[version_id] = now
        return count

    def _load_of(self, version_id: int) -> LoadSeen | None:
        """Return what a version's calls amount to; ``None``: they have not been read."""
        if version_id not in self._known:
            return None
        windows = self._kept.get(version_id, {})
        # The time begins with the newest window, which comes some seconds after its end: that is no fall of calls.
        end = max([int(self._read_at) - SPAN_SECONDS, *(start + WINDOW_SECONDS for start in windows)])
        usual = _load([one for each in windows.values() for one in each], FALL_SECONDS, 0.0).p95_seconds
        spans = [
            _load_in(windows, until - SPAN_SECONDS, until, usual)
            for until in range(end, end - FALL_SECONDS, -SPAN_SECONDS)
        ]
        return LoadSeen(_load_in(windows, end - RISE_SECONDS, end, usual), spans)


def _load_in(windows: Mapping[int, Sequence[Window]], since: int, until: int, usual_seconds: float) -> SpanLoad:
    inside = [one for start, each in windows.items() if since <= start < until for one in each]
    return _load(inside, until - since, usual_seconds)


def _load(windows: Sequence[Window], seconds: int, usual_seconds: float) -> SpanLoad:
    """Return what calls amount to; where none was answered they take as long as they usually do."""
    calls = sum(window.volume - window.cache_hits for window in windows)
    p95 = merged(window.latencies for window in windows).quantile(_P95)
    return SpanLoad(calls / seconds, usual_seconds if p95 is None else p95 / _MICRO)
