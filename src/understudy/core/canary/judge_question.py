"""What a judge is asked, and how its answer is read: which of two answers to the same inputs is better.

The question says neither which version gave which answer, nor that one of them is new.
"""

from collections.abc import Collection, Mapping
from hashlib import sha256
from math import isfinite
from typing import Any

import orjson

_DIGEST_CHARACTERS = 40
_SCORES = ("first", "second")
_WINNERS: Mapping[str, float] = {"first": 1.0, "second": -1.0, "tie": 0.0}


def pair_of(inputs: Mapping[str, Any], champion: Mapping[str, Any], challenger: Mapping[str, Any]) -> str:
    """Return the digest that a pair of answers is known by: the same pair is judged once in a rollout."""
    text = orjson.dumps([inputs, champion, challenger], option=orjson.OPT_SORT_KEYS)
    return sha256(text).hexdigest()[:_DIGEST_CHARACTERS]


def question_to_json(
    question_id: str, model_name: str, inputs: Mapping[str, Any], first: Mapping[str, Any], second: Mapping[str, Any]
) -> bytes:
    """Return a question as it is sent."""
    return orjson.dumps(
        {
            "id": question_id,
            "type": "understudy.judge",
            "model": model_name,
            "inputs": inputs,
            "first": first,
            "second": second,
        }
    )


def without(inputs: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return inputs without those of these names."""
    return {name: value for name, value in inputs.items() if name not in names}


def compared_answer(text: str | bytes) -> dict[str, Any] | None:
    """Return an answer as a judge is shown it: without the list of all scores; ``None`` where nothing is left.

    A log keeps no longer ones, and an order of treatments is no answer that stands beside another.
    """
    document = orjson.loads(text)
    if not isinstance(document, dict) or "treatments" in document:
        return None
    return {name: value for name, value in document.items() if name != "scores"} or None


def read_judgement(text: bytes, question_id: str) -> float | None:
    """Return by how much the answer that stands first is better, -1 to 1; ``None`` where it is of another question.

    ``{"id": …, "winner": "first" | "second" | "tie"}``, or ``{"id": …, "scores": {"first": 0.8, "second": 0.4}}``.

    Raises:
        ValueError: It is neither.
    """
    document = orjson.loads(text)
    known_id = document.get("id") if isinstance(document, dict) else None
    if known_id is None:
        raise ValueError('expected an object with the question\'s "id"')
    if known_id != question_id:
        return None
    winner, scores = document.get("winner"), document.get("scores")
    if (winner is None) == (scores is None):
        raise ValueError('expected either "winner" or "scores"')
    if scores is None:
        if not isinstance(winner, str) or winner not in _WINNERS:
            raise ValueError("expected the winner to be first, second or tie")
        return _WINNERS[winner]
    if not isinstance(scores, dict) or scores.keys() != set(_SCORES) or not all(map(_is_score, scores.values())):
        raise ValueError("expected scores of first and second from 0 to 1")
    return float(scores["first"]) - float(scores["second"])


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and 0 <= value <= 1
