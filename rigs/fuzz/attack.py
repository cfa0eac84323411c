"""Sends cases over many connections at once and keeps what was wrong, with the bytes that show it."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rigs.fuzz.answers import Answer, NoAnswer, parse_answers, parse_head
from rigs.fuzz.cases import Case
from rigs.fuzz.judge import judge_case, judge_wire, prediction_ids
from rigs.fuzz.wire import PATIENCE_SECONDS, WireCase, play

C = TypeVar("C")
SHOWN_BYTES = 400
KEPT_FINDINGS = 50
KEPT_ANSWER_SECONDS = 20.0
"""Longest wait for the end of a call over gRPC."""
_TRIES = 2


@dataclass
class Tally:
    """What became of one class of cases."""

    name: str
    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    findings: dict[str, bytes] = field(default_factory=dict)
    """What was wrong, with the first case that showed it."""
    broken: int = 0
    """Cases with a finding."""
    slowest_seconds: float = 0.0
    seconds: float = 0.0
    ids: list[str] = field(default_factory=list)
    """Of the predictions that answers told of."""
    unread: int = 0
    """Predictions that may be in the log although no caller read their answer."""
    grew_bytes: int = 0
    """By which the workers' memory was at most beyond what it was before."""

    def note(self, problems: Sequence[str], wire: bytes, seconds: float) -> None:
        """Count one case."""
        self.sent += 1
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        self.broken += bool(problems)
        for problem in problems:
            if len(self.findings) < KEPT_FINDINGS:
                self.findings.setdefault(problem, wire)

    def add(self, other: "Tally") -> None:
        """Count what another tally of the same class counted."""
        self.sent += other.sent
        self.broken += other.broken
        self.unread += other.unread
        self.statuses.update(other.statuses)
        self.ids += other.ids
        self.findings = {**other.findings, **self.findings}
        self.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)
        self.seconds = max(self.seconds, other.seconds)


async def send_cases(port: int, name: str, cases: Sequence[Case], connections: int) -> Tally:
    """Send whole requests, each connection one after the other."""
    tally = Tally(name)
    callers = [_Caller(port) for _ in range(connections)]
    free = list(callers)

    async def send(case: Case) -> None:
        caller = free.pop()
        began = time.monotonic()
        try:
            answer = await caller.ask(case.wire)
        except (NoAnswer, OSError, TimeoutError, asyncio.IncompleteReadError) as problem:
            caller.close()
            tally.unread += 1 + len(case.members or ())
            tally.note([f"no answer: {type(problem).__name__} {problem}"], case.wire, time.monotonic() - began)
        else:
            seconds = time.monotonic() - began
            tally.statuses[str(answer.status)] += 1
            tally.ids += prediction_ids(answer)
            tally.note(judge_case(case, answer, seconds), case.wire, seconds)
        finally:
            free.append(caller)

    await each(cases, connections, send, tally)
    for caller in callers:
        caller.close()
    return tally


async def send_wire(port: int, name: str, cases: Sequence[WireCase], connections: int) -> Tally:
    """Open a connection for each case."""
    tally = Tally(name)

    async def send(case: WireCase) -> None:
        wire = b"".join(piece for piece in case.pieces if isinstance(piece, bytes))
        try:
            heard = await play(port, case)
        except OSError as problem:
            tally.note([f"no connection: {type(problem).__name__}"], wire, 0.0)
            return
        tally.note(judge_wire(case, heard), case.kind.encode() + b": " + wire, heard.seconds)
        try:
            answers = parse_answers(heard.data)
        except NoAnswer:
            answers = []
        tally.statuses.update([str(answer.status) for answer in answers] or ["closed"])
        tally.ids += [one for answer in answers for one in prediction_ids(answer)]
        tally.unread += case.requests + 1 - len(answers)

    await each(cases, connections, send, tally)
    return tally


async def each(cases: Sequence[C], places: int, send: Callable[[C], Awaitable[None]], tally: Tally) -> None:
    """Send all cases, so many at a time, and note how long that took."""
    began = time.monotonic()
    waiting = iter(cases)

    async def work() -> None:
        for case in waiting:
            await send(case)

    async with asyncio.TaskGroup() as group:
        for _ in range(places):
            group.create_task(work())
    tally.seconds = time.monotonic() - began


class _Caller:
    """One connection that is kept; opened anew when the proxy has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, wire: bytes) -> Answer:
        """Return the answer.

        Raises:
            NoAnswer, OSError, TimeoutError, IncompleteReadError: There is none.
        """
        for attempt in range(_TRIES):
            is_new = self._streams is None
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    return await self._ask(wire)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                # Only a kept connection may be closed by an earlier request's fault.
                if is_new or attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    async def _ask(self, wire: bytes) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(wire)
        status, headers = 100, dict[str, bytes]()
        while status < 200:  # noqa: PLR2004 - interim
            status, headers = parse_head((await reader.readuntil(b"\r\n\r\n"))[:-4])
        length = headers.get("content-length")
        body = await (reader.read() if length is None else reader.readexactly(int(length)))
        if headers.get("connection", b"").lower() == b"close" or length is None:
            self.close()
        return Answer(status, headers, body)

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
