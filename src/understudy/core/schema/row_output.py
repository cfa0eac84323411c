"""One row of what a model server answered, as it was: for callers who asked for the server's own values."""

from collections.abc import Iterable
from math import prod

import numpy as np

from understudy.core.schema.codec import join_bytes_elements
from understudy.core.schema.tensors import Datatype, Tensor
from understudy.core.value import Value
from understudy.errors import BadAnswer

MAX_CUT_BYTES = 65_536
"""Of a tensor that is copied as a whole before it is cut into rows, however few of them are asked for."""


class RowOutput(Value, frozen=True, gc=False):
    """A row of an output before any activation: bit for bit what the server sent.

    ``name`` is the server's, empty where it gave none; ``shape`` is without the batch dimension; ``content`` has the
    elements as in a :data:`~understudy.core.schema.tensors.Row`; ``beside`` has the row of further outputs.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    content: bytes
    beside: "tuple[RowOutput, ...]" = ()


def row_outputs_of(tensor: Tensor, places: Iterable[int], *, batch: bool) -> list[RowOutput | BadAnswer]:
    """Return the rows at some places of a tensor that fits its schema, or what is wrong with their own values.

    An activation makes a number of an infinity, which JSON cannot say.

    Args:
        tensor: The server's.
        places: Which rows, from 0.
        batch: Whether the first dimension is that of the rows; without it there is one.
    """
    values, datatype = tensor.values, tensor.datatype
    is_plain = not tensor.beside and datatype is not Datatype.BYTES
    if is_plain and values.nbytes <= MAX_CUT_BYTES and (not datatype.is_float or np.isfinite(values).all()):
        return _cut(tensor, places, batch=batch)
    rows = tensor.shape[0] if batch else 1
    misfit = next((one.name for one in tensor.beside if batch and one.shape[:1] != (rows,)), None)
    found: list[RowOutput | BadAnswer] = []
    for place in places:
        output = _row_of(tensor, place, batch=batch)
        if datatype.is_float and not np.isfinite(np.frombuffer(output.content, datatype.numpy_dtype)).all():
            found.append(BadAnswer("an output is NaN or infinite"))
        elif misfit is not None:
            found.append(BadAnswer(f"the output {misfit!r} has not {rows} rows, as the judged one has"))
        elif tensor.beside:
            found.append(output.but(beside=tuple(_row_of(one, place, batch=batch) for one in tensor.beside)))
        else:
            found.append(output)
    return found


def _cut(tensor: Tensor, places: Iterable[int], *, batch: bool) -> list[RowOutput | BadAnswer]:
    """Return the rows of a tensor of numbers, whose content is made once for all of them."""
    name, datatype, shape = tensor.name, tensor.datatype, tensor.shape[1:] if batch else tensor.shape
    content = tensor.values.astype(datatype.numpy_dtype, copy=False).tobytes()
    width = prod(shape) * datatype.numpy_dtype.itemsize
    return [RowOutput(name, datatype, shape, content[place * width : (place + 1) * width]) for place in places]


def _row_of(tensor: Tensor, place: int, *, batch: bool) -> RowOutput:
    shape = tensor.shape[1:] if batch else tensor.shape
    size = prod(shape)
    values = tensor.values[place * size : (place + 1) * size]
    if tensor.datatype is Datatype.BYTES:
        content = join_bytes_elements([one if isinstance(one, bytes) else str(one).encode() for one in values])
    else:
        content = values.astype(tensor.datatype.numpy_dtype, copy=False).tobytes()
    return RowOutput(tensor.name, tensor.datatype, shape, content)
