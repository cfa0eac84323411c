"""Attribution: periods of one split, and the entities of both arms with their outcomes.

An entity belongs to the arm that its first exposure was assigned to. In a ramp, a period at 5 % and one at 50 % have
different entities (one that comes every day came in the first), so those of B were met at other times than those of A.
Each entity therefore weighs as much as the *other* arm's share was when it came: then a period weighs the same in both
arms, and most where both are well filled. With one weight all the time that changes nothing.

Source:
    Overlap weights: Li, Morgan & Zaslavsky, "Balancing covariates via propensity score weighting", Journal of the
    American Statistical Association 113 (2018). Pooling over a ramp instead makes 100 % of equal versions differ
    (statistics §1).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from understudy.core.statistics.difference import ArmEntities
from understudy.core.statistics.sample_ratio import Epoch
from understudy.core.statistics.sample_size import FloatArray
from understudy.ports.experiments.experiment_log import Allocation, Entered, EntityGroup

_ALL_PERCENT = 100
_ROUNDING = 1e-12
"""Spread over size of pasts below which all are equal but for the last digits of their floats."""

_PastOf: TypeAlias = Callable[[EntityGroup], float | None]


class Period(NamedTuple):
    """Generations of a policy in a row that split the calls of two versions alike."""

    since: float
    """Seconds since the epoch."""
    share_b: float
    """Of the entities of these two; above 0 and below 1."""
    generations: tuple[int, ...]


class ArmCounts(NamedTuple):
    """What an arm is made of."""

    entered: int
    """Entities, whether their time for outcomes is over or not."""
    closed: int
    """Of those the ones that are compared."""
    with_outcome: int
    """Of the closed ones."""
    calls: int
    """Of the closed ones, in their time for outcomes."""
    own_calls: int
    """Calls of these that the arm's own version answered; the others met the other one, by a fallback or a ramp."""
    recent: int
    """Entities that came within the last day."""


def periods(allocations: Iterable[Allocation], champion_id: int, challenger_id: int) -> list[Period]:
    """Return the times in which both versions had a share, oldest first as the ``allocations`` are.

    B is the version that is named, the challenger or a further arm; what other arms have is no part of the comparison.
    """
    found: list[Period] = []
    before: Allocation | None = None
    for allocation in allocations:
        if _splits(allocation, champion_id, challenger_id):
            if before is not None and _split_of(before, challenger_id) == _split_of(allocation, challenger_id):
                found[-1] = found[-1]._replace(generations=(*found[-1].generations, allocation.generation))
            else:
                found.append(Period(allocation.since, share_of(allocation, challenger_id), (allocation.generation,)))
        before = allocation
    return found


def began(allocations: Sequence[Allocation], champion_id: int, challenger_id: int) -> float | None:
    """Return when these two versions first shared the calls, since they have been champion and challenger (or arm).

    ``None`` when they never did, or are so no more.
    """
    first: float | None = None
    for allocation in reversed(allocations):
        if allocation.champion_id != champion_id or allocation.percent_of(challenger_id) is None:
            break
        if _splits(allocation, champion_id, challenger_id):
            first = allocation.since
    return first


def share_of(allocation: Allocation, challenger_id: int) -> float:
    """Return B's share (0-1) of the entities that meet the champion or B; 0 when it has none."""
    percent = allocation.percent_of(challenger_id) or 0
    return percent / (percent + allocation.champion_percent) if percent else 0.0


def shares_of(allocation: Allocation) -> dict[int, float]:
    """Return the share (0-1) of all entities of each version that has one."""
    percents = dict(allocation.arms)
    if allocation.challenger_id is not None:
        percents[allocation.challenger_id] = allocation.challenger_weight
    if allocation.champion_id is not None:
        percents[allocation.champion_id] = allocation.champion_percent
    return {version_id: percent / _ALL_PERCENT for version_id, percent in percents.items() if percent > 0}


def epochs_of(split: Sequence[Period]) -> dict[int, int]:
    """Return each generation with the number of its period."""
    return {generation: number for number, period in enumerate(split) for generation in period.generations}


def arms_of(
    groups: Iterable[EntityGroup], split: Sequence[Period], last_slice: int | None = None
) -> tuple[ArmEntities, ArmEntities]:
    """Return the entities of A and of B whose time for outcomes is over, weighted against the ramp.

    Args:
        groups: From :class:`understudy.ports.experiments.experiment_log.ExperimentLog`.
        split: The periods that the groups' epochs are numbers of.
        last_slice: Leave out entities that came in later slices.
    """
    closed = [group for group in groups if group.is_closed and (last_slice is None or group.slice <= last_slice)]
    means = _mean_past(closed, split, _past_of_numerator), _mean_past(closed, split, _past_of_denominator)
    a, b = (_arm([group for group in closed if group.is_b is is_b], split, means) for is_b in (False, True))
    return a, b


def values_of(groups: Iterable[EntityGroup], epoch: int, *, is_b: bool) -> FloatArray:
    """Return one value of the metric for each closed entity of one arm that came in one period."""
    own = [group for group in groups if group.is_closed and group.is_b is is_b and group.epoch == epoch]
    return _spread(own, [group.numerator / group.denominator for group in own])


def entry_epochs(groups: Iterable[Entered], split: Sequence[Period]) -> list[Epoch]:
    """Return how many new entities of each arm came in each period; closed or not, since the split is of all."""
    counts = np.zeros((len(split), 2), dtype=np.int64)
    for group in groups:
        counts[group.epoch, int(group.is_b)] += group.entities
    return [Epoch(int(a), int(b), period.share_b) for (a, b), period in zip(counts, split, strict=True)]


def fullest_epoch(epochs: Sequence[Epoch]) -> int:
    """Return the number of the period that tells most; the periods are at least one."""
    return max(range(len(epochs)), key=lambda number: _information(epochs[number]))


def counts_of(groups: Iterable[EntityGroup], *, is_b: bool) -> ArmCounts:
    """Return what one arm is made of."""
    own = [group for group in groups if group.is_b is is_b]
    closed = [group for group in own if group.is_closed]
    return ArmCounts(
        entered=sum(group.entities for group in own),
        closed=sum(group.entities for group in closed),
        with_outcome=sum(group.with_outcome for group in closed),
        calls=sum(group.calls for group in closed),
        own_calls=sum(group.own_calls for group in closed),
        recent=sum(group.recent for group in own),
    )


def _splits(allocation: Allocation, champion_id: int, challenger_id: int) -> bool:
    has_share = bool(allocation.percent_of(challenger_id)) and allocation.champion_percent > 0
    return allocation.champion_id == champion_id and has_share


def _split_of(allocation: Allocation, challenger_id: int) -> tuple[object, ...]:
    shares = allocation.percent_of(challenger_id), allocation.champion_percent
    return allocation.champion_id, *shares, allocation.bucket_key


def _information(epoch: Epoch) -> float:
    return epoch.entities_a * epoch.entities_b / (epoch.entities_a + epoch.entities_b or 1)


def _weight(group: EntityGroup, split: Sequence[Period]) -> float:
    share_b = split[group.epoch].share_b
    return 1 - share_b if group.is_b else share_b


def _past_of_numerator(group: EntityGroup) -> float | None:
    return group.covariate


def _past_of_denominator(group: EntityGroup) -> float | None:
    return group.covariate_denominator


def _mean_past(groups: Iterable[EntityGroup], split: Sequence[Period], past_of: _PastOf) -> float | None:
    """Return the mean past of all entities that have one; ``None`` when it tells nothing."""
    known = [(_weight(group, split) * group.entities, past_of(group)) for group in groups]
    weights, pasts = np.array([row for row in known if row[1] is not None], dtype=np.float64).reshape(-1, 2).T
    if not len(pasts) or np.ptp(pasts) <= _ROUNDING * np.abs(pasts).max():
        return None
    return float(weights @ pasts / weights.sum())


def _arm(
    groups: Sequence[EntityGroup], split: Sequence[Period], mean_pasts: tuple[float | None, float | None]
) -> ArmEntities:
    weights = _spread(groups, [_weight(group, split) for group in groups])
    numerator = weights * _spread(groups, [group.numerator for group in groups])
    denominator = weights * _spread(groups, [group.denominator for group in groups])
    pasts = [
        _past(groups, weights, past_of, mean)
        for past_of, mean in zip((_past_of_numerator, _past_of_denominator), mean_pasts, strict=True)
    ]
    return ArmEntities(numerator, denominator, *pasts)


def _past(
    groups: Sequence[EntityGroup], weights: FloatArray, past_of: _PastOf, mean: float | None
) -> FloatArray | None:
    """Return one covariate of an arm: an entity without it gets the mean of all."""
    if mean is None or not len(weights):
        return None
    found = [past_of(group) for group in groups]
    pasts = _spread(groups, [0.0 if past is None else past - mean for past in found])
    # It weighs as its entity does, so that a ramp does not tilt it.
    weighted: FloatArray = weights / weights.mean() * pasts
    return weighted


def _spread(groups: Sequence[EntityGroup], values: Sequence[float]) -> FloatArray:
    """Return each group's value once for each of its entities."""
    times = np.array([group.entities for group in groups], dtype=np.int64)
    spread: FloatArray = np.repeat(np.array(values, dtype=np.float64), times)
    return spread
