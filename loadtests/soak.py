"""``make soak`` (P10): half an hour at 70 % of what the proxy can do, and whether it ends as it began.

Exit status 0: measured (a target may still be short); 1: the figures mean nothing, a check failed; 2: cannot run here.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import structlog

from loadtests.baseline import committed_baseline
from loadtests.machine import LOAD_CORE, a_folder, on_core, open_descriptors, resident_bytes, what_is_missing
from loadtests.report import as_json, table
from loadtests.result import about, say, write_result
from loadtests.rounds import Contender, Ledger
from loadtests.scene import Proxy, Scene, a_scene
from loadtests.section import Check, Findings, Target
from loadtests.watched_proxy import TASKS_FILE
from loadtests.wrk import FULL, Answered, Load, run_wrk

SHARE = 0.7
MINUTES = 30.0
SLICES_A_MINUTE = 4
WARM_UP_SHARE = 0.1
COMPARED_MINUTES, COMPARED_SHARE = 5.0, 1 / 3
"""The first and the last five minutes after the warm-up; of a short soak, its first and its last third."""
_CAPACITY_SECONDS = 8
_TRY_SECONDS = 4
_TRIES = 4
_TELL_SECONDS = 5.0
_MEGABYTE = 1_048_576
_DESCRIPTORS, _TASKS = 16, 8
"""How many more count as flat: a pool's connection or two, and calls that were under way when it was counted."""


class Slice(NamedTuple):
    """A part of the soak, and how the proxy was at its end, when the load had stopped."""

    answered: Answered
    megabytes: float
    descriptors: int
    tasks: int


def main() -> int:
    """Run the soak and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"how long ({MINUTES:g})")
    parser.add_argument("--protocol", choices=("oip", "tfserving"), default="oip", help="to the model servers (oip)")
    parser.add_argument("--json", type=Path, help="where the result goes (a file of its own in loadtests/results)")
    asked = parser.parse_args()
    problems = what_is_missing(("wrk",))
    if problems:
        print("the soak needs", *problems, sep="\n  ", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with on_core(LOAD_CORE), a_folder("us-soak-") as folder, a_scene(folder, asked.protocol) as scene:
        found = {"P10": _soak(scene, asked.minutes)}
    print(table(found, committed_baseline()))
    write_result(as_json(found, {**about(), "minutes": asked.minutes}), asked.json, "soak-")
    return 0 if all(check.holds for check in found["P10"].checks) else 1


def _soak(scene: Scene, minutes: float) -> Findings:
    tasks_file = scene.folder / "tasks"
    os.environ[TASKS_FILE] = str(tasks_file)
    proxy = scene.proxy("soaked", module="loadtests.watched_proxy")
    capacity, load = _paced(proxy)
    ledger = Ledger(scene, [proxy])
    contender = Contender("soaked", proxy.url(), proxy.pid, settle=proxy.await_log, what=load)
    count = max(3, round(minutes * SLICES_A_MINUTE))
    slices = []
    for number in range(count):
        answered = contender.load(minutes * 60 / count)
        tasks = _tasks(proxy, tasks_file)
        seen = Slice(answered, resident_bytes(proxy.pid) / _MEGABYTE, open_descriptors(proxy.pid), tasks)
        slices.append(seen)
        say(
            f"  {(number + 1) * minutes / count:5.1f} min: {answered.per_second:,.0f}/s, p99 {answered.p99_ms:.1f} ms, "
            f"{seen.megabytes:.1f} MB, {seen.descriptors} descriptors, {seen.tasks} tasks"
        )
    found = judge(slices, minutes, capacity)
    found.checks += ledger.checks([contender])
    return found


def _paced(proxy: Proxy) -> tuple[float, Load]:
    """Measure how much the proxy can do, and return that with a load of :data:`SHARE` of it.

    Connections think between requests, for random times; how long is found by trying.
    """
    capacity = run_wrk(proxy.url(), _CAPACITY_SECONDS).per_second
    goal = SHARE * capacity
    say(f"  {capacity:,.0f} requests a second at most; {SHARE:.0%} of it are {goal:,.0f}")
    load = FULL._replace(think_ms=think_ms_for(goal, FULL.connections, 500 * FULL.connections / capacity))
    for _ in range(_TRIES):
        answered = run_wrk(proxy.url(), _TRY_SECONDS, load)
        answer_ms = max(0.0, 1000 * load.connections / answered.per_second - load.think_ms)
        load = load._replace(think_ms=think_ms_for(goal, load.connections, answer_ms))
    proxy.await_log()
    return capacity, load


def think_ms_for(per_second: float, connections: int, answer_ms: float) -> float:
    """Return how long each connection must think for so many requests a second in all: Little's law."""
    return max(1.0, 1000 * connections / per_second - answer_ms)


def judge(slices: Sequence[Slice], minutes: float, capacity: float) -> Findings:
    """Compare the end of a soak with its beginning, the warm-up left out."""
    warm = slices[max(1, round(len(slices) * WARM_UP_SHARE)) :]
    a_minute = len(slices) / minutes
    width = max(1, round(min(COMPARED_MINUTES * a_minute, len(warm) * COMPARED_SHARE)))
    first, last = warm[:width], warm[-width:]
    start = median(one.megabytes for one in first)
    furthest = max((one.megabytes for one in warm), key=lambda value: abs(value - start))
    rate = median(one.answered.per_second for one in warm)
    grown = {
        name: max(getattr(one, name) for one in last) - max(getattr(one, name) for one in first)
        for name in ("descriptors", "tasks")
    }
    return Findings(
        targets=[
            Target("P10", "memory furthest from the start's", abs(furthest / start - 1) * 100, "%", 5),
            Target("P10", "descriptors more at the end", grown["descriptors"], "", _DESCRIPTORS),
            Target("P10", "asyncio tasks more at the end", grown["tasks"], "", _TASKS),
            Target(
                "P10",
                "p99 of the end ÷ of the start",
                median(one.answered.p99_ms for one in last),
                "ms",
                1.1,
                median(one.answered.p99_ms for one in first),
            ),
        ],
        checks=[
            Check(
                "the load was 60 to 80 % of capacity",
                0.6 <= rate / capacity <= 0.8,
                f"{rate:,.0f} of {capacity:,.0f} a second",
            )
        ],
        notes=[
            f"{minutes:g} minutes: {len(slices)} slices, {len(slices) - len(warm)} to warm up, {width} against {width}",
            f"memory {start:.1f} MB at first, {warm[-1].megabytes:.1f} MB in the end",
        ],
        detail={"slices": [{**one._asdict(), "answered": one.answered._asdict()} for one in slices]},
    )


def _tasks(proxy: Proxy, file: Path) -> int:
    """Ask the proxy how many tasks it has."""
    file.unlink(missing_ok=True)
    os.kill(proxy.pid, signal.SIGUSR1)
    give_up = time.monotonic() + _TELL_SECONDS
    while not file.exists():
        if time.monotonic() > give_up:
            raise RuntimeError(f"the proxy did not say within {_TELL_SECONDS:g} s how many tasks it has")
        time.sleep(0.02)
    return int(file.read_text())


if __name__ == "__main__":
    sys.exit(main())
