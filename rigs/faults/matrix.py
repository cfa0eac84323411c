"""All rows, in the matrix' order."""

from collections.abc import Sequence

from rigs.faults import (
    alerts,
    challenger_shadow,
    champion,
    connections,
    features,
    log,
    monitor,
    policy,
    postgres,
    process,
    redis_cache,
    security,
)
from rigs.faults.row import Row

ROWS: tuple[Row, ...] = (
    *postgres.ROWS,
    *redis_cache.ROWS,
    *champion.ROWS,
    *challenger_shadow.ROWS,
    *features.ROWS,
    *log.ROWS,
    *process.ROWS,
    *connections.ROWS,
    *policy.ROWS,
    *monitor.ROWS,
    *alerts.ROWS,
    *security.ROWS,
)


def chosen(names: Sequence[str]) -> list[Row]:
    """Return the rows that are named, by id or by family; all when nothing is."""
    wanted = {name.upper() for name in names}
    return [row for row in ROWS if not wanted or row.id in wanted or row.family in wanted]
