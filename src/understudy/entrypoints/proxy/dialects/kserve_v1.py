"""KServe V1 and TensorFlow Serving's REST API: rows and columns as JSON."""

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from understudy.core.requests.row_json import (
    RowCall,
    read_examples,
    read_plain_rows,
    read_row_body,
    read_row_json,
    row_call_of,
)
from understudy.core.requests.strict_json import parse
from understudy.core.requests.tensor_inputs import nested
from understudy.core.requests.typed_bodies import TypedRows
from understudy.core.routing.policy import ModelVersion, ServingPolicy
from understudy.core.schema.codec import split_bytes_elements
from understudy.core.schema.row_output import RowOutput
from understudy.core.schema.tensors import Datatype
from understudy.entrypoints.proxy.dialects.dialect import (
    INLINE_LISTED_BYTES,
    Answered,
    Output,
    Reading,
    RowWords,
    Worded,
    is_short_json,
)
from understudy.entrypoints.proxy.dialects.signature import require_signature
from understudy.entrypoints.proxy.messages.reply import JSON_ALONE, JSON_LINES
from understudy.errors import NotOffered
from understudy.serving.call import Call

_BYTES = Datatype.BYTES
BYTES_SUFFIX = "_bytes"
"""Of the name of an output that is no text but bytes (TensorFlow Serving's convention)."""


class KServeV1:
    """``POST /v1/models/{model}:predict``."""

    name = "v1"

    def is_short(self, body: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """See :class:`.Dialect`."""
        del fields
        return is_short_json(body)

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """See :class:`.Dialect`."""
        del fields
        return _read(read_row_body(body, version.input_schema), version)

    def read_plain(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> TypedRows | None:
        """See :class:`.PlainDialect`."""
        del fields
        found = read_plain_rows(body, version.input_schema)
        if found is not None and found.signature is not None:
            require_signature(found.signature, version, "/signature_name")
        return found

    def reading_of(
        self, plain: TypedRows, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion
    ) -> Reading:
        """See :class:`.PlainDialect`."""
        del fields
        return _read(row_call_of(plain, body, version.input_schema), version)

    def word_row(self, plain: TypedRows, call: Call, output: RowOutput, *, names_version: bool) -> RowWords | None:
        """See :class:`.PlainDialect`."""
        del plain, call, names_version  # the receipt alone says who answered
        if output.datatype is _BYTES:
            return None
        rows = np.frombuffer(output.content, output.datatype.numpy_dtype).reshape((1, *output.shape))
        return JSON_LINES, b'{"predictions":%b}' % orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)

    def read_other(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """See :class:`.PlainDialect`."""
        del fields
        return _read(read_row_json(parse(body), version.input_schema), version)


def _read(call: RowCall, version: ModelVersion) -> Reading:
    require_signature(call.signature, version, "/signature_name")
    return Reading(call.request, partial(_worded, call))


class Examples:
    """TensorFlow Serving's ``POST /v1/models/{model}:classify`` and ``:regress``.

    Args:
        word: Words the answer.
    """

    name = "v1"

    def __init__(self, word: Callable[[Answered], Worded]) -> None:
        self._word = word

    def is_short(self, body: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """See :class:`.Dialect`."""
        del fields
        # What a context has is in each row. Its key may be written with escapes, which few bodies have.
        return is_short_json(body) and b'"context"' not in body and b"\\u" not in body

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """See :class:`.Dialect`."""
        del fields
        call = read_examples(parse(body), version.input_schema)
        require_signature(call.signature, version, "/signature_name")
        return Reading(call.request, self._word, inline_output_bytes=INLINE_LISTED_BYTES)


def classes_of(answered: Answered) -> list[list[tuple[str, Any]]]:
    """Return an answer as classes of each row, with their scores.

    The judged output has no names of classes: they are empty, as TensorFlow Serving's of a model without them. An
    output of text has no scores: each text is a class of score 0.
    """
    values = answered.output.array((len(answered.calls), -1))
    is_text = answered.output.datatype is Datatype.BYTES
    return [[(one, 0.0) if is_text else ("", one) for one in row] for row in values]


def numbers_of(answered: Answered) -> "NDArray[np.generic]":
    """Return an answer as one number of each row.

    Raises:
        NotOffered: The version gives several, or text.
    """
    output = answered.output
    if prod(output.row_shape) != 1 or output.datatype is Datatype.BYTES:
        raise NotOffered(f"the version answers with {output.datatype.wire_name} of another shape: ask for a prediction")
    return output.array((len(answered.calls),))


def classified(answered: Answered) -> Worded:
    """Word an answer to ``:classify``."""
    return _results(classes_of(answered))


def regressed(answered: Answered) -> Worded:
    """Word an answer to ``:regress``; raises as :func:`numbers_of`."""
    return _results(numbers_of(answered))


def _results(results: Any) -> Worded:
    return Worded(JSON_ALONE, b'{"results":%b}' % orjson.dumps(results, option=orjson.OPT_SERIALIZE_NUMPY))


def _worded(call: RowCall, answered: Answered) -> Worded:
    key = b"outputs" if call.is_columnar else b"predictions"
    rows = () if call.is_columnar else (len(answered.calls),)
    if not answered.has_more:
        output = answered.output
        shape = answered.shape if call.is_columnar else (*rows, *output.row_shape)
        return Worded(JSON_ALONE, b'{"%b":%b}' % (key, values_text(output, shape)))
    outputs = answered.outputs
    # A version without a dimension of the rows answers columns with the one value that it gives.
    shapes = [answered.shape_of(one) if call.is_columnar else (*rows, *one.row_shape) for one in outputs]
    texts = {one.name: values_text(one, shape) for one, shape in zip(outputs, shapes, strict=True)}
    if len(texts) == 1:
        return Worded(JSON_ALONE, b'{"%b":%b}' % (key, texts[answered.output.name]))
    if call.is_columnar:
        columns = {name: orjson.Fragment(text) for name, text in texts.items()}
        return Worded(JSON_ALONE, orjson.dumps({"outputs": columns}))
    listed = zip(*map(orjson.loads, texts.values()), strict=True)
    return Worded(JSON_ALONE, orjson.dumps({"predictions": [dict(zip(texts, row, strict=True)) for row in listed]}))


def values_text(output: Output, shape: tuple[int, ...]) -> bytes:
    """Return the values as JSON nests them in a shape."""
    if output.datatype is _BYTES and output.name.endswith(BYTES_SUFFIX):
        elements = [{"b64": base64.b64encode(one).decode()} for one in split_bytes_elements(output.content)]
        return orjson.dumps(nested(elements, shape))
    # orjson prints a float32 in its shortest form, from which a client reads the very same float32; it takes no array
    # without dimensions.
    values: Any = output.array(shape or (1,))
    text = orjson.dumps(values.tolist() if values.dtype == object else values, option=orjson.OPT_SERIALIZE_NUMPY)
    return text if shape else text[1:-1]


def status_document(policy: ServingPolicy, versions: Sequence[str]) -> list[dict[str, Any]]:
    """Return TensorFlow Serving's ``model_version_status``.

    Args:
        policy: The model's.
        versions: Those to name.
    """
    return [
        {"version": label, "state": _state(policy.versions[label]), "status": {"error_code": "OK", "error_message": ""}}
        for label in versions
    ]


def _state(version: ModelVersion) -> str:
    """Return TensorFlow Serving's word for the state; a version that an agent loads has endpoints once it is loaded."""
    return "AVAILABLE" if version.endpoints else "LOADING"
