"""What a call leaves behind: nothing that only the garbage collector frees, which runs seldom (``tune_runtime``)."""

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
import pytest
from builders import KeptRows
from contract.servers import Behaviour, running
from integration.entrypoints.test_fast_path import port_of, serving
from integration.entrypoints.test_traced_calls import LIMITS, WAYS, a_model

import understudy
from understudy.adapters.model_servers.connect import connect
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH
from understudy.errors import UnderstudyError

SOURCE = str(Path(understudy.__file__).parent)
PREDICT, BATCH, OUTCOMES = "/v1/models/linear/predict", "/v1/models/linear/predict:batch", "/v1/outcomes"
RANK = "/v1/models/linear/rank"
GOOD = b'{"entity_id":"e","inputs":{"a":1,"b":2,"c":3}}'
V1, OIP = "/v1/models/linear:predict", "/v2/models/linear/infer"
A_TENSOR = b'{"inputs":[%b]}' % b",".join(
    b'{"name":"%b","datatype":"FP32","shape":[1],"data":[1]}' % name for name in (b"a", b"b", b"c")
)
TWICE = b"{" + b",".join([b'"a":1'] * 60_000) + b"}"
ANSWERED: dict[str, tuple[str, bytes, int]] = {
    "answered": (PREDICT, GOOD, 200),
    "a batch": (BATCH, b'{"entities":[%b]}' % GOOD, 200),
    "no JSON": (PREDICT, b"{", 400),
    "a key twice": (PREDICT, TWICE, 400),
    "no object": (PREDICT, b"[" + b",".join([b'":"'] * 60_000) + b"]", 400),
    "broken": (PREDICT, b"[" + b"1," * 30_000 + b"]", 400),
    "a batch with a key twice": (BATCH, TWICE, 400),
    "treatments with a key twice": (RANK, TWICE, 400),
    "outcomes with a key twice": (OUTCOMES, TWICE, 400),
    "not as the schema says": (PREDICT, b'{"entity_id":"e","inputs":{"a":"x"}}', 422),
    "no such model": ("/v1/models/none/predict", GOOD, 404),
    "no such path": ("/v2/none", GOOD, 404),
    "rows as JSON": (V1, b'{"instances":[{"entity_id":"e","a":1,"b":2,"c":3}]}', 200),
    "several rows": (V1, b'{"instances":[{"a":1,"b":2,"c":3},{"a":1,"b":2,"c":4}]}', 200),
    "several rows, of which one is not as the schema says": (V1, b'{"instances":[{"a":1,"b":2,"c":3},{"a":"x"}]}', 422),
    "a tensor": (OIP, A_TENSOR, 200),
    "a tensor with a key twice": (OIP, TWICE, 400),
    "no such model of a dialect": ("/v2/models/none/infer", A_TENSOR, 404),
    "too long": (PREDICT, b" " * 1_100_000, 413),
}


async def ask(port: int, path: str, body: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ops.secret\r\n"
    async with asyncio.timeout(30):
        writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.findall(rb"content-length: (\d+)", answer)[0]))
    writer.close()
    return int(answer.split()[1])


@contextmanager
def garbage() -> Iterator[list[str]]:
    """Let nothing be collected meanwhile; which calls of ours could only be freed that way is there afterwards."""
    found: list[str] = []
    gc.collect()
    gc.freeze()  # what is there already need not be looked at again, in this call and in later ones
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        frames = [one for one in gc.garbage if isinstance(one, FrameType)]
        found += [f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in frames if _is_ours(frame)]
        found += [repr(one) for one in gc.garbage if isinstance(one, UnderstudyError | grpc.aio.AioRpcError)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(SOURCE)


FAILED: dict[str, tuple[Behaviour, int]] = {
    "refused": (Behaviour(code=grpc.StatusCode.INVALID_ARGUMENT, details="no"), 502),
    "not there": (Behaviour(code=grpc.StatusCode.UNAVAILABLE, details="no"), 503),
    "late": (Behaviour(delay_seconds=1), 504),
}


@WAYS
async def test_a_call_is_freed_as_soon_as_it_is_answered(start, way):
    async with running(Behaviour()) as servers, a_proxy(start, way, a_model(servers)) as port:
        left = {name: await left_by(port, *call) for name, call in ANSWERED.items()}
    assert {name: found for name, found in left.items() if found} == {}


@WAYS
@pytest.mark.parametrize("cache_seconds", [0, 60], ids=["asked", "looked up"])
@pytest.mark.parametrize("failure", FAILED.values(), ids=FAILED)
@pytest.mark.parametrize("call", [(PREDICT, GOOD), (OIP, A_TENSOR)], ids=["ours", "a dialect's"])
async def test_a_call_that_its_model_fails_is_freed(start, way, failure, cache_seconds, call):
    behaviour, status = failure
    changes = {"cache_ttl_seconds": cache_seconds, "timeout_ms": 300 if behaviour.delay_seconds else 20_000}
    async with running(behaviour) as servers, a_proxy(start, way, a_model(servers, version=changes)) as port:
        assert await left_by(port, call[0], call[1], status) == []


@asynccontextmanager
async def a_proxy(start: Any, way: str, model: dict[str, Any]) -> AsyncIterator[int]:
    """Serve with the fast path or without it; the port."""
    proxy = await start(models={"linear": model}, connect=connect, limits=LIMITS, spool=KeptRows(), auth=True)
    async with serving(proxy.app, {FAST_PATH: proxy.state[FAST_PATH]} if way == "fast" else {}) as server:
        yield port_of(server)


async def left_by(port: int, path: str, body: bytes, status: int) -> list[str]:
    """Return what three calls leave behind that are not the first of their kind."""
    assert await ask(port, path, body) == status
    with garbage() as left:
        for _ in range(3):
            assert await ask(port, path, body) == status
        await asyncio.sleep(0.05)
    return left
