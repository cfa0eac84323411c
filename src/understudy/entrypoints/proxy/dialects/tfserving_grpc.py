"""TensorFlow Serving's gRPC API: ``Predict``, and what it says of models."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np
from google.protobuf.any_pb2 import Any as AnyMessage

from understudy.adapters._proto import understudy_tfserving_pb2 as pb
from understudy.adapters._proto.methods import TFSERVING_SIGNATURE_TYPE_URL
from understudy.adapters._proto.tfserving_types import DATATYPES, WIRE_TYPES
from understudy.core.requests.caller_request import refuse_inputs
from understudy.core.requests.infer_tensors import CONTENT, InferTensor, request_of, shape_of
from understudy.core.requests.tensor_inputs import LONG_ELEMENTS, shown
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import join_bytes_elements, split_bytes_elements
from understudy.core.schema.tensors import Datatype
from understudy.entrypoints.proxy.dialects.dialect import (
    INLINE_TENSOR_BYTES,
    Answered,
    Output,
    Reading,
    Target,
    Worded,
    output_names,
)
from understudy.entrypoints.proxy.dialects.open_inference import version_of
from understudy.entrypoints.proxy.dialects.open_inference_grpc import require_inputs
from understudy.entrypoints.proxy.dialects.protobuf import parse
from understudy.entrypoints.proxy.dialects.signature import require_signature, signature_of
from understudy.errors import MalformedBody

PREDICT_METHOD = "tensorflow/serving/predict"
_BY_WIRE_NAME = {datatype.wire_name: number for datatype, (number, _) in WIRE_TYPES.items()}
_MAX_VERSION = 2**63 - 1


class TfServingGrpc:
    """``Predict``.

    Args:
        request: The call, whose model has to be known before anything else.
        is_whole: Whether that is all of it; else it is parsed when it is read, in a thread.

    Raises:
        InputInvalid: It has no inputs, or too many to be kept.
    """

    name = "tfs_grpc"
    HEAD: Final = frozenset({pb.PredictRequest.MODEL_SPEC_FIELD_NUMBER})
    """The field that says whose answer is asked for."""

    def __init__(self, request: pb.PredictRequest, *, is_whole: bool = True) -> None:
        self._is_whole = is_whole
        if is_whole:
            require_inputs(len(request.inputs))
        self._request = request

    def is_short(self, body: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """See :class:`.Dialect`; one element of a message may stand for many."""
        del fields
        return len(body) <= INLINE_TENSOR_BYTES and (
            sum(_left_out(one) for one in self._request.inputs.values()) <= INLINE_TENSOR_BYTES
        )

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """See :class:`.Dialect`."""
        del fields
        request = self._request
        if not self._is_whole:
            request = parse(pb.PredictRequest, body)
            require_inputs(len(request.inputs))
        require_signature(request.model_spec.signature_name, version, "/model_spec/signature_name")
        _require_outputs(request.output_filter, version.model_name, output_names(version.output_schema))
        if sum(map(_left_out, request.inputs.values())) > LONG_ELEMENTS:
            raise refuse_inputs("/inputs", f"more than {LONG_ELEMENTS:,} elements are left out, as equal to the last")
        tensors = [_tensor_of(name, tensor) for name, tensor in request.inputs.items()]
        read = request_of(tensors, {}, version.input_schema)
        return Reading(read, partial(_worded, list(request.output_filter), signature_of(version)))


def target_of(spec: pb.ModelSpec) -> Target:
    """Return whose answer is asked for; version 0 names none."""
    if spec.WhichOneof("version_choice") == "version_label":
        return Target(spec.name, label=spec.version_label or None)
    return Target(spec.name, str(spec.version.value) if spec.version.value else None)


def number_of(label: str) -> int | None:
    """Return the number that a version's name is, if it is one of TensorFlow Serving's."""
    is_number = label.isascii() and label.isdecimal() and not label.startswith("0")
    return int(label) if is_number and int(label) <= _MAX_VERSION else None


def _tensor_of(name: str, tensor: pb.TensorProto) -> InferTensor:
    place = "/inputs/" + name.replace("~", "~0").replace("/", "~1")
    datatype, field = DATATYPES.get(int(tensor.dtype), (None, ""))
    if datatype is None:
        raise refuse_inputs(f"{place}/dtype", f"input {shown(name)} has a type that no version takes")
    if tensor.tensor_shape.unknown_rank:
        raise refuse_inputs(f"{place}/tensor_shape", f"input {shown(name)}: expected a shape that is known")
    shape = shape_of([dim.size for dim in tensor.tensor_shape.dim], place, name)
    if tensor.tensor_content and datatype is Datatype.BYTES:
        raise MalformedBody(f"input {shown(name)}: strings come in string_val", hint=CONTENT)
    content = tensor.tensor_content or _listed(datatype, getattr(tensor, field), prod(shape), f"{place}/{field}")
    return InferTensor(place, name, datatype.wire_name, shape, None, content)


def _left_out(tensor: pb.TensorProto) -> int:
    """Return how many elements the last one of a list stands for, where that is permitted."""
    datatype, field = DATATYPES.get(int(tensor.dtype), (None, ""))
    if datatype is None or tensor.tensor_content:
        return 0
    count = prod(dim.size for dim in tensor.tensor_shape.dim)
    return max(0, count - len(getattr(tensor, field))) if count <= LONG_ELEMENTS else 0


def _listed(datatype: Datatype, values: Sequence[Any], count: int, place: str) -> bytes:
    """Return the content of a tensor whose elements are listed; the last number stands for those that follow it."""
    if len(values) != count:
        is_repeated = datatype is not Datatype.BYTES and 0 < len(values) < count <= LONG_ELEMENTS
        if not is_repeated:
            raise refuse_inputs(place, f"has {len(values):,} values, and the shape {count:,}")
        values = [*values, *[values[-1]] * (count - len(values))]
    if datatype is Datatype.BYTES:
        return join_bytes_elements(values)
    try:
        return np.fromiter(values, datatype.numpy_dtype, count=count).tobytes()
    except OverflowError:
        raise refuse_inputs(place, f"has a value outside {datatype.wire_name}") from None


def _require_outputs(names: Sequence[str], model_name: str, own: Collection[str]) -> None:
    """Refuse an output that there is not; where ``own`` is empty only the answer can tell."""
    for index, name in enumerate(names):
        if own and name not in own:
            detail = f"{shown(model_name)} has no output {shown(name)}; it has: {', '.join(own)}"
            raise refuse_inputs(f"/output_filter/{index}", detail)


def _worded(named: Sequence[str], signature: str, answered: Answered) -> Worded:
    wanted = frozenset(named)
    outputs = [answered.output] if wanted == {answered.output.name} else answered.outputs
    _require_outputs(named, answered.target.model_name, [one.name for one in outputs])
    answer = pb.PredictResponse(model_spec=spec_of(answered.target.model_name, version_of(answered), signature))
    for output in outputs:
        if not wanted or output.name in wanted:
            answer.outputs[output.name].CopyFrom(_tensor_message(output, answered.shape_of(output)))
    return Worded([], answer.SerializeToString())


def _tensor_message(output: Output, shape: Sequence[int]) -> pb.TensorProto:
    number, _ = WIRE_TYPES[output.datatype]
    tensor = pb.TensorProto(dtype=number, tensor_shape=_shape_of(shape))
    if output.datatype is Datatype.BYTES:
        tensor.string_val.extend(split_bytes_elements(output.content))
    else:
        tensor.tensor_content = output.content
    return tensor


def metadata_message(document: Mapping[str, Any], version: ModelVersion) -> pb.GetModelMetadataResponse:
    """Return a model's metadata, from what :func:`~.open_inference.metadata_document` returns of a version."""
    signature = pb.SignatureDef(
        inputs={one["name"]: _info_of(one) for one in document["inputs"]},
        outputs={one["name"]: _info_of(one) for one in document["outputs"]},
        method_name=PREDICT_METHOD,
    )
    signatures = pb.SignatureDefMap(signature_def={signature_of(version): signature})
    packed = AnyMessage(type_url=TFSERVING_SIGNATURE_TYPE_URL, value=signatures.SerializeToString())
    spec = spec_of(version.model_name, version.version, "")
    return pb.GetModelMetadataResponse(model_spec=spec, metadata={"signature_def": packed})


def status_message(document: Sequence[Mapping[str, Any]]) -> pb.GetModelStatusResponse:
    """Return versions' states, from what :func:`~.kserve_v1.status_document` returns; 0 is a name that is no number."""
    return pb.GetModelStatusResponse(
        model_version_status=[
            pb.ModelVersionStatus(
                version=number_of(one["version"]) or 0,
                state=one["state"],
                status=pb.StatusProto(),
            )
            for one in document
        ]
    )


def spec_of(model_name: str, version: str | None, signature: str) -> pb.ModelSpec:
    """Return who answered: by number where the version's name is one."""
    spec = pb.ModelSpec(name=model_name, signature_name=signature)
    number = number_of(version or "")
    if number is not None:
        spec.version.value = number
    elif version is not None:
        spec.version_label = version
    return spec


def _info_of(tensor: Mapping[str, Any]) -> pb.TensorInfo:
    dtype, shape = _BY_WIRE_NAME[tensor["datatype"]], _shape_of(tensor["shape"])
    return pb.TensorInfo(name=f"{tensor['name']}:0", dtype=dtype, tensor_shape=shape)


def _shape_of(sizes: Sequence[int]) -> pb.TensorShapeProto:
    return pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=size) for size in sizes])
