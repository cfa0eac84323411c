"""The lake's table, counted and summed by other companies' engines. ``python loadtests/lake_engines.py METADATA.json``.

Runs in a venv of its own with whichever engines are installed there: ``pip install daft polars chdb pyspark orjson
duckdb duckdb-extension-iceberg duckdb-extension-avro 'pyiceberg[pyarrow]'``. Each engine reads the table in a process
of its own, by the metadata alone. Spark alone gets the list of files, since the jar that knows Iceberg is in no index
of Python packages. Ends with 1 where two of them differ.
"""

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from pyiceberg.table import StaticTable

COUNTS = "count(*), count(DISTINCT prediction_id), sum(latency_us), count(DISTINCT entity_id)"
Counts = tuple[int, ...]


def arrow(metadata: str) -> Counts:
    """pyiceberg's own scan."""
    pc: Any = import_module("pyarrow.compute")
    rows, latency, ids, entities = 0, 0, set[str](), set[str]()
    fields = ("prediction_id", "latency_us", "entity_id")
    for batch in StaticTable.from_metadata(metadata).scan(selected_fields=fields).to_arrow_batch_reader():
        rows += batch.num_rows
        latency += pc.sum(batch["latency_us"]).as_py() or 0
        ids.update(batch["prediction_id"].to_pylist())
        entities.update(pc.unique(batch["entity_id"]).to_pylist())
    return rows, len(ids), latency, len(entities)


def daft(metadata: str) -> Counts:
    engine: Any = import_module("daft")
    table = engine.read_iceberg(StaticTable.from_metadata(metadata))
    return _first(engine.sql(f"SELECT {_as(COUNTS)} FROM log", log=table).to_pydict())


def polars(metadata: str) -> Counts:
    pl: Any = import_module("polars")
    table = pl.scan_iceberg(StaticTable.from_metadata(metadata))
    one = table.select(
        rows=pl.len(),
        ids=pl.col("prediction_id").n_unique(),
        latency=pl.col("latency_us").sum(),
        entities=pl.col("entity_id").n_unique(),
    ).collect(engine="streaming")
    return tuple(int(value) for value in one.row(0))


def clickhouse(metadata: str) -> Counts:
    query: Any = import_module("chdb").query
    table = Path(_path(metadata)).parent.parent
    os.chdir(table.parent)  # it reads nothing outside
    text = str(
        query(f"SELECT {COUNTS.replace('count(*)', 'count()')} FROM icebergLocal('{table.name}')", "JSONCompact")
    )
    return tuple(int(value) for value in json.loads(text)["data"][0])


def duckdb(metadata: str) -> Counts:
    engine: Any = import_module("duckdb")
    connection = engine.connect()
    for name in ("avro", "iceberg"):
        folder = Path(import_module(f"duckdb_extension_{name}").__path__[0])
        connection.execute(f"LOAD '{next(folder.rglob('*.duckdb_extension'))}'")
    found = connection.execute(f"SELECT {COUNTS} FROM iceberg_scan('{_path(metadata)}')").fetchone()
    assert found is not None
    return tuple(int(value) for value in found)


def spark(metadata: str) -> Counts:
    sessions: Any = import_module("pyspark.sql").SparkSession
    session = sessions.builder.master("local[2]").config("spark.driver.memory", "3g").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.read.parquet(*_files(metadata)).createOrReplaceTempView("log")
    return tuple(int(value) for value in session.sql(f"SELECT {COUNTS} FROM log").first())


ENGINES = {one.__name__: one for one in (arrow, daft, polars, clickhouse, duckdb, spark)}


def _files(metadata: str) -> list[str]:
    return [_path(task.file.file_path) for task in StaticTable.from_metadata(metadata).scan().plan_files()]


def _first(columns: dict[str, list[Any]]) -> Counts:
    return tuple(int(values[0]) for values in columns.values())


def _as(counts: str) -> str:
    return ", ".join(f"{one} AS c{place}" for place, one in enumerate(counts.split(", ")))


def _path(place: str) -> str:
    return place.removeprefix("file://")


def main() -> int:
    """Have each engine count, and compare."""
    metadata, *names = sys.argv[1:]
    if len(names) == 1:
        print(json.dumps(ENGINES[names[0]](metadata)))
        return 0
    found: dict[str, Counts] = {}
    for name in names or ENGINES:
        began = time.perf_counter()
        run = subprocess.run(
            [sys.executable, "-P", __file__, metadata, name], capture_output=True, text=True, check=False
        )
        lines = run.stdout.strip().splitlines()
        if run.returncode or not lines:
            print(f"{name}: {(run.stderr.strip().splitlines() or ['nothing'])[-1][:200]}")
            continue
        found[name] = tuple(json.loads(lines[-1]))
        rows, ids, latency, entities = found[name]
        seconds = time.perf_counter() - began
        print(f"{name}: {rows:,} rows, {ids:,} ids, {latency:,} µs, {entities:,} entities; {seconds:.0f} s", flush=True)
    return int(len(set(found.values())) != 1)


if __name__ == "__main__":
    sys.exit(main())
