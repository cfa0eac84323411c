"""Who changes something, named to the database's triggers."""

import asyncpg

from understudy.ports.registry.registry import Actor

_SIGN = """
    SELECT set_config('understudy.actor', $1, TRUE), set_config('understudy.via', $2, TRUE),
           set_config('understudy.reason', $3, TRUE)
"""


async def sign(connection: asyncpg.Connection, actor: Actor) -> None:
    """Name the actor of this transaction to the audit's triggers."""
    await connection.execute(_SIGN, actor.name, actor.via, actor.reason or "")
