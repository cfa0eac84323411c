"""The tensor codec: raw tensor contents to arrays and back, shared by the model servers' adapters."""

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.schema.tensors import (
    MAX_DIMENSIONS,
    Datatype,
    Tensor,
    shape_text,
)
from understudy.errors import BadAnswer

MAX_STRINGS = 524_288
"""Of an output: 4 MiB of them if each has four bytes beside its length. They are read and become text one by one, which
takes a microsecond for each."""


def tensor_of_content(datatype: Datatype, shape: tuple[int, ...], content: bytes, name: str = "") -> Tensor:
    """Return a tensor from its packed little-endian content, without copying numbers.

    Raises:
        BadAnswer: If the content's size is not that of the shape.
    """
    if datatype is Datatype.BYTES:
        return tensor_of_values(datatype, shape, _strings_of(content, shape), name)
    if len(content) != _size(shape) * datatype.numpy_dtype.itemsize:
        raise BadAnswer(f"an output has {len(content)} bytes, which does not match its shape {shape_text(shape)}")
    return Tensor(datatype, shape, np.frombuffer(content, datatype.numpy_dtype), name)


def _strings_of(content: bytes, shape: tuple[int, ...]) -> list[bytes]:
    most = _size(shape)
    _require_readable(most)
    try:
        elements = split_bytes_elements(content, most)
    except ValueError:
        raise BadAnswer("an output's strings are longer than its content") from None
    if len(elements) > most:
        raise BadAnswer(f"an output has more strings than its shape {shape_text(shape)}")
    return elements


def tensor_of_values(datatype: Datatype, shape: tuple[int, ...], values: Collection[Any], name: str = "") -> Tensor:
    """Return a tensor from its elements, one by one.

    Raises:
        BadAnswer: If their number is not that of the shape, or one does not fit the datatype.
    """
    if len(values) != _size(shape):
        raise BadAnswer(f"an output has {len(values)} values, which does not match its shape {shape_text(shape)}")
    if datatype is Datatype.BYTES:
        _require_readable(len(values))
    try:
        return Tensor(datatype, shape, np.fromiter(values, datatype.numpy_dtype, count=len(values)), name)
    except (OverflowError, ValueError, TypeError):
        raise BadAnswer(f"an output's values are not {datatype.wire_name}") from None


def _require_readable(strings: int) -> None:
    if strings > MAX_STRINGS:
        raise BadAnswer(f"an output has more than {MAX_STRINGS:,} strings")


def array_of_content(datatype: Datatype, content: bytes) -> NDArray[Any]:
    """Return the flat elements of a content that this process packed; strings are ``bytes``."""
    if datatype is Datatype.BYTES:
        elements = split_bytes_elements(content)
        return np.fromiter(elements, datatype.numpy_dtype, count=len(elements))
    return np.frombuffer(content, datatype.numpy_dtype)


def split_bytes_elements(content: bytes, most: int | None = None) -> list[bytes]:
    """Return the elements of a ``BYTES`` tensor's content; of more than ``most`` the first ones and one more.

    Raises:
        ValueError: If an element is longer than the rest of the content.
    """
    elements: list[bytes] = []
    length = len(content)
    # No more than these fit: each has four bytes of its own.
    left = length if most is None else most + 1
    position = 0
    while position < length and left:
        start = position + 4
        end = start + int.from_bytes(content[position:start], "little")
        if start > length or end > length:
            msg = f"BYTES element at offset {position} runs over the end of the content"
            raise ValueError(msg)
        elements.append(content[start:end])
        position = end
        left -= 1
    return elements


def join_bytes_elements(elements: Sequence[bytes]) -> bytes:
    """Return the content of a ``BYTES`` tensor with these elements."""
    return b"".join(len(element).to_bytes(4, "little") + element for element in elements)


def _size(shape: tuple[int, ...]) -> int:
    # The product of many dimensions would be a number of megabytes, and take the event loop seconds.
    if len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise BadAnswer(f"an output's shape is {shape_text(shape)}")
    return prod(shape)
