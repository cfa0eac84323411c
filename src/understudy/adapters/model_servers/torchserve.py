"""TorchServe 0.12: ``InferenceAPIsService/Predictions``, with JSON in and out."""

from itertools import chain
from math import prod
from typing import Any

import numpy as np
import orjson
from google.protobuf.message import DecodeError

from understudy.adapters._proto.methods import TORCHSERVE_PING, TORCHSERVE_PREDICTIONS
from understudy.adapters._proto.understudy_torchserve_pb2 import (
    PredictionResponse,
    PredictionsRequest,
    TorchServeHealthResponse,
)
from understudy.adapters.model_servers.attempts import ServerTraits
from understudy.adapters.model_servers.grpc_backend import GrpcBackend, ServerApi
from understudy.adapters.model_servers.probes import Probe
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import array_of_content, tensor_of_values
from understudy.core.schema.tensors import Block, Datatype, Tensor, TensorSpec
from understudy.errors import BadAnswer

TORCHSERVE_TRAITS = ServerTraits(
    # It answers a bad payload with UNAVAILABLE and an unknown model with INTERNAL; the details of what it says itself
    # end with the name of one of its Java classes.
    refusal_mark="org.pytorch.serve.",
    # A client's deadline can wedge its worker.
    cancels_cleanly=False,
)
INPUT_NAME = "data"
MAX_ANSWER_DEPTH = 16
"""Dimensions of an answer."""
MAX_ANSWER_VALUES = 524_288
"""Characters ``,``, ``[`` and ``{`` in an answer's JSON: 4 MiB of values of seven characters. Of the two million
shortest numbers that fit, or of 1.4 million lists, single steps take 0.1 to 0.4 s and let no other thread run
(measured)."""


class TorchServeBackend(GrpcBackend):
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
        values = {spec.name: _nested(spec, content) for spec, content in zip(self._inputs, block.contents, strict=True)}
        data = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
        return self._prefix + PredictionsRequest(input={INPUT_NAME: data}).SerializeToString()

    def _decode(self, answer: bytes) -> Tensor:
        try:
            value = _value_of(PredictionResponse.FromString(answer).prediction)
        except (DecodeError, orjson.JSONDecodeError):
            raise BadAnswer("the answer is not JSON, or holds NaN") from None
        if isinstance(value, dict):
            value = _member(value, self._output)
        tensor = _tensor_of(value, self._datatype, self._most_values)
        return Tensor(tensor.datatype, (1, *tensor.shape), tensor.values) if self._batch else tensor


def _nested(spec: TensorSpec, content: bytes) -> Any:
    """Return a tensor's elements as JSON will hold them; float32 in its shortest decimal form."""
    values = array_of_content(spec.datatype, content)
    if spec.datatype is Datatype.BYTES:
        values = np.array([element.decode() for element in values], dtype=object)
        return values.reshape(spec.shape).tolist() if spec.shape else values[0]
    return values.reshape(spec.shape) if spec.shape else values[0]


def _value_of(text: bytes) -> Any:
    # A shorter text cannot have so many, and need not be searched.
    if len(text) > MAX_ANSWER_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > MAX_ANSWER_VALUES:
        raise BadAnswer(f"the answer's JSON has more than {MAX_ANSWER_VALUES:,} values and lists")
    return orjson.loads(text)


def _member(answer: dict[str, Any], name: str | None) -> Any:
    if name is None:
        if len(answer) != 1:
            raise BadAnswer(f"{len(answer)} outputs; output_schema.tensor must name one of them")
        (name,) = answer
    if name not in answer:
        raise BadAnswer(f"the answer has no output {name!r}")
    return answer[name]


def _tensor_of(value: Any, wanted: Datatype | None, most: int | None) -> Tensor:
    shape, values, kinds = _flattened(value, most)
    found = _datatype_of(kinds)
    if found is None or (wanted is not None and not _holds(wanted, found)):
        raise BadAnswer("the answer's JSON values are not of the output's datatype")
    if found is Datatype.BYTES:
        values = [element.encode() for element in values]
    return tensor_of_values(wanted or found, shape, values)


def _datatype_of(kinds: set[type]) -> Datatype | None:
    if kinds in ({float}, {float, int}):
        return Datatype.FP64
    single = {int: Datatype.INT64, bool: Datatype.BOOL, str: Datatype.BYTES}
    return single.get(next(iter(kinds))) if len(kinds) == 1 else None


def _holds(wanted: Datatype, found: Datatype) -> bool:
    if found is Datatype.INT64:
        return wanted.is_integer or wanted.is_float
    return wanted is found or (wanted.is_float and found.is_float)


def _flattened(value: Any, most: int | None) -> tuple[tuple[int, ...], list[Any], set[type]]:
    """Return the shape, the elements and their types, of a nested list or of one value: shape ``()``.

    It goes from level to level: lists in lists hold at least as many values, or none at all. So a level of more than
    ``most`` is refused before its elements are looked at.
    """
    if not isinstance(value, list):
        return (), [value], {type(value)}
    shape: list[int] = [len(value)]
    while True:
        if most is not None and len(value) > most:
            raise BadAnswer(f"the answer has more values than the {most:,} of output_schema.shape")
        kinds = set(map(type, value))
        if list not in kinds:
            return tuple(shape), value, kinds
        if len(shape) == MAX_ANSWER_DEPTH:
            raise BadAnswer("the answer's lists are nested too deep")
        lengths = set(map(len, value)) if len(kinds) == 1 else ()
        if len(lengths) != 1:
            raise BadAnswer("the answer's lists differ in length")
        shape.extend(lengths)
        value = list(chain.from_iterable(value))


def _says_healthy(answer: bytes) -> bool:
    health = TorchServeHealthResponse.FromString(answer).health
    try:
        return bool(orjson.loads(health)["status"] == "Healthy")
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return health == "Healthy"
