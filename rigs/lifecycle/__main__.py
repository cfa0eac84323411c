"""``make lifecycle-faults``: kill -9 at random moments of a rolling change under load.

Exit status 0: no call failed, and after each kill what is wanted, loaded and called was the same within 30 s; 1: not.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Final, NamedTuple

from e2e.load import Answer, Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, sql

from rigs.lifecycle.change import change_champion
from rigs.lifecycle.kills import KILLS
from rigs.lifecycle.settled import differences
from rigs.lifecycle.stack import GIVE_UP_SECONDS, PAUSE_SECONDS, SERVERS, LifecycleStack, patiently

SETTLED_SECONDS: Final = 30.0
MAX_MOMENT_SECONDS: Final = 5.0
"""The kill comes so long after the change has begun at most: a change takes about as long."""
CALLS_PER_SECOND: Final = 10.0
LONGEST_SECONDS: Final = 7_200.0
_STATES = "SELECT state FROM LoadedVersion WHERE state <> 'END' ORDER BY 1"


class Round(NamedTuple):
    """A change with a kill in it."""

    number: int
    kind: str
    victim: str
    moment_seconds: float
    """After the change began."""
    states: str
    """Of versions at servers when the victim was killed."""
    settled_seconds: float
    """From the kill until nothing differed."""
    differs: str
    """What still did when that was given up; empty: nothing."""
    last_seen: Mapping[str, float]
    """After the kill, when each difference was seen last; ``back``: when the victim was started again, ``change``: when
    the change itself was over."""
    calls: int
    failed: Sequence[Answer]

    @property
    def is_good(self) -> bool:
        """Whether the round kept both promises."""
        return not self.failed and not self.differs and self.settled_seconds <= SETTLED_SECONDS


def main() -> int:
    """Make the kills that were asked for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make lifecycle-faults")
    parser.add_argument("--kills", type=int, default=60, help="how many (60)")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (the time)")
    parser.add_argument("--only", nargs="*", choices=list(KILLS), default=list(KILLS), help="what is killed")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="understudy-lifecycle-") as folder:
        return asyncio.run(_run(Path(folder), asked.kills, asked.seed or int(time.time()), asked.only))


async def _run(folder: Path, kills: int, seed: int, kinds: Sequence[str]) -> int:
    print(f"{kills} kills, seed {seed}, load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    folder.chmod(0o755)  # Postgres may run as another account
    stack = LifecycleStack(folder)
    rounds: list[Round] = []
    load = Load()
    try:
        await stack.start()
        calling = asyncio.create_task(_call(stack, load))
        chance = Random(seed)
        planned = [kinds[number % len(kinds)] for number in range(kills)]
        chance.shuffle(planned)
        for number, kind in enumerate(planned):
            rounds.append(await _round(stack, number, kind, chance, load))
            _tell(rounds[-1])
            if rounds[-1].differs:
                break  # what follows would be measured from there
        load.is_over = True
        await calling
    finally:
        load.is_over = True
        stack.stop()
    return _summed_up(rounds, load)


async def _call(stack: LifecycleStack, load: Load) -> None:
    bodies = PREDICT_BODIES
    await run_load(
        stack.stack.proxy_port,
        VISITS,
        lambda number: bodies[number % len(bodies)],
        per_second=CALLS_PER_SECOND,
        seconds=LONGEST_SECONDS,
        load=load,
    )


async def _round(stack: LifecycleStack, number: int, kind: str, chance: Random, load: Load) -> Round:
    before, failed_before = len(load.answers), len(load.failed)
    changing = asyncio.create_task(change_champion(stack, number))
    moment = chance.uniform(0, MAX_MOMENT_SECONDS)
    await asyncio.sleep(moment)
    states = Counter(str(row[0]) for row in await patiently(lambda: sql(stack.url, _STATES)))
    killed_at = time.monotonic()
    victim = await KILLS[kind](stack, chance)
    last_seen = {"back": time.monotonic() - killed_at}
    await changing
    last_seen["change"] = time.monotonic() - killed_at
    found = await _differences(stack)
    while found and time.monotonic() < killed_at + GIVE_UP_SECONDS:
        last_seen |= dict.fromkeys(found, time.monotonic() - killed_at)
        await asyncio.sleep(PAUSE_SECONDS)
        found = await _differences(stack)
    return Round(
        number + 1,
        kind,
        victim,
        moment,
        ", ".join(f"{count} {state}" for state, count in states.items()),
        time.monotonic() - killed_at,
        "; ".join(f"{where}: {what}" for where, what in found.items()),
        last_seen,
        len(load.answers) - before,
        load.failed[failed_before:],
    )


async def _differences(stack: LifecycleStack) -> dict[str, str]:
    return dict(await patiently(lambda: differences(stack)))


def _tell(one: Round) -> None:
    mark = "ok " if one.is_good else "BAD"
    said = f"{mark} {one.number:3d}  {one.victim:14s} at {one.moment_seconds:3.1f} s ({one.states}): "
    said += f"settled after {one.settled_seconds:.1f} s, {one.calls} calls, {len(one.failed)} failed"
    print(said + (f"; {one.differs}" if one.differs else ""), flush=True)
    print("      until " + ", ".join(f"{what} {at:.1f} s" for what, at in one.last_seen.items()), flush=True)
    for answer in one.failed[:5]:
        print(f"      status {answer.status} after {answer.seconds * 1000:.0f} ms: {answer.body[:300]!r}", flush=True)


def _summed_up(rounds: Sequence[Round], load: Load) -> int:
    bad = [one for one in rounds if not one.is_good]
    if rounds:
        settled = sorted(one.settled_seconds for one in rounds)
        print(
            f"{len(rounds)} kills, {len(load.answers):,} calls, {len(load.failed)} failed; settled after "
            f"{settled[len(settled) // 2]:.1f} s (median), {settled[-1]:.1f} s (longest); load of the machine "
            f"{os.getloadavg()[0]:.1f}"
        )
        for kind in KILLS:
            _split_up(kind, [one for one in rounds if one.kind == kind])
    return 1 if bad or not rounds else 0


def _split_up(kind: str, rounds: Sequence[Round]) -> None:
    """Say how the time of the rounds with one kind of victim was spent: medians, seconds after the kill."""
    if not rounds:
        return
    settled = sorted(one.settled_seconds for one in rounds)
    said = [f"{len(rounds)} settled after {median(settled):.1f} s, {settled[-1]:.1f} s at the longest"]
    steps = {"back": ("back",), "change": ("change",), "endpoints": ("endpoints",), "servers": SERVERS}
    for what, keys in steps.items():
        said.append(f"{what} {median(max(one.last_seen.get(key, 0.0) for key in keys) for one in rounds):.1f} s")
    print(f"{kind:9s} {', '.join(said)}")


if __name__ == "__main__":
    sys.exit(main())
