"""``make lifecycle-sources``: tags of real registries that move, and registries that are away, by the wall clock.

Three of Debian's ``docker-registry`` ask for logins in each way: with tokens that anyone gets, as hosted registries
have it for what is public; with a name and a password; and not at all. ``understudy source follow`` follows ``latest``
of each, which only registers, and ``canary`` of one, whose image says the steps of its rollout. An agent loads what is
registered. Then the same digests are pushed again, and then all registries are away for ten minutes, while callers call
and Prometheus and Alertmanager watch with the committed rules.

Exit status 0: every clause held; 1: not; 0 and a word of it where ``docker-registry`` is not installed.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from random import Random
from statistics import median
from typing import Any, Final

from e2e.stack import sql
from loopback.docker_registry import BINARY, DockerRegistry, Login, a_docker_registry, is_installed

from rigs.lifecycle.source_away import Away, be_away
from rigs.lifecycle.source_stack import CANARY, GIVE_UP_SECONDS, MODELS, SourceStack
from rigs.lifecycle.temporary_stack import a_stack, end_when_told

LATER_SECONDS: Final = 5.0
"""After the interval between two looks."""
STEPS: Final = "1,5,25,50"
QUIET_LOOKS: Final = 3
WATCHERS: Final = (("prometheus",), ("alertmanager", "prometheus-alertmanager"))
_MADE = """
    SELECT (SELECT count(*) FROM ModelVersion), (SELECT count(*) FROM Rollout),
           (SELECT count(*) FROM RegistryAudit WHERE subject = 'version' AND action = 'insert')
"""
_ROLLOUT = """
    SELECT v.version, r.plan FROM Rollout r JOIN ModelVersion v ON v.id = r.challenger_version
    WHERE r.kind = 'rollout' AND v.model_name = $1
"""


def main() -> int:
    """Do what was asked for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make lifecycle-sources")
    parser.add_argument("--moves", type=int, default=20, help="of each tag latest (20)")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks (5)")
    parser.add_argument("--away", type=float, default=600.0, help="seconds; 0: not at all (600)")
    parser.add_argument("--hang", action="store_true", help="registries that are away take connections, and hang")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of moves (the time)")
    asked = parser.parse_args()
    if not is_installed():
        print(f"skipped: there is no {BINARY} on this machine, and nothing was tested (Debian has a package)")
        return 0
    missing = [names[0] for names in WATCHERS if not any(map(shutil.which, names))]
    if asked.away and missing:
        parser.error(f"no {' and no '.join(missing)} on this machine; --away 0 does without")
    end_when_told()
    return asyncio.run(_run(asked, Random(asked.seed or int(time.time()))))


async def _run(asked: argparse.Namespace, chance: Random) -> int:
    load = f"load of the machine {os.getloadavg()[0]:.1f}"
    print(f"{asked.moves} moves, a look each {asked.every:g} s, {load}", flush=True)
    with ExitStack() as started:
        stack = started.enter_context(a_stack("sources"))
        registries: dict[Login, DockerRegistry] = {
            login: started.enter_context(a_docker_registry(stack.folder / f"registry-{login}", login))
            for login in MODELS
        }
        sources = SourceStack(stack, registries, asked.every)
        await sources.start()
        is_good = await _moves(sources, asked.moves, chance)
        is_good &= await _canary(sources)
        is_good &= await _again(sources)
        if asked.away:
            is_good &= _told_away(await be_away(sources, asked.away, hangs=asked.hang))
            is_good &= await _moves(sources, 1, chance)
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    return 0 if is_good else 1


async def _moves(sources: SourceStack, moves: int, chance: Random) -> bool:
    """Move each ``latest`` so often, and say how soon after that its version was registered."""
    seconds: Mapping[Login, list[float]] = defaultdict(list)
    for _ in range(moves):
        await asyncio.sleep(chance.uniform(0, sources.every_seconds))
        waiting = []
        for login in MODELS:
            digest = await asyncio.to_thread(sources.push, login, "latest")
            waiting.append((login, time.monotonic(), sources.until_registered(login, digest)))
        registered = await asyncio.gather(*(until for *_, until in waiting))
        for (login, moved_at, _), registered_at in zip(waiting, registered, strict=True):
            seconds[login].append(registered_at - moved_at)
    began = time.monotonic()
    await sources.until_all_loaded()
    most = sources.every_seconds + LATER_SECONDS
    good = [_told_moves(login, found, most) for login, found in seconds.items()]
    print(f"ok  all of them are loaded, {time.monotonic() - began:.1f} s after the last was registered", flush=True)
    return all(good)


def _told_moves(login: Login, seconds: Sequence[float], most: float) -> bool:
    mark = "ok " if max(seconds) <= most else "BAD"
    said = f"{median(seconds):.1f} s (median), {max(seconds):.1f} s (longest of {len(seconds)})"
    print(f"{mark} latest moves, login {login}: registered after {said}, {most:g} s allowed", flush=True)
    return max(seconds) <= most


async def _canary(sources: SourceStack) -> bool:
    """Move ``canary`` to an image that says its steps, and compare those of the rollout."""
    began = time.monotonic()
    await asyncio.to_thread(partial(sources.push, "token", "canary", steps=STEPS))
    while not (rows := await sql(sources.stack.database_url, _ROLLOUT, CANARY)):
        if time.monotonic() > began + GIVE_UP_SECONDS:
            print(f"BAD canary moves: no rollout after {GIVE_UP_SECONDS:g} s: {sources.looks('refused')}")
            return False
        await asyncio.sleep(0.1)
    seconds = time.monotonic() - began
    steps = [step["weight_percent"] for step in json.loads(rows[0]["plan"])["steps"]]
    is_good = steps == [*map(int, STEPS.split(",")), 100] and rows[0]["version"] == f"2026.{sources.newest}"
    said = f"a rollout of {rows[0]['version']} by {steps} after {seconds:.1f} s, loaded meanwhile"
    print(f"{'ok ' if is_good else 'BAD'} canary moves to an image that asks for {STEPS}: {said}", flush=True)
    return is_good


async def _again(sources: SourceStack) -> bool:
    """Push the same images again, and one of before: nothing is registered and no rollout begins."""
    url, newest = sources.stack.database_url, sources.newest
    before = tuple((await sql(url, _MADE))[0])
    await asyncio.to_thread(partial(sources.push, "token", "canary", steps=STEPS, number=newest))
    for number, login in enumerate(MODELS):
        latest = newest - len(MODELS) + number  # each model's newest image was pushed in this order, before the canary
        await asyncio.to_thread(partial(sources.push, login, "latest", number=latest))
    await sources.until_looked(QUIET_LOOKS)
    await asyncio.to_thread(partial(sources.push, "none", "latest", number=newest - len(MODELS) - 1))
    await sources.until_looked(QUIET_LOOKS)
    after = tuple((await sql(url, _MADE))[0])
    mark = "ok " if after == before else "BAD"
    counts = f"versions, rollouts and their changes are {after}, and were {before}"
    print(f"{mark} same digests again, and one of before, {2 * QUIET_LOOKS} looks each: {counts}", flush=True)
    return after == before


def _told_away(away: Away) -> bool:
    def tell(what: str, *, is_good: Any) -> None:
        print(f"{'ok ' if is_good else 'BAD'} away for {away.seconds:g} s: {what}", flush=True)

    load = away.load
    tell(f"{len(load.failed)} of {len(load.answers):,} calls failed", is_good=not load.failed)
    for answer in load.failed[:5]:
        print(f"      status {answer.status} after {answer.seconds * 1000:.0f} ms: {answer.body[:300]!r}", flush=True)
    unchanged = f"{away.versions} versions at their server, {len(away.changes)} changes in {away.looks} looks"
    tell("; ".join([unchanged, *away.changes]), is_good=not away.changes)
    alerts = ", ".join(f"{name} after {seconds:.0f} s" for name, seconds in away.alerts.items()) or "none"
    resolved = "not resolved" if away.resolved_seconds is None else f"resolved {away.resolved_seconds:.0f} s after"
    told = f"{away.incidents} told of in {len(away.told)} messages, {resolved}"
    tell(f"alerts: {alerts}; {told}", is_good=away.is_told_well)
    return away.is_good


if __name__ == "__main__":
    sys.exit(main())
