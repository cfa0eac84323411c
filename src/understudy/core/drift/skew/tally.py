"""How served features compare with stored ones in an hour, as windows of the drift machinery that can be added up."""

from collections.abc import Iterable, Mapping, Sequence
from operator import add

from understudy.core.drift.skew.pairs import Match, Pair
from understudy.core.drift.subject_window import SubjectWindow
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.histogram import Histogram, merged

_NONE = (0,) * ANALYSIS_BUCKETS


def skew_windows(start_seconds: float, pairs: Iterable[tuple[int, Pair]]) -> dict[str, SubjectWindow]:
    """Return the window of each feature from pairs with the analysis bucket of their entity.

    Its categories are the ways in which a served value compares, its cells those of the ratios of numbers that differ.
    """
    rows: dict[str, list[int]] = {}
    by_match: dict[str, dict[str, list[int]]] = {}
    ratios: dict[str, list[float]] = {}
    for bucket, pair in pairs:
        rows.setdefault(pair.feature, [0] * ANALYSIS_BUCKETS)[bucket] += 1
        matches = by_match.setdefault(pair.feature, {})
        matches.setdefault(pair.match.value, [0] * ANALYSIS_BUCKETS)[bucket] += 1
        if pair.ratio is not None:
            ratios.setdefault(pair.feature, []).append(pair.ratio)
    return {
        name: SubjectWindow(
            start_seconds, counts, cells=Histogram.of(ratios.get(name, ())).counts, categories=by_match[name]
        )
        for name, counts in rows.items()
    }


def together(one: SubjectWindow, other: SubjectWindow) -> SubjectWindow:
    """Return two windows of the same feature and hour as one."""
    return one._replace(
        bucket_rows=_added(one.bucket_rows, other.bucket_rows),
        cells=merged([Histogram(one.cells), Histogram(other.cells)]).counts,
        categories={
            match.value: _added(one.categories.get(match.value, _NONE), other.categories.get(match.value, _NONE))
            for match in Match
        },
    )


def counted(windows: Sequence[SubjectWindow]) -> Mapping[Match, int]:
    """Return how many calls compare in each way."""
    return {match: sum(sum(window.categories.get(match.value, ())) for window in windows) for match in Match}


def _added(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return list(map(add, one, other))
