"""Whole calls of many rows take the fast path, and are answered as through ASGI, whichever thread reads them."""

import asyncio
import json
import re
from typing import Any

import pytest
from builders import a_version_row, an_input_schema, policy_rows

from understudy.entrypoints.proxy.dialects.dialect import INLINE_ELEMENTS
from understudy.entrypoints.proxy.dialects.whole_calls import MAX_TURN_ROWS
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


async def through_both(running: Any, path: str, body: bytes) -> tuple[Any, Any]:
    """Return status, headers and body of a call by the fast path, and of the same one through ASGI."""
    written = Written()
    assert running.state[FAST_PATH].offer(path.encode(), dict(HEADERS), body, written)
    status, lines, content = await asyncio.wait_for(written.answered, 10)
    other = await running.ask(path, body, headers=HEADERS)
    fast = status, dict(headers_of_lines(OWN.sub(b"-", lines))), OWN.sub(b"-", content)
    lines_of_asgi = {name: OWN.sub(b"-", value) for name, value in other.headers.items() if name != b"content-length"}
    return fast, (other.status, lines_of_asgi, OWN.sub(b"-", other.body))


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
