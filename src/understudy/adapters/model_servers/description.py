"""What model servers say of a model's tensors: ``DescribeModel`` over gRPC, by protocol."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from understudy.adapters._proto.methods import (
    OIP_MODEL_METADATA,
    OIP_SERVICE,
    TFSERVING_GET_MODEL_METADATA,
    oip_method,
)
from understudy.adapters._proto.tfserving_types import DATATYPES
from understudy.adapters._proto.understudy_oip_pb2 import ModelMetadataRequest, ModelMetadataResponse
from understudy.adapters._proto.understudy_tfserving_pb2 import (
    DataType,
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    SignatureDefMap,
    TensorInfo,
)
from understudy.adapters.model_servers.addresses import DEFAULT_GRPC_CLIENT, GrpcClient
from understudy.adapters.model_servers.connect import PROTOCOLS, wire_of
from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.adapters.model_servers.status import said, why_no_handshake
from understudy.adapters.model_servers.tfserving import DEFAULT_SIGNATURE, model_spec_of
from understudy.core.schema.described import FREE, MAX_DESCRIBED, DescribedModel, DescribedTensor, listed
from understudy.core.upstream.endpoint_rules import NO_RULES, EndpointRules
from understudy.errors import BackendUnavailable, BadAnswer
from understudy.ports.upstream.model_description import ModelAt

ASK_SECONDS: Final = 3.0
"""Longest question to one server, its name's resolution included."""
MAX_NAME: Final = 255
MAX_DIMENSIONS: Final = 32
_SIGNATURES: Final = "signature_def"
_AWAY: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
)
_FRAMEWORKS: Final = {"onnx": "onnx", "tensorflow": "tensorflow", "pytorch": "pytorch", "tensorrt": "tensorrt"}
"""By the beginning of what a server calls its platform."""


class _Question(NamedTuple):
    method: str
    request: bytes
    read: Callable[[bytes, str], DescribedModel]
    """Raises protobuf's ``DecodeError``, or ``BadAnswer``."""


async def describe(
    at: ModelAt,
    environment: Mapping[str, str] = os.environ,
    *,
    rules: EndpointRules = NO_RULES,
    ca_file: Path | None = None,
    grpc_client: GrpcClient = DEFAULT_GRPC_CLIENT,
) -> DescribedModel:
    """Return what a server says of a model, as :class:`understudy.ports.upstream.model_description.DescribeModel`."""
    source = f"the model server at {at.endpoint}"
    question = _question(at)
    if question is None:
        return DescribedModel(source, (), ())
    wire = wire_of(at, environment, rules=rules, ca_file=ca_file)._replace(grpc_client=grpc_client)
    replica = Replica(at.endpoint, wire, time.monotonic)
    try:
        answer = await _ask(replica, question, source)
        return question.read(answer, source)
    except (DecodeError, ValueError):
        raise BadAnswer(f"{source}: its answer cannot be read") from None
    finally:
        await replica.close()


def _question(at: ModelAt) -> _Question | None:
    """Return the metadata call of a protocol; ``None``: it has none.

    Raises:
        BackendUnavailable: There is no such protocol.
    """
    if at.protocol not in PROTOCOLS:
        raise BackendUnavailable(f"there is no protocol {at.protocol!r} to model servers: {listed(sorted(PROTOCOLS))}")
    if at.protocol == "oip":
        service = str(at.backend.get("service_path", OIP_SERVICE))
        request = ModelMetadataRequest(name=at.server_model_name, version=at.server_version or "")
        return _Question(oip_method(service, OIP_MODEL_METADATA), request.SerializeToString(), _of_oip)
    if at.protocol == "tfserving":
        signature = str(at.backend.get("signature_name", DEFAULT_SIGNATURE))
        asked = GetModelMetadataRequest(model_spec=model_spec_of(at), metadata_field=[_SIGNATURES])
        return _Question(
            TFSERVING_GET_MODEL_METADATA,
            asked.SerializeToString(),
            lambda answer, source: _of_tfserving(answer, source, signature),
        )
    return None


async def _ask(replica: Replica, question: _Question, source: str) -> bytes:
    """Return the answer.

    Raises:
        BackendUnavailable: The server is not reached.
        BadAnswer: It refuses the question, or does not know it.
    """
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await replica.open()
            call = replica.method(question.method)
            return await call(question.request, timeout=ASK_SECONDS, metadata=replica.metadata)
    except TimeoutError:
        raise BackendUnavailable(f"{source} does not answer within {ASK_SECONDS:g} s") from None
    except grpc.aio.AioRpcError as error:
        details = error.details() or ""
        if error.code() in _AWAY:
            refused = "nothing listens there" if "connection refused" in details.lower() else ""
            why = why_no_handshake(details) or refused or f"{error.code().name}: {said(error)}"
            raise BackendUnavailable(f"{source} is not reached: {why}") from None
        unknown = ", so it tells nothing of its models, or this is another port of it"
        more = unknown if error.code() is grpc.StatusCode.UNIMPLEMENTED else ""
        problem = BadAnswer(f"{source} says {error.code().name}: {said(error)}{more}")
        problem.said = said(error)
        raise problem from None


def _of_oip(answer: bytes, source: str) -> DescribedModel:
    metadata = ModelMetadataResponse.FromString(answer)
    platform = metadata.platform.lower()
    framework = next((name for begins, name in _FRAMEWORKS.items() if platform.startswith(begins)), None)
    return DescribedModel(source, _oip_tensors(metadata.inputs), _oip_tensors(metadata.outputs), framework)


def _oip_tensors(tensors: Iterable[ModelMetadataResponse.TensorMetadata]) -> tuple[DescribedTensor, ...]:
    return _bounded(DescribedTensor(one.name, one.datatype, tuple(one.shape)) for one in tensors)


def _of_tfserving(answer: bytes, source: str, signature: str) -> DescribedModel:
    metadata = GetModelMetadataResponse.FromString(answer).metadata
    # Read by hand: Unpack would look for the type under the name that our own package gives it.
    known = SignatureDefMap.FromString(metadata[_SIGNATURES].value).signature_def if _SIGNATURES in metadata else {}
    if signature not in known:
        there_are = listed(sorted(known))
        raise BadAnswer(f"{source}: the model has no signature {signature!r}; it has: {there_are}")
    found = known[signature]
    inputs, outputs = _tf_tensors(found.inputs), _tf_tensors(found.outputs)
    return DescribedModel(source, inputs, outputs, "tensorflow")


def _tf_tensors(tensors: Mapping[str, TensorInfo]) -> tuple[DescribedTensor, ...]:
    # A map has no order on the wire.
    return _bounded(
        DescribedTensor(name, _tf_datatype(one.dtype), _tf_shape(one)) for name, one in sorted(tensors.items())
    )


def _tf_datatype(number: int) -> str:
    if number in DATATYPES:
        return DATATYPES[number][0].wire_name
    return DataType.Name(DataType.ValueType(number)) if number in DataType.values() else f"datatype {number}"


def _tf_shape(tensor: TensorInfo) -> tuple[int, ...] | None:
    shape = tensor.tensor_shape
    return None if shape.unknown_rank else tuple(dimension.size for dimension in shape.dim)


def _bounded(tensors: Iterable[DescribedTensor]) -> tuple[DescribedTensor, ...]:
    found: list[DescribedTensor] = []
    for tensor in tensors:
        if len(found) == MAX_DESCRIBED:
            raise BadAnswer(f"the model server tells of more than {MAX_DESCRIBED:,} inputs or outputs")
        if len(tensor.name) > MAX_NAME or len(tensor.shape or ()) > MAX_DIMENSIONS or len(tensor.datatype) > MAX_NAME:
            raise BadAnswer("the model server tells of a tensor with a name or a shape that no schema has")
        shape = tensor.shape and tuple(size if size > 0 else FREE for size in tensor.shape)
        found.append(tensor._replace(shape=shape))
    return tuple(found)
