"""Calls of the load in other protocols are native ones to the rows, and what the cache holds for them is spoilt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from e2e.stack import VISITS
from redis import Redis

from rigs.faults.inputs import body_for
from rigs.faults.redis_cache import wrong_values
from rigs.faults.rest_callers import REST_DIALECTS, RestConnection

PROBABILITIES = [0.75, 0.25]
ANSWERS: dict[str, Any] = {
    "oip": {"outputs": [{"name": "probabilities", "shape": [1, 2], "data": PROBABILITIES}]},
    "v1": {"predictions": [PROBABILITIES]},
    "invocations": {"predictions": [PROBABILITIES]},
}


@asynccontextmanager
async def a_server(answer: Any, asked: list[bytes]) -> AsyncIterator[int]:
    """Answer every request so."""
    body = orjson.dumps(answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        asked.append(head + await reader.readexactly(length))
        fields = f"x-prediction-id: p-1\r\nx-model-version: 2\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("name", REST_DIALECTS)
async def test_a_call_in_a_protocol_goes_to_its_path_and_is_answered_as_a_native_one(name):
    asked: list[bytes] = []
    async with a_server(ANSWERS[name], asked) as port:
        caller = RestConnection(REST_DIALECTS[name], "127.0.0.1", port)
        answer = await caller.post(VISITS, body_for(7))
        caller.close()

    assert asked[0].startswith(f"POST {REST_DIALECTS[name].path} HTTP/1.1\r\n".encode())
    assert b'"person-7"' in asked[0]
    assert answer.json == {"version": "2", "prediction": {"score": 0.25}}
    assert answer.headers[b"x-prediction-id"] == b"p-1"


@pytest.mark.parametrize("form", ["infer", "infer:output"])
def test_each_value_of_the_cache_is_made_another_in_either_form(form, valkey_url):
    rest = b"\n" + orjson.dumps({"name": "p", "shape": [1]}) + b"\n\x00\x00\x80\x3e" if form == "infer:output" else b""
    with Redis.from_url(valkey_url) as client:
        keys = [f"{form}:{version}:{'ab' * 32}:k1".encode() for version in range(1, 13)]
        values = [b'sealed{"score":0.%d5}%b' % (place % 10, rest) for place in range(len(keys))]
        client.mset(dict(zip(keys, values, strict=True)))

        wrong_values(client, keys)

        assert [one for one, was in zip(client.mget(keys), values, strict=True) if one in (None, was)] == []
