"""What is killed with signal 9, and started again."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

from e2e.stack import sql

from rigs.lifecycle.stack import MONITORS, SERVERS, LifecycleStack, patiently

MAX_AWAY_SECONDS: Final = 1.0
"""How long a victim is away at most, before it is started again."""
_HOLDER = "SELECT holder FROM MonitorLease ORDER BY renewed_at DESC LIMIT 1"
Kill = Callable[[LifecycleStack, Random], Awaitable[str]]


async def kill_agent(stack: LifecycleStack, chance: Random) -> str:
    """Kill the agent of one of the servers."""
    member = stack.members[chance.choice(SERVERS)]
    await _again(stack, member.agent, member.start_agent, chance)
    return member.agent


async def kill_server(stack: LifecycleStack, chance: Random) -> str:
    """Kill one of the model servers; it comes back empty."""
    member = stack.members[chance.choice(SERVERS)]
    await _again(stack, member.server, member.start_server, chance)
    return member.server


async def kill_leader(stack: LifecycleStack, chance: Random) -> str:
    """Kill the monitor that leads."""
    holder = str((await patiently(lambda: sql(stack.url, _HOLDER)))[0][0])
    name = next(name for name in MONITORS if holder.startswith(f"{name}:"))
    await _again(stack, name, lambda: stack.start_monitor(name), chance)
    return name


async def kill_postgres(stack: LifecycleStack, chance: Random) -> str:
    """Kill the postmaster, with every session."""
    await asyncio.to_thread(stack.postgres.kill)
    await asyncio.sleep(chance.uniform(0, MAX_AWAY_SECONDS))
    await asyncio.to_thread(stack.start_postgres)
    return "postgres"


KILLS: Final[Mapping[str, Kill]] = {
    "agent": kill_agent,
    "server": kill_server,
    "leader": kill_leader,
    "postgres": kill_postgres,
}


async def _again(stack: LifecycleStack, name: str, start: Callable[[], None], chance: Random) -> None:
    process = stack.stack.processes[name]
    process.signal(signal.SIGKILL)
    await asyncio.to_thread(process.child.wait, 10)
    await asyncio.sleep(chance.uniform(0, MAX_AWAY_SECONDS))
    await asyncio.to_thread(start)
