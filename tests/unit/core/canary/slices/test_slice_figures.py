"""Both sides' figures of each slice, and what is found of it."""

import numpy as np
import pytest

from understudy.core.canary.slices.slice_figures import SliceSide, SliceState, slice_rows
from understudy.core.canary.slices.slice_tally import SliceTally, SliceUnit
from understudy.core.prediction_log.call_slices import Slice
from understudy.core.windows.slices import SLICE_BUCKETS, SliceColumn
from understudy.core.windows.window import MICRO

GOLD, SILVER, BRONZE, IRON, OTHERS = (
    Slice("category", name) for name in ("gold", "silver", "bronze", "iron", "others")
)


def counted(calls: int, errors: int = 0, latency_us: float = 10_000.0):
    row = [calls, errors, 0, round((calls - errors) * np.log(latency_us) * MICRO)]
    return np.array([row] * SLICE_BUCKETS, np.int64)


def tallied(units: int) -> SliceTally:
    """Return a challenger that fails gold; bronze comes in one stretch alone, and iron never comes to it."""
    tally = SliceTally(5, 0.0)
    for number in range(units):
        champion = {
            GOLD: counted(20),
            SILVER: counted(400),
            BRONZE: counted(10),
            IRON: counted(5),
            OTHERS: counted(900),
        }
        challenger = {GOLD: counted(2, 2), SILVER: counted(40, 0, 9_000.0), OTHERS: counted(90)}
        if number == 0:
            challenger[BRONZE] = counted(3)
        sides = (champion, challenger)
        totals = np.array([sum(one.sum(axis=0) for one in side.values()) for side in sides], float)
        totals[:, SliceColumn.LOG_LATENCY] /= MICRO
        tally.add(SliceUnit(120.0 * number, sides, totals), [0.0])
    return tally


def test_slices_that_the_challenger_met_come_with_both_sides_figures_and_the_worst_one_first():
    tally = tallied(10)

    rows = slice_rows(tally.figures(), tally.counts())

    assert [(row.figures.slice, row.state) for row in rows] == [
        (GOLD, SliceState.WORSE),
        (BRONZE, SliceState.TOO_EARLY),
        (OTHERS, SliceState.OK),
        (SILVER, SliceState.OK),
    ]
    gold, _, _, silver = (row.figures for row in rows)
    assert (gold.champion.calls, gold.challenger.calls) == (3_200, 320)
    assert (gold.champion.error_ratio, gold.challenger.error_ratio) == (0.0, 1.0)
    assert gold.challenger.typical_seconds is None
    assert silver.champion.typical_seconds == pytest.approx(0.010)
    assert silver.challenger.typical_seconds == pytest.approx(0.009)


def test_what_looks_worse_in_too_few_stretches_is_too_early_and_is_not_named():
    tally = tallied(2)

    rows = {row.figures.slice: row.state for row in slice_rows(tally.figures(), tally.counts())}

    assert rows[GOLD] is SliceState.TOO_EARLY


def test_a_tally_without_a_stretch_has_no_figures():
    assert SliceTally(5, 0.0).figures() == []


def test_a_side_without_calls_has_no_ratios():
    nothing = SliceSide(0, 0, 0, 0.0)

    assert (nothing.error_ratio, nothing.slow_ratio, nothing.typical_seconds) == (None, None, None)
