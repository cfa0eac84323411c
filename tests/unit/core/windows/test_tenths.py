import numpy as np
import pytest

from understudy.core.windows.histogram import Histogram
from understudy.core.windows.tenths import counts_in_bands, tenth_edges, text_of

EUROS = np.random.default_rng(3).lognormal(8, 1, 5_000)


def test_each_band_has_a_tenth_of_the_champions_scores_whatever_their_unit():
    champion = Histogram.of(EUROS.tolist())

    counts = list(counts_in_bands(champion, tenth_edges(champion)).values())

    assert counts == pytest.approx(np.full(10, 500), rel=0.25)
    assert sum(counts) == len(EUROS)


def test_scores_that_moved_fill_the_upper_bands_and_none_is_lost():
    edges = tenth_edges(Histogram.of(EUROS.tolist()))

    counts = list(counts_in_bands(Histogram.of((EUROS * 2).tolist()), edges).values())

    assert sum(counts[:5]) < 0.3 * len(EUROS)
    assert sum(counts) == len(EUROS)


def test_a_score_on_an_edge_is_in_the_band_that_goes_up_to_it():
    edges = tenth_edges(Histogram.of([1.0] * 95 + [7.0] * 5))

    assert len(edges) == 1
    assert list(counts_in_bands(Histogram.of([0.5, 1.0, 7.0, -3.0]), edges).values()) == [3, 1]


def test_without_scores_there_is_one_band_of_none():
    assert tenth_edges(Histogram()) == ()
    assert counts_in_bands(Histogram(), ()) == {"+Inf": 0}


@pytest.mark.parametrize("value", [0.318, 412_345.0, 987_654.0, -1_200.0, 0.0001, 7.0])
def test_an_edge_is_a_number_that_people_and_dashboards_read(value):
    text = text_of(value)

    assert float(text) == pytest.approx(value, rel=0.02)
    assert "e" not in text
