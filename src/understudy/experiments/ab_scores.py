"""The scores of both versions of an A/B report beside each other."""

from typing import NamedTuple

import numpy as np

from understudy.core.statistics.rank_tests import RankComparison, compare_ranks
from understudy.ports.experiments.experiment_log import ArmScores

SCORE_CELLS = 20


class ScoreComparison(NamedTuple):
    """The scores of both versions, one mean for each of a sample of entities."""

    ranks: RankComparison | None
    edges: tuple[float, ...]
    a_cells: tuple[int, ...]
    b_cells: tuple[int, ...]


def compare_scores(scores: ArmScores) -> ScoreComparison | None:
    """Return how the scores of both arms compare; ``None`` where an arm has none."""
    a, b = (np.array(side, dtype=np.float64) for side in scores)
    if not len(a) or not len(b):
        return None
    low, high = min(a.min(), b.min()), max(a.max(), b.max())
    span = (0.0, 1.0) if low >= 0 and high <= 1 else (float(low), float(high))
    edges = np.histogram_bin_edges(a, SCORE_CELLS, span)
    a_cells, b_cells = (tuple(np.histogram(side, edges)[0].tolist()) for side in (a, b))
    return ScoreComparison(compare_ranks(a, b), tuple(edges.tolist()), a_cells, b_cells)
