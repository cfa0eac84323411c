"""The switched model behind the Open Inference Protocol's REST paths, on a port beside the one that switches it."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rigs.faults.model_server import SwitchedModel
from understudy.adapters.dev_server.catalog import InjectedError
from understudy.core.schema.tensors import DATATYPES
from understudy.errors import UnderstudyError

BIG_ANSWER = b'{"outputs":[' + b" " * 5 * 2**20 + b"]}"
_JSON = "application/json"


class HttpModel:
    """Answers ``POST /v2/models/{name}/infer`` and ``…/ready``.

    Args:
        model: What answers, and what it does wrong.
        max_age_ms: Connections older than this are told to go away with an answer.
    """

    def __init__(self, model: SwitchedModel, max_age_ms: int | None) -> None:
        self._model = model
        self._max_age_seconds = None if max_age_ms is None else max_age_ms / 1_000
        self._first_seen: dict[tuple[str, int], float] = {}

    async def serve(self, port: int, stopped: asyncio.Event) -> None:
        """Serve until the event is set."""
        app = Starlette(
            routes=[
                Route("/v2/models/{name}/infer", self._infer, methods=["POST"]),
                Route("/v2/models/{name}/ready", self._ready),
            ]
        )
        config = uvicorn.Config(app, port=port, log_level="critical", timeout_keep_alive=600)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        await stopped.wait()
        server.should_exit = True
        await asyncio.wait([serving], timeout=0.4)

    async def _ready(self, request: Request) -> Response:
        return self._answer(request, b"", 200)

    async def _infer(self, request: Request) -> Response:
        body = await request.body()
        if self._model.is_big:
            self._model.calls += 1
            return self._answer(request, BIG_ANSWER, 200)
        try:
            outputs = await self._model.answer(_tensors(orjson.loads(body)))
        except InjectedError as problem:
            return self._answer(request, orjson.dumps({"error": str(problem)}), 503 if problem.unavailable else 500)
        except (UnderstudyError, ValueError) as problem:
            return self._answer(request, orjson.dumps({"error": str(problem)}), 400)
        return self._answer(request, orjson.dumps(self._document(outputs), option=orjson.OPT_SERIALIZE_NUMPY), 200)

    def _document(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        names = {spec.name: spec.datatype.wire_name for spec in self._model.onnx.outputs}
        return {
            "model_name": self._model.model_name,
            "model_version": str(self._model.version),
            "outputs": [
                {
                    "name": name,
                    "datatype": names[name],
                    "shape": list(values.shape),
                    "data": np.ascontiguousarray(values).ravel(),
                }
                for name, values in outputs.items()
            ],
        }

    def _answer(self, request: Request, body: bytes, status: int) -> Response:
        """Return an answer; the last one of a connection that is too old says so."""
        response = Response(body, status, media_type=_JSON)
        if self._max_age_seconds is not None and request.client is not None:
            client = (request.client.host, request.client.port)
            if time.monotonic() - self._first_seen.setdefault(client, time.monotonic()) > self._max_age_seconds:
                del self._first_seen[client]
                response.headers["connection"] = "close"
        return response


def _tensors(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        one["name"]: np.array(one["data"], DATATYPES[one["datatype"]].numpy_dtype).reshape(one["shape"])
        for one in document["inputs"]
    }
