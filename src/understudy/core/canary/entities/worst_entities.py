"""Worst entities: the few for which a challenger fails, while it is as good as the champion for all others.

A version that fails one customer of three hundred wholly has three times the champion's errors, all in one analysis
bucket, so that the second key of the error rate never says that other entities would show the same. Here each entity is
judged by itself, against the champion and against the challenger's other entities.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from understudy.core.statistics.sequential_evidence import FloatArray, IntArray

FALSE_DISCOVERY_RATE = 0.05
"""Of the entities that are named, at all analyses together."""
MIN_UNITS = 3
"""Stretches of :data:`understudy.core.canary.entities.entity_tally.UNIT_SECONDS` in which it has to fail: an incident
of two minutes touches two of them."""
MIN_RATIO = 0.2
"""An entity that is named fails at least so many of its calls. Entities differ on both versions, and the few calls that
each had of the champion do not tell one that always failed one call in ten."""
RATE_FLOOR = 0.005
"""A champion with fewer errors than this counts as having them: of an entity, a failure in ten thousand is no fault."""
LEVELS = 20
"""An entity's share of failing calls in a stretch is rounded down to a twentieth."""
_RATIOS = 12
"""Alternatives: the entity fails so many times as often as the champion, up to always, in equal steps of logarithms."""
MAX_WORST = 50


@dataclass(frozen=True, slots=True)
class EntityCount:
    """What is counted of one entity's calls of the challenger. It has no name, which only the log knows."""

    rows: tuple[tuple[int, int], ...]
    """Rows of the log, up to three: calls that failed, by ``id`` and ``predicted_at`` in microseconds. The first one is
    what the entity is known by."""
    calls: int
    failed: int
    units: tuple[int, ...]
    """Stretches by the share of calls that failed in them, in twentieths, from none to all."""
    before_calls: int | None = None
    """Of the champion, in the six hours before; ``None`` where that is not known."""
    before_failed: int | None = None

    @property
    def key(self) -> int:
        """Which entity it is, within a rollout."""
        return self.rows[0][0]


@dataclass(frozen=True, slots=True)
class EntityCounts:
    """The entities that a challenger failed most, of all that it met."""

    seen: int
    units: int
    """Stretches of all entities."""
    failing_units: float
    """The shares of calls that failed in them, added up."""
    worst: tuple[EntityCount, ...] = ()

    def without(self, told: Collection[int]) -> "EntityCounts":
        """Return the counts without entities that an operator knows of."""
        return replace(self, worst=tuple(one for one in self.worst if one.key not in told))


class FailingEntity(NamedTuple):
    """An entity that the challenger fails."""

    counted: EntityCount
    expected_ratio: float
    """Share of its calls that would fail if it were as the others."""
    log_evidence: float


def failing_entities(counts: EntityCounts, champion_ratio: float) -> tuple[FailingEntity, ...]:
    """Return the entities that fail more than the champion's, the challenger's other ones, and than they did before.

    Args:
        counts: The worst ones, of all that were seen.
        champion_ratio: Share of entities with an error of the champion's.

    Source:
        e-BH: Wang and Ramdas (2022), "False discovery rate control with e-values". The evidence of one entity is the
        mean over bets on 12 ratios (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
        betting"), so it is valid at any look; stretches instead of calls, since retries and a short incident are one.
    """
    judged = [_judged(one, counts, champion_ratio) for one in counts.worst if sum(one.units[1:]) >= MIN_UNITS]
    ranked = sorted(judged, key=lambda one: -one.log_evidence)
    named = 0
    for place, one in enumerate(ranked, start=1):
        if one.log_evidence >= log(counts.seen / (place * FALSE_DISCOVERY_RATE)):
            named = place
    return tuple(ranked[:named])


def unit_evidence(units: IntArray, ratio: float) -> FloatArray:
    """Return the logarithm of the evidence that entities fail more of their calls than a ratio.

    Args:
        units: Stretches by their share of failing calls, shape ``(n, LEVELS + 1)``.
        ratio: Between 0 and 1.

    Returns:
        Shape ``(n,)``.
    """
    shares = np.arange(LEVELS + 1) / LEVELS
    times = (1 / ratio) ** (np.arange(1, _RATIOS + 1) / _RATIOS)
    bets = (times - 1) / (1 - ratio)
    # The largest bet loses everything where no call of a stretch fails; hardly less keeps it in the mean.
    gains = np.log(np.maximum(1 + np.outer(shares - ratio, bets), 1e-12))
    found: FloatArray = np.logaddexp.reduce(units @ gains, axis=1) - log(_RATIOS)
    return found


def counts_to_json(counts: EntityCounts) -> dict[str, Any]:
    """Return what is stored with a verdict: no name of an entity."""
    return asdict(counts)


def counts_from_json(document: Mapping[str, Any]) -> EntityCounts:
    """Return the counts that :func:`counts_to_json` wrote.

    Raises:
        LookupError, TypeError, ValueError: It is not what was written.
    """
    worst = tuple(
        EntityCount(**{**one, "rows": tuple((int(a), int(b)) for a, b in one["rows"]), "units": tuple(one["units"])})
        for one in document["worst"]
    )
    return EntityCounts(**{**document, "worst": worst})


def entities_words(found: Sequence[FailingEntity], champion_ratio: float) -> str:
    """Say how many entities fail, by how much, and what the worst one did before."""
    worst = max(found, key=lambda one: one.counted.failed / one.counted.calls).counted
    who = "1 entity fails" if len(found) == 1 else f"{len(found)} entities fail, the worst of them"
    return (
        f"{who} {100 * worst.failed / worst.calls:.3g} % of its calls ({worst.failed:,} of {worst.calls:,}; champion "
        f"{100 * champion_ratio:.2g} %; {before_words(worst)}); no check takes the version back: an operator decides"
    )


def before_words(count: EntityCount) -> str:
    """Say what came of an entity's calls on the champion in the hour before."""
    if count.before_calls is None:
        return "not known what came of its calls before"
    if not count.before_calls:
        return "it had no calls on the champion in the six hours before"
    return f"on the champion {count.before_failed or 0:,} of {count.before_calls:,} failed in the six hours before"


def _judged(one: EntityCount, counts: EntityCounts, champion_ratio: float) -> FailingEntity:
    own_units = sum(one.units)
    own_failing = sum(share * units for share, units in enumerate(one.units)) / LEVELS
    failing = max(0.0, counts.failing_units - own_failing)
    # Two standard errors less: one failure among a handful of stretches says little of all others.
    others = max(0.0, failing - 2 * sqrt(failing)) / max(1, counts.units - own_units)
    # What failed on the champion as well is no fault of the challenger's; one failure more, since few calls say little.
    before = (one.before_failed + 1) / (one.before_calls + 1) if one.before_failed and one.before_calls else 0.0
    expected = max(RATE_FLOOR, champion_ratio, others, before)
    if expected >= 1 or own_failing < MIN_RATIO * own_units:
        return FailingEntity(one, 1.0, -inf)
    return FailingEntity(one, expected, float(unit_evidence(np.array([one.units]), expected)[0]))
