"""What the proxy's process does with heads that HTTP does not permit, and with pages in a browser on its machine."""

import asyncio
import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.stack import a_stack, wait_for_port

HOST = b"host: localhost\r\n"
LENGTH = b"content-length: 2\r\n"
PREDICT = b"POST /v1/models/visits/predict HTTP/1.1\r\n"
LIVE = b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"
DEADLINE_SECONDS = 20.0


@pytest.fixture
def port(tmp_path: Path, database_url: str) -> Iterator[int]:
    """A proxy on loopback, without keys and without models."""
    with a_stack(tmp_path, database_url) as stack:
        port = stack.start_proxy(wait_ready=False)
        wait_for_port(port)
        yield port


async def answers_to(port: int, *sent: bytes, count: int = 1) -> list[tuple[int, str | None]]:
    """Return status and error code of each answer; the connection is to end with the last one."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for data in sent:
            writer.write(data)
        received = b""
        while received.count(b"\r\n\r\n") < count or not reader.at_eof():
            received += await reader.read(65_536)
            if reader.at_eof():
                break
        writer.close()
    found = re.findall(
        rb'HTTP/1\.1 (\d+)(?:(?!HTTP/1\.1 \d).)*?(?:"code":"(E\d+)"|"status":"alive"|$)', received, re.DOTALL
    )
    return [(int(status), code.decode() or None) for status, code in found]


async def test_a_proxy_on_loopback_refuses_bad_heads_long_bodies_at_once_and_pages_of_other_sites(port):
    await heads_that_http_does_not_permit_are_refused_in_their_turn(port)
    await a_body_that_is_announced_as_too_long_is_413_before_it_comes(port)
    await a_page_whose_name_was_bound_to_this_machine_reads_nothing(port)
    await a_page_of_another_site_sends_no_body_and_curl_does(port)
    await asyncio.to_thread(an_ordinary_client_is_answered, port)


async def heads_that_http_does_not_permit_are_refused_in_their_turn(port: int) -> None:
    refused = [
        PREDICT + LENGTH + b"\r\n{}",
        PREDICT + HOST + HOST + LENGTH + b"\r\n{}",
        PREDICT.replace(b"HTTP/1.1", b"HTTP/2.0") + HOST + LENGTH + b"\r\n{}",
        PREDICT.replace(b"predict ", b"predict#x ") + HOST + LENGTH + b"\r\n{}",
        PREDICT + HOST + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        PREDICT + HOST + b"authorization: Bearer a.b\r\nauthorization: Bearer c.d\r\n" + LENGTH + b"\r\n{}",
        b"GET /livez HTTP/1.1\r\n\r\n",
    ]

    for request in refused:
        assert await answers_to(port, request) == [(400, "E104")], request
        assert await answers_to(port, LIVE + request + LIVE) == [(200, None), (400, "E104")], request


async def a_body_that_is_announced_as_too_long_is_413_before_it_comes(port: int) -> None:
    began = time.monotonic()

    for path in (b"/v1/models/visits/predict", b"/v1/models/visits/rank", b"/v1/models/visits/predict:batch"):
        request = b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"connection: close\r\ncontent-length: 99999999\r\n\r\n{"
        assert await answers_to(port, request) == [(413, "E103")]

    assert time.monotonic() - began < 5  # UNDERSTUDY_RECEIVE_SECONDS is 10 for each


async def a_page_whose_name_was_bound_to_this_machine_reads_nothing(port: int) -> None:
    for path in (b"/v1/audit", b"/v1/models", b"/docs", b"/livez"):
        request = b"GET " + path + b" HTTP/1.1\r\nhost: evil.example:8080\r\n\r\n"

        assert await answers_to(port, request) == [(421, "E421")]


async def a_page_of_another_site_sends_no_body_and_curl_does(port: int) -> None:
    form = b"content-type: application/x-www-form-urlencoded\r\n"
    for whence in (b"origin: https://evil.example\r\n", b"sec-fetch-site: cross-site\r\n"):
        for kind in (form, b"content-type: text/plain\r\n", b"content-type: multipart/form-data; boundary=x\r\n"):
            assert await answers_to(port, PREDICT + HOST + whence + kind + LENGTH + b"\r\n{}") == [(403, "E110")]

    as_curl = PREDICT + HOST + form + b"connection: close\r\n" + LENGTH + b"\r\n{}"
    ((status, code),) = await answers_to(port, as_curl)
    assert (status, code) != (403, "E110")


def an_ordinary_client_is_answered(port: int) -> None:
    with urllib.request.urlopen(f"http://localhost:{port}/livez", timeout=DEADLINE_SECONDS) as answer:
        assert json.load(answer)["status"] == "alive"
