"""Guessing a key by how long the refusal takes."""

import random
import time
from hashlib import sha256
from string import ascii_letters

import pytest
from scipy.stats import mannwhitneyu

from understudy.core.routing.access import scopes_of
from understudy.core.routing.policy import ApiKey
from understudy.errors import Unauthenticated

TRIES = 20_000
SECRET = "s3cr3t-" + "k" * 36
KEYS = {"k1": ApiKey("k1", sha256(SECRET.encode()).digest(), frozenset({"predict"}))}


def seconds_of(authorization: str) -> float:
    began = time.perf_counter()
    try:
        scopes_of(KEYS, authorization, needs_key=True, now=0.0)
    except Unauthenticated:
        return time.perf_counter() - began
    raise AssertionError("the guess was right")


def p_value(generator: random.Random) -> float:
    """Return how probable it is that nearly right guesses take no other time than wrong ones, if they do not."""
    # Texts of their own, made alike: where one lies in memory makes a difference that is always the same one.
    guesses = []
    for kind in ["near", "far"] * (TRIES // 2):
        wrong = "".join(generator.choices(ascii_letters, k=len(SECRET) - 1))
        guesses.append((kind, f"Bearer k1.{SECRET[:-1] if kind == 'near' else wrong}x"))
    generator.shuffle(guesses)
    taken: dict[str, list[float]] = {"near": [], "far": []}
    for kind, guess in guesses:
        taken[kind].append(seconds_of(guess))
    return float(mannwhitneyu(taken["near"], taken["far"]).pvalue)


@pytest.mark.alone
def test_a_guess_that_is_nearly_right_takes_as_long_as_one_that_is_wholly_wrong():
    generator = random.Random(7)

    # By chance alone one of a hundred looks is below 0.01; three that follow each other are one of a million.
    assert any(p_value(generator) >= 0.01 for _ in range(3))


def test_a_key_that_is_there_and_one_that_is_not_are_refused_in_the_same_words():
    said = set()
    for authorization in ("Bearer k1.wrong", "Bearer nobody.wrong"):
        with pytest.raises(Unauthenticated) as refused:
            scopes_of(KEYS, authorization, needs_key=True, now=0.0)
        said.add(refused.value.detail)

    assert len(said) == 1
