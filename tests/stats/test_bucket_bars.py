"""The bars of buckets (statistics §6), on the product's own hash and ranges.

Short by default; ``UNDERSTUDY_STATS=full`` takes more ids and salts. ``pytest -s`` shows each figure beside its bar.
"""

import os
import sys
from collections.abc import Callable
from itertools import pairwise
from uuid import UUID

import numpy as np
import pytest
from scipy import stats

from understudy.core.routing.arms import bucket_ranges
from understudy.core.routing.buckets import BUCKETS
from understudy.core.routing.route import bucket_of
from understudy.core.statistics.sample_size import FloatArray

pytestmark = pytest.mark.timeout(600)
FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
IDS = 400_000 if FULL else 60_000
SALTS = 60 if FULL else 12
MODELS = ("churn", "fraud", "visits-v2")
WEIGHTS = (2, 10, 50)
FAMILIES: dict[str, Callable[[int], str]] = {
    "numbers": str,
    "customers": lambda place: f"customer-{place:08}",
    "uuids": lambda place: str(UUID(int=(0x1234_5678_9ABC << 80) + 7 * place)),
    "addresses": lambda place: f"user.{place}@mail{place % 7}.example.org",
}


def said(text: str) -> None:
    sys.stdout.write(f"\n{text}")


def buckets(key: str, family: str = "customers", ids: int = IDS) -> FloatArray:
    entity_id = FAMILIES[family]
    return np.array([bucket_of(key, entity_id(place)) for place in range(ids)], dtype=np.float64)


def correlations(keys: list[str], weight: int, ids: int) -> FloatArray:
    """Return phi of every two keys: the correlation of being below the weight under one and under the other."""
    below = np.array([buckets(key, ids=ids) < weight for key in keys], dtype=np.float64)
    phi: FloatArray = np.asarray(np.corrcoef(below))
    return phi[np.triu_indices(len(keys), 1)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_id_fills_the_buckets_evenly(family, model):
    counts = np.bincount(buckets(model, family, IDS // 4).astype(int), minlength=BUCKETS)

    p_value = stats.chisquare(counts).pvalue

    # Twelve tests: the smallest of as many uniform p-values is below this in one of a thousand runs.
    bar = 0.001 / (len(FAMILIES) * len(MODELS))
    said(f"uniform, {family} x {model}: chi2 p {p_value:.3f} (bar {bar:.5f})")
    assert p_value > bar


@pytest.mark.parametrize("weight", WEIGHTS)
def test_two_salts_have_nothing_in_common(weight):
    salts = [f"rollout-{number}" for number in range(SALTS)]

    largest = np.abs(correlations(salts, weight, IDS)).max()

    # One standard deviation of phi is 1/sqrt(ids): 0.0041 of 60,000.
    said(f"salts at {weight} %: largest |phi| of {SALTS * (SALTS - 1) // 2} pairs {largest:.4f} (bar 0.02)")
    assert largest < 0.02


def test_models_without_a_salt_and_a_shadows_share_have_nothing_in_common_either():
    largest = np.abs(correlations([*MODELS, "shadow:churn", "churn-salt"], 10, IDS)).max()

    said(f"models, a shadow's share, a salt: largest |phi| {largest:.4f} (bar 0.02)")
    assert largest < 0.02


def test_one_salt_for_two_rollouts_has_the_same_guinea_pigs():
    assert correlations(["churn", "churn"], 10, 10_000)[0] == pytest.approx(1.0)


def test_a_ramp_moves_an_entity_once_and_never_back():
    stages = [2, 5, 10, 25, 50, 100]
    ranges = [bucket_ranges({}, "champion")]
    for weight in stages:
        ranges.append(bucket_ranges({"challenger": weight}, "champion", ranges[-1]))

    own = buckets("churn", ids=20_000).astype(int)
    tables = [[arm for arm, first, last in stage for _ in range(first, last + 1)] for stage in ranges]
    arms = np.array([[table[bucket] == "challenger" for bucket in own] for table in tables])

    back = sum(int((before & ~after).sum()) for before, after in pairwise(arms))
    said(f"ramp {stages}: {back} of {len(own):,} entities moved back (bar 0)")
    assert back == 0
    assert np.abs(arms.mean(axis=1) * 100 - [0, *stages]).max() < 1.5
