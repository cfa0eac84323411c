"""The JSON codec: tensors as nested lists and back, shared by the adapters of model servers whose calls are JSON."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from understudy.core.schema.codec import array_of_content, tensor_of_values
from understudy.core.schema.tensors import Block, Datatype, Tensor, TensorSpec
from understudy.errors import BadAnswer

MAX_ANSWER_DEPTH = 16
"""Dimensions of an answer."""
MAX_ANSWER_VALUES = 524_288
"""Characters ``,``, ``[`` and ``{`` in an answer's JSON: 4 MiB of values of seven characters. Of the two million
shortest numbers that fit, or of 1.4 million lists, single steps take 0.1 to 0.4 s and let no other thread run
(measured)."""


def json_of_content(datatype: Datatype, content: bytes, shape: Sequence[int]) -> Any:
    """Return a tensor's elements as nested lists, for :func:`json_text`; float32 in its shortest decimal form."""
    values = array_of_content(datatype, content)
    if datatype is Datatype.BYTES:
        values = np.array([element.decode() for element in values], dtype=object)
        return values.reshape(shape).tolist() if shape else values[0]
    return values.reshape(shape) if shape else values[0]


def json_columns(specs: Sequence[TensorSpec], block: Block) -> dict[str, Any]:
    """Return the tensors of a call by their names, each with its batch dimension."""
    return {
        spec.name: json_of_content(spec.datatype, content, shape)
        for spec, content, shape in zip(specs, *block, strict=True)
    }


def json_rows(columns: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of :func:`json_columns`: of each tensor its row, in the order of the tensors."""
    return list(zip(*map(list, columns.values()), strict=True))


def json_text(value: Any) -> bytes:
    """Return the JSON of what the functions above made."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def read_json(text: bytes) -> Any:
    """Return the value of an answer's JSON.

    Raises:
        BadAnswer: It is no JSON (NaN is none), or has too many values.
    """
    # A shorter text cannot have so many, and need not be searched.
    if len(text) > MAX_ANSWER_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > MAX_ANSWER_VALUES:
        raise BadAnswer(f"the answer's JSON has more than {MAX_ANSWER_VALUES:,} values and lists")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadAnswer("the answer is not JSON, or holds NaN") from None


def member_of(answer: Mapping[str, Any], name: str | None) -> Any:
    """Return the output of that name, or without one the only output.

    Raises:
        BadAnswer: There is no such output, or not one alone.
    """
    if name is None:
        if len(answer) != 1:
            raise BadAnswer(f"{len(answer)} outputs; output_schema.tensor must name one of them")
        (name,) = answer
    if name not in answer:
        raise BadAnswer(f"the answer has no output {name!r}")
    return answer[name]


def rows_output(value: Any, name: str | None) -> Any:
    """Return the output of rows that are objects, one output each; other rows are the output themselves.

    Raises:
        BadAnswer: One of the objects has no such output.
    """
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return [member_of(row, name) for row in value]
    return value


def tensor_of_json(value: Any, wanted: Datatype | None, most: int | None = None, name: str = "") -> Tensor:
    """Return the tensor of a nested list or of one value.

    Args:
        value: As :func:`read_json` returned it.
        wanted: The datatype that it must have, or can be read as; ``None``: the JSON's own.
        most: Values that it may have.
        name: The server's name of it.

    Raises:
        BadAnswer: It is none, or of another datatype.
    """
    shape, values, kinds = flattened(value, most)
    found = _datatype_of(kinds)
    if found is None or (wanted is not None and not _holds(wanted, found)):
        raise BadAnswer("the answer's JSON values are not of the output's datatype")
    if found is Datatype.BYTES:
        values = [element.encode() for element in values]
    with np.errstate(over="ignore"):  # more than a float32 holds is infinite, which outputs may not be
        return tensor_of_values(wanted or found, shape, values, name)


def _datatype_of(kinds: set[type]) -> Datatype | None:
    if kinds in ({float}, {float, int}):
        return Datatype.FP64
    single = {int: Datatype.INT64, bool: Datatype.BOOL, str: Datatype.BYTES}
    return single.get(next(iter(kinds))) if len(kinds) == 1 else None


def _holds(wanted: Datatype, found: Datatype) -> bool:
    if found is Datatype.INT64:
        return wanted.is_integer or wanted.is_float
    return wanted is found or (wanted.is_float and found.is_float)


def flattened(value: Any, most: int | None) -> tuple[tuple[int, ...], list[Any], set[type]]:
    """Return the shape, the elements and their types, of a nested list or of one value: shape ``()``.

    It goes from level to level: lists in lists hold at least as many values, or none at all. So a level of more than
    ``most`` is refused before its elements are looked at.
    """
    if not isinstance(value, list):
        return (), [value], {type(value)}
    shape: list[int] = [len(value)]
    while True:
        if most is not None and len(value) > most:
            raise BadAnswer(f"the answer has more values than the {most:,} of output_schema.shape")
        kinds = set(map(type, value))
        if list not in kinds:
            return tuple(shape), value, kinds
        if len(shape) == MAX_ANSWER_DEPTH:
            raise BadAnswer("the answer's lists are nested too deep")
        lengths = set(map(len, value)) if len(kinds) == 1 else ()
        if len(lengths) != 1:
            raise BadAnswer("the answer's lists differ in length")
        shape.extend(lengths)
        value = list(chain.from_iterable(value))
