"""Operations in plain SQL, under the operators' role: statements as people type them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import orjson

from rigs.histories.answers import UNKNOWN, Answer, read_audit, rolled_back
from rigs.histories.policy import policy_of_row
from rigs.histories.record import Ended, Kind, Operation, Signature

SIGNATURE = Signature("dana@example.org", "notebook")
TIMEOUT_SECONDS = 5.0
LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""What asyncpg raises where a connection ends or an answer does not come."""
_SIGN = """
    SELECT set_config('understudy.actor', $1, TRUE), set_config('understudy.via', $2, TRUE),
           set_config('understudy.reason', $3, TRUE)
"""
_ADD = "UPDATE ServingPolicy SET shadow_percent = (shadow_percent + $1) % 101 WHERE model_name = 'visits'"
_AUDIT = "SELECT generation, reason, actor FROM PolicyAudit WHERE model_name = 'visits' ORDER BY id DESC LIMIT 20"
_STATUS = """
    UPDATE ModelVersion SET status = $2 WHERE model_name = 'visits' AND version = $1 AND (status = 'retired') <> $3
    RETURNING id
"""
_VERSIONS = ("champion", "challenger", "shadow")


class BySql:
    """One operator with a prompt, who connects again where the connection was lost.

    Args:
        database_url: The operator's.
        ids: Of the versions, by their labels.
    """

    def __init__(self, database_url: str, ids: Mapping[str, int]) -> None:
        self._url = database_url
        self._ids = ids
        self._labels = {number: label for label, number in ids.items()}
        self._connection: asyncpg.Connection | None = None

    async def carry_out(self, operation: Operation) -> Answer:
        """Run the statements of an operation and say how it ended."""
        try:
            async with asyncio.timeout(2 * TIMEOUT_SECONDS):
                connection = await self._connected()
                return await self._carry_out(connection, operation)
        except asyncpg.CheckViolationError as problem:
            return Answer(Ended.REFUSED, {"why": "refused", "detail": str(problem)})
        except LOST:
            self.close()
            return UNKNOWN

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(
                self._url, timeout=TIMEOUT_SECONDS, command_timeout=TIMEOUT_SECONDS, statement_cache_size=0
            )
        return self._connection

    async def _carry_out(self, connection: asyncpg.Connection, operation: Operation) -> Answer:
        asked = operation.asked
        match operation.kind:
            case Kind.READ_POLICY:
                return self._read(await connection.fetchrow("SELECT * FROM ServingPolicy WHERE model_name = 'visits'"))
            case Kind.READ_AUDIT:
                return read_audit([dict(row) for row in await connection.fetch(_AUDIT)])
            case Kind.SET if "hangs_up_after" in asked:
                return await self._hang_up(connection, operation)
            case Kind.ABANDON:
                with suppress(_Abandoned):
                    async with _signed(connection, operation):
                        await self._update(connection, asked)
                        raise _Abandoned
                return Answer(Ended.DONE)
        async with _signed(connection, operation):
            return await self._write(connection, operation)

    async def _write(self, connection: asyncpg.Connection, operation: Operation) -> Answer:
        asked = operation.asked
        match operation.kind:
            case Kind.SET:
                row = await self._update(connection, asked)
            case Kind.ADD:
                row = await connection.fetchrow(f"{_ADD} RETURNING generation", asked["add"])
            case Kind.ROLL_BACK:
                return rolled_back(orjson.loads(await connection.fetchval("SELECT understudy_rollback('visits')")))
            case _:
                is_retired = operation.kind is Kind.RETIRE
                status = "retired" if is_retired else "staging"
                row = await connection.fetchrow(_STATUS, asked["version"], status, is_retired)
                return Answer(Ended.DONE, {"changed": row is not None})
        if row is None:
            return Answer(Ended.REFUSED, {"why": "moved"})
        return Answer(Ended.DONE, {"generation": row["generation"]})

    async def _update(self, connection: asyncpg.Connection, asked: Mapping[str, Any]) -> asyncpg.Record | None:
        columns = self._columns(asked["changes"])
        assigned = ", ".join(f"{name} = ${number}" for number, name in enumerate(columns, start=1))
        condition = "" if asked.get("expected") is None else f" AND generation = {asked['expected']:d}"
        statement = f"UPDATE ServingPolicy SET {assigned} WHERE model_name = 'visits'{condition} RETURNING generation"
        return await connection.fetchrow(statement, *columns.values())

    def _columns(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        for name, value in changes.items():
            if name in _VERSIONS:
                columns[f"{name}_version"] = None if value is None else self._ids[value]
            elif name == "arms":
                ranges = [
                    {"version_id": self._ids[version], "first": first, "last": last} for version, first, last in value
                ]
                columns[name] = orjson.dumps(ranges).decode()
            else:
                columns[name] = value
        return columns

    async def _hang_up(self, connection: asyncpg.Connection, operation: Operation) -> Answer:
        """Send a whole transaction and end the connection a moment later, whatever has become of it."""

        async def whole() -> Answer:
            async with _signed(connection, operation):
                return await self._write(connection, operation)

        sending = asyncio.create_task(whole())
        await asyncio.wait([sending], timeout=operation.asked["hangs_up_after"])
        if sending.done():
            return sending.result()
        connection.terminate()
        await asyncio.gather(sending, return_exceptions=True)
        self._connection = None
        return UNKNOWN

    def _read(self, row: asyncpg.Record | None) -> Answer:
        assert row is not None
        values = {**row, "arms": orjson.loads(row["arms"])}
        policy = policy_of_row(values, self._labels)
        return Answer(Ended.DONE, {"generation": policy.generation, "policy": vars(policy)})


class _Abandoned(Exception):
    """The operator thought better of it."""


@asynccontextmanager
async def _signed(connection: asyncpg.Connection, operation: Operation) -> AsyncIterator[None]:
    async with connection.transaction():
        await connection.execute(_SIGN, *SIGNATURE, operation.tag)
        yield
