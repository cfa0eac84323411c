"""``WindowLog`` over ``PredictionWindow``, which the proxies' log shippers write."""

from collections.abc import Sequence

import asyncpg

from understudy.adapters.postgres_connection import connect, translated
from understudy.core.policy import Role
from understudy.core.windows import Window, WindowKey, window_from_json

_COLUMNS = """
    shipper, epoch, model_version_id, role, rollout_id, policy_generation,
    extract(epoch FROM window_start)::bigint AS start, counts
"""
_ORDER = "ORDER BY window_start, model_version_id, role, policy_generation, shipper, epoch"
_OF_ROLLOUT = f"SELECT {_COLUMNS} FROM predictionwindow WHERE rollout_id = $1 {_ORDER}"  # noqa: S608 - constants
_OF_VERSIONS = f"""
    SELECT {_COLUMNS} FROM predictionwindow
    WHERE model_version_id = ANY ($1) AND window_start >= to_timestamp($2) AND window_start < to_timestamp($3) {_ORDER}
"""  # noqa: S608 - constants
_FORGET = """
    DELETE FROM predictionwindow WHERE ctid = ANY (ARRAY(
        SELECT w.ctid FROM predictionwindow w LEFT JOIN rollout r ON r.id = w.rollout_id
        WHERE w.window_start < to_timestamp($1) AND (r.id IS NULL OR r.finished_at IS NOT NULL) LIMIT $2))
"""


class PostgresWindowLog:
    """Reads windows over a connection for each call.

    Args:
        database_url: Of the registry.
        timeout_seconds: Longest time of one call, connecting included.
    """

    def __init__(self, database_url: str, *, timeout_seconds: float) -> None:
        self._database_url = database_url
        self._timeout_seconds = timeout_seconds

    async def of_rollout(self, rollout_id: int) -> Sequence[Window]:
        """See :class:`understudy.ports.WindowLog`."""
        return [_window(row) for row in await self._fetch(_OF_ROLLOUT, rollout_id)]

    async def of_versions(self, version_ids: Sequence[int], since: float, until: float) -> Sequence[Window]:
        """See :class:`understudy.ports.WindowLog`."""
        return [_window(row) for row in await self._fetch(_OF_VERSIONS, list(version_ids), since, until)]

    async def forget(self, before: float, at_most: int) -> int:
        """See :class:`understudy.ports.WindowLog`."""
        async with translated("old windows cannot be deleted", self._timeout_seconds):
            connection = await self._open()
            try:
                done: str = await connection.execute(_FORGET, before, at_most)
            finally:
                connection.terminate()
        return int(done.rpartition(" ")[2])

    async def _fetch(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        async with translated("windows cannot be read", self._timeout_seconds):
            connection = await self._open()
            try:
                rows: list[asyncpg.Record] = await connection.fetch(query, *arguments)
            finally:
                connection.terminate()
        return rows

    async def _open(self) -> asyncpg.Connection:
        return await connect(
            self._database_url, timeout_seconds=self._timeout_seconds, application_name="understudy-windows"
        )


def _window(row: asyncpg.Record) -> Window:
    key = WindowKey(
        row["shipper"],
        row["epoch"],
        row["model_version_id"],
        Role(row["role"]),
        row["rollout_id"],
        row["policy_generation"],
        row["start"],
    )
    return window_from_json(key, row["counts"])
