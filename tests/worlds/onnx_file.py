"""ONNX files of any size, written by hand: one matrix, and a sigmoid of its product with a row.

Source:
    The numbers of the fields in onnx.proto, and protobuf's wire format.
"""

from collections.abc import Iterable

import numpy as np

FLOAT = 1
WIDTH = 256


def a_matrix_model(size_bytes: int) -> bytes:
    """Return a model of some ``size_bytes``: ``x`` with ``WIDTH`` numbers in, ``y`` out."""
    columns = max(size_bytes // (4 * WIDTH), 1)
    weights = np.linspace(-1.0, 1.0, WIDTH * columns, dtype=np.float32).tobytes()
    matrix = _field(1, WIDTH) + _field(1, columns) + _field(2, FLOAT) + _bytes(8, b"w") + _bytes(9, weights)
    graph = b"".join(
        (
            _bytes(1, _node("MatMul", ("x", "w"), "z")),
            _bytes(1, _node("Sigmoid", ("z",), "y")),
            _bytes(2, b"matrix"),
            _bytes(5, matrix),
            _bytes(11, _value("x", WIDTH)),
            _bytes(12, _value("y", columns)),
        )
    )
    return _field(1, 8) + _bytes(8, _field(2, 17)) + _bytes(7, graph)


def _node(kind: str, inputs: Iterable[str], output: str) -> bytes:
    named = b"".join(_bytes(1, name.encode()) for name in inputs)
    return named + _bytes(2, output.encode()) + _bytes(4, kind.encode())


def _value(name: str, width: int) -> bytes:
    shape = _bytes(1, _bytes(2, b"batch")) + _bytes(1, _field(1, width))
    tensor = _field(1, FLOAT) + _bytes(2, shape)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))


def _field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
