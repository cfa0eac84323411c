"""ONNX graphs written by hand: nodes, constants, inputs and outputs, without a library.

Source:
    The numbers of the fields in onnx.proto, and protobuf's wire format.
"""

import struct
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

ELEMENTS = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int32": 6,
    "int64": 7,
    "object": 8,
    "bool": 9,
    "float16": 10,
    "float64": 11,
}
"""Numbers of the element types, by numpy's name; ``object`` are strings."""
OPSET = 17
IR_VERSION = 8
_FLOAT, _INT, _INTS = 1, 2, 7


class Graph:
    """A graph that is built up node by node; each method returns the name of what it adds."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def input(self, name: str, dtype: str, *sizes: int) -> str:
        """Add an input with a batch dimension before its sizes."""
        self._inputs.append(_bytes(11, _value(name, dtype, sizes)))
        return name

    def constant(self, values: Any, dtype: str = "float32") -> str:
        """Add numbers, or strings with the dtype ``object``."""
        name, array = f"c{len(self._constants)}", np.asarray(values, dtype)
        self._constants.append(_bytes(5, _tensor(name, array, dtype)))
        return name

    def add(self, kind: str, *inputs: str, **attributes: float | list[int]) -> str:
        """Add a node with one output."""
        name = f"n{len(self._nodes)}"
        self._add(kind, inputs, name, attributes)
        return name

    def output(self, value: str, name: str, dtype: str, *sizes: int) -> Self:
        """Have a value be an output of that name."""
        self._add("Identity", (value,), name, {})
        self._outputs.append(_bytes(12, _value(name, dtype, sizes)))
        return self

    def file(self) -> bytes:
        """Return the content of the file."""
        graph = b"".join((*self._nodes, _bytes(2, b"graph"), *self._constants, *self._inputs, *self._outputs))
        return _field(1, IR_VERSION) + _bytes(8, _field(2, OPSET)) + _bytes(7, graph)

    def _add(self, kind: str, inputs: Iterable[str], output: str, attributes: dict[str, float | list[int]]) -> None:
        named = b"".join(_bytes(1, name.encode()) for name in inputs)
        said = b"".join(_bytes(5, _attribute(name, value)) for name, value in attributes.items())
        self._nodes.append(_bytes(1, named + _bytes(2, output.encode()) + _bytes(4, kind.encode()) + said))


def _attribute(name: str, value: float | list[int]) -> bytes:
    head = _bytes(1, name.encode())
    if isinstance(value, list):
        return head + b"".join(_field(8, one) for one in value) + _field(20, _INTS)
    if isinstance(value, int):
        return head + _field(3, value) + _field(20, _INT)
    return head + _varint(2 << 3 | 5) + struct.pack("<f", value) + _field(20, _FLOAT)


def _tensor(name: str, array: NDArray[Any], dtype: str) -> bytes:
    head = b"".join(_field(1, size) for size in array.shape) + _field(2, ELEMENTS[dtype])
    if dtype == "object":
        return head + b"".join(_bytes(6, str(one).encode()) for one in array.ravel()) + _bytes(8, name.encode())
    return head + _bytes(8, name.encode()) + _bytes(9, array.tobytes())


def _value(name: str, dtype: str, sizes: Iterable[int]) -> bytes:
    shape = _bytes(1, _bytes(2, b"batch")) + b"".join(_bytes(1, _field(1, size)) for size in sizes)
    tensor = _field(1, ELEMENTS[dtype]) + _bytes(2, shape)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))


def _field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value % 2**64)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
