"""The Open Inference Protocol over gRPC: what Triton, MLServer and KServe speak, in protobuf messages."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.adapters._proto.oip_fields import CONTENT_FIELDS
from understudy.core.requests.caller_request import refuse_inputs
from understudy.core.requests.infer_call import (
    MAX_TEXT,
    InferCall,
    WantedOutputs,
    refuse_shared_memory,
    require_single_call,
    timeout_of,
)
from understudy.core.requests.infer_tensors import (
    CONTENT,
    InferTensor,
    request_of,
    require_names_once,
    shape_of,
    too_few_or_many,
)
from understudy.core.requests.tensor_inputs import shown
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import join_bytes_elements, split_bytes_elements
from understudy.core.schema.tensors import DATATYPES, Datatype
from understudy.entrypoints.proxy.dialects.dialect import (
    INLINE_TENSOR_BYTES,
    Answered,
    Reading,
    Target,
    Worded,
    output_names,
)
from understudy.entrypoints.proxy.dialects.open_inference import outputs_of, receipt_of, version_of
from understudy.entrypoints.proxy.dialects.protobuf import parse
from understudy.errors import MalformedBody

MAX_INPUTS = 1_024
"""Of a call, whose message may wait for a thread once it is parsed."""


class OpenInferenceGrpc:
    """``ModelInfer``.

    Args:
        request: The call, whose model has to be known before anything else.
        is_whole: Whether that is all of it; else it is parsed when it is read, in a thread.

    Raises:
        InputInvalid: It has no inputs, or too many to be kept, or too many outputs.
    """

    name = "oip_grpc"
    HEAD: Final = frozenset(
        {pb.ModelInferRequest.MODEL_NAME_FIELD_NUMBER, pb.ModelInferRequest.MODEL_VERSION_FIELD_NUMBER}
    )
    """The fields that say whose answer is asked for."""

    def __init__(self, request: pb.ModelInferRequest, *, is_whole: bool = True) -> None:
        self._is_whole = is_whole
        if is_whole:
            _require_few(request)
        self._request = request

    @property
    def target(self) -> Target:
        """Whose answer is asked for."""
        return Target(self._request.model_name, self._request.model_version or None)

    def is_short(self, body: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """See :class:`.Dialect`."""
        del fields
        return len(body) <= INLINE_TENSOR_BYTES

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """See :class:`.Dialect`."""
        del fields
        request = self._request
        if not self._is_whole:
            request = parse(pb.ModelInferRequest, body)
            _require_few(request)
        call = _call_of(request, version)
        call.require_outputs(version.model_name, output_names(version.output_schema))
        return Reading(call.request, partial(_worded, call), call.timeout_seconds)


def _require_few(request: pb.ModelInferRequest) -> None:
    require_inputs(len(request.inputs))
    if len(request.outputs) > MAX_INPUTS:
        raise refuse_inputs("/outputs", f"expected at most {MAX_INPUTS:,} tensors")


def require_inputs(count: int) -> None:
    """Refuse a message without inputs, or with too many to be kept until a thread has time for them.

    Raises:
        InputInvalid: It is one.
    """
    if not 0 < count <= MAX_INPUTS:
        raise refuse_inputs("/inputs", f"expected 1 to {MAX_INPUTS:,} tensors")


def _call_of(request: pb.ModelInferRequest, version: ModelVersion) -> InferCall:
    parameters = _values_of(request.parameters)
    require_single_call(parameters)
    if len(request.id) > MAX_TEXT:
        raise refuse_inputs("/id", f"expected a string of at most {MAX_TEXT:,} characters")
    raw = request.raw_input_contents
    tensors = _tensors_of(request.inputs, raw)
    outputs = WantedOutputs()
    for one in request.outputs:
        outputs.take(one.name, _values_of(one.parameters), binary=bool(raw))
    read = request_of(tensors, parameters, version.input_schema)
    return InferCall(read, request.id, outputs.all, bool(raw), timeout_of(parameters))


def _tensors_of(inputs: Sequence[pb.ModelInferRequest.InferInputTensor], raw: Sequence[bytes]) -> list[InferTensor]:
    if raw and len(raw) != len(inputs):
        raise MalformedBody(f"{len(raw)} raw_input_contents for {len(inputs)} inputs", hint=CONTENT)
    tensors: list[InferTensor] = []
    for index, one in enumerate(inputs):
        place = f"/inputs/{index}"
        refuse_shared_memory(one.name, one.parameters)
        shape = shape_of(one.shape, place, one.name)
        if not raw:
            content = _listed(one, shape, place)
        elif one.HasField("contents") and one.contents.ByteSize():
            raise MalformedBody(f"input {shown(one.name)} has contents beside raw_input_contents", hint=CONTENT)
        else:
            content = raw[index]
        tensors.append(InferTensor(place, one.name, one.datatype, shape, None, content))
    require_names_once(tensors)
    return tensors


def _listed(tensor: pb.ModelInferRequest.InferInputTensor, shape: tuple[int, ...], place: str) -> bytes:
    """Return the content of a tensor whose elements are listed."""
    datatype = DATATYPES.get(tensor.datatype)
    if datatype is None:
        raise refuse_inputs(f"{place}/datatype", f"input {shown(tensor.name)} has a datatype that no version takes")
    values = getattr(tensor.contents, CONTENT_FIELDS[datatype])
    if len(values) != prod(shape):
        what = too_few_or_many(tensor.name, len(values), shape)
        raise refuse_inputs(f"{place}/contents/{CONTENT_FIELDS[datatype]}", what)
    if datatype is Datatype.BYTES:
        return join_bytes_elements(values)
    try:
        return np.fromiter(values, datatype.numpy_dtype, count=len(values)).tobytes()
    except OverflowError:
        what = f"input {shown(tensor.name)} has a value outside {datatype.wire_name}"
        raise refuse_inputs(f"{place}/data", what) from None


def _values_of(parameters: Mapping[str, pb.InferParameter]) -> dict[str, Any]:
    """Return parameters as plain values; one without a value is left out."""
    found: dict[str, Any] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is not None:
            found[name] = getattr(parameter, kind)
    return found


def _worded(call: InferCall, answered: Answered) -> Worded:
    wanted = outputs_of(call, answered)
    answer = pb.ModelInferResponse(
        model_name=answered.target.model_name, model_version=version_of(answered) or "", id=call.id or ""
    )
    for name, value in receipt_of(answered).items():
        if isinstance(value, int):
            answer.parameters[name].int64_param = value
        else:
            answer.parameters[name].string_param = value
    for _, output, shape in wanted:
        entry = answer.outputs.add(name=output.name, datatype=output.datatype.wire_name, shape=shape)
        if call.binary:
            answer.raw_output_contents.append(output.content)
        elif output.datatype is Datatype.BYTES:
            entry.contents.bytes_contents.extend(split_bytes_elements(output.content))
        else:
            getattr(entry.contents, CONTENT_FIELDS[output.datatype]).extend(output.array((-1,)).tolist())
    return Worded([], answer.SerializeToString())


def metadata_message(document: Mapping[str, Any]) -> pb.ModelMetadataResponse:
    """Return a model's metadata as a message, from what :func:`~.open_inference.metadata_document` returns."""
    return pb.ModelMetadataResponse(**document)


def config_message(document: Mapping[str, Any]) -> pb.ModelConfigResponse:
    """Return a model's configuration as a message, from what :func:`~.open_inference.config_document` returns."""
    return pb.ModelConfigResponse(config=pb.ModelConfig(**document))
