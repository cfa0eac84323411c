"""Infer calls of the Open Inference Protocol over REST: tensors as JSON, or as bytes behind it.

The JSON header may be followed by the contents of the tensors that say ``binary_data_size``, in their order (Triton's
binary tensor data extension). Sources: the protocol's ``inference_rest.md``, Triton's ``extension_binary_data.md``.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from understudy.core.requests.caller_entity import CATEGORY, ENTITY_ID, Named, Whose
from understudy.core.requests.caller_request import CallerRequest, refuse_inputs, require_rows
from understudy.core.requests.strict_json import MAX_DEPTH, parse
from understudy.core.requests.tensor_inputs import CallerInputs, NamedInput, rows_in, shape_wanted, shown
from understudy.core.schema.codec import split_bytes_elements
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.tensors import MAX_DIMENSIONS, Datatype, TensorSpec
from understudy.errors import InputInvalid, MalformedBody, NotOffered, Violation

MAX_TEXT = 1_024
"""Characters of a request's own id."""
MAX_TIMEOUT_MICROSECONDS = 3_600_000_000
MAX_NAMED_VALUES = 1_000
_DATATYPES = {datatype.wire_name: datatype for datatype in Datatype}
_SEQUENCE = "sequence_id"
_SHARED_MEMORY = "shared_memory_region"
_SIZE = "binary_data_size"
FRAMING = "Send the JSON's length as Inference-Header-Content-Length, and after it each tensor's bytes, in order."


class WantedOutput(NamedTuple):
    """An output that a caller names, and whether its values are to come as bytes."""

    name: str
    binary: bool


class InferCall(NamedTuple):
    """A body, read."""

    request: CallerRequest
    id: str | None
    """The caller's own, to be echoed."""
    outputs: tuple[WantedOutput, ...]
    """Empty: all."""
    binary: bool
    """Whether outputs come as bytes that the caller does not name."""
    timeout_seconds: float | None


class _Tensor(NamedTuple):
    """An input as it was sent."""

    position: int
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Any
    """``None`` where it comes as bytes."""
    content: bytes | None

    @property
    def place(self) -> str:
        return f"/inputs/{self.position}"


def read_infer(body: bytes, header_length: int | None, schema: InputSchema) -> InferCall:
    """Read a whole body.

    Args:
        body: JSON, and bytes behind it if a ``header_length`` says where they begin.
        header_length: Bytes of the JSON.
        schema: Of the version whose inputs the caller names.

    Raises:
        MalformedBody: It is no JSON, or its bytes are not what its JSON says.
        BatchInvalid: It has no rows, or too many.
        InputInvalid: Values do not fit the inputs, or are named by nothing that the version has.
        NotOffered: It asks for sequences, shared memory or classification.
    """
    if header_length is not None and header_length > len(body):
        raise MalformedBody(f"the JSON is said to have {header_length} bytes, the body has {len(body)}", hint=FRAMING)
    end = len(body) if header_length is None else header_length
    document = parse(body[:end])
    if not isinstance(document, dict):
        raise MalformedBody("expected a JSON object: line 1, column 1 (byte 0)")
    parameters = _object(document, "parameters", "")
    if parameters.get(_SEQUENCE) not in (None, 0, ""):
        raise NotOffered("sequence_id: calls of a sequence keep no state here")
    own_id = document.get("id")
    if not isinstance(own_id, str | None) or len(own_id or "") > MAX_TEXT:
        raise refuse_inputs("/id", f"expected a string of at most {MAX_TEXT:,} characters")
    tensors = _tensors_of(document, memoryview(body)[end:])
    binary = parameters.get("binary_data_output") is True
    return InferCall(
        _request_of(tensors, parameters, schema), own_id, _outputs_of(document, binary), binary, _timeout_of(parameters)
    )


def _tensors_of(document: Mapping[str, Any], raw: memoryview) -> list[_Tensor]:
    listed = document.get("inputs")
    if not isinstance(listed, list) or not listed:
        raise refuse_inputs("/inputs", "expected a list of at least one tensor")
    tensors: list[_Tensor] = []
    start = 0
    for index, entry in enumerate(listed):
        tensor, size = _tensor_of(index, entry)
        if size is not None:
            if size > len(raw) - start:
                left = len(raw) - start
                raise MalformedBody(f"input {shown(tensor.name)} has {size} bytes, and {left} are left", hint=FRAMING)
            tensor = tensor._replace(content=bytes(raw[start : start + size]))
            start += size
        tensors.append(tensor)
    if start != len(raw):
        raise MalformedBody(f"the inputs have {start} bytes, and {len(raw)} follow the JSON", hint=FRAMING)
    names = [tensor.name for tensor in tensors]
    twice = next((one for one in tensors if names.index(one.name) != one.position), None)
    if twice is not None:
        raise refuse_inputs(f"{twice.place}/name", f"there is another input {shown(twice.name)}")
    return tensors


def _tensor_of(index: int, entry: Any) -> tuple[_Tensor, int | None]:
    """Return an input without its bytes, and how many it has."""
    place = f"/inputs/{index}"
    if not isinstance(entry, dict):
        raise refuse_inputs(place, "expected an object with name, datatype, shape and data")
    name, datatype, shape = entry.get("name"), entry.get("datatype"), entry.get("shape")
    if not isinstance(name, str) or not name:
        raise refuse_inputs(f"{place}/name", "expected a string")
    if not isinstance(datatype, str):
        raise refuse_inputs(f"{place}/datatype", "expected a string such as FP32")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise refuse_inputs(f"{place}/shape", "expected a list of whole numbers from 0 on")
    if len(shape) > MAX_DIMENSIONS:
        raise refuse_inputs(f"{place}/shape", f"more than {MAX_DIMENSIONS} dimensions")
    parameters = _object(entry, "parameters", place)
    if _SHARED_MEMORY in parameters:
        raise NotOffered(f"input {shown(name)}: there is no shared memory with callers")
    size = parameters.get(_SIZE)
    if size is not None and (type(size) is not int or size < 0):
        raise refuse_inputs(f"{place}/parameters/{_SIZE}", "expected a whole number from 0 on")
    if (size is None) == ("data" not in entry):
        both = "both data and" if size is not None else "neither data nor"
        raise MalformedBody(f"input {shown(name)} has {both} {_SIZE}: expected one of them", hint=FRAMING)
    return _Tensor(index, name, datatype, tuple(shape), entry.get("data"), None), size


def _request_of(tensors: Sequence[_Tensor], parameters: Mapping[str, Any], schema: InputSchema) -> CallerRequest:
    inputs = CallerInputs(schema)
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
    count = _rows_of(sent, wanted, batch=schema.batch)
    require_rows(count, "/inputs/0/shape" if sent else "/inputs")
    elements = {tensor.name: _elements_of(tensor, wanted[tensor.name].spec) for tensor in sent}
    rows: list[dict[str, Any]] = []
    for row in range(count):
        values: dict[str, Any] = {}
        for name, flat in elements.items():
            size = wanted[name].spec.size
            values.update(wanted[name].values_of(flat[row * size : (row + 1) * size]))
        rows.append(values)
    index_of = {tensor.name: tensor.position for tensor in sent}

    def place_of(row: int, name: str | None, element: int) -> str:
        if name is None:
            return "/inputs"
        return f"/inputs/{index_of[name]}/data/{row * wanted[name].spec.size + element}"

    whose = Whose(
        _column(own.get(ENTITY_ID), count),
        _column(own.get(CATEGORY), count),
        *(
            Named(parameters[name], "parameters", f"/parameters/{name}") if name in parameters else None
            for name in (ENTITY_ID, CATEGORY)
        ),
    )
    return CallerRequest(rows, whose, wanted, place_of, sum(map(len, elements.values())))


def _rows_of(sent: Sequence[_Tensor], wanted: Mapping[str, NamedInput], *, batch: bool) -> int:
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


def _elements_of(tensor: _Tensor, spec: TensorSpec) -> list[Any]:
    """Return all elements of an input, flat."""
    if tensor.content is None:
        return _flat(tensor)
    if spec.datatype is Datatype.BYTES:
        return _texts_of(tensor)
    size = prod(tensor.shape) * spec.datatype.numpy_dtype.itemsize
    if len(tensor.content) != size:
        found = len(tensor.content)
        raise MalformedBody(f"input {shown(tensor.name)} has {found} bytes, its shape {size}", hint=FRAMING)
    values = np.frombuffer(tensor.content, spec.datatype.numpy_dtype)
    if spec.datatype.is_float and not np.isfinite(values).all():
        places = np.flatnonzero(~np.isfinite(values))[:MAX_NAMED_VALUES]
        bad = (Violation(f"{tensor.place}/data/{place}", "is NaN or infinite; expected a number") for place in places)
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


def _flat(tensor: _Tensor) -> list[Any]:
    """Return JSON's elements, which may be nested, row after row."""
    if not isinstance(tensor.data, list):
        raise refuse_inputs(f"{tensor.place}/data", "expected a list")
    level: list[Any] = tensor.data
    for _ in range(MAX_DEPTH):
        if not any(isinstance(one, list) for one in level):
            break
        if not all(isinstance(one, list) for one in level):
            raise refuse_inputs(f"{tensor.place}/data", "lists and single values stand side by side")
        level = list(chain.from_iterable(level))
    if len(level) != prod(tensor.shape):
        detail = f"has {len(level):,} values, and {list(tensor.shape)[:8]} has {prod(tensor.shape):,}"
        raise refuse_inputs(f"{tensor.place}/data", detail)
    return level


def _texts_of(tensor: _Tensor) -> list[str]:
    content, count = tensor.content or b"", prod(tensor.shape)
    try:
        elements = split_bytes_elements(content, count)
    except ValueError:
        raise MalformedBody(f"input {shown(tensor.name)}: a string is longer than the rest", hint=FRAMING) from None
    if len(elements) != count:
        raise MalformedBody(f"input {shown(tensor.name)} has not {count:,} strings, as its shape", hint=FRAMING)
    texts: list[str] = []
    for place, element in enumerate(elements):
        try:
            text = element.decode()
        except UnicodeDecodeError:
            raise refuse_inputs(f"{tensor.place}/data/{place}", "is not UTF-8") from None
        if "\x00" in text:
            raise refuse_inputs(f"{tensor.place}/data/{place}", "holds U+0000")
        texts.append(text)
    return texts


def _column(tensor: _Tensor | None, rows: int) -> list[Any] | None:
    """Return the value of each row of an input that names entities or categories."""
    if tensor is None:
        return None
    datatype = _DATATYPES.get(tensor.datatype)
    if datatype is None or not (datatype is Datatype.BYTES or datatype.is_integer):
        raise refuse_inputs(f"{tensor.place}/datatype", f"input {tensor.name!r} is BYTES, or whole numbers")
    if rows_in(TensorSpec(tensor.name, datatype), tensor.shape, batch=True) != rows:
        raise refuse_inputs(f"{tensor.place}/shape", f"input {tensor.name!r} has a value for each of {rows} rows")
    return _elements_of(tensor, TensorSpec(tensor.name, datatype))


def _outputs_of(document: Mapping[str, Any], binary: bool) -> tuple[WantedOutput, ...]:  # noqa: FBT001 - the default
    listed = document.get("outputs")
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise refuse_inputs("/outputs", "expected a list")
    wanted: list[WantedOutput] = []
    known: set[str] = set()
    for index, entry in enumerate(listed):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise refuse_inputs(f"/outputs/{index}", "expected an object with a name")
        if name in known:  # each is a whole tensor of the answer, and a body has room for 70,000
            raise refuse_inputs(f"/outputs/{index}/name", f"there is another output {shown(name)}")
        known.add(name)
        parameters = _object(entry, "parameters", f"/outputs/{index}")
        if parameters.get("classification") or _SHARED_MEMORY in parameters:
            raise NotOffered(f"output {shown(name)}: neither classification nor shared memory is offered")
        wanted.append(WantedOutput(name, parameters.get("binary_data", binary) is True))
    return tuple(wanted)


def _timeout_of(parameters: Mapping[str, Any]) -> float | None:
    """Return the deadline that Triton's parameter ``timeout`` gives, in microseconds; 0 is none."""
    found = parameters.get("timeout")
    if found in (None, 0):
        return None
    if type(found) is not int or not 0 < found <= MAX_TIMEOUT_MICROSECONDS:
        raise refuse_inputs("/parameters/timeout", f"expected microseconds, up to {MAX_TIMEOUT_MICROSECONDS:,}")
    return found / 1e6


def _object(document: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    found = document.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise refuse_inputs(f"{place}/{name}", "expected an object")
    return found
