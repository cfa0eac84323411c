"""``make server-memory``: what twelve trained models of four kinds take of real servers, beside what is expected.

Each model is loaded twice through an agent, each time into a server that was just started and has no other model. The
first time the agent expects what the artifact's files tell; the second time, what it measured the first time. What is
measured here is the growth of what the server's processes have resident.

Exit status 0: every first estimate is within half and twice of what was measured, and every second one within 15 %; 1:
not.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from e2e.lifecycle import Lifecycle
from e2e.stack import Stack

from rigs.lifecycle.temporary_stack import a_stack
from rigs.server_memory.kinds import KINDS, Kind
from rigs.server_memory.member import ACTOR, Member, a_member
from rigs.server_memory.resident import settled_resident_bytes
from understudy.adapters import migrations
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.loading.memory import MEBIBYTE
from understudy.ports.registry.registry import NewVersion
from understudy.registry.changes import register_version

CAPACITY_BYTES: Final = 8_192 * MEBIBYTE
FIRST_RATIOS: Final = (0.5, 2.0)
SECOND_RATIOS: Final = (0.85, 1.15)
SETTLE_SECONDS: Final = 6.0
"""Until the agent has looked at a server that has just come back."""


class Load(NamedTuple):
    """One load of a model."""

    expected_bytes: int
    """By the agent, before it."""
    noted_bytes: int
    """By the agent, after it."""
    grown_bytes: int
    """Measured here."""

    @property
    def ratio(self) -> float:
        """How much of what was measured was expected."""
        return self.expected_bytes / max(self.grown_bytes, 1)


class Measured(NamedTuple):
    """A model, and its loads."""

    kind: str
    model: str
    file_bytes: int
    loads: list[Load]

    @property
    def is_good(self) -> bool:
        """Whether each estimate is as near as it has to be."""
        (low, high), (near_low, near_high) = FIRST_RATIOS, SECOND_RATIOS
        first, second = self.loads
        return low <= first.ratio <= high and near_low <= second.ratio <= near_high

    def __str__(self) -> str:
        """Return it as a line of the table."""
        sizes = [f"{size / MEBIBYTE:7.1f}" for load in self.loads for size in load]
        ratios = [f"{load.ratio:5.2f}" for load in self.loads]
        first, second = " ".join((*sizes[:3], ratios[0])), " ".join((*sizes[3:], ratios[1]))
        verdict = "" if self.is_good else "  out of bounds"
        return f"{self.kind:8} {self.model:11} {self.file_bytes / MEBIBYTE:8.3f}  {first}  {second}{verdict}"


def trained(kind: Kind, folder: Path) -> None:
    """Have a kind's models trained into a folder, unless they are there."""
    if all((folder / model).is_dir() for model in kind.models):
        return
    folder.mkdir(parents=True)
    script = Path(__file__).parent / kind.trains
    subprocess.run([kind.python, script, folder], check=True, stdout=subprocess.DEVNULL)


def bytes_below(folder: Path) -> int:
    """Return the size of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def register(stack: Stack, name: str, kind: Kind, model: str, version: str) -> None:
    """Register a model for the group of its kind, and have it loaded by no agent yet."""
    example = example_version("visits", 1)
    new = NewVersion(name, version, f"{name}/{model}", kind.framework, example.input_schema, example.output_schema)
    new = new._replace(group_name=name, protocol="torchserve" if kind.server == "torchserve" else "oip")
    await register_version(PostgresRegistry(stack.database_url), new, ACTOR)
    await PostgresLoadingRegistry(stack.database_url, timeout_seconds=5.0).unload(name, version, ACTOR)


async def measured(stack: Stack, models: Path, name: str, kind: Kind) -> list[Measured]:
    """Load each model of a kind twice, and return what was measured."""
    artifacts = models / name
    trained(kind, artifacts)
    found = []
    async with a_member(stack, name, kind, CAPACITY_BYTES, models=models) as member:
        for model in kind.models:
            await register(stack, name, kind, model, model)
            loads = [await _loaded(member, name, model), await _loaded(member, name, model)]
            found.append(Measured(name, model, bytes_below(artifacts / model), loads))
            print(found[-1], flush=True)
    return found


async def _loaded(member: Member, name: str, model: str) -> Load:
    """Load a model into a server that has just been started, and unload it again."""
    member.stop_server()
    await member.start_server()
    await asyncio.sleep(SETTLE_SECONDS)
    before = settled_resident_bytes(member.pid)
    await member.load(name, model)
    grown = settled_resident_bytes(member.pid) - before
    said = member.said("agent.loaded")[-1]
    await member.unload(name, model)
    return Load(said["expected_bytes"], said["memory_bytes"], grown)


async def _run(stack: Stack, models: Path, kinds: list[str]) -> list[Measured]:
    await migrations.upgrade(stack.database_url)
    Lifecycle(stack).start_monitor()
    return [one for name in kinds for one in await measured(stack, models, name, KINDS[name])]


def main() -> int:
    """Measure the kinds that were asked for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make server-memory")
    parser.add_argument("--only", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--models", type=Path, help="folder of trained models, to keep them for the next run")
    asked = parser.parse_args()
    print(
        f"load of the machine {os.getloadavg()[0]:.1f}; MiB: files, then expected, noted, measured, expected / measured"
    )
    with a_stack("server-memory") as stack:
        found = asyncio.run(_run(stack, asked.models or stack.folder / "artifacts", asked.only))
    print(f"{sum(one.is_good for one in found)} of {len(found)} within bounds; load {os.getloadavg()[0]:.1f}")
    return 0 if all(one.is_good for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
