"""Further arms beside B: whether all arms have their entities, and what each says, corrected over all of them."""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from understudy.core.experiments.ab import AbPlan, AbState
from understudy.core.statistics.difference import Difference, compare
from understudy.core.statistics.multiple_comparisons import Comparison, compare_together
from understudy.core.statistics.sample_ratio import ArmsEpoch, ArmsRatio, sample_ratio_of_arms
from understudy.errors import MigrationNeeded
from understudy.experiments.attribution import Period, arms_of, epochs_of, periods, shares_of
from understudy.experiments.declared_rows import declared_test
from understudy.experiments.declared_tests import DeclaredTest
from understudy.experiments.declaring import Found
from understudy.ports.experiments.experiment_log import Allocation, EntityQuery, ExperimentLog
from understudy.ports.experiments.experiment_store import ExperimentRecord, ExperimentStore

MAX_COMPARED = 12
"""Arms, beyond which a report would read the log too often; then each report compares its own arm alone."""
_SEVERAL = 3
_FOUND = (AbState.A_BETTER, AbState.B_BETTER)


class Split(NamedTuple):
    """Three or more versions that share the calls."""

    version_ids: tuple[int, ...]
    """The champion first."""
    epochs: dict[int, int]
    """Generations of the policy, each with the number of its epoch."""
    shares: tuple[tuple[float, ...], ...]
    """Of each epoch, in the order of the versions."""


class ArmResult(NamedTuple):
    """One arm beside the champion."""

    version_id: int
    difference: Difference
    comparison: Comparison


class Arms(NamedTuple):
    """All arms of a split."""

    version_ids: tuple[int, ...]
    """In the order of the ratio's arms: the champion first."""
    ratio: ArmsRatio
    results: Sequence[ArmResult] = ()
    """Of the versions beside the champion for which there are enough entities."""
    comparisons: int = 0
    """What the results are corrected over: those without enough entities count, too."""


def split_of(found: Found, split: Sequence[Period]) -> Split | None:
    """Return how the calls were split in the periods in which B had a share; ``None`` with no third version in any."""
    own = epochs_of(split)
    rows = [allocation for allocation in found.allocations if allocation.generation in own]
    others = sorted({version_id for row in rows for version_id in shares_of(row)} - {found.champion_id})
    return _numbered(rows, (found.champion_id, *others)) if len(others) > 1 else None


def _numbered(rows: Sequence[Allocation], version_ids: tuple[int, ...]) -> Split:
    """Return the allocations with those of equal shares and salt in a row as one epoch."""
    keys = [(*(shares_of(row).get(version_id, 0.0) for version_id in version_ids), row.bucket_key) for row in rows]
    epochs: dict[int, int] = {}
    shares: list[tuple[float, ...]] = []
    for place, row in enumerate(rows):
        if place == 0 or keys[place] != keys[place - 1]:
            own = shares_of(row)
            shares.append(tuple(own.get(version_id, 0.0) for version_id in version_ids))
        epochs[row.generation] = len(shares) - 1
    return Split(version_ids, epochs, tuple(shares))


async def count_arms(log: ExperimentLog, query: EntityQuery, split: Split) -> Arms | None:
    """Return whether all arms have the entities that the split should have given them.

    ``None`` when fewer than three versions shared the calls in the query's time: what came before is no part of it.
    """
    counted = {
        (row.epoch, row.version_id): row.entities
        for row in await log.arm_entries(query._replace(epochs=split.epochs), split.version_ids)
    }
    met = {epoch for epoch, _ in counted}
    # An arm that had a share then and has no entities has lost all of them, so it stays.
    kept = [
        place
        for place, version_id in enumerate(split.version_ids)
        if any(split.shares[epoch][place] or counted.get((epoch, version_id)) for epoch in met)
    ]
    if len(kept) < _SEVERAL:
        return None
    version_ids = tuple(split.version_ids[place] for place in kept)
    epochs = [
        ArmsEpoch(
            tuple(counted.get((epoch, version_id), 0) for version_id in version_ids),
            tuple(split.shares[epoch][place] for place in kept),
        )
        for epoch in sorted(met)
    ]
    return Arms(version_ids, sample_ratio_of_arms(epochs))


async def compare_arms(
    log: ExperimentLog,
    query: EntityQuery,
    found: Found,
    arms: Arms,
    *,
    own: Difference | None,
    plan_of: Callable[[Difference], AbPlan],
) -> Arms:
    """Return the arms with what each says beside the champion; without that where they are too many to be read.

    Args:
        log: Where the entities of the other arms are.
        query: That of the report: its time, metric and way to count hold for all arms.
        found: Which versions the report is about.
        arms: From :func:`count_arms`.
        own: The report's own difference, which is not read again.
        plan_of: Returns the plan that a difference's interval is drawn for.
    """
    others = arms.version_ids[1:]
    if len(others) > MAX_COMPARED:
        return arms
    differences = {found.challenger_id: own}
    for version_id in others:
        if version_id not in differences:
            differences[version_id] = await _difference(log, query, found, version_id)
    ready = [
        (version_id, difference, plan_of(difference))
        for version_id in others
        if (difference := differences[version_id]) is not None
    ]
    enough = [row for row in ready if min(row[1].effective_a, row[1].effective_b) >= row[2].minimum_entities]
    compared = compare_together([(row[1], row[2].entities_per_arm) for row in enough], len(others))
    results = [ArmResult(row[0], row[1], comparison) for row, comparison in zip(enough, compared, strict=True)]
    return arms._replace(results=results, comparisons=len(others))


async def _difference(log: ExperimentLog, query: EntityQuery, found: Found, version_id: int) -> Difference | None:
    split = periods(found.allocations, found.champion_id, version_id)
    entities = await log.entities(query._replace(challenger_id=version_id, epochs=epochs_of(split), slices=1))
    return compare(*arms_of(entities.groups, split))


async def rejected_beside(store: ExperimentStore, test: DeclaredTest) -> int:
    """Return how many tests of further arms, which share alpha with this one, found a difference before it was decided.

    Those are the latest of the same metric and champion that were declared beside the same versions. One that is
    unreadable has found nothing: it keeps its share, and only its own report ends with an error.
    """
    own, until = test.record, inf if test.decision is None else test.decision.at
    family = {own.challenger_id, *test.plan.beside}
    rejected = 0
    for version_id in test.plan.beside:
        record = await store.latest(own.model_name, own.metric, (own.champion_id, version_id))
        other = None if record is None else _readable(record)
        if other is None or other.decision is None or {version_id, *other.plan.beside} != family:
            continue
        rejected += other.decision.state in _FOUND and other.decision.at < until
    return rejected


def _readable(record: ExperimentRecord) -> DeclaredTest | None:
    try:
        return declared_test(record)
    except MigrationNeeded:
        return None
