"""A steady stream of predict calls from held-out rows, and what became of the latest ones."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import orjson

from understudy.adapters.dev_server.example_models import ExampleRow, example_rows
from understudy.entrypoints.demo.keep_alive import OK, KeepAliveClient

CONNECTIONS = 4
CALL_SECONDS = 2.0
WINDOW_SECONDS = 10.0
MAX_REMEMBERED = 20_000
MODEL_NAME = "visits"
VARIED, VARIED_BY, VARIATIONS = "log_incentive", 1e-6, 20_000
"""Each call differs a hair from the ones before: a comparison of versions learns nothing from what the cache answers.
At 50 calls/s the first repetition comes after 400 s, when the cache has forgotten (300 s)."""


class Call(NamedTuple):
    """One finished call: when it ended (monotonic), what answered (a role, or an error), and how long it took."""

    at_seconds: float
    answered_by: str
    took_seconds: float
    failed: bool


class Recent(NamedTuple):
    """The calls of the latest seconds."""

    calls: int
    failed: int
    by_role: Counter[str]
    p50_ms: float
    p99_ms: float


class Traffic:
    """Calls one model at a steady rate; a slow answer delays its own connection's next call, never piles calls up."""

    def __init__(
        self,
        port: int,
        per_second: float,
        *,
        host: str = "127.0.0.1",
        credential: str | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows = example_rows(MODEL_NAME)
        self._path = f"/v1/models/{MODEL_NAME}/predict"
        self._host = host
        self._port = port
        self._credential = credential
        self._pause_seconds = CONNECTIONS / per_second
        self._now = now
        self._next = 0
        self.total = 0
        self.failed = 0
        self.failures: Counter[str] = Counter()
        self._calls: deque[Call] = deque(maxlen=MAX_REMEMBERED)

    async def run(self) -> None:
        """Call until cancelled."""
        await asyncio.gather(*(self._keep_calling(lane) for lane in range(CONNECTIONS)))

    def note(self, call: Call) -> None:
        """Count a finished call."""
        self.total += 1
        if call.failed:
            self.failed += 1
            self.failures[call.answered_by] += 1
        self._calls.append(call)

    def recent(self) -> Recent:
        """Return what became of the calls of the last ten seconds."""
        since = self._now() - WINDOW_SECONDS
        while self._calls and self._calls[0].at_seconds < since:
            self._calls.popleft()
        return summary_of(self._calls)

    async def _keep_calling(self, lane: int) -> None:
        client = KeepAliveClient(self._host, self._port, self._credential)
        due = self._now() + lane * self._pause_seconds / CONNECTIONS
        try:
            while True:
                await asyncio.sleep(max(0.0, due - self._now()))
                due = max(due + self._pause_seconds, self._now())
                await self._call(client)
        finally:
            await client.close()

    async def _call(self, client: KeepAliveClient) -> None:
        body = body_of(self._rows, self._next)
        self._next += 1
        began = self._now()
        failed = True
        try:
            answer = await client.post(self._path, body, CALL_SECONDS)
        except OSError as problem:
            answered_by = type(problem).__name__
        else:
            failed = answer.status != OK
            answered_by = f"status {answer.status}" if failed else str(orjson.loads(answer.body)["role"])
        ended = self._now()
        self.note(Call(ended, answered_by, ended - began, failed))


def body_of(rows: Sequence[ExampleRow], number: int) -> bytes:
    """Return the body of a call: one row after the other, each that of another customer."""
    index = number % len(rows)
    inputs = rows[index].inputs
    varied = inputs[VARIED] + VARIED_BY * (number % VARIATIONS)
    return orjson.dumps({"entity_id": f"customer-{index}", "inputs": {**inputs, VARIED: varied}})


def summary_of(calls: Sequence[Call]) -> Recent:
    """Return the counts and latencies of some calls."""
    took = sorted(call.took_seconds for call in calls)

    def quantile_ms(share: float) -> float:
        return took[min(len(took) - 1, int(share * len(took)))] * 1_000 if took else 0.0

    return Recent(
        calls=len(calls),
        failed=sum(call.failed for call in calls),
        by_role=Counter(call.answered_by for call in calls),
        p50_ms=quantile_ms(0.50),
        p99_ms=quantile_ms(0.99),
    )
