"""Open Inference Protocol over gRPC: Triton, MLServer, KServe, and TorchServe under its own service path."""

from dataclasses import replace

from google.protobuf.message import DecodeError

from understudy.adapters._proto.methods import (
    OIP_MODEL_INFER,
    OIP_MODEL_READY,
    OIP_SERVICE,
    OIP_SERVICE_OF_TORCHSERVE,
    oip_method,
)
from understudy.adapters._proto.oip_fields import CONTENT_FIELDS
from understudy.adapters._proto.understudy_oip_pb2 import (
    ModelInferRequest,
    ModelInferResponse,
    ModelReadyRequest,
    ModelReadyResponse,
)
from understudy.adapters.model_servers.answered_model import asked_model_of
from understudy.adapters.model_servers.encoding import COPIED_BYTES, LISTED_BYTES
from understudy.adapters.model_servers.replicas.attempts import USUAL_TRAITS
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.server_backend import ServerApi, ServerBackend
from understudy.adapters.model_servers.torchserve import TORCHSERVE_TRAITS
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import array_of_content, tensor_of_content, tensor_of_values
from understudy.core.schema.tensors import DATATYPES, Block, Tensor
from understudy.errors import BadAnswer

MAX_OUTPUTS = 4_096
"""Of an answer. Two million without a name fit into 4 MiB, and it takes 0.3 s to ask each for its name (measured)."""
MAX_NAMED_CHARACTERS = 64
"""Of an output's name that a server chose, in an error."""


class OipBackend(ServerBackend):
    """A version behind a server that speaks the Open Inference Protocol.

    ``backend`` settings: ``service_path`` (``inference.GRPCInferenceService``), ``version``, ``answers_as``
    (:func:`asked_model_of`), and ``typed_contents``: inputs as typed lists instead of raw bytes. TorchServe ignores raw
    inputs, so there typed is the default.
    """

    def _api(self, version: ModelVersion) -> ServerApi:
        service_path = str(version.backend.get("service_path", OIP_SERVICE))
        is_torchserve = service_path == OIP_SERVICE_OF_TORCHSERVE
        self._typed = bool(version.backend.get("typed_contents", is_torchserve))
        self._asked = asked_model_of(version, service_path)
        outputs = [ModelInferRequest.InferRequestedOutputTensor(name=name) for name in self._asked_outputs]
        name, number = version.server_model_name, version.server_version or ""
        prefix = ModelInferRequest(model_name=name, model_version=number, outputs=outputs)
        question = ModelReadyRequest(name=name, version=number).SerializeToString()
        return ServerApi(
            oip_method(service_path, OIP_MODEL_INFER),
            Probe(oip_method(service_path, OIP_MODEL_READY), question, _says_ready),
            prefix.SerializeToString(),
            LISTED_BYTES if self._typed else COPIED_BYTES,
            TORCHSERVE_TRAITS if is_torchserve else USUAL_TRAITS,
        )

    def _encode(self, block: Block) -> bytes:
        request = ModelInferRequest()
        for spec, content, shape in zip(self._inputs, *block, strict=True):
            tensor = request.inputs.add(name=spec.name, datatype=spec.datatype.wire_name, shape=shape)
            if self._typed:
                values = array_of_content(spec.datatype, content).tolist()
                getattr(tensor.contents, CONTENT_FIELDS[spec.datatype]).extend(values)
            else:
                request.raw_input_contents.append(content)
        return self._prefix + request.SerializeToString()

    def _decode(self, answer: bytes) -> Tensor:
        try:
            response = ModelInferResponse.FromString(answer)
        except DecodeError:
            raise BadAnswer("the answer is not a ModelInferResponse") from None
        if self._asked is not None:
            self._asked.require(response.model_name, response.model_version)
        if len(response.outputs) > MAX_OUTPUTS:
            raise BadAnswer(f"the answer has more than {MAX_OUTPUTS:,} outputs")
        names = [output.name for output in response.outputs]
        tensor = _tensor_at(response, index_of_output(self._output, names))
        beside = tuple(_tensor_at(response, index_of_output(name, names)) for name in self._also)
        return replace(tensor, beside=beside) if beside else tensor


def _tensor_at(response: ModelInferResponse, index: int) -> Tensor:
    output = response.outputs[index]
    datatype = DATATYPES.get(output.datatype)
    if datatype is None:
        raise BadAnswer("the output's datatype is not supported")
    shape = tuple(output.shape)
    # Raw first, and never HasField: MLServer puts an empty `contents` beside the raw bytes.
    if response.raw_output_contents:
        if len(response.raw_output_contents) != len(response.outputs):
            raise BadAnswer("raw_output_contents and outputs differ in number")
        return tensor_of_content(datatype, shape, response.raw_output_contents[index], output.name)
    return tensor_of_values(datatype, shape, getattr(output.contents, CONTENT_FIELDS[datatype]), output.name)


def index_of_output(wanted: str | None, names: list[str]) -> int:
    """Return which of an answer's outputs is read: the one of that name, or without one the first.

    Raises:
        BadAnswer: There is none, or more than one.
    """
    if not names:
        raise BadAnswer("the answer has no outputs")
    if wanted is None:
        wanted = names[0]
    elif wanted not in names:
        raise BadAnswer(f"the answer has no output {wanted!r}")
    if len(names) > 1 and names.count(wanted) > 1:
        raise BadAnswer(f"the answer has several outputs {wanted[:MAX_NAMED_CHARACTERS]!r}")
    return names.index(wanted)


def _says_ready(answer: bytes) -> bool:
    return ModelReadyResponse.FromString(answer).ready
