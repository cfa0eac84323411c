"""The Open Inference Protocol's service: its calls, and what it says of the server and of models."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.core.routing.access import ANY_MODEL, AnyModel, Scope
from understudy.core.routing.policy import ModelVersion, ServingPolicy
from understudy.entrypoints.proxy.dialects.catalogue import (
    named_version,
    not_retired,
    readable_versions,
    repository_index,
)
from understudy.entrypoints.proxy.dialects.dialect import Outcome, Target
from understudy.entrypoints.proxy.dialects.offered import Offered
from understudy.entrypoints.proxy.dialects.open_inference import config_document, metadata_document, server_document
from understudy.entrypoints.proxy.dialects.open_inference_grpc import (
    OpenInferenceGrpc,
    config_message,
    metadata_message,
)
from understudy.entrypoints.proxy.dialects.protobuf import INLINE_MESSAGE_BYTES
from understudy.entrypoints.proxy.dialects.statistics import worded_statistics
from understudy.entrypoints.proxy.messages.headers import RequestOptions, read_headers
from understudy.entrypoints.proxy.rpc.standing import Standing
from understudy.entrypoints.proxy.rpc.unary import Incoming, Method, message, not_offered

_LOADED_ELSEWHERE = "models are loaded by the registry: understudy version load"
NOT_OFFERED: Mapping[str, str] = {
    "ModelStreamInfer": "ModelStreamInfer: send each call by ModelInfer",
    methods.OIP_REPOSITORY_LOAD: _LOADED_ELSEWHERE,
    methods.OIP_REPOSITORY_UNLOAD: _LOADED_ELSEWHERE,
}
"""Methods that clients know, and what to do in their place."""


class InferenceService:
    """``inference.GRPCInferenceService``.

    Args:
        offered: The open proxy.
        standing: Knows whether the proxy can answer.
    """

    def __init__(self, offered: Offered, standing: Standing) -> None:
        self._offered = offered
        self._standing = standing

    @property
    def methods(self) -> tuple[Method, ...]:
        """What it has."""
        return (
            Method(methods.OIP_MODEL_INFER, self._infer, is_of_model=True),
            Method(methods.OIP_SERVER_LIVE, self._live, needs_key=False, reads=False),
            Method(methods.OIP_SERVER_READY, self._ready, needs_key=False, reads=False),
            *(Method(name, answer, max_bytes=INLINE_MESSAGE_BYTES) for name, answer in self._about.items()),
            *(not_offered(name, what) for name, what in NOT_OFFERED.items()),
        )

    @property
    def _about(self) -> Mapping[str, Callable[[Incoming], Awaitable[Outcome]]]:
        """Methods that say something of the server or of models."""
        return {
            methods.OIP_SERVER_METADATA: self._server,
            methods.OIP_MODEL_READY: self._model_ready,
            methods.OIP_MODEL_METADATA: self._model,
            methods.OIP_MODEL_CONFIG: self._config,
            methods.OIP_MODEL_STATISTICS: self._statistics,
            methods.OIP_REPOSITORY_INDEX: self._index,
        }

    async def _infer(self, call: Incoming) -> Outcome:
        request, is_whole = call.begun(pb.ModelInferRequest, OpenInferenceGrpc.HEAD)
        dialect = OpenInferenceGrpc(request, is_whole=is_whole)
        return await self._offered.dialects.answer(dialect, call.http_call, dialect.target)

    async def _live(self, _call: Incoming) -> Outcome:
        return message(pb.ServerLiveResponse(live=True))

    async def _ready(self, _call: Incoming) -> Outcome:
        return message(pb.ServerReadyResponse(ready=await self._standing.is_ready()))

    async def _server(self, call: Incoming) -> Outcome:
        self._admit(call, ANY_MODEL)
        return message(pb.ServerMetadataResponse(**server_document()))

    async def _model_ready(self, call: Incoming) -> Outcome:
        _, version = self._named(call, call.parsed(pb.ModelReadyRequest))
        return message(pb.ModelReadyResponse(ready=await self._offered.readiness.is_ready(version)))

    async def _model(self, call: Incoming) -> Outcome:
        policy, version = self._named(call, call.parsed(pb.ModelMetadataRequest))
        return message(metadata_message(metadata_document(policy, version, not_retired(policy))))

    async def _config(self, call: Incoming) -> Outcome:
        return message(config_message(config_document(*self._named(call, call.parsed(pb.ModelConfigRequest)))))

    async def _statistics(self, call: Incoming) -> Outcome:
        request = call.parsed(pb.ModelStatisticsRequest)
        dialects = self._offered.dialects
        if not request.name:
            permitted = dialects.handler.access.permitted_models(self._admit(call, ANY_MODEL), Scope.READ)
            versions = readable_versions(self._offered.snapshot(), permitted)
        else:
            policy, version = self._named(call, request)
            labels = [version.version] if request.version else not_retired(policy)
            versions = map(policy.versions.__getitem__, labels)
        return await worded_statistics(dialects.statistics, versions, _statistics_message)

    async def _index(self, call: Incoming) -> Outcome:
        options = self._admit(call, ANY_MODEL)
        ready_only = call.parsed(pb.RepositoryIndexRequest).ready
        permitted = self._offered.dialects.handler.access.permitted_models(options, Scope.READ)
        found = repository_index(self._offered.snapshot(), permitted, ready_only=ready_only)
        entries: list[dict[str, Any]] = [one._asdict() for one in found]
        return message(pb.RepositoryIndexResponse(models=entries))

    def _admit(self, call: Incoming, model_name: str | AnyModel) -> RequestOptions:
        options = read_headers(dict(call.headers))
        self._offered.dialects.handler.access.admit(options, Scope.READ, model_name)
        return options

    def _named(
        self,
        call: Incoming,
        request: pb.ModelReadyRequest | pb.ModelMetadataRequest | pb.ModelConfigRequest | pb.ModelStatisticsRequest,
    ) -> tuple[ServingPolicy, ModelVersion]:
        """Return the policy and the version that a request names, once its caller was admitted to the model."""
        self._admit(call, request.name)
        policy = self._offered.dialects.policy_of(request.name, dict(call.headers))
        return policy, named_version(policy, Target(request.name, request.version or None))


def _statistics_message(document: dict[str, Any]) -> Outcome:
    return message(pb.ModelStatisticsResponse(**document))
