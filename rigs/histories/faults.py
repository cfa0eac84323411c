"""What is broken, and mended again: processes, their ways to Postgres, Postgres itself, a model server."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping

from rigs.faults.links import Link
from rigs.faults.tcp import Behaviour, Mode
from rigs.histories.by_sql import LOST
from rigs.histories.stack import PROXIES, Member, Stack

SLOW_SECONDS = 0.15
_OF_LINKS: Mapping[str, Behaviour] = {
    "refuse": Behaviour(Mode.REFUSE),
    "blackhole": Behaviour(Mode.BLACKHOLE),
    "slow": Behaviour(latency_seconds=SLOW_SECONDS),
}
_END_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


async def break_and_mend(stack: Stack, fault: str, target: str, seconds: float) -> None:
    """Break something for so long, mend it, and return once it works again; one fault at a time for each target."""
    member = stack.members.get(target)
    if member is not None and fault not in _OF_LINKS:
        async with member.lock:
            await (_kill if fault == "kill" else _stop)(stack, member, seconds)
    elif fault in _OF_LINKS:
        link = stack.operators if member is None else member.link
        await _spoil(link, _OF_LINKS[fault], seconds)
    else:
        async with stack.server_lock:
            await _OF_SERVERS[fault](stack, seconds)


async def _kill(stack: Stack, member: Member, seconds: float) -> None:
    """Kill a process and start it again; a proxy's row goes, as its page tells operators to do."""
    assert member.process is not None
    dead, child = member.identity, member.process.child
    child.kill()
    await asyncio.to_thread(child.wait, 10)
    await asyncio.sleep(seconds)
    member.start(stack.world.folder)
    if member.name in PROXIES:
        await stack.ready(member)
        await _forget(stack, dead)


async def _forget(stack: Stack, instance: str) -> None:
    while True:
        try:
            await stack.world.sql("DELETE FROM ProxyInstance WHERE instance = $1", instance)
        except LOST:  # the server is being restarted by another client's fault
            await asyncio.sleep(0.2)
        else:
            return


async def _stop(_stack: Stack, member: Member, seconds: float) -> None:
    assert member.process is not None
    member.process.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        member.process.signal(signal.SIGCONT)


async def _spoil(link: Link, behaviour: Behaviour, seconds: float) -> None:
    link.behave(behaviour)
    try:
        await asyncio.sleep(seconds)
    finally:
        link.behave()


async def _crash(stack: Stack, seconds: float) -> None:
    """Kill Postgres' first process, as a crash would, and start it again."""
    await asyncio.to_thread(stack.machine.postgres.kill)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(stack.machine.postgres.start)


async def _end_sessions(stack: Stack, _seconds: float) -> None:
    await stack.world.sql(_END_SESSIONS)


async def _fail(stack: Stack, seconds: float) -> None:
    await asyncio.to_thread(stack.challenger.show, error_percent=100.0)
    try:
        await asyncio.sleep(seconds)
    finally:
        await asyncio.to_thread(stack.challenger.show)


_OF_SERVERS: Mapping[str, Callable[[Stack, float], Awaitable[None]]] = {
    "crash": _crash,
    "end sessions": _end_sessions,
    "fail": _fail,
}
