"""Quantiles of latencies or outcomes of both versions of an A/B report, and how far they are apart."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from understudy.core.statistics.quantiles import ArmValues, QuantileDifference, compare_quantiles
from understudy.experiments.attribution import Period
from understudy.ports.experiments.experiment_log import EntityQuery, EntityValues, ExperimentLog, Observed

_SHARE = "an outcome that happens or does not has no quantiles"
_TOO_FEW = "fewer than 100 effective entities in an arm"


class Quantiles(NamedTuple):
    """Quantiles of B less those of A, each with an interval for one look."""

    of: Observed
    entities_a: int
    entities_b: int
    differences: Sequence[QuantileDifference]
    """Latencies in milliseconds."""
    gap: str = ""
    """Why there are none."""


async def quantiles_of(
    log: ExperimentLog, query: EntityQuery, split: Sequence[Period], of: Observed, *, is_share: bool
) -> Quantiles:
    """Return how far the quantiles are apart, weighted against a ramp as the comparison of means is."""
    if of is Observed.VALUE and is_share:
        return Quantiles(of, 0, 0, (), _SHARE)
    rows = await log.entity_values(query, of)
    a, b = ([row for row in rows if row.is_b is is_b] for is_b in (False, True))
    differences = compare_quantiles(_arm(a, split), _arm(b, split)) if a and b else []
    return Quantiles(of, len(a), len(b), differences, "" if differences else _TOO_FEW)


def _arm(rows: Sequence[EntityValues], split: Sequence[Period]) -> ArmValues:
    """Return the values of one arm; of a sample of an entity's values each counts for several."""
    counts = np.array([len(row.values) for row in rows], dtype=np.int64)
    weights = np.array([_weight(row, split) for row in rows], dtype=np.float64)
    values = np.concatenate([np.array(row.values, dtype=np.float64) for row in rows])
    return ArmValues(values, np.repeat(np.arange(len(rows)), counts), np.repeat(weights, counts))


def _weight(row: EntityValues, split: Sequence[Period]) -> float:
    """Return the other arm's share when the entity came, times how many of its values each one stands for."""
    share_b = split[row.epoch].share_b
    return (1 - share_b if row.is_b else share_b) * row.total / len(row.values)
