"""``make lifecycle-faults``: kill -9 at random moments of a rolling change under load, or in each state of a version.

Exit status 0: no call failed, after each kill what is wanted, loaded and called was the same within 30 s, and nothing
was wrong meanwhile for longer than ``rigs.lifecycle.watch`` allows; 1: not.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Final, NamedTuple

from e2e.load import Answer, Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, sql

from rigs.lifecycle.change import change_champion, versions_of
from rigs.lifecycle.kills import KINDS, kill
from rigs.lifecycle.moments import STATES, until_state
from rigs.lifecycle.settled import differences
from rigs.lifecycle.stack import GIVE_UP_SECONDS, PAUSE_SECONDS, SERVERS, LifecycleStack, patiently
from rigs.lifecycle.watch import MAX_SECONDS, Watch

SETTLED_SECONDS: Final = 30.0
MAX_MOMENT_SECONDS: Final = 5.0
"""The kill comes so long after the change has begun at most: a change takes about as long."""
CALLS_PER_SECOND: Final = 10.0
LONGEST_SECONDS: Final = 7_200.0
TRIES: Final = 4
"""Changes in which a state is looked for that is over in milliseconds."""
_STATES = "SELECT state FROM LoadedVersion WHERE state <> 'END' ORDER BY 1"


class Round(NamedTuple):
    """A change with a kill in it."""

    kind: str
    victim: str
    moment: str
    """When it was killed: in a state of a version, or so many seconds after the change began."""
    settled_seconds: float
    """From the kill until nothing differed."""
    differs: str
    """What still did when that was given up; empty: nothing."""
    last_seen: Mapping[str, float]
    """After the kill, when each difference was seen last; ``back``: when the victim was started again, ``change``: when
    the change itself was over."""
    calls: int
    failed: Sequence[Answer]
    violations: Sequence[str]
    """What was wrong for too long while everything went on."""

    @property
    def is_good(self) -> bool:
        """Whether the round kept every promise."""
        is_settled = not self.differs and self.settled_seconds <= SETTLED_SECONDS
        return is_settled and not self.failed and not self.violations


class Plan(NamedTuple):
    """What is killed when."""

    kind: str
    state: str | None
    """``None``: at a random moment of the change."""


class Begun(NamedTuple):
    """A change, and the moment that has come in it."""

    changing: asyncio.Task[None]
    moment: str
    server: str
    """Where, which says whose agent or server is killed."""
    is_seen: bool = True


def main() -> int:
    """Make the kills that were asked for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make lifecycle-faults")
    parser.add_argument("--kills", type=int, default=60, help="how many at random moments (60)")
    parser.add_argument("--matrix", type=int, metavar="ROUNDS", help="so often each kind in each state instead")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (the time)")
    parser.add_argument("--only", nargs="*", choices=list(KINDS), default=list(KINDS), help="what is killed")
    parser.add_argument("--states", nargs="*", choices=list(STATES), default=list(STATES), help="of the matrix")
    asked = parser.parse_args()
    chance = Random(seed := asked.seed or int(time.time()))
    if asked.matrix is None:
        plans = [Plan(asked.only[number % len(asked.only)], None) for number in range(asked.kills)]
    else:
        plans = [Plan(kind, state) for kind in asked.only for state in asked.states] * asked.matrix
    chance.shuffle(plans)
    print(f"{len(plans)} kills, seed {seed}, load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="understudy-lifecycle-") as folder:
        return asyncio.run(_run(Path(folder), plans, chance))


async def _run(folder: Path, plans: Sequence[Plan], chance: Random) -> int:
    folder.chmod(0o755)  # Postgres may run as another account
    stack = LifecycleStack(folder, has_cases=any(plan.state is not None for plan in plans))
    rounds: list[Round] = []
    load, watch = Load(), Watch(stack)
    try:
        await stack.start()
        calling = asyncio.create_task(_call(stack, load))
        watching = asyncio.create_task(watch.run())
        changes = count()
        for plan in plans:
            rounds.append(await _round(stack, plan, changes, chance, load=load, watch=watch))
            _tell(len(rounds), rounds[-1])
            if rounds[-1].differs:
                break  # what follows would be measured from there
        load.is_over = True
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await calling
    finally:
        load.is_over = True
        stack.stop()
    return _summed_up(rounds, load, watch)


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


async def _round(
    stack: LifecycleStack, plan: Plan, changes: Iterator[int], chance: Random, *, load: Load, watch: Watch
) -> Round:
    before, failed_before = len(load.answers), len(load.failed)
    victims = {server: await KINDS[plan.kind](stack, server) for server in SERVERS}
    begun = await _begin(stack, plan, changes, chance)
    victim = victims[begun.server]
    killed_at = time.monotonic()
    if begun.is_seen:
        await kill(victim, chance)
    last_seen = {"back": time.monotonic() - killed_at}
    await begun.changing
    last_seen["change"] = time.monotonic() - killed_at
    found = await _settled(stack, killed_at, last_seen)
    unseen = () if begun.is_seen else (f"{plan.state} was not seen in {TRIES} changes, and nothing was killed",)
    return Round(
        plan.kind,
        victim.name,
        begun.moment,
        time.monotonic() - killed_at,
        "; ".join(f"{where}: {what}" for where, what in found.items()),
        last_seen,
        len(load.answers) - before,
        load.failed[failed_before:],
        (*unseen, *watch.take_violations()),
    )


async def _begin(stack: LifecycleStack, plan: Plan, changes: Iterator[int], chance: Random) -> Begun:
    """Begin a change, and return it when the moment has come; where a state was not seen another change follows."""
    if plan.state is None:
        changing = asyncio.create_task(change_champion(stack, next(changes)))
        seconds = chance.uniform(0, MAX_MOMENT_SECONDS)
        await asyncio.sleep(seconds)
        states = Counter(str(row[0]) for row in await patiently(lambda: sql(stack.url, _STATES)))
        told = ", ".join(f"{count} {state}" for state, count in states.items())
        return Begun(changing, f"{seconds:3.1f} s ({told})", chance.choice(SERVERS))
    for _ in range(TRIES):
        number = next(changes)
        oldest, new = versions_of(number)
        changing = asyncio.create_task(change_champion(stack, number))
        server = await until_state(stack, plan.state, new if STATES[plan.state] else oldest)
        if server is not None:
            return Begun(changing, f"{plan.state} on {server}", server)
        await changing
        await _settled(stack, time.monotonic(), {})
    return Begun(changing, plan.state, SERVERS[0], is_seen=False)


async def _settled(stack: LifecycleStack, since: float, last_seen: dict[str, float]) -> dict[str, str]:
    """Wait until everything is as it is wanted, and return what is not when that is given up."""
    found = await _differences(stack)
    while found and time.monotonic() < since + GIVE_UP_SECONDS:
        last_seen |= dict.fromkeys(found, time.monotonic() - since)
        await asyncio.sleep(PAUSE_SECONDS)
        found = await _differences(stack)
    return found


async def _differences(stack: LifecycleStack) -> dict[str, str]:
    return dict(await patiently(lambda: differences(stack)))


def _tell(number: int, one: Round) -> None:
    mark = "ok " if one.is_good else "BAD"
    said = f"{mark} {number:3d}  {one.victim:14s} at {one.moment}: "
    said += f"settled after {one.settled_seconds:.1f} s, {one.calls} calls, {len(one.failed)} failed"
    print("; ".join([said, *filter(None, [one.differs]), *one.violations]), flush=True)
    print("      until " + ", ".join(f"{what} {at:.1f} s" for what, at in one.last_seen.items()), flush=True)
    for answer in one.failed[:5]:
        print(f"      status {answer.status} after {answer.seconds * 1000:.0f} ms: {answer.body[:300]!r}", flush=True)


def _summed_up(rounds: Sequence[Round], load: Load, watch: Watch) -> int:
    bad = [one for one in rounds if not one.is_good]
    if rounds:
        settled = sorted(one.settled_seconds for one in rounds)
        print(
            f"{len(rounds)} kills, {len(load.answers):,} calls, {len(load.failed)} failed; settled after "
            f"{settled[len(settled) // 2]:.1f} s (median), {settled[-1]:.1f} s (longest), "
            f"{sum(seconds > SETTLED_SECONDS for seconds in settled)} later than {SETTLED_SECONDS:g} s; load of the "
            f"machine {os.getloadavg()[0]:.1f}"
        )
        for what, seconds in watch.longest.items():
            print(f"{what:9s} {seconds:.1f} s at the longest, {MAX_SECONDS[what]:g} allowed ({watch.looks:,} looks)")
        for kind in KINDS:
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
