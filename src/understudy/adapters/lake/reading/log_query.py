"""SQL of a person's own over the lake's rows: copied into a file of DuckDB's, on disk, and asked there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import duckdb

from understudy.adapters.archive.duckdb_log import MEMORY, LogQuery
from understudy.adapters.lake.reading.question import micros
from understudy.adapters.lake.reading.snapshot import ALL_COLUMNS, LakeReader, LakeSnapshot, Wanted, told
from understudy.errors import LakeUnavailable
from understudy.ports.prediction_log.log_archive import QueryRefused, WantedRows

_FIRST_US, _LAST_US = 0, 4_102_444_800_000_000
_COLUMNS = ", ".join(ALL_COLUMNS)
_EMPTY = "CREATE VIEW archived AS SELECT * FROM live WHERE FALSE; CREATE VIEW predictionlog AS SELECT * FROM live"


@contextmanager
def open_lake_log(
    reader: LakeReader, folder: Path, wanted: WantedRows, seconds: float, on_rows: Callable[[int], None]
) -> Iterator[LogQuery]:
    """Open ``predictionlog`` over the lake's rows; its columns are those of the table and ``day``.

    Args:
        reader: Of the table.
        folder: For the copied rows, and for what does not fit into memory; used by this query only.
        wanted: Which rows the table has.
        seconds: Longest time of the copy.
        on_rows: Told how many rows are copied, again and again.

    Raises:
        LakeUnavailable: The table cannot be read, or not in that time.
        QueryRefused: The rows cannot be asked.
    """
    with duckdb.connect(str(folder / "rows.duckdb")) as connection:
        try:
            connection.execute("SET autoinstall_known_extensions = FALSE; SET autoload_known_extensions = FALSE")
            connection.execute(f"SET TimeZone = 'UTC'; SET memory_limit = '{MEMORY}'")
            spilled = str(folder / "spilled").replace("'", "''")
            connection.execute(f"SET temp_directory = '{spilled}'")
            _copy(connection, reader.snapshot(), wanted, monotonic() + seconds, on_rows)
            connection.execute(_EMPTY)
            # From here on a statement can read what was copied, and nothing else.
            connection.execute("SET enable_external_access = FALSE; SET lock_configuration = TRUE")
            yield LogQuery(connection)
        except duckdb.Error as problem:
            raise QueryRefused(str(problem)) from None


def _copy(
    connection: "duckdb.DuckDBPyConnection",
    snapshot: LakeSnapshot,
    wanted: WantedRows,
    until: float,
    on_rows: Callable[[int], None],
) -> None:
    batch = snapshot.empty()
    copied = 0
    connection.register("batch", batch)
    connection.execute(f"CREATE TABLE live AS SELECT {_COLUMNS}, predicted_at::DATE AS day FROM batch")  # noqa: S608
    for rows in snapshot.rows(_rows_wanted(wanted)):
        if monotonic() > until:
            raise LakeUnavailable("the lake's rows were not copied in time", hint="Narrow it with --since and --model.")
        with told("the lake's rows cannot be copied"):
            connection.register("batch", rows)
            connection.execute(f"INSERT INTO live SELECT {_COLUMNS}, predicted_at::DATE FROM batch")  # noqa: S608
        copied += rows.num_rows
        on_rows(copied)
    connection.unregister("batch")


def _rows_wanted(wanted: WantedRows) -> Wanted:
    since, until = max(micros(wanted.since), _FIRST_US), min(micros(wanted.until), _LAST_US)
    return Wanted(ALL_COLUMNS, since, until, models=wanted.models)
