"""Real gRPC servers that speak all three protocols over one small model, and misbehave when told."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import grpc.aio
import numpy as np
import orjson
from numpy.typing import NDArray

from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tf
from understudy.adapters._proto import understudy_torchserve_pb2 as ts
from understudy.core.schema.codec import join_bytes_elements, split_bytes_elements

Arrays = dict[str, NDArray[Any]]

WEIGHTS = np.array([1.0, 10.0, 100.0], dtype="<f4")
MODEL_NAME = "linear"
HUGE_BYTES = 5 * 1_048_576


@dataclass
class Behaviour:
    """What the server does; a test changes it while the server runs."""

    typed: bool = False
    """Answer in typed lists instead of raw bytes."""
    delay_seconds: float = 0.0
    delay_of: Callable[[int], float] | None = None
    """The delay of a call by its number, counted from 1; instead of ``delay_seconds``."""
    code: grpc.StatusCode | None = None
    details: str = "secret-path/model.bin"
    failures: int | None = None
    """How many calls end with ``code``; ``None``: all."""
    ready: bool = True
    probes_hang: bool = False
    has_probes: bool = True
    """Whether it knows the question if it is ready, which servers of one's own may leave out."""
    extra_output: bool = False
    rename_output: str | None = None
    twice: bool = False
    """Whether each output is there twice."""
    says_model: tuple[str, str] | None = None
    """The model and version that an answer names; ``None``: those that were asked for."""
    answer: bytes | None = None
    """Bytes to send instead of an answer."""
    datatype: Any = None
    """The datatype to claim instead of the true one."""
    shape: list[int] | None = None
    huge: bool = False
    nan: bool = False
    empty_contents: bool = False


def answer_of(inputs: Arrays, behaviour: Behaviour) -> Arrays:
    """The model: ``p = x . WEIGHTS`` for numbers, the upper-case ``word`` for strings."""
    if "word" in inputs:
        words = [word.decode().upper().encode() for word in inputs["word"].ravel()]
        return {"label": np.array(words, dtype=object).reshape(inputs["word"].shape)}
    scores = inputs["x"].astype("<f4") @ WEIGHTS
    if behaviour.nan:
        scores = np.full_like(scores, np.nan)
    if behaviour.huge:
        scores = np.zeros(HUGE_BYTES // 4, dtype="<f4")
    outputs = {behaviour.rename_output or "p": np.asarray(scores, dtype="<f4")}
    if behaviour.extra_output:
        outputs = {"variance": np.asarray(scores * 0, dtype="<f8"), **outputs}
    return outputs


@dataclass
class ModelServer:
    """One server process's worth of gRPC, on a port that stays its own over restarts."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    options: tuple[tuple[str, int], ...] = ()
    port: int = 0
    calls: int = 0
    completed: int = 0
    last_inputs: Arrays = field(default_factory=dict)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    """Of each call."""
    callers: set[str] = field(default_factory=set)
    """Of calls, one for each connection."""
    last_answer: bytes = b""
    last_model: tuple[str, Any] = ("", None)
    _server: grpc.aio.Server | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, address: str | None = None, credentials: grpc.ServerCredentials | None = None) -> None:
        self._server = grpc.aio.server(options=self.options)
        for service, handlers in self._handlers().items():
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        address = address or f"127.0.0.1:{self.port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def _handlers(self) -> "dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]]":
        oip_handlers = {
            methods.OIP_MODEL_INFER: self._infers(self._oip_infer),
            methods.OIP_MODEL_READY: self._tells(lambda: oip.ModelReadyResponse(ready=self.behaviour.ready)),
        }
        return {
            methods.TFSERVING_PREDICTION_SERVICE: {"Predict": self._infers(self._tf_predict)},
            methods.TFSERVING_MODEL_SERVICE: {"GetModelStatus": self._tells(self._tf_status)},
            methods.OIP_SERVICE: oip_handlers,
            methods.OIP_SERVICE_OF_TORCHSERVE: oip_handlers,
            methods.TORCHSERVE_SERVICE: {
                "Predictions": self._infers(self._ts_predict),
                "Ping": self._tells(self._ts_health),
            },
        }

    def _infers(self, answer: Callable[[bytes], bytes]) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def handle(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
            behaviour = self.behaviour
            self.calls += 1
            self.metadata.append(dict(context.invocation_metadata() or ()))
            self.callers.add(context.peer())
            delay_of = behaviour.delay_of
            await asyncio.sleep(behaviour.delay_seconds if delay_of is None else delay_of(self.calls))
            if behaviour.code is not None and (behaviour.failures is None or behaviour.failures > 0):
                if behaviour.failures is not None:
                    behaviour.failures -= 1
                await context.abort(behaviour.code, behaviour.details)
            self.completed += 1
            self.last_answer = answer(request) if behaviour.answer is None else behaviour.answer
            return self.last_answer

        return grpc.unary_unary_rpc_method_handler(handle)

    def _tells(self, answer: Callable[[], Any]) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def handle(_request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
            if self.behaviour.probes_hang:
                await asyncio.sleep(3_600)
            if not self.behaviour.has_probes:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            return bytes(answer().SerializeToString())

        return grpc.unary_unary_rpc_method_handler(handle)

    # -- TensorFlow Serving --------------------------------------------------------------------------------------------

    def _tf_predict(self, content: bytes) -> bytes:
        request = tf.PredictRequest.FromString(content)
        self.last_model = (request.model_spec.name, request.model_spec)
        self.last_inputs = {name: _tf_array(tensor) for name, tensor in request.inputs.items()}
        response = tf.PredictResponse()
        for name, values in answer_of(self.last_inputs, self.behaviour).items():
            if not request.output_filter or name in request.output_filter:
                self._tf_fill(response.outputs[name], values)
        return response.SerializeToString()

    def _tf_fill(self, tensor: tf.TensorProto, values: NDArray[Any]) -> None:
        dtypes: dict[str, Any] = {"f": tf.DT_FLOAT, "d": tf.DT_DOUBLE, "O": tf.DT_STRING}
        tensor.dtype = dtypes[values.dtype.char] if self.behaviour.datatype is None else self.behaviour.datatype
        for size in values.shape if self.behaviour.shape is None else self.behaviour.shape:
            tensor.tensor_shape.dim.add(size=size)
        if values.dtype.char == "O":
            tensor.string_val.extend(values.ravel())
        elif self.behaviour.typed:
            {"f": tensor.float_val, "d": tensor.double_val}[values.dtype.char].extend(values.ravel().tolist())
        else:
            tensor.tensor_content = values.tobytes()

    def _tf_status(self) -> tf.GetModelStatusResponse:
        state = tf.ModelVersionStatus.AVAILABLE if self.behaviour.ready else tf.ModelVersionStatus.LOADING
        return tf.GetModelStatusResponse(model_version_status=[tf.ModelVersionStatus(version=1, state=state)])

    # -- Open Inference Protocol ---------------------------------------------------------------------------------------

    def _oip_infer(self, content: bytes) -> bytes:
        request = oip.ModelInferRequest.FromString(content)
        self.last_model = (request.model_name, request.model_version)
        self.last_inputs = {
            tensor.name: _oip_array(tensor, request.raw_input_contents[index] if request.raw_input_contents else None)
            for index, tensor in enumerate(request.inputs)
        }
        name, version = self.behaviour.says_model or (request.model_name, request.model_version)
        response = oip.ModelInferResponse(model_name=name, model_version=version)
        for output, values in answer_of(self.last_inputs, self.behaviour).items():
            for _ in range(2 if self.behaviour.twice else 1):
                self._oip_fill(response, output, values)
        return response.SerializeToString()

    def _oip_fill(self, response: oip.ModelInferResponse, name: str, values: NDArray[Any]) -> None:
        datatypes = {"f": "FP32", "d": "FP64", "O": "BYTES"}
        tensor = response.outputs.add(
            name=name,
            datatype=self.behaviour.datatype or datatypes[values.dtype.char],
            shape=values.shape if self.behaviour.shape is None else self.behaviour.shape,
        )
        if self.behaviour.typed:
            contents = tensor.contents
            fields: dict[str, Any] = {
                "f": contents.fp32_contents,
                "d": contents.fp64_contents,
                "O": contents.bytes_contents,
            }
            fields[values.dtype.char].extend(values.ravel().tolist())
            return
        if self.behaviour.empty_contents:
            tensor.contents.SetInParent()
        raw = join_bytes_elements(list(values.ravel())) if values.dtype.char == "O" else values.tobytes()
        response.raw_output_contents.append(raw)

    # -- TorchServe ----------------------------------------------------------------------------------------------------

    def _ts_predict(self, content: bytes) -> bytes:
        request = ts.PredictionsRequest.FromString(content)
        self.last_model = (request.model_name, request.model_version)
        data = orjson.loads(request.input["data"])
        self.last_inputs = {name: _json_array(value) for name, value in data.items()}
        outputs = answer_of(self.last_inputs, self.behaviour)
        named = {name: _json_value(values) for name, values in outputs.items()}
        answer = next(iter(named.values())) if self.behaviour.typed else named
        text = b"NaN" if self.behaviour.nan else orjson.dumps(answer)
        return ts.PredictionResponse(prediction=text).SerializeToString()

    def _ts_health(self) -> ts.TorchServeHealthResponse:
        return ts.TorchServeHealthResponse(
            health='{"status": "%s"}\n' % ("Healthy" if self.behaviour.ready else "Partial")
        )


def _tf_array(tensor: tf.TensorProto) -> NDArray[Any]:
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    if tensor.dtype == tf.DT_STRING:
        return np.array(list(tensor.string_val), dtype=object).reshape(shape)
    numpy_type = {tf.DT_FLOAT: "<f4", tf.DT_INT64: "<i8"}[tensor.dtype]
    return np.frombuffer(tensor.tensor_content, numpy_type).reshape(shape)


def _oip_array(tensor: oip.ModelInferRequest.InferInputTensor, raw: bytes | None) -> NDArray[Any]:
    if tensor.datatype == "BYTES":
        elements = list(tensor.contents.bytes_contents) if raw is None else split_bytes_elements(raw)
        return np.array(elements, dtype=object).reshape(list(tensor.shape))
    numpy_type = {"FP32": "<f4", "INT64": "<i8"}[tensor.datatype]
    if raw is not None:
        return np.frombuffer(raw, numpy_type).reshape(list(tensor.shape))
    typed: dict[str, Any] = {"FP32": tensor.contents.fp32_contents, "INT64": tensor.contents.int64_contents}
    return np.array(list(typed[tensor.datatype]), numpy_type).reshape(list(tensor.shape))


def _json_array(value: Any) -> NDArray[Any]:
    array = np.array(value)
    return array if array.dtype.kind != "U" else np.vectorize(str.encode, otypes=[object])(array)


def _json_value(values: NDArray[Any]) -> Any:
    if values.dtype.char == "O":
        return np.vectorize(bytes.decode, otypes=[object])(values).tolist()
    return values.tolist()


@asynccontextmanager
async def running(
    *behaviours: Behaviour, options: tuple[tuple[str, int], ...] = ()
) -> AsyncIterator[list[ModelServer]]:
    """Servers that are stopped at the end, also those that the test stopped and started itself."""
    servers = [ModelServer(behaviour, options) for behaviour in behaviours or (Behaviour(),)]
    try:
        for server in servers:
            await server.start()
        yield servers
    finally:
        for server in servers:
            await server.stop()


class TcpRelay:
    """Forwards TCP to a server, later if told so, and can cut every connection with a reset."""

    def __init__(self, target_port: int, *, connect_seconds: float = 0.0, keeps: bool = False) -> None:
        self.port = 0
        self.sent = bytearray()
        """What clients sent, where that is kept."""
        self._keeps = keeps
        self.connections = 0
        self._connect_seconds = connect_seconds
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exception: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lead_to(self, target_port: int) -> None:
        """Forward new connections to another port; to one without a listener, the server is away."""
        self._target_port = target_port

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        writers = {writer}
        try:
            await asyncio.sleep(self._connect_seconds)
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            writers.add(other_writer)
            self._writers |= writers
            await asyncio.gather(
                _pump(reader, other_writer, self.sent if self._keeps else None), _pump(other_reader, writer)
            )
        finally:
            self._writers -= writers
            self._tasks.discard(task)
            for opened in writers:
                opened.close()


class FrameServer:
    """An HTTP/2 server that answers every call with the same frames, and keeps the connection.

    ``frames`` gets the number of the call's stream.
    """

    def __init__(self, frames: Callable[[int], bytes]) -> None:
        self.port = 0
        self.calls = 0
        self._frames = frames
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exception: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readexactly(len(PREFACE))
            writer.write(_frame(_SETTINGS))
            while True:
                head = await reader.readexactly(9)
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
                await reader.readexactly(int.from_bytes(head[:3]))
                if kind == _SETTINGS and not flags & _ACK:
                    writer.write(_frame(_SETTINGS, flags=_ACK))
                if kind == _DATA:
                    self.calls += 1
                    writer.write(self._frames(stream))


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x7
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_ANSWER = {":status": "200", "content-type": "application/grpc"}
_OK = {"grpc-status": "0"}


def reset_with(http2_error: int) -> Callable[[int], bytes]:
    """Reset each call with RST_STREAM."""
    return lambda stream: _frame(_RST_STREAM, stream, http2_error.to_bytes(4))


def go_away_with(http2_error: int) -> Callable[[int], bytes]:
    """Say at each call that the connection ends, and that the call was not looked at."""
    return lambda _stream: _frame(_GOAWAY, 0, bytes(4) + http2_error.to_bytes(4))


def end_ok_with(content: bytes | None) -> Callable[[int], bytes]:
    """End each call with OK, after ``content`` in the place of a message; ``None``: with trailers only."""

    def frames(stream: int) -> bytes:
        if content is None:
            return _headers(stream, _END_STREAM, **_ANSWER, **_OK)
        data = _frame(_DATA, stream, content)
        return _headers(stream, 0, **_ANSWER) + data + _headers(stream, _END_STREAM, **_OK)

    return frames


def message_of(content: bytes) -> bytes:
    """Return a message as gRPC frames it: not compressed, its length first."""
    return b"\0" + len(content).to_bytes(4) + content


def settings_in(sent: bytearray) -> list[dict[int, int]]:
    """Return the values of each SETTINGS frame that a client sent on one connection (RFC 9113, section 6.5)."""
    found = []
    at = len(PREFACE)
    while at + 9 <= len(sent):
        length, kind = int.from_bytes(sent[at : at + 3]), sent[at + 3]
        at += 9 + length
        if kind == _SETTINGS:
            found.append(dict(struct.iter_unpack(">HI", sent[at - length : at])))
    return found


def _headers(stream: int, flags: int, **fields: str) -> bytes:
    """Return a HEADERS frame, its fields as literals without Huffman coding or indexing (RFC 7541, section 6.2.2)."""
    texts = [text.encode() for field in fields.items() for text in field]
    pairs = [b"".join(bytes([len(text)]) + text for text in texts[n : n + 2]) for n in range(0, len(texts), 2)]
    return _frame(_HEADERS, stream, b"".join(b"\0" + pair for pair in pairs), flags | _END_HEADERS)


def _frame(kind: int, stream: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray | None = None) -> None:
    with contextlib.suppress(ConnectionError):
        while content := await reader.read(65_536):
            if kept is not None:
                kept += content
            writer.write(content)
            await writer.drain()
    writer.close()


async def eventually(condition: Callable[[], Awaitable[bool]], within_seconds: float) -> bool:
    """Ask until the condition holds or the time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_seconds
    while loop.time() < end:
        if await condition():
            return True
        await asyncio.sleep(0.01)
    return False
