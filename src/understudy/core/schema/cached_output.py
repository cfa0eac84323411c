"""A cache's value that keeps the server's own output beside the prediction."""

from math import prod

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
    return output is not None and len(output.content) <= MAX_OUTPUT_BYTES and is_cacheable(prediction)


def encode_with_output(origin: Origin, prediction: Prediction) -> bytes:
    """Return the cache value of a prediction that has its output: two lines of JSON, and the elements."""
    output = prediction.output
    assert output is not None
    head = orjson.dumps({"name": output.name, "datatype": output.datatype.wire_name, "shape": output.shape})
    return b"%b\n%b\n%b" % (encode_cached(origin, prediction), head, output.content)


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
        name, datatype, shape = str(found["name"]), DATATYPES[found["datatype"]], tuple(found["shape"])
        if len(shape) > MAX_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
            return None
        is_good = _fits(schema, datatype, shape) and _is_usable(datatype, content, prod(shape))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    return RowOutput(name, datatype, shape, content) if is_good else None


def _fits(schema: OutputSchema, datatype: Datatype, shape: tuple[int, ...]) -> bool:
    if schema.datatype not in (None, datatype):
        return False
    return schema.shape is None or fits_shape(schema.shape, shape)


def _is_usable(datatype: Datatype, content: bytes, size: int) -> bool:
    """Whether a content has all elements, each of which an answer can say; raises ``ValueError`` where it cannot."""
    if datatype is Datatype.BYTES:
        texts = [one.decode() for one in split_bytes_elements(content, size)]
        return len(texts) == size and not any("\x00" in text for text in texts)
    if len(content) != size * datatype.numpy_dtype.itemsize:
        return False
    return not datatype.is_float or bool(np.isfinite(np.frombuffer(content, datatype.numpy_dtype)).all())
