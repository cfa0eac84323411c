"""Data that a downgrade deletes, as declared (``LOSES``), and what the release before loses (``NARROWS``)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from alembic.script import Script
from sqlalchemy import Connection, Integer, Select, func, literal_column, select, table, text

from understudy.adapters.migrations.script_directory import script_directory

MAX_COUNTED = 1_000
"""Most rows that are counted: one decides, and the log may have billions."""


class Loss(NamedTuple):
    """Data that the schema below a revision cannot hold; an operator must confirm that it is deleted."""

    table: str
    what: str
    """In the plural, as in "12 rows of PredictionWindow"."""
    where: str = "true"
    """Which rows of the table hold it."""


def declared_losses(scripts: Iterable[Script]) -> Sequence[Loss]:
    """Return the data that the downgrades of these revisions delete, as declared (``LOSES``)."""
    return [loss for script in scripts for loss in getattr(script.module, "LOSES", ())]


def declared_narrowings(revision: str) -> Sequence[str]:
    """Return what a revision takes from the release before, as declared (``NARROWS``); empty when it only adds."""
    declared: Sequence[str] = getattr(script_directory().get_revision(revision).module, "NARROWS", ())
    return declared


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
