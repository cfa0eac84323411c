"""One history after the other: drawn, made on real processes, and checked."""

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from failing.standstill import Standstills

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
"""A history that could not be made is made once more if the machine stood still meanwhile, and only then: whatever else
kept it from being made may be the product's fault."""


@dataclass
class Result:
    """What became of one seed.

    Args:
        seed: Which.
        seconds: That it took.
        counts: Operations by how they ended, and what else there was.
        findings: Promises that it breaks; nothing where it keeps them all.
        trouble: Why it could not be made; nothing is known of any promise then.
        stood_still_seconds: How long the machine stood still at a time, at most, while it could not be made.
        is_made_again: Whether another attempt follows this one.
    """

    seed: int
    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    trouble: str = ""
    stood_still_seconds: float = 0.0
    is_made_again: bool = False


@asynccontextmanager
async def a_machine() -> AsyncIterator[Machine]:
    """Lend Postgres, model servers and links for any number of histories."""
    with a_folder("us-histories-") as folder, Links() as links:
        async with Machine(folder, links) as machine:
            await make_logins(machine.postgres.url)
            yield machine


LendMachine = Callable[[], AbstractAsyncContextManager[Machine]]
MakeResult = Callable[[Machine, int], Awaitable[Result]]


async def results_of(
    seeds: Sequence[int],
    make_result: MakeResult,
    *,
    lend: LendMachine = a_machine,
    stood_still: Callable[[float], float] | None = None,
) -> AsyncIterator[Result]:
    """Make a history for each seed, one after the other; after one that could not be made there is another machine.

    Args:
        seeds: Which.
        make_result: Makes a history; such as :func:`result_of` with its other arguments.
        lend: Lends what histories are made on.
        stood_still: Returns how long the machine stood still at most since a time, both in seconds, the time monotonic;
            by default a thread of its own watches that.

    Returns:
        Each attempt's result, failed ones too: one that ``is_made_again`` is followed by another one of the same seed.
    """
    stood_still = stood_still or Standstills().longest_since
    left = [(seed, ATTEMPTS) for seed in reversed(seeds)]
    while left:
        async with lend() as machine:
            while left:
                seed, attempts = left.pop()
                began = time.monotonic()
                result = await make_result(machine, seed)
                if not result.trouble:
                    yield result
                    continue
                seconds = stood_still(began)
                is_made_again = seconds > 0 and attempts > 1
                yield replace(result, stood_still_seconds=seconds, is_made_again=is_made_again)
                if is_made_again:
                    left.append((seed, attempts - 1))
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
    """Make a history and check it; one with findings, or all to ``keep``, are written, as is why one was not made."""
    began = time.monotonic()
    try:
        history = await make(machine, seed, **size)
    except Exception as problem:  # noqa: BLE001 - one history that breaks must not end the others
        trouble = _told(problem)
        await asyncio.to_thread(_note_trouble, folder / f"{seed}.failed.txt", trouble)
        return Result(seed, time.monotonic() - began, trouble=trouble)
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


def _note_trouble(file: Path, trouble: str) -> None:
    """Add it to what became of earlier attempts."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{datetime.now(UTC).isoformat(timespec='seconds')}\n{trouble}\n")
