"""TorchServe 0.12: ``InferenceAPIsService/Predictions``, with JSON in and out."""

from math import prod

import orjson
from google.protobuf.message import DecodeError

from understudy.adapters._proto.methods import TORCHSERVE_PING, TORCHSERVE_PREDICTIONS
from understudy.adapters._proto.understudy_torchserve_pb2 import (
    PredictionResponse,
    PredictionsRequest,
    TorchServeHealthResponse,
)
from understudy.adapters.model_servers.replicas.attempts import ServerTraits
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.server_backend import ServerApi, ServerBackend
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.json_codec import json_of_content, member_of, read_json, tensor_of_json
from understudy.core.schema.tensors import Block, Tensor
from understudy.errors import BadAnswer

TORCHSERVE_TRAITS = ServerTraits(
    # It answers a bad payload with UNAVAILABLE and an unknown model with INTERNAL; the details of what it says itself
    # end with the name of one of its Java classes.
    refusal_mark="org.pytorch.serve.",
    # A client's deadline can wedge its worker.
    cancels_cleanly=False,
)
INPUT_NAME = "data"


class TorchServeBackend(ServerBackend):
    """A version behind TorchServe's own API.

    The handler gets ``data``: a JSON object of tensor name to nested list, without a batch dimension. It answers JSON:
    a number, a list, or an object that has the output's name. A call has one row: TorchServe makes batches itself. With
    ``batch`` in the schema the answer gets a leading dimension.
    """

    rows_per_call = 1

    async def infer_block(self, block: Block, timeout_seconds: float) -> Tensor:  # noqa: ARG002 - the port's
        """Refuse: a call has one row, and its JSON no batch dimension."""
        raise BadAnswer("TorchServe's own API takes one row a call, and no block of them")

    def _api(self, version: ModelVersion) -> ServerApi:
        self._datatype = version.output_schema.datatype
        shape = version.output_schema.shape
        self._most_values = None if shape is None else prod(shape)
        prefix = PredictionsRequest(model_name=version.server_model_name, model_version=version.server_version or "")
        # ``Ping`` is about the server: it says nothing about the model.
        return ServerApi(
            TORCHSERVE_PREDICTIONS,
            Probe(TORCHSERVE_PING, b"", _says_healthy),
            prefix.SerializeToString(),
            traits=TORCHSERVE_TRAITS,
        )

    def _encode(self, block: Block) -> bytes:
        if self._batch and block.shapes[0][0] != 1:
            msg = f"{block.shapes[0][0]} rows for a server that takes 1 a call"
            raise ValueError(msg)
        values = {
            spec.name: json_of_content(spec.datatype, content, spec.shape)
            for spec, content in zip(self._inputs, block.contents, strict=True)
        }
        data = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
        return self._prefix + PredictionsRequest(input={INPUT_NAME: data}).SerializeToString()

    def _decode(self, answer: bytes) -> Tensor:
        try:
            prediction = PredictionResponse.FromString(answer).prediction
        except DecodeError:
            raise BadAnswer("the answer is not a PredictionResponse") from None
        value = read_json(prediction)
        if isinstance(value, dict):
            value = member_of(value, self._output)
        tensor = tensor_of_json(value, self._datatype, self._most_values)
        return Tensor(tensor.datatype, (1, *tensor.shape), tensor.values) if self._batch else tensor


def _says_healthy(answer: bytes) -> bool:
    health = TorchServeHealthResponse.FromString(answer).health
    try:
        return bool(orjson.loads(health)["status"] == "Healthy")
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return health == "Healthy"
