"""A server that is none, or no proxy, is told apart from a proxy's own problems."""

import asyncio

import pytest

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.http.proxy_client import HttpProxy
from understudy.client.problems import ProxyAway


async def test_no_proxy_at_the_address_is_said():
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
