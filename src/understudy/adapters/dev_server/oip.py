"""The Open Inference Protocol over a :class:`ModelCatalog`.

It shares no table with the client in ``model_servers/oip.py``: both sides would make a shared table's mistake.
"""

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Final

import grpc
import numpy as np
from numpy.typing import NDArray

from understudy import __version__
from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.adapters._proto.oip_fields import CONTENT_FIELDS
from understudy.adapters.dev_server.catalog import ModelCatalog, ServedModel
from understudy.adapters.dev_server.status import unary_handler
from understudy.core.schema.codec import join_bytes_elements, split_bytes_elements
from understudy.core.schema.tensors import DATATYPES, Datatype, TensorSpec
from understudy.errors import InputInvalid

SERVER_NAME: Final = "understudy-modelserver"
PLATFORM: Final = "onnxruntime_onnx"

_VERSION: Final = re.compile(r"[0-9]{1,18}")


def oip_handlers(catalog: ModelCatalog, service_path: str = methods.OIP_SERVICE) -> grpc.GenericRpcHandler:
    """Return the handlers of the service, offered under ``service_path``."""
    servicer = _Servicer(catalog)
    return grpc.method_handlers_generic_handler(
        service_path,
        {
            methods.OIP_MODEL_INFER: unary_handler(servicer.infer, pb.ModelInferRequest, pb.ModelInferResponse),
            methods.OIP_MODEL_READY: unary_handler(servicer.model_ready, pb.ModelReadyRequest, pb.ModelReadyResponse),
            methods.OIP_MODEL_METADATA: unary_handler(
                servicer.metadata, pb.ModelMetadataRequest, pb.ModelMetadataResponse
            ),
            methods.OIP_SERVER_LIVE: unary_handler(servicer.live, pb.ServerLiveRequest, pb.ServerLiveResponse),
            methods.OIP_SERVER_READY: unary_handler(servicer.ready, pb.ServerReadyRequest, pb.ServerReadyResponse),
            methods.OIP_SERVER_METADATA: unary_handler(
                servicer.server, pb.ServerMetadataRequest, pb.ServerMetadataResponse
            ),
        },
    )


class _Servicer:
    def __init__(self, catalog: ModelCatalog) -> None:
        self._catalog = catalog

    async def infer(self, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
        served = self._find(request.model_name, request.model_version)
        wanted = _wanted(served, [output.name for output in request.outputs])
        outputs = await served.answer(decode_inputs(request.inputs, request.raw_input_contents))
        response = pb.ModelInferResponse(model_name=served.model_name, model_version=str(served.version), id=request.id)
        raw = bool(request.raw_input_contents)
        for spec in wanted:
            _add_output(response, spec, outputs[spec.name], raw=raw)
        return response

    async def model_ready(self, request: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        self._find(request.name, request.version)
        return pb.ModelReadyResponse(ready=True)

    async def metadata(self, request: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        served = self._find(request.name, request.version)
        return pb.ModelMetadataResponse(
            name=served.model_name,
            versions=[str(version) for version in reversed(self._catalog.versions(served.model_name))],
            platform=PLATFORM,
            inputs=[_metadata_of(spec) for spec in served.onnx.inputs],
            outputs=[_metadata_of(spec) for spec in served.onnx.outputs],
        )

    async def live(self, _: pb.ServerLiveRequest) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def ready(self, _: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=True)

    async def server(self, _: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name=SERVER_NAME, version=__version__)

    def _find(self, model_name: str, version: str) -> ServedModel:
        if version and not _VERSION.fullmatch(version):
            raise InputInvalid(f"failed to get model version from specified version string {version!r}")
        return self._catalog.find(model_name, int(version) if version else None)


def decode_inputs(
    inputs: Sequence[pb.ModelInferRequest.InferInputTensor], raw_contents: Sequence[bytes]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a request, from ``raw_input_contents`` or from each input's own contents.

    Raises:
        InputInvalid: If the type is not served, the values do not fill the shape, or both forms are mixed.
    """
    if not raw_contents:
        return {entry.name: _from_contents(entry) for entry in inputs}
    if len(raw_contents) != len(inputs):
        raise InputInvalid(f"{len(raw_contents)} raw_input_contents for {len(inputs)} inputs")
    if any(entry.contents.ListFields() for entry in inputs):
        raise InputInvalid("contents field must not be specified when using raw_input_contents")
    return {entry.name: _from_raw(entry, raw) for entry, raw in zip(inputs, raw_contents, strict=True)}


def _from_raw(entry: pb.ModelInferRequest.InferInputTensor, raw: bytes) -> NDArray[Any]:
    datatype = _datatype_of(entry)
    if datatype is not Datatype.BYTES:
        if len(raw) % datatype.numpy_dtype.itemsize:
            raise InputInvalid(f"input {entry.name!r} has {len(raw)} bytes, no multiple of one {datatype.wire_name}")
        return _shaped(entry, np.frombuffer(raw, datatype.numpy_dtype))
    try:
        return _shaped(entry, _strings(split_bytes_elements(raw)))
    except ValueError as error:
        raise InputInvalid(f"input {entry.name!r}: {error}") from None


def _from_contents(entry: pb.ModelInferRequest.InferInputTensor) -> NDArray[Any]:
    datatype = _datatype_of(entry)
    values = getattr(entry.contents, CONTENT_FIELDS[datatype])
    try:
        array = _strings(values) if datatype is Datatype.BYTES else np.array(values, datatype.numpy_dtype)
    except (OverflowError, UnicodeDecodeError):
        raise InputInvalid(f"input {entry.name!r} has a value outside {datatype.wire_name}") from None
    return _shaped(entry, array)


def _strings(elements: Iterable[bytes]) -> NDArray[Any]:
    return np.array([element.decode() for element in elements], object)


def _datatype_of(entry: pb.ModelInferRequest.InferInputTensor) -> Datatype:
    if entry.datatype not in DATATYPES:
        raise InputInvalid(f"input {entry.name!r} has datatype {entry.datatype!r}, which is not served")
    return DATATYPES[entry.datatype]


def _shaped(entry: pb.ModelInferRequest.InferInputTensor, values: NDArray[Any]) -> NDArray[Any]:
    shape = tuple(entry.shape)
    if any(size < 0 for size in shape) or prod(shape) != values.size:
        raise InputInvalid(f"input {entry.name!r} has {values.size} values for the shape {list(shape)}")
    return values.reshape(shape)


def _wanted(served: ServedModel, names: Sequence[str]) -> list[TensorSpec]:
    known = {spec.name: spec for spec in served.onnx.outputs}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InputInvalid(f"unexpected inference output {unknown[0]!r}; known: {sorted(known)}")
    return [known[name] for name in names] or list(known.values())


def _add_output(response: pb.ModelInferResponse, spec: TensorSpec, values: NDArray[Any], *, raw: bool) -> None:
    output = response.outputs.add(name=spec.name, datatype=spec.datatype.wire_name, shape=values.shape)
    elements = values.ravel().tolist()
    if spec.datatype is Datatype.BYTES:
        elements = [str(element).encode() for element in elements]
    if not raw:
        getattr(output.contents, CONTENT_FIELDS[spec.datatype]).extend(elements)
    elif spec.datatype is Datatype.BYTES:
        response.raw_output_contents.append(join_bytes_elements(elements))
    else:
        response.raw_output_contents.append(np.ascontiguousarray(values, spec.datatype.numpy_dtype).tobytes())


def _metadata_of(spec: TensorSpec) -> pb.ModelMetadataResponse.TensorMetadata:
    return pb.ModelMetadataResponse.TensorMetadata(name=spec.name, datatype=spec.datatype.wire_name, shape=spec.shape)
