"""Where a body is read: on the event loop while that is quick, and else in a thread, so that no other call waits."""

import gzip
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from builders import a_policy

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.entrypoints.proxy.access.caller_access import CallerAccess
from understudy.entrypoints.proxy.dialects.dialect import INLINE_ELEMENTS, INLINE_TENSOR_BYTES, Reading, Target
from understudy.entrypoints.proxy.dialects.handler import DialectHandler, Rules
from understudy.entrypoints.proxy.dialects.open_inference import OpenInference
from understudy.entrypoints.proxy.messages.reply import HttpCall, Reply
from understudy.entrypoints.proxy.predict.handler import INLINE_BYTES, PredictHandler
from understudy.errors import MalformedBody, Overloaded

TENSORS = [(b"inference-header-content-length", b"0")]


class Watched(OpenInference):
    """A dialect that notes which thread it reads in, and finds nothing."""

    name = "watched"

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        self.threads.append(threading.current_thread())
        raise MalformedBody


async def answered(
    dialect: Watched, body: bytes, headers: list[tuple[bytes, bytes]], hold: Callable[[int], None] = lambda _size: None
) -> Reply:
    async def read_body() -> bytes:
        return body

    never: Any = None  # it is asked nothing, since each body is refused
    snapshot, telemetry = PolicySnapshot({"visits": a_policy()}), MemoryTelemetry()
    access = CallerAccess(snapshot=lambda: snapshot, needs_key=False, now=lambda: 0.0)
    handler = PredictHandler(never, access, telemetry=telemetry, now=lambda: 0.0)
    dialects = DialectHandler(
        handler,
        never,
        snapshot=lambda: snapshot,
        telemetry=telemetry,
        rules=Rules(draws_entity=True, forces_version=True, body_limit_bytes=1_048_576),
        now=lambda: 0.0,
        new_id=lambda: "ab" * 16,
    )
    return await dialects.predict(dialect, HttpCall("/", headers, read_body, hold), Target("visits"))


async def is_read_inline(body: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
    dialect = Watched()
    reply = await answered(dialect, body, headers)
    assert reply.status == 400
    return dialect.threads == [threading.current_thread()]


@pytest.mark.parametrize(
    ("body", "headers", "is_inline"),
    [
        (b"[" + b",".join([b"1"] * INLINE_ELEMENTS) + b"]", [], True),
        (b"[" + b",".join([b"1"] * (INLINE_ELEMENTS + 1)) + b"]", [], False),
        (b'"' + b"x" * (INLINE_BYTES - 2) + b'"', [], True),
        (b'"' + b"x" * (INLINE_BYTES - 1) + b'"', [], False),
        (bytes(INLINE_TENSOR_BYTES), TENSORS, True),
        (bytes(INLINE_TENSOR_BYTES + 1), TENSORS, False),
    ],
)
async def test_a_body_of_many_elements_is_read_in_a_thread_however_few_bytes_it_has(body, headers, is_inline):
    assert await is_read_inline(body, headers) is is_inline


LONG = b"[" + random.Random(1).randbytes(20_000).hex().encode() + b"]"
"""Longer than what is inflated on the event loop, once it is compressed."""


@pytest.mark.parametrize("body", [b" " * 500_000, LONG])
async def test_a_compressed_body_is_held_in_its_inflated_length(body):
    dialect, held = Watched(), list[int]()

    await answered(dialect, gzip.compress(body), [(b"content-encoding", b"gzip")], held.append)

    assert held == [len(body)]
    assert len(dialect.threads) == 1


async def test_an_inflated_body_for_which_there_is_no_room_is_not_read():
    def has_no_room(_size: int) -> None:
        raise Overloaded

    dialect = Watched()
    reply = await answered(dialect, gzip.compress(b" " * 500_000), [(b"content-encoding", b"gzip")], has_no_room)

    assert reply.status == 503
    assert dialect.threads == []
