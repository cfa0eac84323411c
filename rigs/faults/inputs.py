"""What is asked, and what is true: calls of which one in six is distinct, and the score that each must get.

The truth is computed here from the same ONNX files, without the product: an answer is checked, not believed.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import orjson
from e2e.load import Answer

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.dev_server.onnx import OnnxModel

SCORE_TOLERANCE = 1e-5
_TIMES_EACH = 6
_AT_ONCE = 10
_ROWS = example_rows()
_FEATURE = "log_incentive"


def distinct_of(number: int) -> int:
    """Return which input the request ``number`` has: each is asked for six times within 60 requests."""
    return number // (_AT_ONCE * _TIMES_EACH) * _AT_ONCE + number % _AT_ONCE


def inputs_of(distinct: int) -> dict[str, Any]:
    """Return a held-out row with one value of its own, so that no two inputs are alike."""
    return {**_ROWS[distinct % len(_ROWS)].inputs, _FEATURE: (distinct % 4_000_000) / 1e6}


def entity_of(distinct: int) -> str:
    """Return whom an input is about."""
    return f"person-{distinct}"


def body_of(number: int) -> bytes:
    """Return the body of the request ``number``."""
    return body_for(distinct_of(number))


def body_for(distinct: int) -> bytes:
    """Return the body of a call with this input."""
    return orjson.dumps({"entity_id": entity_of(distinct), "inputs": inputs_of(distinct)})


def scores_of(label: int, inputs: Sequence[dict[str, Any]]) -> list[float]:
    """Return what version ``label`` says to each input."""
    if not inputs:
        return []
    model, names = _model(label)
    tensor = np.array([[row[name] for name in names] for row in inputs], np.float32)
    outputs = model.run({model.inputs[0].name: tensor})
    schema = example_version("visits", label).output_schema
    return [float(row[schema["score_index"]]) for row in outputs[schema["tensor"]]]


@cache
def _model(label: int) -> tuple[OnnxModel, list[str]]:
    example = example_version("visits", label)
    (tensor,) = example.input_schema["tensors"]
    return OnnxModel(example.read(), example.label), tensor["features"]


def wrong_answers(
    answers: Sequence[Answer], inputs_of_number: Callable[[int], dict[str, Any]] | None = None
) -> list[Answer]:
    """Return the answers with status 200 whose score is not what the version they name says to their input."""
    read = inputs_of_number or (lambda number: inputs_of(distinct_of(number)))
    by_label: dict[str, list[Answer]] = {}
    wrong: list[Answer] = []
    for answer in answers:
        if answer.status == 200:
            by_label.setdefault(str(_field(answer, "version")), []).append(answer)
    for label, found in by_label.items():
        if not label.isdecimal():
            wrong += found
            continue
        true = scores_of(int(label), [read(answer.number) for answer in found])
        wrong += [a for a, score in zip(found, true, strict=True) if not _is(a, score)]
    return wrong


def _field(answer: Answer, name: str) -> Any:
    try:
        return answer.json[name]
    except (ValueError, KeyError, TypeError):
        return None


def _is(answer: Answer, score: float) -> bool:
    prediction = _field(answer, "prediction")
    said = prediction.get("score") if isinstance(prediction, dict) else None
    return isinstance(said, float | int) and abs(said - score) <= SCORE_TOLERANCE
