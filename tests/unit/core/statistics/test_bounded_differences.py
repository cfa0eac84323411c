"""Bets on bounded differences: a supermartingale while nothing is lost, in whatever order they come."""

from itertools import product
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.statistics.bounded_differences import clustered_loss_z, log_loss_evidence

ALL = np.array([0])
differences = st.lists(st.floats(-1, 1), max_size=30)


@pytest.mark.parametrize("tolerated", [0.0, 0.1, 0.5])
def test_capital_is_expected_not_to_grow_while_the_mean_is_what_is_tolerated(tolerated):
    wins = (1 - tolerated) / 2
    expected = sum(
        wins ** game.count(1)
        * (1 - wins) ** game.count(-1)
        * exp(log_loss_evidence(np.array(game, float), tolerated, ALL)[0])
        for game in product((-1, 1), repeat=6)
    )

    assert expected == pytest.approx(1.0)


@given(differences, st.floats(0, 0.9))
def test_the_order_does_not_matter_and_a_loss_never_speaks_for_the_challenger(values, tolerated):
    found = np.array(values, float)

    evidence = log_loss_evidence(found, tolerated, ALL)[0]

    assert np.isfinite(evidence)
    assert evidence == pytest.approx(log_loss_evidence(found[::-1], tolerated, ALL)[0], abs=1e-9)
    assert log_loss_evidence(np.append(found, -1.0), tolerated, ALL)[0] > evidence


def test_each_process_sees_the_differences_from_its_first_on():
    found = np.array([1.0] * 20 + [-1.0] * 20)

    whole, half, none = log_loss_evidence(found, 0.0, np.array([0, 20, 40]))

    assert whole < log(20) < half
    assert none == 0


def test_losses_of_one_bucket_alone_are_no_evidence_of_others():
    found = np.full(300, -1.0)
    spread, alone = np.arange(300) % 64, np.zeros(300, int)

    assert clustered_loss_z(found, spread, 0.05, ALL)[0] > 8
    assert clustered_loss_z(found, alone, 0.05, ALL)[0] < 1.1
    assert clustered_loss_z(found[:0], alone[:0], 0.05, ALL)[0] == 0
