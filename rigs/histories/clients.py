"""Clients: each makes its operations one after the other, by the ways that users have, and writes down what it saw."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from rigs.histories.answers import Answer
from rigs.histories.by_command import ByCommand
from rigs.histories.by_http import ByHttp
from rigs.histories.by_sql import BySql
from rigs.histories.faults import break_and_mend
from rigs.histories.record import Ended, Kind, Operation, Record, Way
from rigs.histories.stack import PROXIES, Stack

WATCH_SECONDS = 0.05
STALL_SECONDS = 0.4
"""A timer that comes so much late says that the machine stood still, which no part of the product can help."""
_READS = frozenset({Kind.READ_POLICY, Kind.READ_AUDIT, Kind.READ_ROLLOUT, Kind.PREDICT})


@dataclass
class Recorder:
    """What all clients of a history saw."""

    records: list[Record] = field(default_factory=list)
    rollout_id: int = 1
    """The newest rollout that a client was told of."""

    def note(self, record: Record) -> None:
        """Write a record down."""
        self.records.append(record)
        self.rollout_id = max(self.rollout_id, record.answer.get("rollout") or 0)


class Client:
    """One client.

    Args:
        number: From 0.
        stack: What it works on.
        recorder: Where it writes what it saw.
    """

    def __init__(self, number: int, stack: Stack, recorder: Recorder) -> None:
        self._number = number
        self._stack = stack
        self._recorder = recorder
        self._seen = 1
        """The newest generation that it has seen, for changes on condition of it."""
        url = stack.url("operator_login", stack.operators)
        self._sql = BySql(url, stack.ids)
        self._http = ByHttp(stack)
        self._command = ByCommand(url, stack.world.folder)

    async def run(self, operations: Sequence[Operation]) -> None:
        """Make the operations."""
        try:
            for operation in operations:
                await asyncio.sleep(operation.pause)
                await self._make(operation)
        finally:
            self._sql.close()

    async def _make(self, drawn: Operation) -> None:
        operation = self._completed(drawn)
        invoked = time.monotonic()
        answer = await self._carry_out(operation)
        returned = time.monotonic()
        if answer.ended is Ended.UNKNOWN and operation.kind not in _READS:
            returned = inf
        self._recorder.note(Record(operation, invoked, returned, answer.ended, answer.said))
        self._seen = max(self._seen, answer.said.get("generation", 0))

    def _completed(self, operation: Operation) -> Operation:
        if operation.asked.get("expected") != "seen":
            return operation
        return replace(operation, asked={**operation.asked, "expected": self._seen})

    async def _carry_out(self, operation: Operation) -> Answer:
        asked = operation.asked
        if operation.kind is Kind.FAULT:
            await break_and_mend(self._stack, asked["fault"], asked["target"], asked["seconds"])
            return Answer(Ended.DONE)
        if operation.way is Way.SQL:
            return await self._sql.carry_out(operation)
        if operation.way is Way.CLI:
            return await self._command.carry_out(operation)
        proxy = self._stack.members[PROXIES[(self._number + operation.number) % len(PROXIES)]]
        return await self._http.carry_out(operation, proxy, self._recorder.rollout_id)


async def watch_machine(recorder: Recorder) -> None:
    """Write down, until cancelled, when the machine stood still: the runner's timers come late then."""
    number = 0
    while True:
        before = time.monotonic()
        await asyncio.sleep(WATCH_SECONDS)
        after = time.monotonic()
        if after - before > STALL_SECONDS:
            operation = Operation(-1, number, Kind.FAULT, asked={"fault": "machine stood still"})
            recorder.note(Record(operation, before, after, Ended.DONE))
            number += 1
