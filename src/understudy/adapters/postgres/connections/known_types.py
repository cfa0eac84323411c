"""Connections that ask Postgres for its built-in types once a process, instead of once a connection."""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import asyncpg

FIRST_GENERATED_OID = 10_000
"""Types below it have the numbers that Postgres' source gives them, the same on every server. From it on numbers are
given when a server is built or a cluster is made, and mean something else elsewhere.

Source:
    PostgreSQL, ``src/include/access/transam.h``: FirstGenbkiObjectId.
"""
MAX_REMEMBERED = 256
"""Combinations of types: a statement has one of them, and the product has fewer statements than that."""


class _Remembered(NamedTuple):
    """Stands for the statement that asks: one with a name has not replaced the one that was being prepared."""

    name: str = "remembered"


class Connection(asyncpg.Connection):
    """Remembers for all later connections of the process what built-in arrays consist of.

    asyncpg knows the scalar types; for each array (``text[]``, ``bigint[]``) a new connection asks the server with a
    recursive query that takes it 6 ms, several times what most statements of the monitor and the commands take.
    """

    _remembered: ClassVar[dict[frozenset[int], list[asyncpg.Record]]] = {}

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Any, Any]:  # noqa: ASYNC109
        asked = frozenset(typeoids)
        if (known := self._remembered.get(asked)) is not None:
            return known, _Remembered()
        rows, statement = await super()._introspect_types(asked, timeout)  # type: ignore[misc]  # not in its stubs
        if all(row["oid"] < FIRST_GENERATED_OID for row in rows) and len(self._remembered) < MAX_REMEMBERED:
            self._remembered[asked] = rows
        return rows, statement
