"""Monthly partitions of PredictionLog, made ahead of the rows."""

from understudy.adapters.postgres_connection import connect, translated

MOST_MONTHS_AHEAD = 24
"""As far as the database's own function goes."""


async def ensure_partitions(
    database_url: str, months_ahead: int, *, timeout_seconds: float, dry_run: bool = False
) -> int:
    """Make what is missing from last month to ``months_ahead`` from now, and return how many partitions that were.

    Args:
        database_url: A login of the owner, or with the role of proxy, monitor or engineers.
        months_ahead: 0 to :data:`MOST_MONTHS_AHEAD`.
        timeout_seconds: For all of it; the function itself waits for locks no longer than it must.
        dry_run: Make them, count them, and take them back.

    Raises:
        MigrationNeeded: The schema is not there.
        RegistryUnavailable: Postgres does not answer in time, or the login may not do it.
    """
    connection = await connect(database_url, timeout_seconds=timeout_seconds, application_name="understudy-partitions")
    try:
        async with translated("partitions could not be made", timeout_seconds):
            transaction = connection.transaction()
            await transaction.start()
            made: int = await connection.fetchval("SELECT understudy_ensure_partitions($1)", months_ahead)
            await (transaction.rollback() if dry_run else transaction.commit())
            return made
    finally:
        connection.terminate()
