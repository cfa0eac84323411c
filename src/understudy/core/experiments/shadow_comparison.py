"""Compares the shadow with what was answered, request by request.

Both saw the same request, so each pair is a difference without the chance of who asked: far fewer are needed than for
two samples. What the caller ensures:

- A request that was to be shown to the shadow and has no row of it is a pair with the status :data:`DROPPED`. The
  newest requests are left out for as long as a shadow may take, or they would all count as dropped.
- A latency is NaN where an answer came from the cache: hits against misses are no comparison of two models.
"""

from enum import StrEnum
from math import nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core import special_functions as special
from understudy.core.amounts import amount_words
from understudy.core.prediction_log.row import Status
from understudy.core.statistics.rank_tests import rank_correlation
from understudy.core.statistics.sample_size import ALPHA, MIN_ENTITIES, FloatArray

DROPPED = "dropped"
"""Status of a shadow call that was never made, because too many were in flight."""
CELLS = 10
DEFAULT_THRESHOLD = 0.5
MIN_IDENTICAL = 50
"""Pairs from which on it is remarkable that none differs in any bit."""
NOTICEABLE_PERCENT = 1.0
"""Of the shadow's calls: when as many fail, that is what a report says first."""
_ERRORS = [Status.UNAVAILABLE.value, Status.BAD_ANSWER.value, Status.ERROR.value]
_NOT_ANSWERED = [*_ERRORS, Status.TIMEOUT.value, DROPPED]
_ROUNDING = 1e-9


class ShadowPairs(NamedTuple):
    """Requests that the shadow was to see; all arrays have the shape ``(pairs,)``."""

    prediction_ids: NDArray[np.str_]
    entities: NDArray[np.int64]
    """A number from 0 on for each entity, the same in all its pairs."""
    champion_statuses: NDArray[np.str_]
    """Words of :class:`Status`; the shadow's may be :data:`DROPPED` as well."""
    shadow_statuses: NDArray[np.str_]
    champion_seconds: FloatArray
    shadow_seconds: FloatArray
    champion_scores: FloatArray
    """NaN without one."""
    shadow_scores: FloatArray


class ShadowState(StrEnum):
    """What can be said; the first two are neither good nor bad."""

    NO_PAIRS = "no_pairs"
    NO_SCORES = "no_scores"
    COMPARED = "compared"


class Fates(NamedTuple):
    """What became of one version's calls, in percent of the pairs; errors in percent of those that ended, if any."""

    answered_percent: float
    """With a prediction: neither timed out, nor dropped, nor ended in an error."""
    timeout_percent: float
    dropped_percent: float
    error_percent: float | None

    @property
    def failed_percent(self) -> float:
        """Of the calls that were made: those that ended in an error or timed out; 0 where none was made."""
        made = 100 - self.dropped_percent
        return 100 * (made - self.answered_percent) / made if made > _ROUNDING else 0.0


class LatencyComparison(NamedTuple):
    """Latencies of the pairs that have both, in seconds; changes in percent of the champion's."""

    pairs: int
    champion_p50_seconds: float
    champion_p99_seconds: float
    shadow_p50_seconds: float
    shadow_p99_seconds: float

    @property
    def p50_change_percent(self) -> float:
        """By how much the shadow's median is longer."""
        return 100 * (self.shadow_p50_seconds / self.champion_p50_seconds - 1)

    @property
    def p99_change_percent(self) -> float:
        """By how much the shadow's p99 is longer."""
        return 100 * (self.shadow_p99_seconds / self.champion_p99_seconds - 1)


class ScoreComparison(NamedTuple):
    """Scores of the pairs that have both."""

    pairs: int
    champion_mean: float
    shadow_mean: float
    difference_low: float
    """95 % interval of ``shadow_mean - champion_mean``, by entity; NaN below two entities."""
    difference_high: float
    same_decision_percent: float
    cohens_kappa: float | None
    """``None`` when both decide the same for every entity, so that chance explains all."""
    spearman: float | None
    """``None`` when one of them gives every entity the same score."""
    psi: float
    ks: float
    edges: tuple[float, ...]
    """Of the cells for drawing, one more than there are; 0 to 1 when all scores lie there."""
    champion_cells: tuple[int, ...]
    shadow_cells: tuple[int, ...]
    largest_difference: float = 0.0
    """Of one pair, without its sign."""

    @property
    def is_identical(self) -> bool:
        """Whether all of enough pairs are the same to the last bit, as those of two models hardly are."""
        return self.pairs >= MIN_IDENTICAL and self.largest_difference == 0

    def decides(self, threshold: float) -> bool:
        """Whether yes and no at a threshold mean something: of probabilities, or at a threshold that was given."""
        return threshold != DEFAULT_THRESHOLD or (self.edges[0], self.edges[-1]) == (0.0, 1.0)


class Disagreement(NamedTuple):
    """One request that the two saw differently."""

    prediction_id: str
    champion_score: float
    shadow_score: float


class ShadowReport(NamedTuple):
    """The comparison; what there is no data for is ``None``, and the sentence says why."""

    state: ShadowState
    sentence: str
    pairs: int
    champion: Fates | None = None
    shadow: Fates | None = None
    latency: LatencyComparison | None = None
    scores: ScoreComparison | None = None
    disagreements: tuple[Disagreement, ...] = ()
    """The largest differences of score first."""

    @property
    def error_change_points(self) -> float | None:
        """The shadow's error percentage less the champion's."""
        before = self.champion.error_percent if self.champion else None
        after = self.shadow.error_percent if self.shadow else None
        return None if before is None or after is None else after - before


def compare_shadow(pairs: ShadowPairs, threshold: float = DEFAULT_THRESHOLD, top: int = 20) -> ShadowReport:
    """Return the comparison; scores from ``threshold`` on are a yes, and ``top`` bounds the listed disagreements."""
    count = len(pairs.prediction_ids)
    if not count:
        return ShadowReport(
            ShadowState.NO_PAIRS,
            "No pairs: the shadow was shown no request in this time. See that one is set and that there is traffic.",
            0,
        )
    shadow = _fates(pairs.shadow_statuses)
    failed = np.isin(pairs.shadow_statuses, _NOT_ANSWERED) | np.isin(pairs.champion_statuses, _NOT_ANSWERED)
    scored = ~np.isnan(pairs.champion_scores) & ~np.isnan(pairs.shadow_scores) & ~failed
    scores = _compare_scores(pairs, scored, threshold) if scored.any() else None
    return ShadowReport(
        ShadowState.COMPARED if scores else ShadowState.NO_SCORES,
        _sentence(count, shadow, scores, threshold),
        count,
        _fates(pairs.champion_statuses),
        shadow,
        _compare_latencies(pairs.champion_seconds, pairs.shadow_seconds),
        scores,
        _disagreements(pairs, scored, top),
    )


def _sentence(count: int, shadow: Fates, scores: ScoreComparison | None, threshold: float) -> str:
    """Return what matters most: that the shadow fails, then how far its answers are from the champion's."""
    lost = (
        f"{shadow.timeout_percent:.2f} % of the shadow's calls timed out, {shadow.dropped_percent:.2f} % were dropped"
    )
    is_failing = shadow.failed_percent >= NOTICEABLE_PERCENT
    failing = f"The shadow failed {shadow.failed_percent:.1f} % of its calls. " if is_failing else ""
    if scores is None:
        none = f"No scores to compare in {count:,} pairs: {lost}; the others ended in an error or have no score."
        return failing + none
    compared = _compared(scores, threshold)
    doubt = " Every score is the same to the last bit: is the shadow really another model?"
    others = f"{failing}Of the others: {compared[0].lower()}{compared[1:]}." if failing else f"{compared}; {lost}."
    return others + (doubt if scores.is_identical else "")


def _compared(scores: ScoreComparison, threshold: float) -> str:
    if scores.decides(threshold):
        return f"The same decision at {threshold:g} in {scores.same_decision_percent:.1f} % of {scores.pairs:,} pairs"
    by = scores.shadow_mean - scores.champion_mean
    mean = f"{'+' * (by >= 0)}{amount_words(by)}".replace("-", "\N{MINUS SIGN}")
    return (
        f"The shadow's score differs by {mean} on average (champion {amount_words(scores.champion_mean)}, shadow "
        f"{amount_words(scores.shadow_mean)}), by {amount_words(scores.largest_difference)} at most, in "
        f"{scores.pairs:,} pairs"
    )


def _fates(statuses: NDArray[np.str_]) -> Fates:
    timeouts, dropped = (int((statuses == word).sum()) for word in (Status.TIMEOUT.value, DROPPED))
    errors = int(np.isin(statuses, _ERRORS).sum())
    ended = len(statuses) - timeouts - dropped
    percent = 100 / len(statuses)
    return Fates(
        (ended - errors) * percent, timeouts * percent, dropped * percent, 100 * errors / ended if ended else None
    )


def _compare_latencies(champion: FloatArray, shadow: FloatArray) -> LatencyComparison | None:
    both = (champion > 0) & (shadow > 0)  # false for NaN
    if not both.any():
        return None
    quantiles = [float(q) for side in (champion, shadow) for q in np.quantile(side[both], (0.5, 0.99))]
    return LatencyComparison(int(both.sum()), *quantiles)


def _compare_scores(pairs: ShadowPairs, scored: NDArray[np.bool_], threshold: float) -> ScoreComparison:
    champion, shadow = pairs.champion_scores[scored], pairs.shadow_scores[scored]
    low, high = _difference_interval(shadow - champion, pairs.entities[scored])
    agreement, kappa = _agreement(champion >= threshold, shadow >= threshold)
    edges = _cell_edges(champion, shadow)
    return ScoreComparison(
        pairs=len(champion),
        champion_mean=float(champion.mean()),
        shadow_mean=float(shadow.mean()),
        difference_low=low,
        difference_high=high,
        same_decision_percent=100 * agreement,
        cohens_kappa=kappa,
        spearman=rank_correlation(champion, shadow),
        psi=_psi(champion, shadow),
        ks=_ks(champion, shadow),
        edges=tuple(edges.tolist()),
        champion_cells=tuple(np.histogram(champion, edges)[0].tolist()),
        shadow_cells=tuple(np.histogram(shadow, edges)[0].tolist()),
        largest_difference=float(np.abs(shadow - champion).max()),
    )


def _difference_interval(differences: FloatArray, entities: NDArray[np.int64]) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference; the pairs of one entity are alike and count as one.

    Source:
        Delta method for a ratio of sums by entity, as :func:`understudy.core.statistics.difference.compare`.
    """
    counts = np.bincount(entities)
    present = counts > 0
    clusters = int(present.sum())
    if clusters < MIN_ENTITIES:
        return nan, nan
    mean = float(differences.mean())
    away = np.bincount(entities, differences)[present] - mean * counts[present]
    error = sqrt(float(away @ away) * clusters / (clusters - 1)) / len(differences)
    reach = float(special.stdtrit(clusters - 1, 1 - ALPHA / 2)) * error
    return mean - reach, mean + reach


def _agreement(champion: NDArray[np.bool_], shadow: NDArray[np.bool_]) -> tuple[float, float | None]:
    """Return the share of same decisions, and Cohen's κ, which is that share beyond what chance gives.

    Source:
        Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20 (1960).
    """
    same, yes, other = float((champion == shadow).mean()), float(champion.mean()), float(shadow.mean())
    by_chance = yes * other + (1 - yes) * (1 - other)
    return same, (same - by_chance) / (1 - by_chance) if by_chance < 1 else None


def _psi(champion: FloatArray, shadow: FloatArray) -> float:
    """Return the population stability index over cells with a tenth of the champion's scores each; none counts as half.

    Source:
        Siddiqi, *Credit Risk Scorecards* (2006), ch. 9.
    """
    borders = np.unique(np.quantile(champion, np.linspace(0, 1, CELLS + 1)[1:-1]))
    counts = [
        np.bincount(np.searchsorted(borders, side, "right"), minlength=len(borders) + 1) for side in (champion, shadow)
    ]
    of_champion, of_shadow = ((cells + 0.5) / (cells + 0.5).sum() for cells in counts)
    return float(((of_shadow - of_champion) * np.log(of_shadow / of_champion)).sum())


def _ks(champion: FloatArray, shadow: FloatArray) -> float:
    """Return the largest distance of both distribution functions (Kolmogorov-Smirnov), 0-1."""
    ordered = [np.sort(side) for side in (champion, shadow)]
    everywhere = np.concatenate(ordered)
    below = [np.searchsorted(side, everywhere, "right") / len(side) for side in ordered]
    return float(np.abs(below[0] - below[1]).max())


def _cell_edges(champion: FloatArray, shadow: FloatArray) -> FloatArray:
    low, high = min(champion.min(), shadow.min()), max(champion.max(), shadow.max())
    span = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
    return np.histogram_bin_edges(champion, CELLS, span)


def _disagreements(pairs: ShadowPairs, scored: NDArray[np.bool_], top: int) -> tuple[Disagreement, ...]:
    """Return the largest differences; of equal ones those with the earlier id, which is the earlier request."""
    sizes = np.abs(pairs.shadow_scores - pairs.champion_scores)
    order = np.lexsort((pairs.prediction_ids[scored], -sizes[scored]))[:top]
    return tuple(
        Disagreement(
            str(pairs.prediction_ids[place]), float(pairs.champion_scores[place]), float(pairs.shadow_scores[place])
        )
        for place in np.flatnonzero(scored)[order]
    )
