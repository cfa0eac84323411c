"""``make lifecycle-demos``: the demo, started again and again, until its first prediction and until its rollback.

Each start has a folder and ports of its own. What is waited for is what the demo says on its screen; afterwards its
database and its processes are asked whether agents serve all five versions, no server was told what to serve, and the
fault of the bad version is one that begins with the first call after its validation cases. ``--before`` names the
source of another release (its folder ``src``), whose demo is started in turns with this one.

Exit status 0: every start showed the rollback as it should be, and the first prediction came in the median no later
than that of before and a second; 1: not.
"""

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from e2e.stack import sql

from rigs.lifecycle.temporary_stack import end_when_told
from understudy.adapters.embedded.child_process import is_alive
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.entrypoints.demo.running import read_running
from understudy.entrypoints.demo.topology import CASES, FAULT, SERVERS, VERSIONS

ROOT: Final = Path(__file__).resolve().parents[2]
READY_SECONDS: Final = 120.0
ROLLBACK_SECONDS: Final = 90.0
"""From the command on, as in ``tests/system/test_demo.py``."""
EVIDENCE_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0
BEFORE_SECONDS: Final = 6.1
"""Until the demo before was ready, on two cores at load 1.2 (ADR 153, Measured)."""
LATER_SECONDS: Final = 1.0
SAMPLES_OF_LOG: Final = 2_000
_READY, _ROLLED_BACK, _NEXT = "First prediction:", "version 3 rolled back", "Rollout 2:"
_EVIDENCE = re.compile(r"(error rate|typical latency) +[\d.]+ \S+ vs [\d.]+ \S+ .* ✖ fail")
_SERVED = """
    SELECT model_name, version, count(*) FROM ModelVersion AS version
    JOIN ModelEndpoint ON model_version_id = version.id AND source = 'agent'
    JOIN LoadedVersion AS loaded USING (model_version_id, server)
    JOIN VersionValidation AS verdict USING (model_version_id, server)
    WHERE state = 'AVAILABLE' AND verdict.passed AND verdict.said LIKE $1 GROUP BY 1, 2 ORDER BY 1, 2
"""
_ROLLOUTS = """
    SELECT v.version, r.phase FROM Rollout r JOIN ModelVersion v ON v.id = r.challenger_version
    WHERE r.kind = 'rollout' ORDER BY r.id
"""


class Start(NamedTuple):
    """What came of one start; seconds are from the command on, and ``None`` where that did not come."""

    first_seconds: float | None
    rollback_seconds: float | None
    problems: Sequence[str]


class Screen:
    """What a demo prints, line by line."""

    def __init__(self, stdout: asyncio.StreamReader) -> None:
        self._stdout = stdout
        self._began = time.monotonic()
        self.text = ""

    async def until(self, words: str, seconds: float) -> float | None:
        """Read until a line has these words; return how long after the command, ``None``: not in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._began + seconds - time.monotonic()):
                while line := (await self._stdout.readline()).decode():
                    self.text += line
                    if words in line:
                        return time.monotonic() - self._began
        return None

    async def follow(self) -> None:
        """Read what else comes, so that the demo never waits for its reader."""
        while await self._stdout.read(65_536):
            pass


def main() -> int:
    """Start the demos that were asked for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make lifecycle-demos")
    parser.add_argument("--starts", type=int, default=20, help="so many (20)")
    parser.add_argument("--first-only", action="store_true", help="do not wait for rollbacks")
    parser.add_argument("--before", type=Path, metavar="SRC", help="the source that is started in turns with this one")
    asked = parser.parse_args()
    if asked.before is not None and not (asked.before / "understudy").is_dir():
        parser.error(f"--before: {asked.before} has no folder understudy")
    end_when_told()
    return asyncio.run(_run(asked.starts, asked.before, waits_for_rollback=not asked.first_only))


async def _run(starts: int, before: Path | None, *, waits_for_rollback: bool) -> int:
    print(f"{starts} starts, load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    made: list[Start] = []
    seconds_before: list[float] = []
    for number in range(1, starts + 1):
        if before is not None:
            old = await _start(before, _first_alone)
            seconds_before += [] if old.first_seconds is None else [old.first_seconds]
            print(f"      {number:2d}  before: {_told('first prediction', old.first_seconds)}", flush=True)
        made.append(await _start(ROOT / "src", _whole_story if waits_for_rollback else _served_alone))
        _tell(number, made[-1])
    return _summed_up(made, seconds_before, is_paired=before is not None, waits_for_rollback=waits_for_rollback)


async def _start(source: Path, watch: Callable[[Screen, Path], Awaitable[Start]]) -> Start:
    """Start the demo of a source in a folder of its own, watch it, and end it with all that it started."""
    # The path is short enough for a unix socket.
    with tempfile.TemporaryDirectory(prefix="us-", dir="/tmp", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o755)  # Postgres may run as another account
        arguments = ["-m", "understudy.entrypoints.cli", "demo", "--state-dir", str(folder / "s")]
        with (folder / "stderr").open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(*arguments, "--port", str(free_port())),
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=_environment(source),
                limit=2**20,
            )
        assert process.stdout is not None
        screen = Screen(process.stdout)
        try:
            start = await watch(screen, folder / "s")
        finally:
            running = read_running(folder / "s") or {}
            problems = await _ended(process, screen, running.get("pids", {}))
        if start.first_seconds is None:
            problems += [(folder / "stderr").read_text(errors="replace")[-SAMPLES_OF_LOG:]]
        return start._replace(problems=[*start.problems, *problems])


def _environment(source: Path) -> Mapping[str, str]:
    own = {"DATABASE_URL", "REDIS_URL"}
    kept = {name: text for name, text in os.environ.items() if name not in own and not name.startswith("UNDERSTUDY_")}
    return {**kept, "PYTHONPATH": str(source.resolve()), "COLUMNS": "200"}


async def _first_alone(screen: Screen, _folder: Path) -> Start:
    first = await screen.until(_READY, READY_SECONDS)
    return Start(first, None, [] if first is not None else ["no first prediction"])


async def _served_alone(screen: Screen, folder: Path) -> Start:
    start = await _first_alone(screen, folder)
    return start if start.first_seconds is None else start._replace(problems=await _unserved(folder))


async def _whole_story(screen: Screen, folder: Path) -> Start:
    """Watch until the bad version is taken back, and compare what is told and stored with what should be."""
    start = await _served_alone(screen, folder)
    if start.first_seconds is None:
        return start
    rolled_back = await screen.until(_ROLLED_BACK, ROLLBACK_SECONDS)
    if rolled_back is None:
        return start._replace(problems=[*start.problems, f"no rollback within {ROLLBACK_SECONDS:g} s"])
    problems = list(start.problems)
    if await screen.until(_NEXT, rolled_back + EVIDENCE_SECONDS) is None:
        problems += ["the rollout after it did not begin"]
    evidence = screen.text[screen.text.index(_ROLLED_BACK) :]
    if not _EVIDENCE.search(evidence) or "rollout show visits 1" not in evidence:
        problems += [f"another evidence was shown: {evidence[:SAMPLES_OF_LOG]}"]
    rollouts = [tuple(row) for row in await sql(_running(folder)["database_url"], _ROLLOUTS)]
    if rollouts[:1] != [("3", "FAILED")]:
        problems += [f"rollouts are {rollouts}"]
    return Start(start.first_seconds, rolled_back, problems)


async def _unserved(folder: Path) -> list[str]:
    """Return what keeps it from being so that agents serve all five versions, and that the fault waits for calls."""
    running = _running(folder)
    served = await sql(running["database_url"], _SERVED, f"{CASES} cases answered as expected%")
    expected = sorted((one.model_name, str(one.version), len(SERVERS)) for one in VERSIONS)
    problems = [] if [tuple(row) for row in served] == expected else [f"agents serve {served}"]
    for name in running["model_servers"]:
        command = Path(f"/proc/{running['pids'][name]}/cmdline").read_text().split("\0")
        if "--serve" in command:
            problems += [f"{name} was told what to serve"]
        if FAULT not in command:
            problems += [f"{name} has no fault that begins with the first call after its validation"]
    return problems


def _running(folder: Path) -> Mapping[str, Any]:
    running = read_running(folder)
    assert running is not None  # it has said that it is ready
    return running


async def _ended(process: asyncio.subprocess.Process, screen: Screen, pids: Mapping[str, int]) -> list[str]:
    """End a demo, and return what of it was still there afterwards."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await screen.follow()
            await process.wait()
    except TimeoutError:
        process.kill()  # its watchdog ends the others
        return [f"it did not stop within {STOP_SECONDS:g} s"]
    left = sorted(name for name, pid in pids.items() if is_alive(pid))
    return [f"{', '.join(left)} went on"] if left else []


def _tell(number: int, start: Start) -> None:
    mark = "BAD" if start.problems else "ok "
    said = [_told("first prediction", start.first_seconds), _told("rolled back", start.rollback_seconds)]
    print("; ".join([f"{mark}   {number:2d}  {', '.join(said)}", *start.problems]), flush=True)


def _told(what: str, seconds: float | None) -> str:
    return f"{what} -" if seconds is None else f"{what} {seconds:.1f} s"


def _summed_up(
    made: Sequence[Start], seconds_before: Sequence[float], *, is_paired: bool, waits_for_rollback: bool
) -> int:
    good = [start for start in made if not start.problems]
    firsts = [start.first_seconds for start in made if start.first_seconds is not None]
    rollbacks = [start.rollback_seconds for start in made if start.rollback_seconds is not None]
    is_good = len(good) == len(made) > 0
    load = f"load of the machine {os.getloadavg()[0]:.1f}"
    print(f"{'ok ' if is_good else 'BAD'} {len(good)} of {len(made)} starts as they should be; {load}")
    if waits_for_rollback and rollbacks:
        print(f"ok  {len(rollbacks)} rollbacks, {median(rollbacks):.1f} s (median), {max(rollbacks):.1f} s (longest)")
    before = median(seconds_before) if seconds_before else BEFORE_SECONDS
    source = f"the median of {len(seconds_before)} starts in turns" if seconds_before else "ADR 153, at load 1.2"
    if not firsts or (is_paired and not seconds_before):
        print("BAD there is no first prediction to compare")
        return 1
    is_soon = median(firsts) <= before + LATER_SECONDS
    said = f"first prediction after {median(firsts):.1f} s (median), {max(firsts):.1f} s (longest)"
    print(f"{'ok ' if is_soon else 'BAD'} {said}; before {before:.1f} s ({source}), {LATER_SECONDS:g} s more allowed")
    return 0 if is_good and is_soon else 1


if __name__ == "__main__":
    sys.exit(main())
