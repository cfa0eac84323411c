"""What is killed with signal 9, and started again."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final, NamedTuple

from e2e.stack import sql

from rigs.lifecycle.stack import MONITORS, LifecycleStack, patiently

MAX_AWAY_SECONDS: Final = 1.0
"""How long a victim is away at most, before it is started again."""
_HOLDER = "SELECT holder FROM MonitorLease ORDER BY renewed_at DESC LIMIT 1"


class Victim(NamedTuple):
    """What is to be killed."""

    name: str
    kill: Callable[[], None]
    """Returns once it is dead."""
    start: Callable[[], None]


Choose = Callable[[LifecycleStack, str], Awaitable[Victim]]


async def choose_agent(stack: LifecycleStack, server: str) -> Victim:
    """Choose the agent of a server."""
    member = stack.members[server]
    return _process(stack, member.agent, member.start_agent)


async def choose_server(stack: LifecycleStack, server: str) -> Victim:
    """Choose a model server; it comes back empty."""
    member = stack.members[server]
    return _process(stack, member.server, member.start_server)


async def choose_leader(stack: LifecycleStack, _: str) -> Victim:
    """Choose the monitor that leads."""
    holder = str((await patiently(lambda: sql(stack.url, _HOLDER)))[0][0])
    name = next(name for name in MONITORS if holder.startswith(f"{name}:"))
    return _process(stack, name, lambda: stack.start_monitor(name))


async def choose_postgres(stack: LifecycleStack, _: str) -> Victim:
    """Choose the postmaster, with every session."""
    return Victim("postgres", stack.postgres.kill, stack.start_postgres)


KINDS: Final[Mapping[str, Choose]] = {
    "agent": choose_agent,
    "server": choose_server,
    "leader": choose_leader,
    "postgres": choose_postgres,
}
"""Each is chosen before the moment has come: the name of a leader takes a question."""


async def kill(victim: Victim, chance: Random) -> None:
    """Kill a victim, and return once it was started again."""
    await asyncio.to_thread(victim.kill)
    await asyncio.sleep(chance.uniform(0, MAX_AWAY_SECONDS))
    await asyncio.to_thread(victim.start)


def _process(stack: LifecycleStack, name: str, start: Callable[[], None]) -> Victim:
    def end() -> None:
        process = stack.stack.processes[name]
        process.signal(signal.SIGKILL)
        process.child.wait(10)

    return Victim(name, end, start)
