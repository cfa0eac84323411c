"""Moments of a change: when a version is in a given state at one of the servers."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import asyncpg

from rigs.lifecycle.settled import loaded_at
from rigs.lifecycle.stack import MODEL, LifecycleStack
from understudy.core.loading.served_name import served_name

POLL_SECONDS: Final = 0.005
MISSED_SECONDS: Final = 30.0
"""A state that was not seen for so long after the change began was over before it could be seen."""
_OF_STATE = "SELECT server FROM LoadedVersion WHERE model_version_id = $1 AND state = $2 ORDER BY server"
_NOT_BEGUN = """
    SELECT its.name FROM ModelServer AS its JOIN VersionLoading AS loading ON loading.group_name = its.group_name
    LEFT JOIN LoadedVersion AS loaded ON loaded.server = its.name AND loaded.model_version_id = loading.model_version_id
    WHERE loading.model_version_id = $1 AND loading.wanted_until > now() AND coalesce(loaded.state, 'END') = 'END'
    ORDER BY 1
"""
STATES: Final[Mapping[str, bool]] = {
    "START": True,
    "FETCHING": True,
    "LOADING": True,
    "VALIDATING": True,
    "AVAILABLE": True,
    "QUIESCING": False,
    "UNLOADING": False,
}
"""Each with whether the version that comes has it, or the one that goes. ``START``: wanted, and nothing has begun;
``VALIDATING``: recorded as ``LOADING``, and the server has it."""


async def until_state(stack: LifecycleStack, state: str, label: str) -> str | None:
    """Wait until the version ``label`` is in a state, and return the server; ``None``: it was not seen."""
    give_up = time.monotonic() + MISSED_SECONDS
    connection = await asyncpg.connect(stack.url)
    try:
        while time.monotonic() < give_up:
            for server in await _servers_in(stack, connection, state, label):
                return server
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await connection.close()
    return None


async def _servers_in(stack: LifecycleStack, connection: asyncpg.Connection, state: str, label: str) -> list[str]:
    if state == "START":
        return [str(row[0]) for row in await connection.fetch(_NOT_BEGUN, stack.ids[label])]
    recorded = "LOADING" if state == "VALIDATING" else state
    servers = [str(row[0]) for row in await connection.fetch(_OF_STATE, stack.ids[label], recorded)]
    if state != "VALIDATING":
        return servers
    name = served_name(MODEL, label)
    return [server for server in servers if name in (await loaded_at(stack.members[server].control_port) or ())]
