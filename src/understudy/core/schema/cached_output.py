"""A cache's value that keeps the server's own output beside the prediction."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import orjson

from understudy.core.schema.codec import split_bytes_elements
from understudy.core.schema.outputs import Origin, Prediction, decode_cached, encode_cached, fits_shape, is_cacheable
from understudy.core.schema.row_output import RowOutput
from understudy.core.schema.schema import OutputSchema
from understudy.core.schema.tensors import DATATYPES, MAX_DIMENSIONS, Datatype

MAX_OUTPUT_BYTES = 65_536
"""Of a row's output; a longer one is not cached."""
_PARTS = 3


def is_cacheable_output(prediction: Prediction) -> bool:
    """Whether a prediction and its output are short enough for the caches."""
    output = prediction.output
    return output is not None and _size_of(output) <= MAX_OUTPUT_BYTES and is_cacheable(prediction)


def _size_of(output: RowOutput) -> int:
    return len(output.content) + sum(len(one.content) for one in output.beside)


def encode_with_output(origin: Origin, prediction: Prediction) -> bytes:
    """Return the cache value of a prediction that has its output: two lines of JSON, and the elements."""
    output = prediction.output
    assert output is not None
    head = _head_of(output)
    contents = [output.content]
    if output.beside:
        head["bytes"] = len(output.content)
        head["beside"] = [{**_head_of(one), "bytes": len(one.content)} for one in output.beside]
        contents += [one.content for one in output.beside]
    return b"%b\n%b\n%b" % (encode_cached(origin, prediction), orjson.dumps(head), b"".join(contents))


def _head_of(output: RowOutput) -> dict[str, Any]:
    return {"name": output.name, "datatype": output.datatype.wire_name, "shape": output.shape}


def decode_with_output(schema: OutputSchema, origin: Origin, value: bytes) -> Prediction | None:
    """Return the prediction of a cache value with its output; ``None`` as :func:`.decode_cached`.

    The output is checked as a model server's answer is.
    """
    parts = value.split(b"\n", 2)
    if len(parts) != _PARTS:
        return None
    prediction = decode_cached(schema, origin, parts[0])
    output = _output_of(schema, parts[1], parts[2])
    return None if prediction is None or output is None else prediction.but(output=output)


def _output_of(schema: OutputSchema, head: bytes, content: bytes) -> RowOutput | None:
    try:
        found = orjson.loads(head)
        own = found.get("bytes", len(content))
        output = _read(found, content[:own])
        if not _fits(schema, output.datatype, output.shape) or not _is_finite(output):
            return None
        beside, rest = [], content[own:]
        for one in found.get("beside", []):
            beside.append(_read(one, rest[: one["bytes"]], is_text=False))
            rest = rest[one["bytes"] :]
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None
    is_whole = not rest and tuple(one.name for one in beside) == schema.also
    return output.but(beside=tuple(beside)) if is_whole else None


def _read(head: Mapping[str, Any], content: bytes, *, is_text: bool = True) -> RowOutput:
    """Return an output; raises ``ValueError`` where its content has not all elements, or ``is_text`` and cannot be."""
    name, datatype, shape = str(head["name"]), DATATYPES[head["datatype"]], tuple(head["shape"])
    if len(shape) > MAX_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(shape)
    if datatype is Datatype.BYTES:
        elements = split_bytes_elements(content, prod(shape))
        if len(elements) != prod(shape) or (is_text and any("\x00" in one.decode() for one in elements)):
            raise ValueError(name)
    elif len(content) != prod(shape) * datatype.numpy_dtype.itemsize:
        raise ValueError(name)
    return RowOutput(name, datatype, shape, content)


def _fits(schema: OutputSchema, datatype: Datatype, shape: tuple[int, ...]) -> bool:
    if schema.datatype not in (None, datatype):
        return False
    return schema.shape is None or fits_shape(schema.shape, shape)


def _is_finite(output: RowOutput) -> bool:
    if not output.datatype.is_float:
        return True
    return bool(np.isfinite(np.frombuffer(output.content, output.datatype.numpy_dtype)).all())
