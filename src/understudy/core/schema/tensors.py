"""Tensors as they go to and come from a model server, in the words of the Open Inference Protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Datatype(Enum):
    """An element type: its Open Inference Protocol name, its ``struct`` letter and its numpy type."""

    BOOL = ("BOOL", "?", "bool")
    INT8 = ("INT8", "b", "int8")
    INT16 = ("INT16", "h", "int16")
    INT32 = ("INT32", "i", "int32")
    INT64 = ("INT64", "q", "int64")
    UINT8 = ("UINT8", "B", "uint8")
    FP32 = ("FP32", "f", "float32")
    FP64 = ("FP64", "d", "float64")
    BYTES = ("BYTES", "", "object")

    def __init__(self, wire_name: str, letter: str, numpy_name: str) -> None:
        self.wire_name = wire_name
        self.letter = letter
        self.is_float = wire_name.startswith("FP")
        """Whether values are rounded to a binary fraction."""
        self.numpy_dtype: np.dtype[Any] = np.dtype(numpy_name).newbyteorder("<")

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers."""
        return self.wire_name.startswith(("INT", "UINT"))


DATATYPES = {datatype.wire_name: datatype for datatype in Datatype}
"""By the name that the Open Inference Protocol has for them."""
MAX_DIMENSIONS = 64
"""Of a tensor. Source: numpy's own limit (``NPY_MAXDIMS``)."""
_SHOWN_DIMENSIONS = 8


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape for an error: a list, of more than eight dimensions the first ones and how many there are."""
    if len(shape) <= _SHOWN_DIMENSIONS:
        return str(list(shape))
    shown = ", ".join(map(str, shape[:_SHOWN_DIMENSIONS]))
    return f"[{shown}, …], which has {len(shape)} dimensions"


_ALIASES = {
    "bool": Datatype.BOOL,
    "boolean": Datatype.BOOL,
    "int": Datatype.INT64,
    "integer": Datatype.INT64,
    "float": Datatype.FP32,
    "double": Datatype.FP64,
    "str": Datatype.BYTES,
    "string": Datatype.BYTES,
    **{d.numpy_dtype.name: d for d in Datatype if d is not Datatype.BYTES},
    **{d.wire_name.lower(): d for d in Datatype},
}


def parse_datatype(name: str) -> Datatype:
    """Return the element type that a schema names, for example ``float32``, ``FP32`` or ``string``.

    Raises:
        KeyError: If there is no such type.
    """
    return _ALIASES[name.lower()]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output tensor of a version; ``shape`` is without the batch dimension."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of elements of one row."""
        return prod(self.shape)


Row: TypeAlias = tuple[bytes, ...]
"""One entity's assembled inputs: for each input tensor its little-endian elements.

``BYTES`` elements are each a 4-byte little-endian length and then UTF-8, as in the protocol's ``raw_input_contents``.
"""


class Block(NamedTuple):
    """The input tensors of one call: ``contents`` as in a :data:`Row`, and ``shapes`` with the batch dimension."""

    contents: Row
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor that a model server answered. ``values`` is flat; ``shape`` includes the batch dimension."""

    datatype: Datatype
    shape: tuple[int, ...]
    values: NDArray[Any]
    name: str = ""
    """The server's name of it; empty where the server gave none."""
    beside: "tuple[Tensor, ...]" = ()
    """Further outputs of the same answer, which are not judged."""

    def reshaped(self, shape: tuple[int, ...]) -> "Tensor":
        """Return the same values in another shape, which must have as many."""
        return Tensor(self.datatype, shape, self.values, self.name)


def join_rows(rows: Sequence[Row]) -> Row:
    """Return the contents of one call that carries all ``rows``: tensor by tensor, row after row."""
    return rows[0] if len(rows) == 1 else tuple(b"".join(parts) for parts in zip(*rows, strict=True))


def block_of_rows(specs: Sequence[TensorSpec], rows: Sequence[Row], *, batch: bool) -> Block:
    """Return the block of input tensors of one call that carries ``rows``.

    Raises:
        ValueError: If there are several rows and the version takes no batch dimension.
    """
    return Block(join_rows(rows), tuple([_shape_of_rows(spec, rows, batch=batch) for spec in specs]))


def _shape_of_rows(spec: TensorSpec, rows: Sequence[Any], *, batch: bool) -> tuple[int, ...]:
    if batch:
        return (len(rows), *spec.shape)
    if len(rows) != 1:
        msg = f"{len(rows)} rows for a version without a batch dimension"
        raise ValueError(msg)
    return spec.shape
