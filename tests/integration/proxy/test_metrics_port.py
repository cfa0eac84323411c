import asyncio
import socket
import struct
import threading
from contextlib import suppress

import pytest
import uvloop
from builders import a_version

from understudy.adapters.telemetry.prometheus import COUNTERS, GAUGES, HISTOGRAMS, PrometheusTelemetry
from understudy.entrypoints.metrics_port import MAX_ASKED, MAX_OPEN, is_this_machine, metrics_port


async def fetch(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return answer


async def test_a_scrape_sees_what_was_counted():
    telemetry = PrometheusTelemetry()
    telemetry.predicted(a_version("6"), "champion", "ok", [0.004], [0.31])
    telemetry.count("fallbacks_total", "visits", "E503")
    telemetry.set("policy_generation", 41, "visits")

    async with metrics_port("127.0.0.1", 0, telemetry.exposition) as port:
        page = (await fetch(port, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")).decode()

    assert page.startswith("HTTP/1.1 200 OK")
    assert 'predict_requests_total{model="visits",outcome="ok",role="champion",version="6"} 1.0' in page
    assert 'predict_duration_seconds_bucket{le="0.005",model="visits",role="champion",version="6"} 1.0' in page
    assert 'fallbacks_total{model="visits",reason="E503"} 1.0' in page
    assert 'policy_generation{model="visits"} 41.0' in page


async def test_the_port_says_that_the_event_loop_turns_without_making_the_page():
    def no_page() -> tuple[bytes, str]:
        raise AssertionError("nobody asked for the page")

    async with metrics_port("127.0.0.1", 0, no_page) as port:
        assert (await fetch(port, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"\r\n\r\n"])
async def test_the_port_answers_nothing_else(request_):
    async with metrics_port("127.0.0.1", 0, lambda: (b"", "text/plain")) as port:
        assert (await fetch(port, request_)).startswith(b"HTTP/1.1 404")


async def test_of_many_connections_without_a_request_the_oldest_give_way_and_a_scrape_is_answered():
    async with metrics_port("127.0.0.1", 0, lambda: (b"x", "text/plain")) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MAX_OPEN)]

        assert (await fetch(port, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nx")
        for reader, _ in held[: 2 * MAX_OPEN]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        assert not any(reader.at_eof() for reader, _ in held[2 * MAX_OPEN + 1 :])
        for _, writer in held:
            writer.close()


def test_a_caller_that_breaks_off_after_its_request_is_no_defect_of_the_proxys_event_loop():
    defects: list[dict[str, object]] = []

    async def scrape_and_break_off() -> bytes:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: defects.append(context))
        async with metrics_port("127.0.0.1", 0, lambda: (b"x", "text/plain")) as port:
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", port)) as caller:
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    caller.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
            return await fetch(port, b"GET /metrics HTTP/1.1\r\n\r\n")

    page = uvloop.run(scrape_and_break_off())

    assert page.endswith(b"\r\n\r\nx")
    assert defects == []


async def test_a_request_without_an_end_is_dropped_and_others_are_served():
    async with metrics_port("127.0.0.1", 0, lambda: (b"x", "text/plain")) as port:
        endless = asyncio.create_task(fetch(port, b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 5_000))

        assert (await fetch(port, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nx")
        with suppress(ConnectionError):
            assert await endless == b""


async def test_a_page_that_takes_long_to_make_is_answered_all_the_same():
    may_end = threading.Event()

    def long_page() -> tuple[bytes, str]:
        may_end.wait()
        return b"x", "text/plain"

    async with metrics_port("127.0.0.1", 0, long_page, request_seconds=0.05) as port:
        scrape = asyncio.create_task(fetch(port, b"GET /metrics HTTP/1.1\r\n\r\n"))
        silent, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await silent.read() == b""  # its time is over, and so would be the scrape's
        writer.close()
        await asyncio.sleep(0.1)
        may_end.set()

        assert (await scrape).endswith(b"\r\n\r\nx")


def test_every_metric_has_a_text_and_bounded_labels():
    histograms = [(text, labels) for text, labels, _ in HISTOGRAMS.values()]
    for text, labels in [*COUNTERS.values(), *GAUGES.values(), *histograms]:
        assert text.endswith(".")
        assert not {"entity_id", "prediction_id", "path"} & set(labels)


@pytest.mark.parametrize(("answer", "status"), [(True, b"200 OK"), (False, b"503 ")])
async def test_a_process_answers_questions_of_its_own_by_method_and_path(answer, status):
    async def ask() -> bool:
        return bool(answer)

    questions = {"GET /readyz": ask}
    async with metrics_port("127.0.0.1", 0, lambda: (b"", "text/plain"), questions=questions) as port:
        assert (await fetch(port, b"GET /readyz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 " + status)
        assert (await fetch(port, b"POST /readyz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(("is_near", "status"), [(True, b"200 OK"), (False, b"403 ")])
async def test_what_changes_something_is_for_callers_on_this_machine_alone(is_near, status):
    asked: list[bool] = []

    async def drain() -> bool:
        asked.append(True)
        return True

    questions, page = {"POST /drain": drain}, (b"", "text/plain")
    async with metrics_port(
        "127.0.0.1", 0, lambda: page, questions=questions, is_near=lambda address, _: is_near and address == "127.0.0.1"
    ) as port:
        assert (await fetch(port, b"POST /drain HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 " + status)

    assert asked == [True] * is_near


@pytest.mark.parametrize(
    "line", [b"X-Forwarded-For: 10.0.0.7", b"via: 1.1 mesh", b"Forwarded : for=10.0.0.7", b"origin: https://elsewhere"]
)
async def test_what_a_proxy_or_a_browser_passes_on_is_no_call_of_this_machine(line):
    asked: list[bool] = []

    async def drain() -> bool:
        asked.append(True)
        return True

    questions = {"POST /drain": drain}
    async with metrics_port("127.0.0.1", 0, lambda: (b"", "text/plain"), questions=questions) as port:
        answer = await fetch(port, b"POST /drain HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n" % line)

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert asked == []


@pytest.mark.parametrize(
    ("address", "own", "is_near"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("10.0.0.9", "10.0.0.9", True),  # the agent listens at this address alone
        ("10.0.0.7", "10.0.0.9", False),
        ("fd00::7", "fd00::9", False),
    ],
)
def test_a_caller_on_this_machine_is_known_by_its_address(address, own, is_near):
    assert is_this_machine(address, own) is is_near


async def test_callers_who_wait_for_a_drain_keep_no_other_from_being_answered():
    is_over, all_wait = asyncio.Event(), asyncio.Event()
    began: list[None] = []

    async def wait() -> bool:
        began.append(None)
        if len(began) == MAX_ASKED:
            all_wait.set()
        return await is_over.wait()

    async def is_ready() -> bool:
        return True

    async def ask(port: int, path: str) -> bytes:
        return (await fetch(port, f"GET {path} HTTP/1.1\r\n\r\n".encode()))[:12]

    questions = {"GET /drained": wait, "GET /readyz": is_ready}
    async with (
        metrics_port("127.0.0.1", 0, lambda: (b"", "text/plain"), questions=questions) as port,
        asyncio.timeout(30),
        asyncio.TaskGroup() as group,
    ):
        waiting = [group.create_task(ask(port, "/drained")) for _ in range(MAX_ASKED)]
        await all_wait.wait()
        further = [await ask(port, "/drained") for _ in range(MAX_OPEN)]
        others = [await ask(port, path) for path in ("/livez", "/readyz")]
        is_over.set()

    assert further == [b"HTTP/1.1 503"] * MAX_OPEN
    assert others == [b"HTTP/1.1 200"] * 2
    assert [one.result() for one in waiting] == [b"HTTP/1.1 200"] * MAX_ASKED
