"""SQL over Parquet files of the log, by DuckDB in this process. Needs the extra ``archive``."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from understudy.adapters.archive.parquet_log import write_empty
from understudy.ports.prediction_log.log_archive import LogFiles, QueryRefused, WantedRows

MEMORY = "1GB"
"""DuckDB's memory bound; the rest spills to its temporary folder."""
BATCH_ROWS = 2_000


class Rows(NamedTuple):
    """How many rows the statement can read, by where they are."""

    live: int
    archived: int


class QueryResult(NamedTuple):
    """A result: its columns, and rows that are read lazily."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


class LogQuery:
    """Queries of one read-only view, ``predictionlog``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def count(self) -> Rows:
        """Return how many rows there are."""
        found = self._connection.sql("SELECT (SELECT count(*) FROM live), (SELECT count(*) FROM archived)")
        return Rows(*found.fetchall()[0])

    def ask(self, statement: str) -> QueryResult:
        """Run one SELECT.

        Raises:
            QueryRefused: It is something else, several, or wrong.
        """
        try:
            statements = self._connection.extract_statements(statement)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise QueryRefused("only one SELECT over predictionlog can run, and no statement that writes or sets")
            reader = self._connection.sql(statements[0]).to_arrow_reader(BATCH_ROWS)
        except duckdb.Error as problem:
            raise QueryRefused(str(problem)) from None
        return QueryResult(tuple(reader.schema.names), _rows_of(reader))


@contextmanager
def open_log(files: LogFiles, folder: Path, wanted: WantedRows) -> Iterator[LogQuery]:
    """Open the view over files.

    Args:
        files: Where rows are; no folder of a path but ``model=…`` and ``day=…`` may have ``=`` in its name.
        folder: For what does not fit into memory; used by this query only.
        wanted: Which rows the view has.

    Raises:
        QueryRefused: The files cannot be read.
    """
    condition = _condition_of(wanted)
    empty = folder / "model=none" / "day=1970-01-01" / "empty.parquet"
    empty.parent.mkdir(parents=True)
    write_empty(empty)
    with duckdb.connect(":memory:") as connection:
        try:
            # Extensions that are not built in would be downloaded.
            connection.execute("SET autoinstall_known_extensions = FALSE; SET autoload_known_extensions = FALSE")
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"SET memory_limit = '{MEMORY}'; SET threads = {os.cpu_count() or 1}")
            connection.execute(f"SET temp_directory = {_quoted(str(folder / 'spilled'))}")
            for view, paths in (("live", files.live), ("archived", files.archived)):
                rows = _rows_in([*paths, empty], files.names)
                connection.execute(f"CREATE VIEW {view} AS SELECT * FROM {rows} WHERE {condition}")  # noqa: S608
            connection.execute("CREATE VIEW predictionlog AS SELECT * FROM live UNION ALL SELECT * FROM archived")
            # From here on a statement can read these files only.
            places = {folder.resolve(), *(path.resolve() for path in folder.glob("archived-*"))}
            allowed = ", ".join(_quoted(f"{place}/") for place in sorted(places))
            connection.execute(f"SET allowed_directories = [{allowed}]")
            connection.execute("SET enable_external_access = FALSE; SET lock_configuration = TRUE")
            yield LogQuery(connection)
        except duckdb.Error as problem:
            raise QueryRefused(str(problem)) from None


def _rows_of(reader: Any) -> Iterator[tuple[Any, ...]]:
    try:
        for batch in reader:
            # By position: two columns of a result may have the same name.
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except (duckdb.Error, OSError) as problem:
        raise QueryRefused(str(problem)) from None


def _rows_in(paths: Sequence[Path], names: Mapping[str, str]) -> str:
    """Return the rows of files as SQL; ``names`` has the model of a folder that does not say it."""
    by_model: dict[str | None, list[Path]] = {}
    for path in paths:
        by_model.setdefault(names.get(path.parent.parent.name), []).append(path)
    selects = []
    for model_name, its_paths in by_model.items():
        listed = ", ".join(_quoted(str(path)) for path in its_paths)
        named = "" if model_name is None else f" REPLACE ({_quoted(model_name)} AS model)"
        selects.append(
            f"SELECT *{named} FROM read_parquet([{listed}], hive_partitioning = TRUE, "  # noqa: S608
            "hive_types = {'model': VARCHAR, 'day': DATE})"
        )
    return f"({' UNION ALL '.join(selects)})"


def _condition_of(wanted: WantedRows) -> str:
    time = f"predicted_at >= to_timestamp({wanted.since!r}) AND predicted_at < to_timestamp({wanted.until!r})"
    if wanted.models is None:
        return time
    return f"{time} AND model IN ({', '.join(map(_quoted, wanted.models))})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
