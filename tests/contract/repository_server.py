"""A real gRPC server of the tests that speaks the model repository extension as Triton 2.51 does, with its traps.

``make test-servers`` asks the same of the real one.
"""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]
LOOKS_UNTIL_GONE = 2
"""How often a model that is being dropped is still listed as such."""


class TritonLike:
    """Lists every folder of its repository; answers an unload before it is done; loads nothing in another mode."""

    def __init__(self, repository: Path, port: int) -> None:
        self.name = "triton"
        self.is_explicit = True
        """``--model-control-mode=explicit``."""
        self.prefix = ""
        """What it writes before each state, as MLServer 1.7 does."""
        self.reason_beside_ready = ""
        """What it says beside READY, as of a model that is being dropped."""
        self.loading: str | None = None
        """The state that is said of every model, as while an agent of before has it loaded; ``None``: its own."""
        self.goes_on: asyncio.Event | None = None
        """What each load waits for."""
        self._repository = repository
        self._port = port
        self.target = f"127.0.0.1:{port}"
        self.loads = 0
        self._asked = asyncio.Condition()
        self._asked_times = 0
        self._states: dict[str, tuple[str, str]] = {}
        self._looks: dict[str, int] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._states.clear()
        self._server = grpc.aio.server()
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            methods.OIP_SERVER_METADATA: grpc.unary_unary_rpc_method_handler(
                self._metadata, pb.ServerMetadataRequest.FromString, pb.ServerMetadataResponse.SerializeToString
            ),
            methods.OIP_REPOSITORY_INDEX: grpc.unary_unary_rpc_method_handler(
                self._index, pb.RepositoryIndexRequest.FromString, pb.RepositoryIndexResponse.SerializeToString
            ),
            methods.OIP_REPOSITORY_LOAD: grpc.unary_unary_rpc_method_handler(
                self._load, pb.RepositoryModelLoadRequest.FromString, pb.RepositoryModelLoadResponse.SerializeToString
            ),
            methods.OIP_REPOSITORY_UNLOAD: grpc.unary_unary_rpc_method_handler(
                self._unload,
                pb.RepositoryModelUnloadRequest.FromString,
                pb.RepositoryModelUnloadResponse.SerializeToString,
            ),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(methods.OIP_SERVICE, handlers),))
        self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    async def looked_at(self, times: int) -> None:
        """Wait until the index was asked for so many times more."""
        async with self._asked:
            last = self._asked_times + times
            await self._asked.wait_for(lambda: self._asked_times >= last)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _metadata(self, _: pb.ServerMetadataRequest, _context: Context) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name=self.name, version="2.51.0", extensions=["model_repository"])

    async def _index(self, _: pb.RepositoryIndexRequest, _context: Context) -> pb.RepositoryIndexResponse:
        async with self._asked:
            self._asked_times += 1
            self._asked.notify_all()
        response = pb.RepositoryIndexResponse()
        for folder in sorted(self._repository.glob("[!.]*")):
            name = folder.name
            state, reason = self._states.get(name, ("", ""))
            if self.loading is not None:
                state = self.loading
            elif state == "UNLOADING":
                self._looks[name] -= 1
                if self._looks[name] < 0:
                    state, reason = self._states[name] = ("UNAVAILABLE", "unloaded")
            response.models.add(
                name=name,
                version="1" if state else "",
                state=self.prefix + state,
                reason=self.reason_beside_ready if state == "READY" else reason,
            )
        return response

    async def _load(self, request: pb.RepositoryModelLoadRequest, context: Context) -> pb.RepositoryModelLoadResponse:
        await self._require_explicit(context)
        if self.goes_on is not None:
            await self.goes_on.wait()
        self.loads += 1
        name = request.model_name
        files = [path for path in (self._repository / name / "1").glob("*") if path.is_file()]
        if not files:
            words = f"failed to load '{name}', failed to poll from model repository"
            await context.abort(grpc.StatusCode.INTERNAL, words)
        if files[0].read_bytes() == b"no model":
            self._states[name] = ("UNAVAILABLE", "Internal: no weights")
            words = (
                f"load failed for model '{name}': version 1 is at UNAVAILABLE state: Internal: no weights\n\nAt:\n  x"
            )
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, words)
        self._states[name] = ("READY", "")
        return pb.RepositoryModelLoadResponse()

    async def _unload(
        self, request: pb.RepositoryModelUnloadRequest, context: Context
    ) -> pb.RepositoryModelUnloadResponse:
        await self._require_explicit(context)
        if self._states.get(request.model_name, ("", ""))[0] == "READY":
            self._states[request.model_name] = ("UNLOADING", "")
            self._looks[request.model_name] = LOOKS_UNTIL_GONE
        return pb.RepositoryModelUnloadResponse()

    async def _require_explicit(self, context: Context) -> None:
        if not self.is_explicit:
            words = "explicit model load / unload is not allowed if polling is enabled"
            await context.abort(grpc.StatusCode.UNAVAILABLE, words)
