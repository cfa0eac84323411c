"""A proxy's problems as the errors that they are."""

import asyncio
from typing import Any

import pytest

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.http.proxy_client import HttpProxy, ProxyAway, error_of
from understudy.errors import InputInvalid, RequestError, Violation, leaf_errors


@pytest.mark.parametrize("kind", leaf_errors(), ids=lambda kind: kind.code)
def test_every_problem_of_a_proxy_becomes_its_own_error_again(kind):
    found = error_of({"code": kind.code, "title": kind.title, "detail": "so it was", "next": "do that"})

    assert found is not None
    assert type(found) is kind
    assert (found.detail, found.next_step, str(found)) == ("so it was", "do that", "so it was")


def test_the_places_that_a_problem_names_come_along():
    found = error_of(
        {"code": "E101", "detail": "2 problems", "errors": [{"pointer": "/inputs/x", "detail": "missing"}]}
    )

    assert isinstance(found, RequestError)
    assert found.violations == (Violation("/inputs/x", "missing"),)
    assert found.next_step == InputInvalid.hint


@pytest.mark.parametrize("document", [{}, {"code": "E999"}, {"code": None}])
def test_a_problem_that_is_none_of_ours_is_not_taken_for_one(document: dict[str, Any]):
    assert error_of(document) is None


async def test_nobody_at_the_address_is_said():
    async with HttpProxy(f"http://127.0.0.1:{free_port()}", None, timeout_seconds=10) as proxy:
        with pytest.raises(ProxyAway):
            await proxy.get("/v1/models")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi", "no Understudy proxy"),
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\n{}", "no proxy of this version: status 500"),
        (b"what\r\n\r\n", "."),
    ],
)
async def test_who_answers_something_else_is_no_proxy(answer: bytes, words: str):
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, HttpProxy(f"http://127.0.0.1:{port}", "a.b", timeout_seconds=10) as proxy:
        with pytest.raises(ProxyAway, match=words):
            await proxy.get("/v1/models/visits")
