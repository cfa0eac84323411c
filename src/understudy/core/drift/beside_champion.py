"""Is a challenger's subject unlike the champion's on the same hours? What moved for both is on both sides.

Each hour of the champion's weighs as many rows as the challenger had in it, so a ramp and the hours of the day change
nothing. For each hour at which a drift may have begun there is an e-value for "beyond the limit since then"; these have
shares of alpha by a fixed plan, so their sum may be looked at after every hour.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from understudy.core.amounts import amount_words
from understudy.core.drift.baseline import FloatArray, NumericBaseline
from understudy.core.drift.evidence import LAGS, Clustered, Effect, Measure, clustered, design_effect, log_evidence
from understudy.core.drift.hours import HOUR_SECONDS
from understudy.core.drift.limits import DriftPolicy
from understudy.core.drift.measures import (
    Grid,
    Rules,
    deviation_of,
    mean_effect,
    normalised_shares,
    psi_effect,
    shares_effect,
    wasserstein_effect,
)
from understudy.core.drift.running_sums import RARE_RATIO
from understudy.core.drift.subject_window import CLASSES, SubjectWindow
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import MICRO

FIRST_ALPHA_SHARE = 0.5
"""Of the process that begins with the rollout; those that begin with later hours share the rest."""
_MAX_LOG = 700.0
_NO_ROWS = (0,) * ANALYSIS_BUCKETS


class BesideChampion(NamedTuple):
    """One subject of a challenger that is beyond a limit beside the champion's."""

    subject: str
    measure: Measure
    distance: float
    limit: float
    evidence: float
    evidence_needed: float
    champion: float
    """Mean, share of nulls, or share of the category that moved most, of the same hours."""
    challenger: float
    since: float
    """The hour that it is shown best from, in seconds since the epoch."""
    rows: int
    """The challenger's, since then."""
    category: str | None = None

    @property
    def words(self) -> str:
        """What is unlike, by how much, and how sure that is."""
        named = self.subject if self.category is None else f"{self.subject} = {self.category}"
        sides = f"{amount_words(self.challenger)} vs {amount_words(self.champion)}"
        unit = " sd" if self.measure in (Measure.MEAN, Measure.WASSERSTEIN) else ""
        found = f"{self.evidence:,.0f}" if self.evidence < 1e6 else "over a million"  # noqa: PLR2004 - as of checks
        return (
            f"{named} {sides} on the same hours, {self.measure.value} {self.distance:.2f}{unit} (limit "
            f"{self.limit:.2g}), evidence {found} ({self.evidence_needed:,.0f} is enough), {self.rows:,} rows"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {**self._asdict(), "measure": self.measure.value}


def beside_from_json(document: Mapping[str, Any]) -> BesideChampion:
    """Return what :meth:`BesideChampion.to_json` wrote.

    Raises:
        TypeError, ValueError: It is not that.
    """
    return BesideChampion(**{**document, "measure": Measure(document["measure"])})


class _Span(NamedTuple):
    """The hours from one on, of both sides, with the measures between them."""

    effects: Mapping[Measure, Effect]
    values: Mapping[Measure, tuple[float, float, str | None]]
    """By measure both sides as people read them, and the category."""
    rows: int


def judge_beside_champion(
    subject: str,
    champion: Sequence[SubjectWindow],
    challenger: Sequence[SubjectWindow],
    policy: DriftPolicy,
    *,
    alpha: float,
    since: float,
) -> BesideChampion | None:
    """Return how a challenger's subject drifts from the champion's; ``None`` where it is not shown to.

    Args:
        subject: Its name.
        champion: Its hours; of those the challenger has none of nothing is looked at.
        challenger: The same.
        policy: The challenger's limits.
        alpha: Chance that a subject that stays within them is ever said to drift, at all hours together.
        since: The first hour of the comparison, in seconds since the epoch.
    """
    pairs = _paired(champion, challenger)
    if not pairs:
        return None
    both = _Numbers(pairs) if pairs[0][1].bucket_sums else _Categories(pairs, are_all_named=subject == CLASSES)
    if not both.is_comparable:
        return None
    count = len(pairs)
    starts = sorted({0, *(count - int(lag) for lag in LAGS if lag < count)})
    spans = {start: both.span(start, policy.rules) for start in starts}
    hours = {start: pairs[start][0].start_seconds for start in starts}
    shares = {start: _log_share(round((hours[start] - since) / HOUR_SECONDS) if start else 0) for start in starts}
    measures = list(spans[0].effects)
    compared = _Compared(subject, spans, shares, hours, len(measures) / alpha)
    found = [_found(compared, measure) for measure in measures]
    return max((one for one in found if one is not None), key=lambda one: one.evidence, default=None)


class _Compared(NamedTuple):
    """A subject over the hours from each start on."""

    subject: str
    spans: Mapping[int, _Span]
    log_shares: Mapping[int, float]
    hours: Mapping[int, float]
    needed: float


def _found(compared: _Compared, measure: Measure) -> BesideChampion | None:
    """Return what one measure comes to, if it is enough."""
    subject, spans, log_shares, hours, needed = compared
    logs = {start: log_shares[start] + float(log_evidence(span.effects[measure])[0]) for start, span in spans.items()}
    evidence = exp(min(float(np.logaddexp.reduce(list(logs.values()))), _MAX_LOG))
    best = max(logs, key=lambda start: logs[start])
    effect = spans[best].effects[measure]
    distance = float(effect.distance[0])
    if evidence < needed or distance <= effect.limit:
        return None
    on_champion, on_challenger, category = spans[best].values[measure]
    return BesideChampion(
        subject=subject,
        measure=measure,
        distance=distance,
        limit=effect.limit,
        evidence=evidence,
        evidence_needed=needed,
        champion=on_champion,
        challenger=on_challenger,
        since=hours[best],
        rows=spans[best].rows,
        category=category,
    )


def _log_share(hour: int) -> float:
    """Return the logarithm of the alpha share of the process that begins with an hour of the comparison."""
    if hour <= 0:
        return log(FIRST_ALPHA_SHARE)
    return log((1 - FIRST_ALPHA_SHARE) * (1 / np.log2(hour + 1) - 1 / np.log2(hour + 2)))


def _paired(
    champion: Sequence[SubjectWindow], challenger: Sequence[SubjectWindow]
) -> list[tuple[SubjectWindow, SubjectWindow]]:
    """Return the hours in which both sides have rows of the same kind, oldest first."""
    by_start = {hour.start_seconds: hour for hour in champion if sum(hour.bucket_rows)}
    both = [(by_start[hour.start_seconds], hour) for hour in challenger if hour.start_seconds in by_start]
    usable = [pair for pair in both if sum(pair[1].bucket_rows)]
    kinds = {bool(hour.bucket_sums) for pair in usable for hour in pair}
    return sorted(usable, key=lambda pair: pair[0].start_seconds) if len(kinds) == 1 else []


class _Side(NamedTuple):
    """One side's hours, weighted; shape (hours, buckets) each."""

    rows: FloatArray
    """Nulls left out."""
    nulls: FloatArray
    weights: FloatArray
    """Shape (hours,)."""

    def weighted(self, values: FloatArray, start: int) -> FloatArray:
        """Return the sum over the hours from ``start`` on."""
        found: FloatArray = np.tensordot(self.weights[start:], values[start:], axes=1)
        return found

    def independent_rows(self, start: int) -> float:
        """Return how many rows of one weight tell as much (Kish)."""
        rows = self.rows[start:].sum(axis=1)
        squares = float((self.weights[start:] ** 2) @ rows)
        return float(self.weights[start:] @ rows) ** 2 / squares if squares else 0.0


def _sides(pairs: Sequence[tuple[SubjectWindow, SubjectWindow]]) -> tuple[_Side, _Side]:
    rows = np.array([[hour.bucket_rows for hour in pair] for pair in pairs], dtype=np.float64)
    nulls = np.array([[hour.bucket_nulls or _NO_ROWS for hour in pair] for pair in pairs], dtype=np.float64)
    present = rows - nulls
    totals = rows.sum(axis=2)
    one = np.ones(len(pairs))
    return (
        _Side(present[:, 0], nulls[:, 0], totals[:, 1] / totals[:, 0]),
        _Side(present[:, 1], nulls[:, 1], one),
    )


def _difference(champion: _Side, challenger: _Side, values: tuple[FloatArray, FloatArray], start: int) -> Clustered:
    """Return the challenger's mean less the champion's; the rows and buckets are those of the side with fewer."""
    a, b = (
        clustered(side.weighted(side.rows, start)[None], side.weighted(sums, start)[None])
        for side, sums in zip((champion, challenger), values, strict=True)
    )
    rows = np.array([min(side.rows[start:].sum() for side in (champion, challenger))])
    return Clustered(rows, b.mean - a.mean, a.variance + b.variance, np.minimum(a.buckets, b.buckets))


def _floor(champion: _Side, challenger: _Side, start: int) -> float:
    """Return the variance of a difference of means of independent values with variance 1."""
    return sum(1 / max(side.independent_rows(start), 1.0) for side in (champion, challenger))


def _nulls_of(champion: _Side, challenger: _Side, start: int, rules: Rules) -> tuple[Effect, float, float]:
    both = [
        clustered(
            side.weighted(side.rows + side.nulls, start)[None],
            side.weighted(side.nulls, start)[None],
        )
        for side in (champion, challenger)
    ]
    a, b = both
    ratio = float(a.mean[0])
    at_limit = min(ratio + rules.limits[Measure.NULLS], 0.5)
    least = at_limit * (1 - at_limit) * _floor(champion, challenger, start)
    rows = np.array([min((side.rows + side.nulls)[start:].sum() for side in (champion, challenger))])
    variance = np.maximum(a.variance + b.variance, least)
    found = Clustered(rows, b.mean - a.mean, variance, np.minimum(a.buckets, b.buckets))
    return rules.two_sided(Measure.NULLS, found), ratio, float(b.mean[0])


class _Numbers:
    """Numeric hours side by side."""

    is_comparable = True

    def __init__(self, pairs: Sequence[tuple[SubjectWindow, SubjectWindow]]) -> None:
        self._champion, self._challenger = _sides(pairs)
        a, b = (np.array([pair[side].bucket_sums for pair in pairs], dtype=np.float64) / MICRO for side in (0, 1))
        self._sums = a, b
        weights = self._champion.weights
        rows = max(float(weights @ self._champion.rows.sum(axis=1)), 1.0)
        mean = float(weights @ a.sum(axis=1)) / rows
        squares = float(weights @ np.array([pair[0].square_sum for pair in pairs], dtype=np.float64)) / MICRO / rows
        cells: dict[int, float] = {}
        for weight, (champion, _) in zip(weights.tolist(), pairs, strict=True):
            for cell, count in champion.cells.items():
                cells[cell] = cells.get(cell, 0.0) + weight * count
        histogram = Histogram({cell: max(1, round(count)) for cell, count in cells.items()})
        baseline = NumericBaseline(mean, max(squares - mean * mean, 0.0) ** 0.5, histogram=histogram)
        self._deviation, self._mean, self._grid = deviation_of(baseline), mean, Grid.of(baseline)
        grid = self._grid
        self._counts = tuple(
            np.array([grid.counts_of(pair[side].cells) for pair in pairs]) if grid else np.zeros((len(pairs), 0))
            for side in (0, 1)
        )
        self._has_nulls = any(hour.bucket_nulls for pair in pairs for hour in pair)

    def span(self, start: int, rules: Rules) -> _Span:
        """Return the hours from one on."""
        champion, challenger = self._champion, self._challenger
        # From the champion's mean on, so that a large one costs no digits.
        centred = tuple(
            (sums - side.rows * self._mean) / self._deviation
            for side, sums in zip((champion, challenger), self._sums, strict=True)
        )
        found = _difference(champion, challenger, (centred[0], centred[1]), start)
        # A value of the champion's has variance 1 in its unit; rows that happen to be alike must not hide that.
        per_row = np.maximum(found.variance, _floor(champion, challenger, start))
        found = found._replace(variance=per_row)
        effects = {Measure.MEAN: mean_effect(found, rules)}
        if self._grid is not None:
            shares = [
                normalised_shares(side.weighted(counts, start))
                for side, counts in zip((champion, challenger), self._counts, strict=True)
            ]
            grid = self._grid._replace(shares=shares[0])
            bins, expected = grid.psi_bins(shares[1][None]), grid.psi_bins(shares[0])
            effects[Measure.WASSERSTEIN] = wasserstein_effect(grid, shares[1][None], per_row, found, rules)
            effects[Measure.PSI] = psi_effect(bins, expected, per_row, found, rules)
        means = tuple(
            float(side.weighted(sums, start).sum() / max(side.weighted(side.rows, start).sum(), 1e-9))
            for side, sums in zip((champion, challenger), self._sums, strict=True)
        )
        values: dict[Measure, tuple[float, float, str | None]] = dict.fromkeys(effects, (means[0], means[1], None))
        if self._has_nulls:
            effects[Measure.NULLS], a, b = _nulls_of(champion, challenger, start, rules)
            values[Measure.NULLS] = a, b, "null"
        return _Span(effects, values, int(challenger.rows[start:].sum()))


def _shares_of_names(side: _Side, hours: Sequence[SubjectWindow]) -> Mapping[str, float]:
    """Return the share of each category that a side's hours name, of all their rows."""
    counts: dict[str, float] = {}
    for weight, hour in zip(side.weights.tolist(), hours, strict=True):
        for name, rows in hour.categories.items():
            counts[name] = counts.get(name, 0.0) + weight * sum(rows)
    total = max(float(side.weighted(side.rows, 0).sum()), 1.0)
    return {name: count / total for name, count in counts.items()}


class _Categories:
    """Categorical hours side by side; the last category is all others.

    Hours of an input name the categories that their own version's baseline has, so only those of both can be compared.
    Hours of classes name all (``are_all_named``): a class that one version alone answers with is a difference.
    """

    def __init__(self, pairs: Sequence[tuple[SubjectWindow, SubjectWindow]], *, are_all_named: bool) -> None:
        self._champion, self._challenger = _sides(pairs)
        names = set()
        for champion, challenger in pairs:
            both = champion.categories.keys(), challenger.categories.keys()
            names |= both[0] | both[1] if are_all_named else both[0] & both[1]
        shares = [
            _shares_of_names(side, [pair[place] for pair in pairs])
            for place, side in enumerate((self._champion, self._challenger)[: 1 + are_all_named])
        ]
        self._names = sorted(name for name in names if max(of.get(name, 0.0) for of in shares) >= RARE_RATIO)
        self._by_bucket = tuple(
            [np.array([pair[side].categories.get(name, _NO_ROWS) for pair in pairs], float) for name in self._names]
            for side in (0, 1)
        )
        self._has_nulls = any(hour.bucket_nulls for pair in pairs for hour in pair)

    def span(self, start: int, rules: Rules) -> _Span:
        """Return the hours from one on."""
        champion, challenger = self._champion, self._challenger
        sides = [
            self._shares(side, by_bucket, start)
            for side, by_bucket in zip((champion, challenger), self._by_bucket, strict=True)
        ]
        (expected, a, own_a), (shares, b, own_b) = sides
        rows = np.array([min(side.rows[start:].sum() for side in (champion, challenger))])
        both = [
            Clustered(rows, np.zeros(1), one.variance + other.variance, np.minimum(one.buckets, other.buckets))
            for one, other in zip(a, b, strict=True)
        ]
        if Measure.SHARES in rules.limits:
            floor = np.array([_floor(champion, challenger, start)])
            effects = {Measure.SHARES: shares_effect(shares[None], expected, both, floor, rules)}
        else:
            found = both[0]._replace(variance=np.sum([one.variance for one in both], axis=0))
            effects = {Measure.PSI: psi_effect(shares[None], expected, np.array([own_a + own_b]), found, rules)}
        most = int(np.abs(shares - expected).argmax())
        name = [*self._names, "others"][most]
        values: dict[Measure, tuple[float, float, str | None]] = dict.fromkeys(
            effects, (float(expected[most]), float(shares[most]), name)
        )
        if self._has_nulls:
            effects[Measure.NULLS], on_champion, on_challenger = _nulls_of(champion, challenger, start, rules)
            values[Measure.NULLS] = on_champion, on_challenger, "null"
        return _Span(effects, values, int(challenger.rows[start:].sum()))

    @property
    def is_comparable(self) -> bool:
        """Whether both versions know a category that is not rare."""
        return bool(self._names)

    @staticmethod
    def _shares(side: _Side, by_bucket: Sequence[FloatArray], start: int) -> tuple[FloatArray, list[Clustered], float]:
        """Return the shares, each one's clustering, and the variance of a share p over p (1 - p) of all of them."""
        rows = side.weighted(side.rows, start)
        named = [side.weighted(category, start) for category in by_bucket]
        each = [*named, rows - np.sum(named, axis=0)]
        found = [clustered(rows[None], category[None]) for category in each]
        together = found[0]._replace(variance=np.sum([one.variance for one in found], axis=0))
        spread = np.sum([one.mean * (1 - one.mean) for one in found], axis=0)
        clustering = float(design_effect(together, spread)[0])
        shares = normalised_shares(np.array([category.sum() for category in each]))
        return shares, found, clustering / max(side.independent_rows(start), 1.0)
