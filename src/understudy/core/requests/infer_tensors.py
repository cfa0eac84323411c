"""Tensors of a call, in whatever message they came: their rows as features, and whose rows they are."""

from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from understudy.core.requests.caller_entity import CATEGORY, ENTITY_ID, UNSAID, Named, Whose
from understudy.core.requests.caller_request import (
    CallerRequest,
    PackedRows,
    RowsOnDemand,
    refuse_inputs,
    require_rows,
)
from understudy.core.requests.strict_json import MAX_DEPTH
from understudy.core.requests.tensor_inputs import (
    MAX_ROWS,
    CallerInputs,
    NamedInput,
    caller_inputs_of,
    rows_in,
    shape_wanted,
    shown,
)
from understudy.core.schema.codec import split_bytes_elements
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.tensors import DATATYPES, MAX_DIMENSIONS, Datatype, TensorSpec
from understudy.core.schema.typed_decoder import UNREADABLE
from understudy.errors import InputInvalid, MalformedBody, Violation

MAX_NAMED_VALUES = 1_000
_OWN = (ENTITY_ID, CATEGORY)
CONTENT = (
    "A tensor's bytes are its elements, little-endian, row after row; a string is its length in 4 bytes, then UTF-8."
)


class InferTensor(NamedTuple):
    """An input as it was sent."""

    place: str
    """Where it stands in the message, as a pointer."""
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Any
    """Its elements as JSON has them, flat or nested; ``None`` where it comes as bytes."""
    content: bytes | None

    def at(self, element: int) -> str:
        """Return where one of its elements stands."""
        return f"{self.place}/data/{element}"


def shape_of(sizes: Sequence[Any], place: str, name: str) -> tuple[int, ...]:
    """Return a shape that a caller wrote of the input of this name.

    Raises:
        InputInvalid: A size is no whole number, or negative; or they are too many.
    """
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise refuse_inputs(f"{place}/shape", f"input {shown(name)}: expected a list of whole numbers from 0 on")
    if len(sizes) > MAX_DIMENSIONS:
        raise refuse_inputs(f"{place}/shape", f"input {shown(name)}: more than {MAX_DIMENSIONS} dimensions")
    return tuple(sizes)


def too_few_or_many(name: str, count: int, shape: Sequence[int]) -> str:
    """Return what is wrong with an input that has so many values, where its shape has others."""
    return f"input {shown(name)} has {count:,} values, and {list(shape)[:8]} has {prod(shape):,}"


def require_names_once(tensors: Sequence[InferTensor]) -> None:
    """Refuse two inputs of one name.

    Raises:
        InputInvalid: With the second one's place.
    """
    known: set[str] = set()
    for tensor in tensors:
        if tensor.name in known:
            raise refuse_inputs(f"{tensor.place}/name", f"there is another input {shown(tensor.name)}")
        known.add(tensor.name)


def request_of(tensors: Sequence[InferTensor], parameters: Mapping[str, Any], schema: InputSchema) -> CallerRequest:
    """Return the rows of tensors of different names.

    Args:
        tensors: Those that were sent.
        parameters: The call's, which may say whose it is.
        schema: Of the version whose inputs the caller names.

    Raises:
        MalformedBody: Bytes are not what the shape says.
        BatchInvalid: There are no rows, or too many.
        InputInvalid: Values do not fit the inputs, or are named by nothing that the version has.
    """
    sent, wanted, own = _known(tensors, caller_inputs_of(schema))
    count = _rows_of(sent, wanted, batch=schema.batch)
    if not 1 <= count <= MAX_ROWS:
        require_rows(count, f"{sent[0].place}/shape", sent[0].name)

    def features() -> list[dict[str, Any]]:
        return _features_of(sent, wanted, count)

    packed = _packed(sent, wanted, schema, count)
    rows = features() if packed is None else RowsOnDemand(count, features)
    by_name = {tensor.name: tensor for tensor in sent}

    def place_of(row: int, name: str | None, element: int) -> str:
        return "/inputs" if name is None else by_name[name].at(row * wanted[name].spec.size + element)

    whose = _whose(own, parameters, count) if own or parameters else UNSAID
    elements = count * sum(one.spec.size for one in wanted.values())
    return CallerRequest(rows, whose, wanted, place_of, elements, packed)


def _known(
    tensors: Sequence[InferTensor], inputs: CallerInputs
) -> tuple[Sequence[InferTensor], Mapping[str, NamedInput], Mapping[str, InferTensor]]:
    """Return the tensors that are inputs, what these are, and the tensors that say whose the rows are."""
    alone = inputs.alone(tensors[0].name) if len(tensors) == 1 and tensors[0].name not in _OWN else None
    if alone is not None:
        return tensors, alone, {}
    own = {
        tensor.name: tensor
        for tensor in tensors
        if tensor.name == ENTITY_ID or (tensor.name == CATEGORY and CATEGORY not in inputs)
    }
    sent = [tensor for tensor in tensors if tensor.name in inputs or tensor.name not in own]
    wanted = inputs.named([tensor.name for tensor in sent])
    unknown = next((tensor for tensor in sent if tensor.name not in wanted), None)
    if unknown is not None:
        raise refuse_inputs(f"{unknown.place}/name", f"{shown(unknown.name)} is not an input of this version")
    return sent, wanted, own


def _whose(own: Mapping[str, InferTensor], parameters: Mapping[str, Any], count: int) -> Whose:
    return Whose(
        _column(own.get(ENTITY_ID), count),
        _column(own.get(CATEGORY), count),
        *(
            Named(parameters[name], "parameters", f"/parameters/{name}") if name in parameters else None
            for name in (ENTITY_ID, CATEGORY)
        ),
    )


def _features_of(sent: Sequence[InferTensor], wanted: Mapping[str, NamedInput], count: int) -> list[dict[str, Any]]:
    """Return the features of each row; raises what is wrong with the elements."""
    elements = {tensor.name: _elements_of(tensor, wanted[tensor.name].spec) for tensor in sent}
    rows: list[dict[str, Any]] = []
    for row in range(count):
        values: dict[str, Any] = {}
        for name, flat in elements.items():
            size = wanted[name].spec.size
            values.update(wanted[name].values_of(flat[row * size : (row + 1) * size]))
        rows.append(values)
    return rows


def _packed(
    sent: Sequence[InferTensor], wanted: Mapping[str, NamedInput], schema: InputSchema, count: int
) -> PackedRows | None:
    """Return the rows of the version's one tensor as it takes them; ``None`` where the features have to decide."""
    decoder = schema.decoder
    if decoder is None or not decoder.takes_rows or len(sent) != 1:
        return None
    (tensor,) = sent
    spec = wanted[tensor.name].spec
    if spec is not schema.packed[0].spec:
        return None
    try:
        rows: Sequence[bytes] | None = None
        if tensor.content is not None:
            rows = decoder.rows_in(tensor.content)
        elif isinstance(tensor.data, list):
            is_nested = spec.size > 1 and len(tensor.data) == count
            rows = list(map(decoder.packed_row, tensor.data)) if is_nested else decoder.packed_rows(tensor.data)
    except UNREADABLE:
        return None
    return None if rows is None or len(rows) != count else PackedRows(decoder, rows)


def _rows_of(sent: Sequence[InferTensor], wanted: Mapping[str, NamedInput], *, batch: bool) -> int:
    """Return how many rows all inputs have; their datatypes and shapes must be the version's."""
    counts: dict[int, str] = {}
    for tensor in sent:
        spec = wanted[tensor.name].spec
        if tensor.datatype != spec.datatype.wire_name:
            detail = f"input {shown(tensor.name)} is {spec.datatype.wire_name}, not {tensor.datatype[:16]}"
            raise refuse_inputs(f"{tensor.place}/datatype", detail)
        rows = rows_in(spec, tensor.shape, batch=batch)
        if rows is None:
            detail = f"input {shown(tensor.name)} has the shape {shape_wanted(spec, batch=batch)}"
            raise refuse_inputs(f"{tensor.place}/shape", detail)
        counts[rows] = tensor.name
    if len(counts) > 1:
        (one, first), (other, second) = list(counts.items())[:2]
        raise refuse_inputs("/inputs", f"{shown(first)} has {one} rows and {shown(second)} has {other}")
    return next(iter(counts), 1)


def _elements_of(tensor: InferTensor, spec: TensorSpec) -> list[Any]:
    """Return all elements of an input, flat."""
    if tensor.content is None:
        return _flat(tensor)
    if spec.datatype is Datatype.BYTES:
        return _texts_of(tensor)
    size = prod(tensor.shape) * spec.datatype.numpy_dtype.itemsize
    if len(tensor.content) != size:
        found = len(tensor.content)
        raise MalformedBody(f"input {shown(tensor.name)} has {found} bytes, its shape {size}", hint=CONTENT)
    values = np.frombuffer(tensor.content, spec.datatype.numpy_dtype)
    if spec.datatype.is_float and not np.isfinite(values).all():
        places = np.flatnonzero(~np.isfinite(values))[:MAX_NAMED_VALUES]
        detail = f"input {shown(tensor.name)} is NaN or infinite here; expected a number"
        bad = (Violation(tensor.at(place), detail) for place in places)
        raise InputInvalid.naming(*bad)
    return _numbers_of(values)


def _numbers_of(values: NDArray[Any]) -> list[Any]:
    """Return a tensor's numbers: of float32 the shortest decimals, as a caller would write them in JSON.

    Bounds and the log know 0.1, and not 0.10000000149. The decimals that stand for other float32, if there are any
    after rounding twice, are not used.
    """
    if values.dtype == np.float32:
        decimals: list[Any] = orjson.loads(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
        if np.array(decimals, values.dtype).tobytes() == values.tobytes():
            return decimals
    return list(values.tolist())


def _flat(tensor: InferTensor) -> list[Any]:
    """Return JSON's elements, which may be nested, row after row."""
    if not isinstance(tensor.data, list):
        raise refuse_inputs(f"{tensor.place}/data", f"input {shown(tensor.name)}: expected a list")
    level: list[Any] = tensor.data
    for _ in range(MAX_DEPTH):
        if not any(isinstance(one, list) for one in level):
            break
        if not all(isinstance(one, list) for one in level):
            detail = f"input {shown(tensor.name)}: lists and single values stand side by side"
            raise refuse_inputs(f"{tensor.place}/data", detail)
        level = list(chain.from_iterable(level))
    if len(level) != prod(tensor.shape):
        raise refuse_inputs(f"{tensor.place}/data", too_few_or_many(tensor.name, len(level), tensor.shape))
    return level


def _texts_of(tensor: InferTensor) -> list[str]:
    content, count = tensor.content or b"", prod(tensor.shape)
    try:
        elements = split_bytes_elements(content, count)
    except ValueError:
        raise MalformedBody(f"input {shown(tensor.name)}: a string is longer than the rest", hint=CONTENT) from None
    if len(elements) != count:
        raise MalformedBody(f"input {shown(tensor.name)} has not {count:,} strings, as its shape", hint=CONTENT)
    texts: list[str] = []
    for place, element in enumerate(elements):
        try:
            text = element.decode()
        except UnicodeDecodeError:
            raise refuse_inputs(tensor.at(place), f"input {shown(tensor.name)} is not UTF-8 here") from None
        if "\x00" in text:
            raise refuse_inputs(tensor.at(place), f"input {shown(tensor.name)} holds U+0000 here")
        texts.append(text)
    return texts


def _column(tensor: InferTensor | None, rows: int) -> list[Any] | None:
    """Return the value of each row of an input that names entities or categories."""
    if tensor is None:
        return None
    datatype = DATATYPES.get(tensor.datatype)
    if datatype is None or not (datatype is Datatype.BYTES or datatype.is_integer):
        raise refuse_inputs(f"{tensor.place}/datatype", f"input {tensor.name!r} is BYTES, or whole numbers")
    if rows_in(TensorSpec(tensor.name, datatype), tensor.shape, batch=True) != rows:
        raise refuse_inputs(f"{tensor.place}/shape", f"input {tensor.name!r} has a value for each of {rows} rows")
    return _elements_of(tensor, TensorSpec(tensor.name, datatype))
