"""Infer calls of the Open Inference Protocol over REST: tensors as JSON, or as bytes behind it.

The JSON header may be followed by the contents of the tensors that say ``binary_data_size``, in their order (Triton's
binary tensor data extension). Sources: the protocol's ``inference_rest.md``, Triton's ``extension_binary_data.md``.
"""

from collections.abc import Mapping
from typing import Any

from understudy.core.requests.caller_request import refuse_inputs
from understudy.core.requests.infer_call import (
    MAX_TEXT,
    InferCall,
    WantedOutput,
    WantedOutputs,
    refuse_shared_memory,
    require_single_call,
    timeout_of,
)
from understudy.core.requests.infer_tensors import InferTensor, request_of, require_names_once, shape_of
from understudy.core.requests.predict import FeatureRows
from understudy.core.requests.strict_json import parse
from understudy.core.requests.tensor_inputs import shown
from understudy.core.requests.typed_bodies import TypedInfer, typed_bodies_of
from understudy.core.schema.schema import InputSchema
from understudy.errors import MalformedBody

_SIZE = "binary_data_size"
FRAMING = "Send the JSON's length as Inference-Header-Content-Length, and after it each tensor's bytes, in order."


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
    found = read_plain_infer(body, header_length, schema)
    if found is None:
        return read_any_infer(body, header_length, schema)
    return infer_call_of(found, body, header_length, schema)


def read_plain_infer(body: bytes, header_length: int | None, schema: InputSchema) -> TypedInfer | None:
    """Read a whole body as :func:`read_infer` does, in one pass; ``None`` of one that is not of the plainest form."""
    typed = typed_bodies_of(schema)
    if typed is None:
        return None
    if header_length is None:
        return typed.infer(body, None)
    return typed.infer(body[:header_length], body[header_length:])


def infer_call_of(found: TypedInfer, body: bytes, header_length: int | None, schema: InputSchema) -> InferCall:
    """Return the call of a body that :func:`read_plain_infer` read."""
    typed = typed_bodies_of(schema)
    assert typed is not None

    def reread() -> FeatureRows:
        return read_any_infer(body, header_length, schema).request.rows

    request = typed.request(found.rows, found.whose, typed.place_of, reread)
    return InferCall(request, found.id, found.outputs, found.binary, None)


def read_any_infer(body: bytes, header_length: int | None, schema: InputSchema) -> InferCall:
    """Read a whole body in whatever form; as :func:`read_infer`."""
    if header_length is not None and header_length > len(body):
        raise MalformedBody(f"the JSON is said to have {header_length} bytes, the body has {len(body)}", hint=FRAMING)
    end = len(body) if header_length is None else header_length
    document = parse(body[:end])
    if not isinstance(document, dict):
        raise MalformedBody("expected a JSON object: line 1, column 1 (byte 0)")
    parameters = _object(document, "parameters", "")
    require_single_call(parameters)
    own_id = document.get("id")
    if not isinstance(own_id, str | None) or len(own_id or "") > MAX_TEXT:
        raise refuse_inputs("/id", f"expected a string of at most {MAX_TEXT:,} characters")
    tensors = _tensors_of(document, memoryview(body)[end:])
    binary = parameters.get("binary_data_output") is True
    request = request_of(tensors, parameters, schema)
    return InferCall(request, own_id, _outputs_of(document, binary), binary, timeout_of(parameters))


def _tensors_of(document: Mapping[str, Any], raw: memoryview) -> list[InferTensor]:
    listed = document.get("inputs")
    if not isinstance(listed, list) or not listed:
        raise refuse_inputs("/inputs", "expected a list of at least one tensor")
    tensors: list[InferTensor] = []
    start = 0
    for index, entry in enumerate(listed):
        tensor, size = _tensor_of(f"/inputs/{index}", entry)
        if size is not None:
            if size > len(raw) - start:
                left = len(raw) - start
                raise MalformedBody(f"input {shown(tensor.name)} has {size} bytes, and {left} are left", hint=FRAMING)
            tensor = tensor._replace(content=bytes(raw[start : start + size]))
            start += size
        tensors.append(tensor)
    if start != len(raw):
        raise MalformedBody(f"the inputs have {start} bytes, and {len(raw)} follow the JSON", hint=FRAMING)
    require_names_once(tensors)
    return tensors


def _tensor_of(place: str, entry: Any) -> tuple[InferTensor, int | None]:
    """Return an input without its bytes, and how many it has."""
    if not isinstance(entry, dict):
        raise refuse_inputs(place, "expected an object with name, datatype, shape and data")
    name, datatype, shape = entry.get("name"), entry.get("datatype"), entry.get("shape")
    if not isinstance(name, str) or not name:
        raise refuse_inputs(f"{place}/name", "expected a string")
    if not isinstance(datatype, str):
        raise refuse_inputs(f"{place}/datatype", "expected a string such as FP32")
    sizes = shape_of(shape if isinstance(shape, list) else [None], place, name)
    parameters = _object(entry, "parameters", place)
    refuse_shared_memory(name, parameters)
    size = parameters.get(_SIZE)
    if size is not None and (type(size) is not int or size < 0):
        detail = f"input {shown(name)}: expected a whole number from 0 on"
        raise refuse_inputs(f"{place}/parameters/{_SIZE}", detail)
    if (size is None) == ("data" not in entry):
        both = "both data and" if size is not None else "neither data nor"
        raise MalformedBody(f"input {shown(name)} has {both} {_SIZE}: expected one of them", hint=FRAMING)
    return InferTensor(place, name, datatype, sizes, entry.get("data"), None), size


def _outputs_of(document: Mapping[str, Any], binary: bool) -> tuple[WantedOutput, ...]:  # noqa: FBT001 - the default
    listed = document.get("outputs")
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise refuse_inputs("/outputs", "expected a list")
    wanted = WantedOutputs()
    for index, entry in enumerate(listed):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise refuse_inputs(f"/outputs/{index}", "expected an object with a name")
        parameters = _object(entry, "parameters", f"/outputs/{index}")
        wanted.take(name, parameters, binary=parameters.get("binary_data", binary) is True)
    return wanted.all


def _object(document: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    found = document.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise refuse_inputs(f"{place}/{name}", "expected an object")
    return found
