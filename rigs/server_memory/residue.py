"""``make server-residue``: versions loaded into Triton and unloaded again, 200 times, and what the server keeps.

A real Triton with its agent, and a real Prometheus with the committed rules that reads the agent's metrics. Then once
more with a planted leak of 24 MiB each time that it starts a process, until the alert fires.

Exit status 0: the alert was silent, and fired once the leak was planted; 1: not.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from e2e.lifecycle import Lifecycle
from e2e.stack import Stack
from watch.programs import Prometheus, a_prometheus

from rigs.lifecycle.temporary_stack import a_stack
from rigs.server_memory.__main__ import register, trained
from rigs.server_memory.kinds import KINDS
from rigs.server_memory.member import Member, a_member
from rigs.server_memory.resident import resident_bytes, settled_resident_bytes
from understudy.adapters import migrations
from understudy.core.loading.memory import MEBIBYTE

NAME: Final = "numpy"
CAPACITY_BYTES: Final = 1_024 * MEBIBYTE
LEAK_BYTES: Final = 24 * MEBIBYTE
"""Of each process that is started, of which there are two a load: a fifth of the capacity, and what is taken for a
version's own of that, are passed after ten."""
VERSIONS: Final = tuple(str(number) for number in range(1, 6))
"""Of one artifact; they are loaded one after the other, and dropped."""
TELL_EACH: Final = 20
LEAKING_LOADS: Final = 15
ROUND_SECONDS: Final = 6.0
"""In which the agent looks at its server, and Prometheus at the agent."""
FIRING: Final = 'ALERTS{alertname="ModelServerLeaking",alertstate="firing"}'
PENDING: Final = 'ALERTS{alertname="ModelServerLeaking"}'
RESIDUE: Final = 'model_server_memory_bytes{what="residue"}'
FIRES_SECONDS: Final = 420.0
"""Longer than it has to hold."""


async def loaded_so_often(prometheus: Prometheus, member: Member, loads: int) -> tuple[int, bool]:
    """Load and unload, print what is kept, and return how much per load and whether the alert has been near."""
    await _once(member)
    first = settled_resident_bytes(member.pid)
    for number in range(2 * len(VERSIONS), loads + 1, len(VERSIONS)):
        await _once(member)
        if number % TELL_EACH and number != loads:
            continue
        await asyncio.sleep(ROUND_SECONDS)
        now, said = resident_bytes(member.pid), _last(prometheus, RESIDUE)
        print(
            f"{number:4d} loads: {now / MEBIBYTE:.1f} MiB, {(now - first) / MEBIBYTE:+.2f} since the first"
            f" {len(VERSIONS)}; the agent's residue {said / MEBIBYTE:.1f} MiB",
            flush=True,
        )
    kept = settled_resident_bytes(member.pid) - first
    return kept // max(loads - len(VERSIONS), 1), bool(prometheus.query(PENDING))


async def _once(member: Member) -> None:
    """Load each version, and unload them all."""
    await asyncio.gather(*(member.load(NAME, version) for version in VERSIONS))
    await asyncio.gather(*(member.unload(NAME, version) for version in VERSIONS))


def _last(prometheus: Prometheus, expr: str) -> float:
    return max((one.last for one in prometheus.query(expr)), default=float("nan"))


async def until_firing(prometheus: Prometheus) -> float | None:
    """Return after how many seconds the alert fires; ``None``: it does not."""
    began = time.monotonic()
    while time.monotonic() - began < FIRES_SECONDS:
        if await asyncio.to_thread(prometheus.query, FIRING):
            return time.monotonic() - began
        await asyncio.sleep(1.0)
    return None


async def _run(stack: Stack, models: Path, loads: int) -> bool:
    kind = KINDS[NAME]
    await migrations.upgrade(stack.database_url)
    Lifecycle(stack).start_monitor()
    trained(kind, models / NAME)
    for version in VERSIONS:
        await register(stack, NAME, kind, kind.models[0], version)
    is_silent = not loads or await _case(stack, models, "as it is", loads, {}, fires=False)
    planted = {"LD_PRELOAD": str(_compiled(stack.folder)), "LEAK_BYTES": str(LEAK_BYTES)}
    return await _case(stack, models, "with a planted leak", LEAKING_LOADS, planted, fires=True) and is_silent


async def _case(
    stack: Stack, models: Path, what: str, loads: int, environment: Mapping[str, str], *, fires: bool
) -> bool:
    print(f"{loads} loads of Triton {what}; load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    async with a_member(stack, NAME, KINDS[NAME], CAPACITY_BYTES, models=models, environment=environment) as member:
        targets = {"understudy-proxy": [], "understudy-monitor": [f"127.0.0.1:{member.metrics_port}"]}
        with a_prometheus(stack.folder / f"prometheus-{fires}", targets, seconds=1) as prometheus:
            kept, is_near = await loaded_so_often(prometheus, member, loads)
            after = await until_firing(prometheus) if fires else None
    said = f"fired after {after:.0f} s" if after is not None else ("is near" if is_near else "silent")
    print(f"{kept / MEBIBYTE:+.3f} MiB a load are kept; the alert: {said}", flush=True)
    return after is not None if fires else not is_near


def _compiled(folder: Path) -> Path:
    made = folder / "leak.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, Path(__file__).parent / "leak.c", "-ldl"], check=True)
    return made


def main() -> int:
    """Load as often as was asked for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make server-residue")
    parser.add_argument("--loads", type=int, default=200, help="of Triton as it is; 0: the planted leak alone")
    parser.add_argument("--models", type=Path, help="folder of trained models, to keep them for the next run")
    asked = parser.parse_args()
    with a_stack("server-residue") as stack:
        return 0 if asyncio.run(_run(stack, asked.models or stack.folder / "artifacts", asked.loads)) else 1


if __name__ == "__main__":
    sys.exit(main())
