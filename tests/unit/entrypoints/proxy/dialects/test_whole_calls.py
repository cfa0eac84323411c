"""Whole calls of many rows take the fast path, and are answered as through ASGI, whichever thread reads them."""

import asyncio
import gzip
import json
import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from builders import a_version_row, an_input_schema, policy_rows

from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.entrypoints.proxy.dialects.dialect import INLINE_ELEMENTS
from understudy.entrypoints.proxy.dialects.kserve_v1 import KServeV1
from understudy.entrypoints.proxy.dialects.open_inference import OpenInference
from understudy.entrypoints.proxy.dialects.whole_calls import INLINE_CODED_BYTES, MAX_TURN_ROWS
from understudy.entrypoints.proxy.messages.headers import headers_of_lines
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH
from understudy.entrypoints.proxy.predict.handler import INLINE_BYTES

ROWS = 256
HEADERS = ((b"x-entity-id", b"e"),)
INFER, ROWS_PATH = "/v2/models/plain/infer", "/v1/models/plain:predict"
SCHEMA = an_input_schema(
    features=[{"name": "age", "dtype": "float32", "min": 0, "max": 130}, {"name": "income", "dtype": "float32"}]
)
MODELS = {"plain": policy_rows(versions=[a_version_row("1", input_schema=SCHEMA, deterministic=False)])}
FLAT = [number % 100 for number in range(2 * ROWS)]
NESTED = [FLAT[start : start + 2] for start in range(0, len(FLAT), 2)]
OWN = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|dur=[0-9.]+")
"""Ids and times, which no two answers share."""


class Written:
    """Takes an answer."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[tuple[int, bytes, bytes]] = asyncio.get_running_loop().create_future()

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        self.answered.set_result((status, lines, body))


def an_infer(data: Any, **more: Any) -> bytes:
    tensor = {"name": "input", "datatype": "FP32", "shape": [ROWS, 2], "data": data}
    return json.dumps({"inputs": [tensor], **more}).encode()


def some_rows(rows: Any) -> bytes:
    return json.dumps({"entity_id": "e", "instances": rows}).encode()


async def through_both(
    running: Any, path: str, body: bytes, headers: Sequence[tuple[bytes, bytes]] = HEADERS
) -> tuple[Any, Any]:
    """Return status, headers and body of a call by the fast path, and of the same one through ASGI."""
    written = Written()
    assert running.state[FAST_PATH].offer(path.encode(), dict(headers), body, written)
    status, lines, content = await asyncio.wait_for(written.answered, 10)
    other = await running.ask(path, body, headers=headers)
    fast = status, dict(headers_of_lines(OWN.sub(b"-", lines))), OWN.sub(b"-", inflated(content))
    lines_of_asgi = {name: OWN.sub(b"-", value) for name, value in other.headers.items() if name != b"content-length"}
    return fast, (other.status, lines_of_asgi, OWN.sub(b"-", inflated(other.body)))


def inflated(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (INFER, an_infer(FLAT)),
        (INFER, an_infer(FLAT, id="a", outputs=[{"name": "output", "parameters": {"binary_data": True}}])),
        (INFER, an_infer(NESTED)),
        (INFER, an_infer([*FLAT[:-2], 131, 0])),  # beyond the bounds of the last row's age
        (INFER, an_infer([*FLAT, 0])),
        (ROWS_PATH, some_rows(NESTED)),
        (ROWS_PATH, some_rows([{"age": age, "income": income} for age, income in NESTED])),
        (ROWS_PATH, some_rows([*NESTED[:-1], [131, "x"]])),
        (ROWS_PATH, some_rows([*NESTED, [1, 1]])),
    ],
)
async def test_calls_of_many_rows_are_answered_as_through_asgi(start, path, body):
    assert body.count(b",") >= INLINE_ELEMENTS
    assert len(body) <= INLINE_BYTES
    running = await start(models=MODELS)

    fast, asgi = await through_both(running, path, body)

    assert fast == asgi


@pytest.mark.parametrize(("data", "is_plain"), [(FLAT, True), (NESTED, False)])
async def test_a_plain_body_of_many_rows_waits_for_no_thread(start, monkeypatch, data, is_plain):
    running = await start(models=MODELS)
    pooled: list[Any] = []
    pool = running.state[FAST_PATH].handler.body_pool
    run = pool.run

    async def watched(*work: Any) -> Any:
        pooled.append(work)
        return await run(*work)

    monkeypatch.setattr(pool, "run", watched)
    written = Written()
    running.state[FAST_PATH].offer(INFER.encode(), dict(HEADERS), an_infer(data), written)

    status, _, body = await asyncio.wait_for(written.answered, 10)

    assert (status, not pooled) == (200, is_plain)
    assert json.loads(body)["outputs"][0]["shape"] == [ROWS, 1]


async def test_rows_of_one_entity_go_one_way_and_are_logged_each_by_itself(start):
    running = await start(models=MODELS)
    written = Written()
    running.state[FAST_PATH].offer(INFER.encode(), dict(HEADERS), an_infer(FLAT), written)
    await asyncio.wait_for(written.answered, 10)

    rows = running.spool.rows

    assert [(row.entity_id, row.role, row.bucket) for row in rows] == [("e", rows[0].role, rows[0].bucket)] * ROWS
    assert len({row.input_hash for row in rows}) == len({tuple(one) for one in NESTED})


async def test_calls_of_many_rows_that_come_at_once_leave_turns_for_others(start):
    running = await start(models=MODELS)
    fast_path, several = running.state[FAST_PATH], [Written() for _ in range(6)]
    for one in several:
        fast_path.offer(INFER.encode(), dict(HEADERS), an_infer(FLAT), one)

    await asyncio.sleep(0)
    running.telemetry.share()
    samples = [sample for metric in running.telemetry.registry.collect() for sample in metric.samples]
    begun = sum(one.value for one in samples if one.name.endswith("dialect_calls_total"))
    for one in several:
        assert (await asyncio.wait_for(one.answered, 10))[0] == 200

    assert begun == MAX_TURN_ROWS // ROWS


# -- calls of one row --------------------------------------------------------------------------------------------------

BINARY = {"binary_data_output": True}
"""Parameters of a call whose outputs are to come as bytes."""
RAW = struct.pack("<2f", 1, 2)


def one_infer(raw: bytes | None = None, **more: Any) -> bytes:
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 2]}
    contents = {"data": [1, 2]} if raw is None else {"parameters": {"binary_data_size": len(raw)}}
    return json.dumps({"inputs": [{**tensor, **contents}], **more}).encode() + (raw or b"")


def one_row(row: Any = (1, 2), **more: Any) -> bytes:
    return json.dumps({"instances": [row], **more}).encode()


def answering(shape: tuple[int, ...], name: str = "", datatype: Datatype = Datatype.FP32) -> Any:
    """Return a model server whose output has this shape in each row."""

    def answer(rows: Sequence[Row]) -> Tensor:
        count = len(rows) * int(np.prod(shape, dtype=int))
        values = [b"j\xc3\xa4"] * count if datatype is Datatype.BYTES else np.arange(count) / 7
        dtype = object if datatype is Datatype.BYTES else datatype.numpy_dtype
        return Tensor(datatype, (len(rows), *shape), np.array(values, dtype), name)

    return answer


@pytest.fixture
def general(monkeypatch):
    """Note each plain body that takes the way of calls of several rows."""
    taken: list[bytes] = []
    for kind in (KServeV1, OpenInference):
        reading_of = kind.reading_of

        def noted(self: Any, plain: Any, body: bytes, *more: Any, reading_of: Any = reading_of) -> Any:
            taken.append(body)
            return reading_of(self, plain, body, *more)

        monkeypatch.setattr(kind, "reading_of", noted)
    return taken


NAMED = one_infer(id="mine", outputs=[{"name": "output"}])
USUAL = [
    (INFER, one_infer()),
    (INFER, one_infer(id="mine", parameters=BINARY)),
    (INFER, NAMED),
    (INFER, one_infer(outputs=[{"name": "output", "parameters": {"binary_data": True}}])),
    (INFER, one_infer(parameters={"entity_id": "e"})),
    (ROWS_PATH, one_row()),
    (ROWS_PATH, one_row(entity_id="e", signature_name="serving_default")),
    (ROWS_PATH, one_row(parameters={"entity_id": "e"})),
]

UNUSUAL = [
    (INFER, one_infer(outputs=[{"name": "output"}, {"name": "understudy_version"}])),
    (INFER, one_infer(outputs=[{"name": "understudy_version"}])),
    (INFER, one_infer(outputs=[{"name": "nothing"}])),
    (INFER, one_infer(parameters={"category": "vip"})),
    (ROWS_PATH, one_row(category="vip", entity_id="e")),
    (ROWS_PATH, one_row(entity_id="e", signature_name="other")),
    (ROWS_PATH, one_row((131, 2))),
    (ROWS_PATH, one_row((1,))),
]


@pytest.mark.parametrize(("shape", "version_headers"), [((), True), ((1,), False), ((3,), True), ((2, 2), False)])
async def test_a_plain_call_of_one_row_is_answered_as_through_asgi(start, shape, version_headers):
    running = await start(models=MODELS, functions={"1": answering(shape)}, version_headers=version_headers)

    for path, body in USUAL:
        fast, asgi = await through_both(running, path, body)

        assert fast == asgi, (path, body)
        assert fast[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        [(b"accept-encoding", b"gzip, deflate")],
        [(b"x-request-timeout-ms", b"60000")],
        [(b"x-request-id", b"mine"), (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")],
    ],
)
async def test_headers_that_many_clients_send_keep_no_call_from_the_short_way(start, general, headers):
    running = await start(models=MODELS)

    for path, body in USUAL:
        written = Written()
        running.state[FAST_PATH].offer(path.encode(), dict([*HEADERS, *headers]), body, written)
        status, _, _ = await asyncio.wait_for(written.answered, 10)

        assert (status, general) == (200, [])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-entity-id", b"f")],
        [(b"x-entity-id", b"")],
        [(b"x-entity-id", b"x" * 256)],
        [(b"x-entity-id", b"\xff")],
        [(b"x-entity-id", "é".encode())],
        [(b"x-entity-id", b"a\0b")],
        [(b"x-category", b"vip"), *HEADERS],
        [(b"x-request-timeout-ms", b"0"), *HEADERS],
        [(b"inference-header-content-length", b"10"), *HEADERS],
        [(b"accept-encoding", b"gzip"), *HEADERS],
    ],
)
async def test_a_call_of_one_row_that_is_unusual_is_answered_as_through_asgi(start, headers):
    running = await start(models=MODELS)

    for path, body in [*USUAL, *UNUSUAL]:
        fast, asgi = await through_both(running, path, body, headers)

        assert fast == asgi, (path, body)


@pytest.mark.parametrize("raw", [RAW, struct.pack("<2f", 131, 2), struct.pack("<2f", 1, np.nan), RAW[:4], b""])
@pytest.mark.parametrize("entity", [b"e", None])
async def test_a_row_as_bytes_is_answered_as_through_asgi(start, raw, entity):
    running = await start(models=MODELS)
    body = one_infer(raw, id="mine", parameters=BINARY)
    headers = [(b"inference-header-content-length", b"%d" % (len(body) - len(raw)))]
    if entity is not None:
        headers.append((b"x-entity-id", entity))

    fast, asgi = await through_both(running, INFER, body, headers)

    assert fast == asgi
    assert (fast[0] == 200) == (raw == RAW)


@pytest.mark.parametrize(
    "function",
    [
        answering((INLINE_CODED_BYTES,)),  # as JSON longer than what is worded at once
        answering((2,), datatype=Datatype.BYTES),
        answering((2,), datatype=Datatype.INT64),
        answering((2,), "named by the server"),
        answering((2,), "named_bytes", Datatype.BYTES),
        lambda rows: Tensor(Datatype.FP32, (len(rows), 1), np.full(len(rows), np.inf, "<f4")),
        lambda rows: Tensor(Datatype.FP32, (len(rows) + 1, 1), np.zeros(len(rows) + 1, "<f4")),
    ],
)
@pytest.mark.parametrize("accepted", [b"gzip", b"identity"])
async def test_whatever_a_server_says_of_one_row_is_answered_as_through_asgi(start, function, accepted):
    running = await start(models=MODELS, functions={"1": function})

    for path, body in USUAL:
        fast, asgi = await through_both(running, path, body, [*HEADERS, (b"accept-encoding", accepted)])

        assert fast == asgi, (path, body)


@pytest.mark.parametrize(("path", "body"), [(INFER, one_infer()), (ROWS_PATH, one_row())])
async def test_the_inputs_of_one_row_are_read_once_for_all_that_ask_for_them(start, general, path, body):
    reversed_ = an_input_schema(tensors=[{"name": "input", "dtype": "float32", "features": ["income", "age"]}])
    versions = [
        a_version_row("1", input_schema=SCHEMA, deterministic=False, timeout_ms=10_000),
        a_version_row("2", input_schema=reversed_, deterministic=False, timeout_ms=10_000),
    ]
    policy = policy_rows(
        versions=versions, challenger_version=2, challenger_weight=99, input_sample_percent=100, salt="all"
    )
    running = await start(models={"plain": policy})
    written = Written()
    running.state[FAST_PATH].offer(path.encode(), dict(HEADERS), body, written)
    await asyncio.wait_for(written.answered, 10)

    (row,) = running.spool.rows

    assert json.loads(row.inputs) == {"age": 1, "income": 2}
    assert len(general) == 1
    assert running.backends["2"].calls == [((struct.pack("<2f", 2, 1),),)]
