"""Open Inference Protocol over gRPC: Triton, MLServer, KServe, and TorchServe under its own service path."""

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from understudy.adapters._proto.methods import (
    OIP_MODEL_INFER,
    OIP_MODEL_READY,
    OIP_SERVICE,
    OIP_SERVICE_OF_TORCHSERVE,
    oip_method,
)
from understudy.adapters._proto.understudy_oip_pb2 import (
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
    ModelReadyRequest,
    ModelReadyResponse,
)
from understudy.adapters.model_servers.addresses import PLAIN_WIRE, Wire
from understudy.adapters.model_servers.encoding import COPIED_BYTES, LISTED_BYTES, encoded
from understudy.adapters.model_servers.hedged_call import NO_HEDGING, Hedging
from understudy.adapters.model_servers.replica_set import USUAL_TRAITS, Metadata, Probe, ReplicaSet
from understudy.adapters.model_servers.torchserve import TORCHSERVE_TRAITS
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import array_of_content, block_of, tensor_of_content, tensor_of_values
from understudy.core.schema.tensors import Block, Datatype, Row, Tensor
from understudy.errors import BadAnswer

_DATATYPES = {datatype.wire_name: datatype for datatype in Datatype}
_CONTENT_FIELDS = {
    Datatype.BOOL: "bool_contents",
    Datatype.INT8: "int_contents",
    Datatype.INT16: "int_contents",
    Datatype.INT32: "int_contents",
    Datatype.INT64: "int64_contents",
    Datatype.UINT8: "uint_contents",
    Datatype.FP32: "fp32_contents",
    Datatype.FP64: "fp64_contents",
    Datatype.BYTES: "bytes_contents",
}


class OipBackend:
    """A version behind a server that speaks the Open Inference Protocol.

    ``backend`` settings: ``service_path`` (``inference.GRPCInferenceService``), ``version``, and ``typed_contents``:
    inputs as typed lists instead of raw bytes. TorchServe ignores raw inputs, so there typed is the default.
    """

    rows_per_call: int | None = None

    def __init__(
        self,
        version: ModelVersion,
        metadata: Metadata = (),
        hedging: Hedging = NO_HEDGING,
        wire: Wire = PLAIN_WIRE,
    ) -> None:
        service_path = str(version.backend.get("service_path", OIP_SERVICE))
        is_torchserve = service_path == OIP_SERVICE_OF_TORCHSERVE
        self.replicas = ReplicaSet(
            version.endpoints,
            _ready_probe(version, service_path),
            traits=TORCHSERVE_TRAITS if is_torchserve else USUAL_TRAITS,
            usual_seconds=version.timeout_seconds,
            metadata=metadata,
            hedging=hedging,
            wire=wire,
        )
        self._method = oip_method(service_path, OIP_MODEL_INFER)
        self._typed = bool(version.backend.get("typed_contents", is_torchserve))
        self._inputs = version.input_schema.tensors
        self._inline_bytes = LISTED_BYTES if self._typed else COPIED_BYTES
        self._batch = version.input_schema.batch
        self._output = version.output_schema.tensor
        # Serialised messages that follow each other are one merged message: this part is the same for every call.
        self._prefix = ModelInferRequest(
            model_name=version.server_model_name,
            model_version=version.server_version or "",
            outputs=[ModelInferRequest.InferRequestedOutputTensor(name=self._output)] if self._output else [],
        ).SerializeToString()

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        """See :class:`understudy.ports.model_backend.ModelBackend`."""
        block = block_of(self._inputs, rows, batch=self._batch)
        answer = await self.replicas.call(self._method, self._encode(block), timeout_seconds)
        return self._decode(answer)

    async def infer_block(self, block: Block, timeout_seconds: float) -> Tensor:
        """See :class:`understudy.ports.model_backend.ModelBackend`."""
        message, left_seconds = await encoded(self._encode, block, self._inline_bytes, timeout_seconds)
        answer = await self.replicas.call(self._method, message, left_seconds)
        return self._decode(answer)

    async def ready(self, timeout_seconds: float) -> bool:
        """Whether a replica answers ``ModelReady`` with yes."""
        return await self.replicas.ready(timeout_seconds)

    async def close(self) -> None:
        """Close the channels."""
        await self.replicas.close()

    def _encode(self, block: Block) -> bytes:
        request = ModelInferRequest()
        for spec, content, shape in zip(self._inputs, *block, strict=True):
            tensor = request.inputs.add(name=spec.name, datatype=spec.datatype.wire_name, shape=shape)
            if self._typed:
                values = array_of_content(spec.datatype, content).tolist()
                getattr(tensor.contents, _CONTENT_FIELDS[spec.datatype]).extend(values)
            else:
                request.raw_input_contents.append(content)
        return self._prefix + request.SerializeToString()

    def _decode(self, answer: bytes) -> Tensor:
        try:
            response = ModelInferResponse.FromString(answer)
        except DecodeError:
            raise BadAnswer("the answer is not a ModelInferResponse") from None
        index = _index_of(self._output, [output.name for output in response.outputs])
        output = response.outputs[index]
        datatype = _DATATYPES.get(output.datatype)
        if datatype is None:
            raise BadAnswer("the output's datatype is not understood")
        shape = tuple(output.shape)
        # Raw first, and never HasField: MLServer puts an empty `contents` beside the raw bytes.
        if response.raw_output_contents:
            if len(response.raw_output_contents) != len(response.outputs):
                raise BadAnswer("raw_output_contents and outputs differ in number")
            return tensor_of_content(datatype, shape, response.raw_output_contents[index])
        return _tensor_of(output.contents, datatype, shape)


def _index_of(wanted: str | None, names: list[str]) -> int:
    if not names:
        raise BadAnswer("the answer has no outputs")
    if wanted is None:
        return 0
    if wanted not in names:
        raise BadAnswer(f"the answer has no output {wanted!r}")
    return names.index(wanted)


def _tensor_of(contents: InferTensorContents, datatype: Datatype, shape: tuple[int, ...]) -> Tensor:
    return tensor_of_values(datatype, shape, getattr(contents, _CONTENT_FIELDS[datatype]))


def _ready_probe(version: ModelVersion, service_path: str) -> Probe:
    def says_ready(answer: bytes) -> bool:
        try:
            return ModelReadyResponse.FromString(answer).ready
        except DecodeError as error:
            raise ValueError(str(error)) from None

    request = ModelReadyRequest(name=version.server_model_name, version=version.server_version or "")
    return Probe(oip_method(service_path, OIP_MODEL_READY), request.SerializeToString(), says_ready)
