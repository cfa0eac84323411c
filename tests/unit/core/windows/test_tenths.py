import numpy as np
import pytest

from understudy.core.windows.histogram import Histogram
from understudy.core.windows.tenths import counts_up_to, tenth_edges

EUROS = np.random.default_rng(3).lognormal(8, 1, 5_000)


def test_each_band_has_a_tenth_of_the_champions_scores_whatever_their_unit():
    champion = Histogram.of(EUROS.tolist())

    counts = list(counts_up_to(champion, tenth_edges(champion)).values())

    assert len(counts) == 10
    assert np.diff([0, *counts]) == pytest.approx(np.full(10, 500), rel=0.25)


def test_scores_that_moved_fill_the_upper_bands():
    edges = tenth_edges(Histogram.of(EUROS.tolist()))

    counts = list(counts_up_to(Histogram.of((EUROS * 2).tolist()), edges).values())

    assert counts[4] < 0.3 * counts[-1]


def test_values_that_many_calls_have_leave_fewer_edges_and_no_score_none():
    assert len(tenth_edges(Histogram.of([1.0] * 95 + [7.0] * 5))) == 1
    assert tenth_edges(Histogram()) == ()
    assert counts_up_to(Histogram(), ()) == {"+Inf": 0}
