"""Callers who do not wait for each other: when they ask, what counts as late, and what is no answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from math import isnan

import pytest

from loadtests.felt import added, targets_of
from loadtests.open_loop import Done, Heard, HttpCaller, call_on_time, due_times, percentiles_of

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class Withholding:
    """A way to a server that answers nothing until it has been asked for everything, and not all of it well."""

    def __init__(self, count: int, bad: int = 0) -> None:
        self._count, self._bad = count, bad
        self._waiting: list[Done] = []
        self.is_open = False

    async def open(self) -> None:
        self.is_open = True

    def ask(self, number: int, done: Done) -> None:
        assert number == len(self._waiting)
        self._waiting.append(done)
        if len(self._waiting) == self._count:
            for place, one in enumerate(self._waiting):
                one("refused" if place < self._bad else None)

    def close(self) -> None:
        self.is_open = False


def test_requests_are_due_at_random_times_that_the_seed_decides():
    due = due_times(1_000, 4, seed=1)

    assert due == due_times(1_000, 4, seed=1) != due_times(1_000, 4, seed=2)
    assert all(earlier < later for earlier, later in pairwise(due))
    assert len(due) == 4_000
    assert due[-1] == pytest.approx(4, rel=0.1)


def test_a_server_that_makes_callers_wait_is_asked_no_less_and_they_wait_from_when_they_were_due():
    due = [0.0, 0.01, 0.03]
    caller = Withholding(len(due))

    heard = call_on_time(caller, due)

    assert not caller.is_open
    assert heard.failed == 0
    assert [one >= 0.03 - at for one, at in zip(heard.seconds, due, strict=True)] == [True] * 3
    assert [one >= 0 for one in heard.behind] == [True] * 3


def test_what_was_not_answered_well_has_failed_and_has_no_latency():
    heard = call_on_time(Withholding(3, bad=2), [0.0, 0.0, 0.001])

    assert (heard.due, heard.failed, len(heard.seconds)) == (3, 2, 1)
    assert heard.problems == {"refused": 2}


@asynccontextmanager
async def a_server(*answers: bytes) -> AsyncIterator[tuple[HttpCaller, list[bytes]]]:
    """A way to a server over one connection, on which it gives these answers and hangs up; and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            asked.append(head + await reader.readexactly(1))
            writer.write(answer[:20])
            await writer.drain()
            writer.write(answer[20:])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    caller = HttpCaller(port, "/predict", lambda number: b"%d" % number, connections=1)
    await caller.open()
    try:
        yield caller, asked
    finally:
        caller.close()
        server.close()


async def all_ended(caller: HttpCaller, count: int) -> list[str | None]:
    ends = [asyncio.get_running_loop().create_future() for _ in range(count)]
    for number, end in enumerate(ends):
        caller.ask(number, end.set_result)
    return list(await asyncio.gather(*ends))


async def test_a_request_takes_the_connection_that_is_free_or_waits_for_it_and_each_head_is_its_own():
    async with a_server(OK, BUSY, OK) as (caller, asked):
        ended = await all_ended(caller, 3)

    assert ended == [None, "HTTP/1.1 503 Service Unavailable", None]
    assert [one[-1:] for one in asked] == [b"0", b"1", b"2"]
    assert len(set(asked)) == 3


async def test_a_request_whose_connection_ends_has_no_answer():
    async with a_server(OK, OK[:30]) as (caller, _):
        ended = await all_ended(caller, 2)

    assert ended == [None, "the connection ended"]


async def test_a_caller_that_is_opened_again_uses_its_new_connections_only():
    async with a_server(OK, OK) as (caller, asked):
        caller.close()
        await caller.open()

        ended = await all_ended(caller, 2)

    assert ended == [None, None]
    assert len(asked) == 2


def heard(*milliseconds: float) -> Heard:
    return Heard([one / 1000 for one in milliseconds], due=len(milliseconds))


def test_percentiles_of_nothing_are_no_number():
    assert all(map(isnan, percentiles_of([])))
    assert percentiles_of([0.001] * 98 + [0.002, 0.003]) == (1.0, 3.0)


def test_what_a_way_adds_is_taken_of_each_round_and_the_median_counts():
    direct, way = [heard(1.0), heard(9.0), heard(2.0)], [heard(2.0), heard(9.5), heard(9.0)]

    assert added(direct, way) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize(
    ("nginx_ms", "ours_ms", "verdict"),
    [(1.3, 1.5, "pass"), (2.0, 2.5, "pass"), (1.1, 1.6, "short"), (0.9, 1.6, "short"), (0.9, 1.4, "pass")],
)
def test_half_a_millisecond_may_always_be_added_and_beyond_it_half_as_much_again_as_nginx_adds(
    nginx_ms, ours_ms, verdict
):
    p50, _ = targets_of(200, [heard(1.0)], [heard(nginx_ms)], [heard(ours_ms)])

    assert p50.verdict == verdict
