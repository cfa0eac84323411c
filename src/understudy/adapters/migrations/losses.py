"""What a migration's way down takes with it. Each revision declares it as ``LOSES``; nothing of it goes unasked."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, Integer, Select, func, literal_column, select, table, text

MAX_COUNTED = 1_000
"""Rows that are counted: that there are any decides, and the log may have billions."""


class Loss(NamedTuple):
    """Something that the schema below a revision has no place for."""

    table: str
    what: str
    """In the plural, as in "12 rows of PredictionWindow"."""
    where: str = "true"
    """Which rows of the table hold it."""


def lock_out_writers(connection: Connection, declared: Iterable[Loss]) -> None:
    """Let nobody write what is looked for until the transaction ends: a row that commits later would go uncounted."""
    for name in dict.fromkeys(loss.table.lower() for loss in declared):
        if not name.startswith("pg_"):
            connection.execute(text(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"))


def find_losses(connection: Connection, declared: Iterable[Loss]) -> Sequence[str]:
    """Return what is there of it, in words, with how much: of one kind at most :data:`MAX_COUNTED` are counted."""
    found = []
    for loss in declared:
        rows: Select[int] = select(literal_column("1", Integer)).limit(MAX_COUNTED)
        rows = rows.select_from(table(loss.table.lower())).where(text(loss.where))
        count = connection.execute(select(func.count()).select_from(rows.subquery())).scalar_one()
        if count:
            found.append(f"{count:,}{' or more' if count == MAX_COUNTED else ''} {loss.what}")
    return found
