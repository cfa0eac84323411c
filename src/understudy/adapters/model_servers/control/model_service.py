"""TensorFlow Serving's ``ModelService``: what it says of one model, and the configuration that it is given.

Source:
    TensorFlow Serving, ``model_servers/model_service_impl.cc``, ``get_model_status_impl.cc`` and ``server_core.cc``.
"""

from collections.abc import Mapping
from typing import Any, Final

import grpc

from understudy.adapters._proto.methods import TFSERVING_GET_MODEL_STATUS, TFSERVING_RELOAD_CONFIG
from understudy.adapters._proto.understudy_tfserving_pb2 import (
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelSpec,
    ModelVersionStatus,
    ReloadConfigRequest,
    ReloadConfigResponse,
)
from understudy.adapters.model_servers.control.repository_control import ASK_SECONDS, MAX_SAID, why_refused
from understudy.core.loading.served_name import SERVED_VERSION
from understudy.errors import ServerNotManageable

RELOAD_SECONDS: Final = 30.0
"""Longest wait for the answer to a configuration, which comes once the server has loaded what is new in it."""
STARTED: Final = (
    "Start it without models: tensorflow_model_server --port=PORT --model_config_file=FILE --max_num_load_retries=0, "
    "where the file says: model_config_list {}"
)
PLATFORM: Final = "tensorflow"
_IS_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.CANCELLED)


class ModelService:
    """Calls to the server at ``target``."""

    def __init__(self, target: str, *, reload_seconds: float = RELOAD_SECONDS) -> None:
        """Prepare; no connection is opened before the first call."""
        self._target = target
        self._reload_seconds = reload_seconds
        self._channel: grpc.aio.Channel | None = None

    async def status(self, name: str) -> ModelVersionStatus | None:
        """Return what the server says of a model's version 1; ``None``: it has not heard of it since it was started.

        Raises:
            ServerNotManageable: It does not answer, or is no TensorFlow Serving.
        """
        request = GetModelStatusRequest(model_spec=ModelSpec(name=name))
        request.model_spec.version.value = int(SERVED_VERSION)
        try:
            answer = await self._call(TFSERVING_GET_MODEL_STATUS, request, ASK_SECONDS)
        except grpc.aio.AioRpcError as refused:
            if refused.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise self._not_manageable(refused) from None
        return next(iter(GetModelStatusResponse.FromString(answer).model_version_status), None)

    async def reload(self, models: Mapping[str, str]) -> str:
        """Give the server the folder of each model, by name: it drops every other one.

        Returns what went wrong, in its words; empty: nothing did. Where it is late it may take the configuration yet.

        Raises:
            ServerNotManageable: It is away, or takes no configuration.
        """
        request = ReloadConfigRequest()
        listed = request.config.model_config_list
        for name, folder in models.items():
            model = listed.config.add(name=name, base_path=folder, model_platform=PLATFORM)
            model.model_version_policy.specific.versions.append(int(SERVED_VERSION))
        try:
            answer = await self._call(TFSERVING_RELOAD_CONFIG, request, self._reload_seconds)
        except grpc.aio.AioRpcError as refused:
            if refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return f"the model server has not answered within {self._reload_seconds:g} s"
            if refused.code() in _IS_AWAY:
                raise self._not_manageable(refused) from None
            return as_said(refused.details() or refused.code().name)
        status = ReloadConfigResponse.FromString(answer).status
        return as_said(status.error_message or f"status {status.error_code}") if status.error_code else ""

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close(None)
        self._channel = None

    async def _call(self, method: str, request: Any, seconds: float) -> bytes:
        if self._channel is None:
            # A server that is restarted is found again within a second.
            self._channel = grpc.aio.insecure_channel(self._target, [("grpc.max_reconnect_backoff_ms", 1_000)])
        call: Any = self._channel.unary_unary(method)
        answer: bytes = await call(request.SerializeToString(), timeout=seconds)
        return answer

    def _not_manageable(self, refused: grpc.aio.AioRpcError) -> ServerNotManageable:
        what = f"the model server's control at {self._target}: {why_refused(refused)}"
        return ServerNotManageable(what, hint=STARTED)


def as_said(said: str) -> str:
    """Return what a server said, as it stands in an error."""
    return f"the model server says: {_words(said)}"


def _words(said: str) -> str:
    return " ".join(said.split())[:MAX_SAID]
