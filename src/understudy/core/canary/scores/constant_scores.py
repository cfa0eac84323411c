"""Constant scores: whether a challenger gives every call of its callers the same score, while the champion does not."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram, merged
from understudy.core.windows.window import BucketColumn, Window, no_buckets

MIN_CHAMPION_SCORES = 100
"""With fewer, the share of a score among the champion's is not known well enough."""
MIN_BUCKETS = 5
"""Ten entities are in nine of the 64 analysis buckets on average, and hardly ever in fewer than six."""
MAX_CHANCE = 1e-4
"""That so many entities have one score by chance; asked every minute until two scores differ, mostly once or twice."""
_LOW, _HIGH = 0.05, 0.95


class LiveScores(NamedTuple):
    """Scores of both versions in the same windows of a rollout."""

    champion: Histogram
    challenger: Histogram
    buckets: int
    """Analysis buckets that the challenger's scores are of: so many entities at least."""


def live_scores(windows: Iterable[Window], rollout_id: int) -> LiveScores:
    """Return the scores of a rollout's windows; other windows and shadows are left out."""
    own = [window for window in windows if window.key.rollout_id == rollout_id]
    sides = {role: [window for window in own if window.key.role is role] for role in (Role.CHAMPION, Role.CHALLENGER)}
    buckets = sum((window.buckets for window in sides[Role.CHALLENGER]), no_buckets())
    champion, challenger = (merged(window.scores for window in side) for side in sides.values())
    return LiveScores(champion, challenger, int(np.count_nonzero(buckets[:, BucketColumn.SCORE_CALLS])))


def varies(scores: LiveScores) -> bool:
    """Return whether the challenger gave different scores, by more than rounding."""
    cells = scores.challenger.counts.keys()
    return bool(cells) and max(cells) - min(cells) > 1


def constant_words(scores: LiveScores) -> str:
    """Return in words that the challenger's scores are all the same, without its name; empty while they may differ.

    They are, where chance would give one score (a cell of the histogram, 2 % wide, or two beside each other) to so many
    of the champion's entities less often than once in 10,000.
    """
    cells = scores.challenger.counts.keys()
    total = scores.champion.total
    if not cells or varies(scores) or total < MIN_CHAMPION_SCORES or scores.buckets < MIN_BUCKETS:
        return ""
    same = sum(scores.champion.counts.get(cell, 0) for cell in cells)
    if ((same + 1) / (total + 1)) ** scores.buckets > MAX_CHANCE:
        return ""
    low, high = (scores.champion.quantile(share) for share in (_LOW, _HIGH))
    return (
        f"it gave {scores.challenger.total:,} calls of at least {scores.buckets} entities the same score, about "
        f"{scores.challenger.quantile(0.5):.2g}; of the champion's nine in ten lie from {low:.2g} to {high:.2g}"
    )


def live_scores_to_json(scores: LiveScores) -> dict[str, Any]:
    """Return what is stored with the verdict: all that it takes to judge the scores again."""
    sides = {"champion": scores.champion, "challenger": scores.challenger}
    cells = {name: list(chain.from_iterable(sorted(side.counts.items()))) for name, side in sides.items()}
    return {**cells, "buckets": scores.buckets, "words": constant_words(scores)}


def live_scores_from_json(document: Mapping[str, Any]) -> LiveScores:
    """Return the scores that :func:`live_scores_to_json` wrote.

    Raises:
        LookupError, TypeError, ValueError: It is not what was written.
    """
    champion, challenger = (_histogram(document[name]) for name in ("champion", "challenger"))
    return LiveScores(champion, challenger, int(document["buckets"]))


def _histogram(pairs: Any) -> Histogram:
    if set(map(type, pairs)) - {int} or min(pairs[1::2], default=0) < 0:
        raise ValueError("a histogram has something else than cells and counts")
    return Histogram(dict(zip(pairs[::2], pairs[1::2], strict=True)))
