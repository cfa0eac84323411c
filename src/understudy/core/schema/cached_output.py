"""A cache's value that keeps the server's own output beside the prediction."""

from math import prod

import orjson

from understudy.core.schema.codec import split_bytes_elements
from understudy.core.schema.outputs import Origin, Prediction, decode_cached, encode_cached, is_cacheable
from understudy.core.schema.row_output import RowOutput
from understudy.core.schema.schema import OutputSchema
from understudy.core.schema.tensors import MAX_DIMENSIONS, Datatype

MAX_OUTPUT_BYTES = 65_536
"""Of a row's output; a longer one is not cached."""
_DATATYPES = {datatype.wire_name: datatype for datatype in Datatype}
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
    """Return the prediction of a cache value with its output; ``None`` as :func:`.decode_cached`."""
    parts = value.split(b"\n", 2)
    if len(parts) != _PARTS:
        return None
    prediction = decode_cached(schema, origin, parts[0])
    output = _output_of(parts[1], parts[2])
    return None if prediction is None or output is None else prediction.but(output=output)


def _output_of(head: bytes, content: bytes) -> RowOutput | None:
    try:
        found = orjson.loads(head)
        name, datatype, shape = str(found["name"]), _DATATYPES[found["datatype"]], tuple(found["shape"])
        if len(shape) > MAX_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
            return None
        if datatype is Datatype.BYTES:
            fits = len(split_bytes_elements(content, prod(shape))) == prod(shape)
        else:
            fits = len(content) == prod(shape) * datatype.numpy_dtype.itemsize
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    return RowOutput(name, datatype, shape, content) if fits else None
