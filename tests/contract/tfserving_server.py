"""A real gRPC server of the tests that manages models as TensorFlow Serving does: any file is a model but a broken one.

``make test-servers`` has TensorFlow load them, by the same rules.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Semaphore, Thread
from typing import Any

import grpc
from servers.tfserving_core import INVALID_ARGUMENT, OK, UNKNOWN, Core, Said

from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_tfserving_pb2 as pb

CODES = {code.value[0]: code for code in grpc.StatusCode}
POLL_SECONDS = 0.02


@dataclass
class TfServingLike:
    """One server on its port; started again it has the configuration of its start, which has no models."""

    port: int
    was_configured: bool = True
    refuses_empty: bool = False
    takes_configurations: bool = True
    """Whether there is ``HandleReloadConfigRequest``."""
    is_unsure: bool = False
    """Whether it says UNKNOWN of each configuration, those that it has taken included."""
    answers_early: bool = False
    """Whether it answers a configuration before it has looked at the folders."""
    goes_on: Event | None = None
    """What each load waits for, but that of the model that stays."""
    loads: Semaphore = field(default_factory=lambda: Semaphore(0))
    """Counts the loads that wait."""
    core: Core = field(init=False)
    requests: list[pb.ReloadConfigRequest] = field(default_factory=list)
    _looks: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """Questions for a model's state, as they come."""
    _loop: asyncio.AbstractEventLoop | None = None
    _server: grpc.Server | None = None

    async def start(self) -> None:
        self.core = Core(self._load, POLL_SECONDS, self.was_configured, self.refuses_empty)
        self.core.start()
        self._loop = asyncio.get_running_loop()
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "GetModelStatus": grpc.unary_unary_rpc_method_handler(
                self._status, pb.GetModelStatusRequest.FromString, pb.GetModelStatusResponse.SerializeToString
            )
        }
        if self.takes_configurations:
            handlers["HandleReloadConfigRequest"] = grpc.unary_unary_rpc_method_handler(
                self._reload, pb.ReloadConfigRequest.FromString, pb.ReloadConfigResponse.SerializeToString
            )
        self._server = grpc.server(ThreadPoolExecutor(16))
        handler = grpc.method_handlers_generic_handler(methods.TFSERVING_MODEL_SERVICE, handlers)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    async def stop(self) -> None:
        self.core.end()
        if self._server is not None:
            self._server.stop(None).wait()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def looked_at(self, times: int) -> None:
        """Wait until it was asked for a model's state so many times more."""
        while not self._looks.empty():
            self._looks.get_nowait()
        async with asyncio.timeout(30):
            for _ in range(times):
                await self._looks.get()

    def _load(self, folder: Path) -> object:
        content = (folder / "saved_model.pb").read_bytes()
        if self.goes_on is not None and folder.parents[1].name != ".keep":
            self.loads.release()
            self.goes_on.wait(30)
        if content == b"no model":
            raise ValueError("Could not parse\nsaved_model.pb")
        return content

    def _status(self, request: pb.GetModelStatusRequest, context: grpc.ServicerContext) -> pb.GetModelStatusResponse:
        spec = request.model_spec
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._looks.put_nowait, spec.name)
        state = self.core.states.get(spec.name)
        if state is None or spec.version.value != 1:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"Could not find version {spec.version.value} of model {spec.name}"
            )
            raise AssertionError
        status = pb.StatusProto(error_code=state.said.code, error_message=state.said.message)
        version = pb.ModelVersionStatus(version=1, state=pb.ModelVersionStatus.State.Name(state.state), status=status)
        return pb.GetModelStatusResponse(model_version_status=[version])

    def _taken(self, models: Mapping[str, str]) -> Said:
        if not self.answers_early:
            return self.core.reload(models)
        Thread(target=self.core.reload, args=[models], daemon=True).start()
        return Said()

    def _reload(self, request: pb.ReloadConfigRequest, context: grpc.ServicerContext) -> pb.ReloadConfigResponse:
        self.requests.append(request)
        if request.config.WhichOneof("config") != "model_config_list":
            said = Said(INVALID_ARGUMENT, "only ModelConfigList is supported")
        else:
            said = self._taken({one.name: one.base_path for one in request.config.model_config_list.config})
        if self.is_unsure and said.code == OK:
            said = Said(UNKNOWN, "Unknown")
        if said.code != OK:
            context.abort(CODES[said.code], said.message)
        return pb.ReloadConfigResponse(status=pb.StatusProto(error_code=said.code))
