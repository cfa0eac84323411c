"""TensorFlow Serving: ``PredictionService/Predict`` and ``ModelService/GetModelStatus``."""

from dataclasses import replace

from google.protobuf.message import DecodeError

from understudy.adapters._proto.methods import TFSERVING_GET_MODEL_STATUS, TFSERVING_PREDICT
from understudy.adapters._proto.tfserving_types import DATATYPES, WIRE_TYPES
from understudy.adapters._proto.understudy_tfserving_pb2 import (
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelSpec,
    ModelVersionStatus,
    PredictRequest,
    PredictResponse,
    TensorProto,
)
from understudy.adapters.model_servers.encoding import COPIED_BYTES, LISTED_BYTES
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.server_backend import ServerApi, ServerBackend
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import split_bytes_elements, tensor_of_content, tensor_of_values
from understudy.core.schema.tensors import Block, Datatype, Tensor
from understudy.errors import BadAnswer
from understudy.ports.upstream.model_description import ModelAt

DEFAULT_SIGNATURE = "serving_default"


class TfServingBackend(ServerBackend):
    """A version behind TensorFlow Serving.

    ``backend`` settings: ``signature_name`` (``serving_default``), ``version`` (a number; 0 or none lets the server
    choose the latest; other text is a version label).
    """

    def _api(self, version: ModelVersion) -> ServerApi:
        spec = model_spec_of(version)
        has_strings = any(tensor.datatype is Datatype.BYTES for tensor in self._inputs)
        question = GetModelStatusRequest(model_spec=spec).SerializeToString()
        prefix = PredictRequest(model_spec=spec, output_filter=self._asked_outputs)
        prefix.model_spec.signature_name = str(version.backend.get("signature_name", DEFAULT_SIGNATURE))
        return ServerApi(
            TFSERVING_PREDICT,
            Probe(TFSERVING_GET_MODEL_STATUS, question, _says_available),
            prefix.SerializeToString(),
            LISTED_BYTES if has_strings else COPIED_BYTES,
        )

    def _encode(self, block: Block) -> bytes:
        request = PredictRequest()
        for spec, content, shape in zip(self._inputs, *block, strict=True):
            tensor = request.inputs[spec.name]
            tensor.dtype, _ = WIRE_TYPES[spec.datatype]
            for size in shape:
                tensor.tensor_shape.dim.add(size=size)
            if spec.datatype is Datatype.BYTES:
                tensor.string_val.extend(split_bytes_elements(content))
            else:
                tensor.tensor_content = content
        return self._prefix + request.SerializeToString()

    def _decode(self, answer: bytes) -> Tensor:
        try:
            outputs = PredictResponse.FromString(answer).outputs
        except DecodeError:
            raise BadAnswer("the answer is not a PredictResponse") from None
        name = self._output
        if name is None:
            if len(outputs) != 1:
                raise BadAnswer(f"{len(outputs)} outputs; output_schema.tensor must name one of them")
            (name,) = outputs
        missing = next((one for one in (name, *self._also) if one not in outputs), None)
        if missing is not None:
            raise BadAnswer(f"the answer has no output {missing!r}")
        tensor = _tensor_of(outputs[name], name)
        beside = tuple(_tensor_of(outputs[one], one) for one in self._also)
        return replace(tensor, beside=beside) if beside else tensor


def model_spec_of(version: ModelVersion | ModelAt) -> ModelSpec:
    """Return how TensorFlow Serving is told which model and version is meant."""
    spec = ModelSpec(name=version.server_model_name)
    wanted = version.server_version or "0"
    if not wanted.isdecimal():
        spec.version_label = wanted
    elif int(wanted) > 0:
        spec.version.value = int(wanted)
    return spec


def _says_available(answer: bytes) -> bool:
    statuses = GetModelStatusResponse.FromString(answer).model_version_status
    return any(status.state == ModelVersionStatus.AVAILABLE for status in statuses)


def _tensor_of(tensor: TensorProto, name: str) -> Tensor:
    datatype, field = DATATYPES.get(tensor.dtype, (None, ""))
    if datatype is None:
        raise BadAnswer(f"the output's datatype (number {int(tensor.dtype)}) is not supported")
    shape = tuple(dimension.size for dimension in tensor.tensor_shape.dim)
    if tensor.tensor_content and datatype is not Datatype.BYTES:
        return tensor_of_content(datatype, shape, tensor.tensor_content, name)
    return tensor_of_values(datatype, shape, getattr(tensor, field), name)
