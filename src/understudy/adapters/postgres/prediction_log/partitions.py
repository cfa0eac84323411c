"""Monthly partitions of PredictionLog, made ahead of the rows: ``PartitionKeeper``, and a command."""

from understudy.adapters.postgres.connections.connection import SessionPerCall, session
from understudy.ports.prediction_log.partition_keeper import PartitionsSeen

MAX_MONTHS_AHEAD = 24
"""The bound of the database's own function."""
_ENSURE = "SELECT understudy_ensure_partitions()"
_SEEN = """
    WITH RECURSIVE months (ahead) AS (
        SELECT -1
        UNION ALL
        SELECT ahead + 1 FROM months WHERE EXISTS (
            SELECT FROM pg_inherits JOIN pg_class ON oid = inhrelid
            WHERE inhparent = 'predictionlog'::regclass AND relname = 'predictionlog_' || to_char(
                date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead + 1), 'YYYY_MM')))
    SELECT max(ahead) AS ahead, (SELECT extract(epoch FROM succeeded_at)::float8 FROM archivestatus) AS archived_at,
           (SELECT count(*) FROM logarchive WHERE drop_after < 'infinity') AS awaiting_drop
    FROM months
"""


class PostgresPartitionKeeper(SessionPerCall):
    """Implements ``ports.PartitionKeeper``; may call ``understudy_ensure_partitions`` and read how archiving goes."""

    async def ensure(self) -> PartitionsSeen:
        async with self._session("the months of the log cannot be made", "understudy-partitions") as connection:
            await connection.execute(_ENSURE)
            (found,) = await connection.fetch(_SEEN)
        return PartitionsSeen(*found)


async def ensure_partitions(
    database_url: str, months_ahead: int, *, timeout_seconds: float, dry_run: bool = False
) -> int:
    """Create the missing partitions from last month to ``months_ahead`` from now, and return their number.

    Args:
        database_url: A login of the owner, or with the role of proxy, monitor or engineers.
        months_ahead: 0 to :data:`MAX_MONTHS_AHEAD`.
        timeout_seconds: For all of it; the function itself waits for locks no longer than it must.
        dry_run: Create and count them, then roll back.

    Raises:
        MigrationNeeded: The schema is missing.
        RegistryUnavailable: Postgres does not answer in time, or the login may not do it.
    """
    opened = session(database_url, "partitions could not be made", timeout_seconds, "understudy-partitions")
    async with opened as connection:
        transaction = connection.transaction()
        await transaction.start()
        made: int = await connection.fetchval("SELECT understudy_ensure_partitions($1)", months_ahead)
        await (transaction.rollback() if dry_run else transaction.commit())
        return made
