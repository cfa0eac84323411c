"""A model server over HTTP/1.1 that speaks all four protocols over the same small model, and misbehaves when told."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import grpc
import numpy as np
import orjson
from numpy.typing import NDArray

from .servers import Arrays, Behaviour, answer_of

STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.UNAVAILABLE: 503,
}


@dataclass
class HttpModelServer:
    """One server on a port that stays its own over restarts; ``behaviour`` is that of the gRPC servers."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    tls: ssl.SSLContext | None = None
    raw: bytes | None = None
    """Bytes to send in the place of each answer, its head included."""
    closes: bool = False
    """Whether each connection ends with its first answer, without a word about it in the head."""
    host: str = "127.0.0.1"
    port: int = 0
    connections: int = 0
    calls: int = 0
    paths: list[str] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    documents: list[Any] = field(default_factory=list)
    last_inputs: Arrays = field(default_factory=dict)
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._server = None

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
                writer.write(await self._answer(head, body))
                await writer.drain()
                if self.closes:
                    break
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, head: bytes, body: bytes) -> bytes:
        verb, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        if verb == "GET":
            if self.behaviour.probes_hang:
                await asyncio.sleep(3_600)
            return _http(*self._told(path))
        self.calls += 1
        self.paths.append(path)
        self.heads.append(head)
        await asyncio.sleep(self.behaviour.delay_seconds)
        if self.raw is not None:
            return self.raw
        if self.behaviour.code is not None:
            return _http(STATUSES[self.behaviour.code], {"detail": self.behaviour.details})
        self.documents.append(orjson.loads(body))
        return _http(200, self._infer(path, self.documents[-1]))

    def _told(self, path: str) -> tuple[int, Any]:
        is_ready = self.behaviour.ready
        if path.startswith("/v1/"):
            return 200, {"model_version_status": [{"version": "1", "state": "AVAILABLE" if is_ready else "LOADING"}]}
        return 200 if is_ready else 503, {"ready": is_ready}

    def _infer(self, path: str, asked: Any) -> Any:
        path = path.removeprefix("/seldon")
        if path.startswith("/v2/"):
            return self._oip(unquote(path.split("/")[3]), asked)
        if path.startswith("/v1/") and "inputs" in asked:
            outputs = self._outputs({name: _array(value) for name, value in asked["inputs"].items()})
            return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}
        if path.startswith("/v1/"):
            return {"predictions": _by_row(self._outputs({"x": _array(asked["instances"])}))}
        if path == "/invocations":
            frame = asked["dataframe_split"]
            columns = zip(*frame["data"], strict=True)
            named = {name: _array(list(column)) for name, column in zip(frame["columns"], columns, strict=True)}
            return {"predictions": _by_row(self._outputs(named))}
        rows = [asked] if path == "/one" else asked["rows"]
        outputs = self._outputs({name: _array([row[name] for row in rows]) for name in rows[0]})
        found = _by_row(outputs)
        return {"score": found[0]} if path == "/one" else {"result": {"rows": [{"score": value} for value in found]}}

    def _oip(self, model: str, asked: Any) -> Any:
        inputs = {one["name"]: _array(one["data"]).reshape(one["shape"]) for one in asked["inputs"]}
        outputs = [
            {
                "name": name,
                "shape": list(np.shape(value)) if self.behaviour.shape is None else self.behaviour.shape,
                "datatype": self.behaviour.datatype or ("BYTES" if "label" in name else "FP32"),
                "data": np.array(value, dtype=object).ravel().tolist(),
            }
            for name, value in self._outputs(inputs).items()
        ]
        name, version = self.behaviour.says_model or (model, "")
        return {"model_name": name, "model_version": version, "outputs": outputs}

    def _outputs(self, inputs: Arrays) -> dict[str, Any]:
        self.last_inputs = inputs
        outputs = answer_of(inputs, self.behaviour)
        return {
            name: [text.decode() for text in values] if values.dtype.char == "O" else values.tolist()
            for name, values in outputs.items()
        }


def _array(value: Any) -> NDArray[Any]:
    array = np.array(value)
    return array if array.dtype.kind != "U" else np.vectorize(str.encode, otypes=[object])(array)


def _by_row(outputs: dict[str, Any]) -> list[Any]:
    if len(outputs) == 1:
        return list(next(iter(outputs.values())))
    return [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]


def _http(status: int, document: Any) -> bytes:
    return reply(orjson.dumps(document), status=status)


def reply(body: bytes, *fields: str, status: int = 200, length: int | None = None) -> bytes:
    """Return an answer as it goes over the wire; ``length`` may lie."""
    head = [f"HTTP/1.1 {status} ", f"content-length: {len(body) if length is None else length}", *fields]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def running_http(
    *behaviours: Behaviour, tls: ssl.SSLContext | None = None
) -> AsyncIterator[list[HttpModelServer]]:
    """Servers that are stopped at the end, also those that the test stopped and started itself."""
    servers = [HttpModelServer(behaviour, tls) for behaviour in behaviours or (Behaviour(),)]
    try:
        for server in servers:
            await server.start()
        yield servers
    finally:
        for server in servers:
            await server.stop()
