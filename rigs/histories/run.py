"""One history after the other: drawn, made on real processes, and checked."""

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtests.machine import a_folder
from rigs.faults.links import Links
from rigs.faults.world import Machine
from rigs.histories.check import check
from rigs.histories.clients import Client, Recorder, watch_machine
from rigs.histories.collect import collected
from rigs.histories.drawing import CLIENTS, EACH, draw
from rigs.histories.record import Ended, History
from rigs.histories.stack import a_stack, make_logins

MAX_SECONDS = 600.0
"""Of one history; one takes some half a minute."""
ATTEMPTS = 2
"""A history that could not be made, on a machine that starves a process for a minute, say, is made once more."""


@dataclass
class Result:
    """What became of one seed.

    Args:
        seed: Which.
        seconds: That it took.
        counts: Operations by how they ended, and what else there was.
        findings: Promises that it breaks; nothing where it keeps them all.
        trouble: Why it could not be made; nothing is known of any promise then.
    """

    seed: int
    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    trouble: str = ""


@asynccontextmanager
async def a_machine() -> AsyncIterator[Machine]:
    """Lend Postgres, model servers and links for any number of histories."""
    with a_folder("us-histories-") as folder, Links() as links:
        async with Machine(folder, links) as machine:
            await make_logins(machine.postgres.url)
            yield machine


async def results_of(seeds: Sequence[int], folder: Path, **size: Any) -> AsyncIterator[Result]:
    """Make a history for each seed, one after the other; one that could not be made gets another machine."""
    left = [(seed, ATTEMPTS) for seed in reversed(seeds)]
    while left:
        async with a_machine() as machine:
            while left:
                seed, attempts = left.pop()
                result = await result_of(machine, seed, folder, **size)
                if not result.trouble:
                    yield result
                    continue
                if attempts > 1:
                    left.append((seed, attempts - 1))
                else:
                    yield result
                break


async def make(machine: Machine, seed: int, *, clients: int = CLIENTS, each: int = EACH) -> History:
    """Make a history.

    Raises:
        TimeoutError: A process did not come back, or the history did not end.
    """
    recorder = Recorder()
    async with asyncio.timeout(MAX_SECONDS), a_stack(machine) as stack:
        watching = asyncio.create_task(watch_machine(recorder))
        try:
            async with asyncio.TaskGroup() as group:
                for number, operations in enumerate(draw(seed, clients, each)):
                    group.create_task(Client(number, stack, recorder).run(operations))
            return await collected(stack, seed, recorder.records)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


async def result_of(machine: Machine, seed: int, folder: Path, *, keep: bool = False, **size: Any) -> Result:
    """Make a history and check it; one with findings, or all to ``keep``, are written."""
    began = time.monotonic()
    try:
        history = await make(machine, seed, **size)
    except Exception as problem:  # noqa: BLE001 - one history that breaks must not end the others
        return Result(seed, time.monotonic() - began, trouble=_told(problem))
    findings = [str(finding) for finding in check(history)]
    if findings or keep:
        history.write(folder / f"{seed}.json")
    return Result(seed, time.monotonic() - began, counts_of(history), findings)


def counts_of(history: History) -> dict[str, int]:
    """Return how many operations ended how, and how much there was of what makes a history worth checking."""
    own = [record for record in history.records if record.operation.client >= 0]
    counts = Counter(record.ended.value for record in own)
    return {
        "operations": len(own),
        **{ended.value: counts[ended.value] for ended in Ended},
        "faults": sum(record.operation.kind.value == "fault" for record in own),
        "calls": sum(len(record.answer.get("calls", ())) for record in own),
        "changes": len(history.audit) - 1,
        "rollouts": len(history.rollouts),
        "promoted": sum(event.phase == "PROMOTING" for event in history.events),
        "stalls": len(history.records) - len(own),
    }


def _told(problem: BaseException) -> str:
    inner = problem.exceptions[0] if isinstance(problem, BaseExceptionGroup) else problem
    return "".join(traceback.format_exception(inner))[-3_000:]
