"""``make histories``: random operations of four clients on real processes, checked against a sequential model.

Exit status 0: every history keeps every promise; 1: one breaks some, and its file and seed are named; 2: one could not
be made. An attempt that failed while the machine stood still is printed, counted and made once more.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import structlog

from rigs.histories.check import check
from rigs.histories.drawing import CLIENTS, EACH
from rigs.histories.record import read_history
from rigs.histories.run import Result, result_of, results_of

HISTORIES = 200
LANES = 2 * (os.cpu_count() or 1)
"""Histories at a time: each waits most of its time, for faults to end and clients to think."""
FOLDER = Path("build/histories")
_LINE_BYTES = 2**20


def main() -> int:
    """Make or check what was asked for and return the exit status."""
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # the results alone are the output
    if asked.check:
        return _check_again(asked.check)
    if asked.lane:
        asyncio.run(_lane(asked.seed, asked.operations, keep=asked.keep))
        return 0
    seeds = asked.seed or range(asked.first, asked.first + asked.histories)
    return asyncio.run(_lanes(list(seeds), asked))


async def _lane(seeds: Sequence[int], operations: int, *, keep: bool) -> None:
    """Make histories one after the other, and print a line of JSON for each."""
    make_result = partial(result_of, folder=FOLDER, keep=keep, each=-(-operations // CLIENTS))
    async for result in results_of(seeds, make_result):
        print(json.dumps(asdict(result)), flush=True)


async def _lanes(seeds: Sequence[int], asked: argparse.Namespace) -> int:
    """Share the seeds out among lanes, which are processes of their own, and print what they find."""
    began = time.monotonic()
    count = min(asked.lanes, len(seeds))
    results: list[Result] = []
    async with asyncio.TaskGroup() as group:
        for lane in range(count):
            group.create_task(_follow(seeds[lane::count], asked, results))
    print(_summary(results, len(seeds), time.monotonic() - began))
    made = [result for result in results if not result.trouble]
    if any(result.findings for result in made):
        return 1
    return 0 if len(made) == len(seeds) else 2


async def _follow(seeds: Sequence[int], asked: argparse.Namespace, results: list[Result]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rigs.histories",
        "--lane",
        "--operations",
        str(asked.operations),
        *(["--keep"] if asked.keep else []),
        "--seed",
        *map(str, seeds),
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES,
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            result = Result(**json.loads(line))
            results.append(result)
            print(_line(result), flush=True)
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _line(result: Result) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in result.counts.items())
    if result.trouble:
        stood_still = f"the machine stood still for {result.stood_still_seconds:.1f} s, " * bool(
            result.stood_still_seconds
        )
        after = "made again" if result.is_made_again else f"not made; {FOLDER / str(result.seed)}.failed.txt"
        return f"seed {result.seed}: FAILED, {stood_still}{after}: {result.trouble}"
    head = f"seed {result.seed}: {'BROKEN' if result.findings else 'kept'} in {result.seconds:.0f} s; {counts}"
    shown = [f"    {finding}" for finding in result.findings[:5]]
    if result.findings:
        shown.append(f"    again: make histories HISTORIES='--seed {result.seed}'; {FOLDER / str(result.seed)}.json")
    return "\n".join([head, *shown])


def _summary(results: Sequence[Result], asked: int, seconds: float) -> str:
    totals: Counter[str] = Counter()
    for result in results:
        totals.update(result.counts)
    broken = sorted(result.seed for result in results if result.findings)
    counts = ", ".join(f"{name} {count:,}" for name, count in totals.items())
    verdict = f"{len(broken)} broken: {', '.join(map(str, broken))}" if broken else "none broken"
    made = sum(not result.trouble for result in results)
    if made < asked:
        verdict += f", {asked - made} not made"
    again = sorted(result.seed for result in results if result.is_made_again)
    if again:
        verdict += f", {len(again)} failed at first while the machine stood still: {', '.join(map(str, again))}"
    return f"{made} of {asked} histories in {seconds / 60:.1f} minutes, {verdict}; {counts}"


def _check_again(path: Path) -> int:
    findings = check(read_history(path))
    for finding in findings:
        print(finding)
    print(f"{path}: {len(findings)} findings")
    return int(bool(findings))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m rigs.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=HISTORIES, help=f"how many ({HISTORIES})")
    parser.add_argument("--operations", type=int, default=CLIENTS * EACH, help=f"of each ({CLIENTS * EACH})")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1); the others follow it")
    parser.add_argument("--seed", type=int, nargs="+", help="these seeds alone")
    parser.add_argument("--lanes", type=int, default=LANES, help=f"histories at a time ({LANES})")
    parser.add_argument("--keep", action="store_true", help="write every history, not only those with findings")
    parser.add_argument("--check", type=Path, metavar="FILE", help="check a history that was written before")
    parser.add_argument("--lane", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
