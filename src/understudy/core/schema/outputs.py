"""A model server's answer, checked against the version's ``output_schema``, as predictions and as a cache's value."""

from dataclasses import replace
from functools import lru_cache
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from understudy.core.schema.row_output import RowOutput
from understudy.core.schema.schema import OutputSchema
from understudy.core.schema.tensors import Datatype, Tensor, shape_text
from understudy.core.value import Value
from understudy.errors import BadAnswer

MAX_CACHED_BYTES = 1_048_576
"""A longer value is neither written to a cache nor read from one."""
MAX_LOGGED_BYTES = 1_048_576
"""An answer longer than this is logged without its values.

A quarter of ``spool_format.MAX_PAYLOAD_BYTES``: escaping may double each byte, and the row's other columns need room.
"""
_VALUES = b',"scores":['
"""Cannot occur inside a string: JSON would escape its quotes."""
NOT_FINITE = "an output is NaN or infinite"
"""What is wrong with an answer that no caller may get, whatever the schema says of bounds."""
_ENVELOPE_BYTES = 256
"""Upper bound of a cache value's length without the prediction."""


class Prediction(Value, frozen=True, gc=False):
    """What the caller gets: JSON text of an object, and the score that metrics and analyses use.

    The object is ``{"score": 0.31}`` when the output is one number or ``score_index`` names one; otherwise
    ``{"scores": [...]}``, with ``"label"`` when the schema has labels or the values are several.
    """

    json: bytes
    score: float | None
    output: RowOutput | None = None
    """The server's own values, where the call keeps them."""

    @property
    def logged(self) -> bytes:
        """The text for the log: all of it, or the label and the length of one over :data:`MAX_LOGGED_BYTES`."""
        return self.json if len(self.json) <= MAX_LOGGED_BYTES else _shortened(self.json)


def _shortened(text: bytes) -> bytes:
    head, values, _ = text.partition(_VALUES)
    return b'%b"omitted_bytes":%d}' % (head + b"," if values else b"{", len(text))


def predictions_of(schema: OutputSchema, tensor: Tensor, rows: int, *, batch: bool) -> list[Prediction | BadAnswer]:
    """Return for each of ``rows`` its prediction, or what is wrong with its values.

    Raises:
        BadAnswer: If the datatype or the shape is not what the schema says, which concerns all rows.
    """
    matrix = _matrix_of(schema, tensor, rows, batch=batch)
    if tensor.datatype is Datatype.BYTES:
        return [_of_strings(schema, list(row)) for row in matrix]
    activated = _activate(schema.activation, matrix)
    is_single = activated.shape[1] == 1
    shown = activated.ravel() if is_single else np.ascontiguousarray(activated)
    # orjson prints a float32 in its shortest form (0.31); through a Python float it would be 0.3100000023841858.
    text = orjson.dumps(shown, option=orjson.OPT_SERIALIZE_NUMPY)
    values: list[Any] = orjson.loads(text)
    if _are_good(schema, shown, text):
        index = schema.score_index
        if is_single:
            return _all_scored(values)
        return (
            [_of_numbers(schema, row) for row in values] if index is None else _all_scored([v[index] for v in values])
        )
    defects = _defects_of(schema, activated) or [None] * rows
    each = [[value] for value in values] if is_single else values
    return [defect or _of_numbers(schema, row) for defect, row in zip(defects, each, strict=True)]


def why_no_score(schema: OutputSchema) -> str | None:
    """Return why the output is not one score a row; ``None`` when it is, or when only an answer can show it."""
    if schema.datatype is Datatype.BYTES:
        return "its output_schema says strings, which have no order"
    if schema.score_index is None and schema.shape is not None and prod(schema.shape) > 1:
        return f"its output has {prod(schema.shape)} values a row and output_schema.score_index names none of them"
    return None


def has_classes(schema: OutputSchema) -> bool:
    """Whether the schema says that callers get a class: labels, a string, or several values without a score."""
    is_several = schema.score_index is None and schema.shape is not None and max(schema.shape, default=1) > 1
    return bool(schema.labels) or schema.datatype is Datatype.BYTES or is_several


def scores_of(schema: OutputSchema, tensor: Tensor, rows: int) -> NDArray[Any]:
    """Return the score of each row, shape ``(rows,)``, in the output's own datatype after the activation.

    Raises:
        BadAnswer: If the answer is not what the schema says, has no score, or has one outside the schema's bounds.
    """
    matrix = _matrix_of(schema, tensor, rows, batch=True)
    if tensor.datatype is Datatype.BYTES:
        raise BadAnswer("the output is strings, which have no order")
    if schema.score_index is None and matrix.shape[1] != 1:
        raise BadAnswer(f"the output has {matrix.shape[1]} values a row; output_schema.score_index must name the score")
    activated = _activate(schema.activation, matrix)
    for row, defect in enumerate(_defects_of(schema, activated) or ()):
        if defect is not None:
            raise BadAnswer(f"{defect.detail} (row {row})")
    scores: NDArray[Any] = activated[:, schema.score_index or 0]
    return scores


def _matrix_of(schema: OutputSchema, tensor: Tensor, rows: int, *, batch: bool) -> NDArray[Any]:
    if schema.datatype is not None and tensor.datatype is not schema.datatype:
        raise BadAnswer(f"the output is {tensor.datatype.wire_name}, the schema says {schema.datatype.wire_name}")
    shape = tensor.shape[1:] if batch else tensor.shape
    if batch and (not tensor.shape or tensor.shape[0] != rows):
        raise BadAnswer(f"the output's shape is {shape_text(tensor.shape)} for {rows} rows")
    if schema.shape is not None and not fits_shape(schema.shape, shape):
        raise BadAnswer(f"the output's shape is {shape_text(shape)}, the schema says {shape_text(schema.shape)}")
    size = prod(shape)
    if size == 0 or tensor.values.size != size * rows:
        held = tensor.values.size
        raise BadAnswer(f"the output holds {held} values, not those of its shape {shape_text(tensor.shape)}")
    if schema.score_index is not None and schema.score_index >= size:
        raise BadAnswer(f"score_index {schema.score_index} is outside the output's {size} values")
    if schema.labels and len(schema.labels) != size:
        raise BadAnswer(f"{len(schema.labels)} labels for {size} values")
    return tensor.values.reshape(rows, size)


def fits_shape(wanted: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an output of a row has the schema's shape; a dimension of one may stand before or behind."""
    return shape in (wanted, (*wanted, 1), (1, *wanted))


def _activate(activation: str, matrix: NDArray[Any]) -> NDArray[Any]:
    if activation == "none":
        return matrix
    if not np.issubdtype(matrix.dtype, np.floating):
        # Whole numbers would wrap around below, an unsigned one when it is negated.
        matrix = matrix.astype(np.float64)
    if activation == "sigmoid":
        # exp of a clipped argument: exp(709) is the last finite double, float32 ends at 88.
        squashed: NDArray[Any] = 1 / (1 + np.exp(-np.clip(matrix, -80, 80)))
        return squashed
    with np.errstate(invalid="ignore"):  # infinity less infinity: NaN, which is a defect of the row
        weights = np.exp(matrix - matrix.max(axis=1, keepdims=True))
    normalised: NDArray[Any] = weights / weights.sum(axis=1, keepdims=True)
    return normalised


def _are_good(schema: OutputSchema, values: NDArray[Any], text: bytes) -> bool:
    """Whether all values are valid for certain: three questions to numpy less than :func:`_defects_of`.

    Args:
        schema: Its bounds.
        values: All of them.
        text: Their JSON, which has ``null`` for NaN and for an infinity.
    """
    return (
        b"null" not in text
        and (schema.minimum is None or bool(np.minimum.reduce(values, axis=None) >= _as(values.dtype, schema.minimum)))
        and (schema.maximum is None or bool(np.maximum.reduce(values, axis=None) <= _as(values.dtype, schema.maximum)))
    )


@lru_cache(maxsize=1_000)
def _as(dtype: "np.dtype[Any]", bound: float) -> Any:
    """Return a bound as values of a type are compared with it: one beyond the type's range is an infinity of it.

    numpy would say of each comparison that this overflows.
    """
    if dtype.kind != "f":
        return bound
    with np.errstate(over="ignore"):
        return dtype.type(bound)


def _defects_of(schema: OutputSchema, matrix: NDArray[Any]) -> list[BadAnswer | None] | None:
    """Return what is wrong with each row's values; ``None`` when all rows are valid."""
    checks = [(np.isfinite(matrix), NOT_FINITE)]
    with np.errstate(invalid="ignore"):
        if schema.minimum is not None:
            is_good = matrix >= _as(matrix.dtype, schema.minimum)
            checks.append((is_good, f"an output is below {schema.minimum:g}, the schema's least value"))
        if schema.maximum is not None:
            is_good = matrix <= _as(matrix.dtype, schema.maximum)
            checks.append((is_good, f"an output is above {schema.maximum:g}, the schema's greatest value"))
    if all(good.all() for good, _ in checks):
        return None
    defects: list[BadAnswer | None] = [None] * len(matrix)
    for good, text in checks:
        for row in np.flatnonzero(~good.all(axis=1)):
            defects[row] = defects[row] or BadAnswer(text)
    return defects


def _of_numbers(schema: OutputSchema, values: list[Any]) -> Prediction:
    index = schema.score_index
    if index is None and len(values) == 1:
        index = 0
    if index is not None:
        return _scored(values[index])
    best = max(range(len(values)), key=values.__getitem__)
    label = schema.labels[best] if schema.labels else best
    return Prediction(orjson.dumps({"label": label, "scores": values}), float(values[best]))


def _all_scored(values: list[Any]) -> list[Prediction | BadAnswer]:
    """Do what :func:`_scored` does for the value of each row, with one text of all of them."""
    text = orjson.dumps(values)[1:-1].replace(b",", b'}\n{"score":')
    texts = (b'{"score":%b}' % text).split(b"\n")
    return [Prediction(text, float(value)) for text, value in zip(texts, values, strict=True)]


def _scored(value: float) -> Prediction:
    return Prediction(b'{"score":%s}' % orjson.dumps(value), float(value))


def _of_strings(schema: OutputSchema, elements: list[Any]) -> Prediction | BadAnswer:
    try:
        values = [element.decode() if isinstance(element, bytes) else str(element) for element in elements]
    except UnicodeDecodeError:
        return BadAnswer("an output string is not UTF-8")
    if any("\x00" in value for value in values):
        return BadAnswer("an output string holds U+0000")
    if len(values) == 1 or schema.score_index is not None:
        return Prediction(orjson.dumps({"label": values[schema.score_index or 0]}), None)
    return Prediction(orjson.dumps({"labels": values}), None)


def is_cacheable(prediction: Prediction) -> bool:
    """Whether an output is short enough for the caches: a few long ones would evict thousands of others."""
    return len(prediction.json) <= MAX_CACHED_BYTES - _ENVELOPE_BYTES


class Origin(NamedTuple):
    """What a cache value was computed by and from: version, digest of its model and settings, and full input hash."""

    version_id: int
    answer_digest: str
    input_hash: str


def encode_cached(origin: Origin, prediction: Prediction) -> bytes:
    """Return the cache value: the prediction with its origin."""
    return b"%b%b}" % (_envelope_of(origin), prediction.json)


def _envelope_of(origin: Origin) -> bytes:
    """Return the beginning of a cache value, up to the prediction."""
    version_id, answer_digest, input_hash = origin
    text = f'{{"version_id":{version_id},"answer_digest":"{answer_digest}","input_hash":"{input_hash}","prediction":'
    return text.encode()


def decode_cached(schema: OutputSchema, origin: Origin, value: bytes) -> Prediction | None:
    """Return the prediction of a cache value; ``None`` when it is truncated, malformed, or of another origin.

    Only its values are used: the body is rebuilt from them by the same rules as from a model server's answer.
    """
    envelope = _envelope_of(origin)
    if len(value) > MAX_CACHED_BYTES or not value.startswith(envelope) or not value.endswith(b"}"):
        return None
    try:
        body = orjson.loads(value[len(envelope) : -1])
    except orjson.JSONDecodeError:
        return None
    rebuilt = _rebuilt(schema, body) if isinstance(body, dict) else None
    return rebuilt if isinstance(rebuilt, Prediction) else None


def _rebuilt(schema: OutputSchema, body: dict[str, Any]) -> Prediction | BadAnswer | None:
    if body.keys() == {"score"}:
        single = schema.score_index is not None or schema.shape is None or prod(schema.shape) == 1
        return _scored(body["score"]) if single and _is_number(body["score"], schema) else None
    if body.keys() == {"label", "scores"}:
        values = body["scores"]
        several = schema.score_index is None and isinstance(values, list) and _fits(schema, len(values))
        return _of_numbers(schema, values) if several and all(_is_number(one, schema) for one in values) else None
    return _rebuilt_strings(schema, body) if schema.datatype in (None, Datatype.BYTES) else None


def _rebuilt_strings(schema: OutputSchema, body: dict[str, Any]) -> Prediction | BadAnswer | None:
    if body.keys() == {"label"}:
        return _of_strings(replace(schema, score_index=None), [body["label"]]) if _is_text(body["label"]) else None
    labels = body.get("labels")
    if body.keys() != {"labels"} or schema.score_index is not None or not isinstance(labels, list):
        return None
    return _of_strings(schema, labels) if _fits(schema, len(labels)) and all(map(_is_text, labels)) else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _fits(schema: OutputSchema, size: int) -> bool:
    return size > 1 and (schema.shape is None or size == prod(schema.shape))


def _is_number(value: Any, schema: OutputSchema) -> bool:
    if type(value) is bool:
        # An activation turns booleans into numbers, and only numbers have bounds.
        is_possible = schema.datatype in (None, Datatype.BOOL) and schema.activation == "none"
    else:
        is_possible = type(value) in (float, int)
    return (
        is_possible
        and isfinite(value)
        and (schema.minimum is None or value >= schema.minimum)
        and (schema.maximum is None or value <= schema.maximum)
    )
