"""``make bench-agent``: what an agent costs beside its model server.

At rest with 50 versions, and fetching 4 GiB. Real processes and an embedded Postgres, which logs each statement. The
disk's own speed is that of ``dd`` from and to the same folder, with ``fsync``, alternating with the fetches. How long
loads and unloads take: ``make lifecycle-loads``.

Exit status 0: every figure is within its target; 1: not.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final

from e2e.lifecycle import Lifecycle
from e2e.stack import Stack, sql

from loadtests.machine import a_folder, cpu_seconds, resident_bytes
from understudy.adapters import migrations
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

VERSIONS: Final = 50
MODEL: Final = "visits"
MIB: Final = 2**20
MAX_CORE_PERCENT, MAX_MIB, MAX_STATEMENTS = 0.5, 80, 1.0
MAX_GROWTH_MIB, MIN_OF_DISK_PERCENT = 64, 70
TIMEOUT_MS: Final = 1_000
GIVE_UP_SECONDS: Final = 600.0
_LOGGED = ("ALTER SYSTEM SET log_statement = 'all'", "ALTER SYSTEM SET log_line_prefix = '%a: '")
_BY_AGENT: Final = ("understudy-agent: ", "understudy-lease: ", "understudy-listener: ")
"""Sessions of agents; the monitor, which has sessions of these names too, is stopped while statements are counted."""


class Bench:
    """A server with its agent, and the monitor that places versions."""

    def __init__(self, folder: Path) -> None:
        self.postgres = EmbeddedPostgres(folder / "postgres")
        self.postgres.start()
        self.stack = Stack(folder, self.postgres.url)
        self.lifecycle = Lifecycle(self.stack)

    async def start(self) -> None:
        """Start it, without versions."""
        await migrations.upgrade(self.postgres.url)
        self.lifecycle.start_server()
        self.lifecycle.start_agent()
        self.lifecycle.start_monitor()

    async def register(self, label: str, artifact: str) -> None:
        """Register a version that agents load."""
        example = example_version(MODEL, 1)
        schemas = (example.input_schema, example.output_schema)
        new = NewVersion(MODEL, label, artifact, "sklearn", *schemas, group_name="onnx", timeout_ms=TIMEOUT_MS)
        await register_version(PostgresRegistry(self.postgres.url), new, Actor("bench", "cli", "an agent is measured"))

    async def until(self, state: str, count: int) -> None:
        """Wait until so many versions are in a state."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while (await sql(self.postgres.url, "SELECT count(*) FROM LoadedVersion WHERE state = $1", state))[0][
            0
        ] < count:
            if time.monotonic() > give_up:
                raise TimeoutError(f"not {count} versions are {state} after {GIVE_UP_SECONDS:g} s")
            await asyncio.sleep(0.1)

    def start_monitor_again(self) -> None:
        """Start the monitor, if it was stopped."""
        if self.stack.processes["monitor"].child.poll() is not None:
            self.lifecycle.start_monitor()

    @property
    def agent_pid(self) -> int:
        """The agent's process."""
        return self.stack.processes[self.lifecycle.agent].pid

    def statements(self) -> int:
        """Count what sessions of agents have asked so far."""
        lines = self.postgres.log_path.read_text(errors="replace").splitlines()
        asked = (": LOG:  statement:", ": LOG:  execute ")
        return sum(line.startswith(_BY_AGENT) and any(mark in line for mark in asked) for line in lines)

    def stop(self) -> None:
        """End every process."""
        self.stack.stop()
        self.postgres.stop("immediate")


def main() -> int:
    """Measure what was asked for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make bench-agent")
    parts = ["rest", "fetch"]
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    parser.add_argument("--seconds", type=float, default=120.0, help="of rest (120)")
    parser.add_argument("--gibibytes", type=float, default=4.0, help="of the artifact (4)")
    asked = parser.parse_args()
    with a_folder("understudy-agent-") as folder:
        return asyncio.run(_run(folder, asked))


async def _run(folder: Path, asked: argparse.Namespace) -> int:
    bench = Bench(folder)
    try:
        await bench.start()
        is_good = True
        if "rest" in asked.only:
            is_good &= await _rest(bench, asked.seconds)
        if "fetch" in asked.only:
            is_good &= await _fetch(bench, folder, int(asked.gibibytes * 2**30))
    finally:
        bench.stop()
    return 0 if is_good else 1


async def _rest(bench: Bench, seconds: float) -> bool:
    for number in range(1, VERSIONS + 1):
        place = bench.lifecycle.root / f"{MODEL}-{number}.onnx"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(example_version(MODEL, 1).read())
        await bench.register(str(number), place.name)
    await bench.until("AVAILABLE", VERSIONS)
    for statement in _LOGGED:
        await sql(bench.postgres.url, statement)
    await sql(bench.postgres.url, "SELECT pg_reload_conf()")
    bench.stack.processes["monitor"].stop()
    await asyncio.sleep(10)
    asked, used, began_at = bench.statements(), cpu_seconds([bench.agent_pid]), time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began_at
    statements = (bench.statements() - asked) / passed
    core = 100 * (cpu_seconds([bench.agent_pid]) - used) / passed
    resident = resident_bytes(bench.agent_pid) / MIB
    print(f"at rest with {VERSIONS} versions for {passed:.0f} s:")
    return _told(
        ("of a core", core, "%", core <= MAX_CORE_PERCENT, f"{MAX_CORE_PERCENT} %"),
        ("statements a second", statements, "", statements <= MAX_STATEMENTS, f"{MAX_STATEMENTS}"),
        ("resident", resident, "MiB", resident <= MAX_MIB, f"{MAX_MIB} MiB"),
    )


async def _fetch(bench: Bench, folder: Path, size: int) -> bool:
    bench.start_monitor_again()
    model = bench.lifecycle.root / "large"
    model.mkdir(parents=True, exist_ok=True)
    _fill(model / "weights.bin", size)
    disk_seconds = [_copied(model / "weights.bin", folder / "copy.bin")]
    before = resident_bytes(bench.agent_pid)
    await bench.register("large", "large")
    highest, began_at = before, None
    while not (state := await _state_of(bench, "large")) or state == "FETCHING":
        if state and began_at is None:
            began_at = time.monotonic()
        highest = max(highest, resident_bytes(bench.agent_pid))
        await asyncio.sleep(0.05)
    fetch_seconds = time.monotonic() - (began_at or time.monotonic())
    disk_seconds.append(_copied(model / "weights.bin", folder / "copy.bin"))
    growth = (highest - before) / MIB
    share = 100 * median(disk_seconds) / fetch_seconds
    dd = ", ".join(f"{seconds:.1f}" for seconds in disk_seconds)
    print(f"a fetch of {size / 2**30:g} GiB from a folder took {fetch_seconds:.1f} s, dd {dd} s:")
    return _told(
        ("of the disk's own speed", share, "%", share >= MIN_OF_DISK_PERCENT, f"{MIN_OF_DISK_PERCENT} % or more"),
        ("more memory at its highest", growth, "MiB", growth <= MAX_GROWTH_MIB, f"{MAX_GROWTH_MIB} MiB"),
    )


async def _state_of(bench: Bench, label: str) -> str:
    query = "SELECT state FROM LoadedVersion v JOIN ModelVersion m ON m.id = v.model_version_id WHERE version = $1"
    rows = await sql(bench.postgres.url, query, label)
    return str(rows[0][0]) if rows else ""


def _fill(path: Path, size: int) -> None:
    block = bytes(range(256)) * (MIB // 256)
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(block)


def _copied(source: Path, target: Path) -> float:
    """Return how long ``dd`` takes for a copy that is on the disk in the end."""
    began_at = time.monotonic()
    command = ["dd", f"if={source}", f"of={target}", "bs=1M", "conv=fsync", "status=none"]
    subprocess.run(command, check=True)
    target.unlink()
    return time.monotonic() - began_at


def _told(*figures: tuple[str, float, str, bool, str]) -> bool:
    for what, found, unit, is_good, target in figures:
        print(f"{'ok ' if is_good else 'BAD'} {what:30s} {found:8.2f} {unit:4s} target {target}", flush=True)
    return all(figure[3] for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
