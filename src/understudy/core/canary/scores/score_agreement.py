"""Score agreement: whether a challenger ranks calls as the champion does, by pairs of scores before its first share.

Two histograms of scores cannot tell scores that were handed to the wrong entities, nor inverted ones where they lie
evenly around their middle. Pairs can: the champion's score of a call, and the version's of the same inputs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from understudy.core.amounts import amount_words
from understudy.core.statistics.rank_tests import rank_correlation
from understudy.core.windows.histogram import Histogram

MIN_PAIRS = 100
"""With fewer, nothing is said: of 50 pairs, 3.7 % with a true correlation of 0.7 are below the limit."""
MAX_PAIRS = 200
MIN_CORRELATION = 0.5
MIN_VALUES_RATIO = 0.05
"""A version that has fewer different scores than this share of the champion's says too little of each call."""
MAX_COMMON_RATIO = 0.8
"""Where more of the champion's scores are one and the same, they have hardly an order."""

MIN_SPREAD_RATIO = 0.5
"""Pairs whose champion scores spread less than this share of what they usually do are a caller's choice, and among
calls that are alike a good version orders little as the champion does."""


NO_INPUTS = "no inputs of the champion's calls are logged"
"""Why there is no pair where no shadow was there either; an operator can change it."""


class PairSource(StrEnum):
    """Where the version's scores come from."""

    SHADOW = "shadow"
    """Calls that it was shown as the champion's shadow."""
    LOG = "log"
    """Calls of the champion whose logged inputs were sent to it."""


class ScorePairs(NamedTuple):
    """Scores of the same calls by both versions, a pair for each entity."""

    source: PairSource
    champion: Sequence[float]
    challenger: Sequence[float]
    why_few: str = ""
    """Why there are not more, in words."""
    usual_spread: float | None = None
    """How far the champion's scores spread in its last day; ``None`` where it is not known."""


class AgreementState(StrEnum):
    """What the pairs say."""

    ALIKE = "alike"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


class Agreement(NamedTuple):
    """How a version's scores compare with the champion's."""

    state: AgreementState
    words: str
    """Of the version, without its name and a full stop."""
    pairs: ScorePairs
    correlation: float | None
    """Spearman's; ``None`` where one version gives every call the same score, or there are no pairs."""
    champion_values: int
    """How many different scores it gave."""
    challenger_values: int


def lack_inputs(reason: str) -> bool:
    """Whether a transition's reason says that scores were not compared because no inputs are logged."""
    return reason.endswith(f"{_NOT_COMPARED}{NO_INPUTS}")


def judge_agreement(pairs: ScorePairs) -> Agreement:
    """Return what the pairs say; the limits themselves still agree.

    Source:
        Rank correlation with a limit of 0.5: our own rule; ADR 83 has what it holds and lets go.
    """
    champion, challenger = (np.asarray(side, dtype=np.float64) for side in (pairs.champion, pairs.challenger))
    values = len(np.unique(champion)), len(np.unique(challenger))
    correlation = rank_correlation(champion, challenger) if len(champion) else None
    state, words = _judged(pairs, correlation, *values)
    return Agreement(state, words, pairs, correlation, *values)


def spread_of(scores: Histogram) -> float:
    """Return how far the middle half of scores spreads; 0 of none."""
    low, high = (scores.quantile(share) for share in (0.25, 0.75))
    return 0.0 if low is None or high is None else high - low


def agreement_to_json(found: Agreement, *, is_expected: bool) -> dict[str, Any]:
    """Return what is stored with the verdict of a warm-up: all that it takes to judge the pairs again."""
    source, champion, challenger, why_few, usual_spread = found.pairs
    return {
        "state": found.state.value,
        "words": found.words,
        "is_expected": is_expected,
        "correlation": found.correlation,
        "champion_values": found.champion_values,
        "challenger_values": found.challenger_values,
        "source": source.value,
        "why_few": why_few,
        "usual_spread": usual_spread,
        "pairs": [list(pair) for pair in zip(champion, challenger, strict=True)],
    }


def pairs_from_json(document: Mapping[str, Any]) -> ScorePairs:
    """Return the pairs that :func:`agreement_to_json` wrote.

    Raises:
        LookupError, TypeError, ValueError: It is not what was written.
    """
    pairs = [(float(champion), float(challenger)) for champion, challenger in document["pairs"]]
    if len(pairs) > MAX_PAIRS or not all(isfinite(score) for pair in pairs for score in pair):
        raise ValueError("the pairs are too many, or not all numbers")
    source, why_few = PairSource(document["source"]), str(document["why_few"])
    usual = document.get("usual_spread")  # releases before did not ask
    usual_spread = None if usual is None else float(usual)
    return ScorePairs(source, [one for one, _ in pairs], [other for _, other in pairs], why_few, usual_spread)


def _judged(
    pairs: ScorePairs, correlation: float | None, champion_values: int, challenger_values: int
) -> tuple[AgreementState, str]:
    count = len(pairs.champion)
    if count < MIN_PAIRS:
        few = f"{count} of {MIN_PAIRS} entities have a score of both" if count or not pairs.why_few else ""
        return _unknown("; ".join(filter(None, [few, pairs.why_few])))
    most_common = Counter(pairs.champion).most_common(1)[0][1]
    if most_common > MAX_COMMON_RATIO * count:
        return _unknown(f"{most_common} of {count} scores of the champion are the same")
    spread = spread_of(Histogram.of(pairs.champion))
    if pairs.usual_spread is not None and spread < MIN_SPREAD_RATIO * pairs.usual_spread:
        return _unknown(
            f"the middle half of the champion's scores of {count} {_CALLS[pairs.source]} spreads over "
            f"{amount_words(spread)}, and over {amount_words(pairs.usual_spread)} in its last day"
        )
    calls = f"{count} {_CALLS[pairs.source]}"
    if correlation is None or challenger_values < MIN_VALUES_RATIO * champion_values:
        scores = "1 score" if challenger_values == 1 else f"{challenger_values} different scores"
        return AgreementState.DIFFERENT, f"it gives {scores} where the champion gives {champion_values}, in {calls}"
    if correlation < MIN_CORRELATION:
        return AgreementState.DIFFERENT, (
            f"its scores order {calls} otherwise than the champion's: rank correlation {correlation:.2f}, "
            f"the limit is {MIN_CORRELATION:g}"
        )
    return AgreementState.ALIKE, f"rank correlation of its scores with the champion's {correlation:.2f} in {calls}"


def _unknown(why: str) -> tuple[AgreementState, str]:
    return AgreementState.UNKNOWN, f"{_NOT_COMPARED}{why}"


_NOT_COMPARED = "its scores were not compared: "
_CALLS = {PairSource.SHADOW: "calls that it was shown as a shadow", PairSource.LOG: "logged calls that were sent again"}
