"""Data that a migration's downgrade deletes: each revision declares it as ``LOSES``, an operator must confirm it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, Integer, Select, func, literal_column, select, table, text

MAX_COUNTED = 1_000
"""Most rows that are counted: one decides, and the log may have billions."""


class Loss(NamedTuple):
    """Data that the schema below a revision cannot hold."""

    table: str
    what: str
    """In the plural, as in "12 rows of PredictionWindow"."""
    where: str = "true"
    """Which rows of the table hold it."""


def lock_out_writers(connection: Connection, declared: Iterable[Loss]) -> None:
    """Lock the tables against writes until the transaction ends: a row that commits later would not be counted."""
    for name in dict.fromkeys(loss.table.lower() for loss in declared):
        if not name.startswith("pg_"):
            connection.execute(text(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"))


def find_losses(connection: Connection, declared: Iterable[Loss]) -> Sequence[str]:
    """Return the existing data in words, with its amount: at most :data:`MAX_COUNTED` rows of a kind are counted."""
    found = []
    for loss in declared:
        rows: Select[int] = select(literal_column("1", Integer)).limit(MAX_COUNTED)
        rows = rows.select_from(table(loss.table.lower())).where(text(loss.where))
        count = connection.execute(select(func.count()).select_from(rows.subquery())).scalar_one()
        if count:
            found.append(f"{count:,}{' or more' if count == MAX_COUNTED else ''} {loss.what}")
    return found
