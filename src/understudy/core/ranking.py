"""The scores of treatments, as an answer and as what the log keeps of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

LOGGED_TREATMENTS = 10
"""The best of a ranking that its log row names: a row of a thousand would crowd out a hundred others."""


class Ranking(NamedTuple):
    """What a rank call gets: JSON text of an object, the best score, and the JSON text for the log.

    The object is ``{"treatments": 3, "scores": [0.2, 0.9, 0.4]}`` in the order of the request; with ``top_k`` it is
    ``{"treatments": 3, "best": [{"id": "b", "score": 0.9}]}``, the best first. The log has the latter form always.
    """

    json: bytes
    score: float
    logged: bytes


def ranking_of(scores: NDArray[Any], ids: Sequence[str], top_k: int | None) -> Ranking:
    """Return the ranking of treatments by their scores, shape ``(m,)``, with ``m`` at least 1; ties as they came."""
    order = _descending(scores)[: max(top_k or 0, LOGGED_TREATMENTS)]
    # orjson prints a float32 in its shortest form (0.31); through a Python float it would be 0.3100000023841858.
    values: list[Any] = orjson.loads(_array_json(scores[order]))
    best = [{"id": ids[index], "score": value} for index, value in zip(order.tolist(), values, strict=True)]
    logged = _best_json(len(ids), best[:LOGGED_TREATMENTS])
    if top_k is None:
        text = b'{"treatments":%d,"scores":%s}' % (len(ids), _array_json(scores))
    else:
        text = _best_json(len(ids), best[:top_k])
    return Ranking(text, float(values[0]), logged)


def _descending(scores: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices from the greatest score down, equal ones in their order.

    Not by the scores negated: that turns unsigned numbers round.
    """
    ascending = np.argsort(scores[::-1], kind="stable")
    descending: NDArray[np.intp] = len(scores) - 1 - ascending[::-1]
    return descending


def _array_json(values: NDArray[Any]) -> bytes:
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)


def _best_json(treatments: int, best: list[dict[str, Any]]) -> bytes:
    return b'{"treatments":%d,"best":%s}' % (treatments, orjson.dumps(best))
