"""TensorFlow Serving's API over a :class:`ModelCatalog`: Predict, GetModelStatus, GetModelMetadata.

It shares no table with the client in ``model_servers/tfserving.py``: both sides would make a shared table's mistake.
"""

from collections.abc import Iterable
from math import prod
from typing import Any, Final

import grpc
import numpy as np
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import Int64Value
from numpy.typing import NDArray

from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_tfserving_pb2 as pb
from understudy.adapters._proto.tfserving_types import DATATYPES, WIRE_TYPES
from understudy.adapters.dev_server.catalog import ModelCatalog, ServedModel
from understudy.adapters.dev_server.status import unary_handler
from understudy.core.schema.tensors import Datatype, TensorSpec
from understudy.errors import InputInvalid

SIGNATURE_NAME: Final = "serving_default"
PREDICT_METHOD_NAME: Final = "tensorflow/serving/predict"
MAX_ELEMENTS: Final = 4_000_000
"""Of one input tensor: a typed value may stand for any number of elements, so the message's size is no bound."""


def tfserving_handlers(catalog: ModelCatalog) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return the handlers of TF Serving's two services."""
    servicer = _Servicer(catalog)
    prediction = {
        "Predict": unary_handler(servicer.predict, pb.PredictRequest, pb.PredictResponse),
        "GetModelMetadata": unary_handler(servicer.metadata, pb.GetModelMetadataRequest, pb.GetModelMetadataResponse),
    }
    model = {"GetModelStatus": unary_handler(servicer.status, pb.GetModelStatusRequest, pb.GetModelStatusResponse)}
    return (
        grpc.method_handlers_generic_handler(methods.TFSERVING_PREDICTION_SERVICE, prediction),
        grpc.method_handlers_generic_handler(methods.TFSERVING_MODEL_SERVICE, model),
    )


class _Servicer:
    def __init__(self, catalog: ModelCatalog) -> None:
        self._catalog = catalog

    async def predict(self, request: pb.PredictRequest) -> pb.PredictResponse:
        served = self._find(request.model_spec)
        if request.model_spec.signature_name not in ("", SIGNATURE_NAME):
            raise InputInvalid(f'Serving signature key "{request.model_spec.signature_name}" not found.')
        wanted = _wanted(served, request.output_filter)
        outputs = await served.answer({name: decode_tensor(name, t) for name, t in request.inputs.items()})
        encode = encode_typed if served.typed_values else encode_content
        response = pb.PredictResponse(model_spec=_spec_of(served))
        for spec in served.onnx.outputs:
            if spec.name in wanted:
                response.outputs[spec.name].CopyFrom(encode(spec.datatype, outputs[spec.name]))
        return response

    async def status(self, request: pb.GetModelStatusRequest) -> pb.GetModelStatusResponse:
        name, version = request.model_spec.name, _version_of(request.model_spec)
        found = self._catalog.versions(name) if version is None else (self._catalog.find(name, version).version,)
        available = pb.ModelVersionStatus.AVAILABLE
        return pb.GetModelStatusResponse(
            model_version_status=[
                pb.ModelVersionStatus(version=number, state=available, status=pb.StatusProto()) for number in found
            ]
        )

    async def metadata(self, request: pb.GetModelMetadataRequest) -> pb.GetModelMetadataResponse:
        if list(request.metadata_field) != ["signature_def"]:
            raise InputInvalid('Metadata field must be exactly one: "signature_def"')
        served = self._find(request.model_spec)
        signature = pb.SignatureDef(
            inputs={spec.name: _info_of(spec) for spec in served.onnx.inputs},
            outputs={spec.name: _info_of(spec) for spec in served.onnx.outputs},
            method_name=PREDICT_METHOD_NAME,
        )
        signatures = pb.SignatureDefMap(signature_def={SIGNATURE_NAME: signature})
        packed = AnyMessage(type_url=methods.TFSERVING_SIGNATURE_TYPE_URL, value=signatures.SerializeToString())
        return pb.GetModelMetadataResponse(model_spec=_spec_of(served), metadata={"signature_def": packed})

    def _find(self, spec: pb.ModelSpec) -> ServedModel:
        return self._catalog.find(spec.name, _version_of(spec))


def decode_tensor(name: str, tensor: pb.TensorProto) -> NDArray[Any]:
    """Return a ``TensorProto``'s array, from ``tensor_content`` or typed values (the last of which repeats).

    Raises:
        InputInvalid: If the type is not served or the values do not fill the shape.
    """
    if tensor.dtype not in DATATYPES:
        raise InputInvalid(f"input {name!r} has type {tensor.dtype}, which is not served")
    datatype, field = DATATYPES[tensor.dtype]
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    size = prod(shape)
    if tensor.tensor_shape.unknown_rank or any(dim < 0 for dim in shape) or size > MAX_ELEMENTS:
        raise InputInvalid(f"tensor parsing error: {name} has the shape {list(shape)}")
    if tensor.tensor_content and datatype is not Datatype.BYTES:
        values = _from_content(name, tensor.tensor_content, datatype, size)
    else:
        values = _from_typed(name, getattr(tensor, field), datatype, size)
    return values.reshape(shape)


def _from_content(name: str, content: bytes, datatype: Datatype, size: int) -> NDArray[Any]:
    if len(content) != size * datatype.numpy_dtype.itemsize:
        raise InputInvalid(f"tensor parsing error: {name} has {len(content)} bytes for {size} elements")
    return np.frombuffer(content, datatype.numpy_dtype)


def _from_typed(name: str, listed: Iterable[Any], datatype: Datatype, size: int) -> NDArray[Any]:
    values = list(listed)
    if len(values) > size or (size and not values):
        raise InputInvalid(f"tensor parsing error: {name} has {len(values)} values for {size} elements")
    values.extend(values[-1:] * (size - len(values)))
    try:
        if datatype is Datatype.BYTES:
            values = [value.decode() for value in values]
        return np.array(values, datatype.numpy_dtype)
    except (OverflowError, UnicodeDecodeError):
        raise InputInvalid(f"tensor parsing error: {name} has a value outside {datatype.wire_name}") from None


def encode_content(datatype: Datatype, values: NDArray[Any]) -> pb.TensorProto:
    """Return a ``TensorProto`` with its elements in ``tensor_content``; strings have no such form and stay typed."""
    if datatype is Datatype.BYTES:
        return encode_typed(datatype, values)
    tensor = _empty(datatype, values)
    tensor.tensor_content = np.ascontiguousarray(values, datatype.numpy_dtype).tobytes()
    return tensor


def encode_typed(datatype: Datatype, values: NDArray[Any]) -> pb.TensorProto:
    """Return a ``TensorProto`` with its elements in ``float_val`` and its like."""
    tensor = _empty(datatype, values)
    elements = values.ravel().tolist()
    if datatype is Datatype.BYTES:
        elements = [str(element).encode() for element in elements]
    getattr(tensor, WIRE_TYPES[datatype][1]).extend(elements)
    return tensor


def _empty(datatype: Datatype, values: NDArray[Any]) -> pb.TensorProto:
    return pb.TensorProto(dtype=WIRE_TYPES[datatype][0], tensor_shape=_shape_of(values.shape))


def _shape_of(shape: Iterable[int]) -> pb.TensorShapeProto:
    return pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=size) for size in shape])


def _info_of(spec: TensorSpec) -> pb.TensorInfo:
    return pb.TensorInfo(name=f"{spec.name}:0", dtype=WIRE_TYPES[spec.datatype][0], tensor_shape=_shape_of(spec.shape))


def _spec_of(served: ServedModel) -> pb.ModelSpec:
    version = Int64Value(value=served.version)
    return pb.ModelSpec(name=served.model_name, version=version, signature_name=SIGNATURE_NAME)


def _version_of(spec: pb.ModelSpec) -> int | None:
    """Return the requested number; ``None`` for 0, by which some clients mean the newest."""
    if not spec.name:
        raise InputInvalid("Missing ModelSpec")
    if spec.WhichOneof("version_choice") == "version_label":
        raise InputInvalid(f"Unrecognized servable version label: {spec.version_label}")
    return spec.version.value or None


def _wanted(served: ServedModel, names: Iterable[str]) -> set[str]:
    known = {spec.name for spec in served.onnx.outputs}
    wanted = set(names)
    if not wanted <= known:
        raise InputInvalid(f"output tensor alias not found in signature: {min(wanted - known)}; known: {sorted(known)}")
    return wanted or known
