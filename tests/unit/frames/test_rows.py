"""Rows as data frames of either kind, and without both."""

import subprocess
import sys
from datetime import UTC, datetime

import polars as pl
import pytest

from understudy.frames import Rows

AT = datetime(2026, 11, 26, 4, 34, 14, 248_065, UTC)
ROWS = Rows(
    ("id", "version", "score", "error_code", "predicted_at", "cache_hit"),
    [(1, "2", 0.5, None, AT, False), (2, "2", None, "E504", AT, True), (3, "10", 0.75, None, AT, False)],
)


def test_rows_know_their_columns():
    assert len(ROWS) == 3
    assert ROWS.to_dicts()[1]["error_code"] == "E504"


def test_a_notebook_shows_how_many_rows_there_are_and_not_the_rows():
    many = Rows(("id", "score"), [(number, 0.5) for number in range(100_000)], is_complete=False)

    assert repr(many) == "Rows(100,000 rows and there are more; columns id, score)"
    assert repr(ROWS) == "Rows(3 rows; columns id, version, score, error_code, predicted_at, cache_hit)"


def test_a_pandas_frame_has_the_columns_moments_in_utc_and_nothing_for_nothing():
    frame = ROWS.to_pandas()

    assert list(frame.columns) == list(ROWS.columns)
    assert list(frame["version"]) == ["2", "2", "10"]
    assert frame["score"].mean() == 0.625
    assert str(frame["predicted_at"].dt.tz) == "UTC"
    assert frame["error_code"].isna().tolist() == [True, False, True]


@pytest.mark.deep
def test_a_polars_frame_has_them_too_whatever_the_first_rows_hold():
    late = Rows(("score", "error_code"), [(None, None)] * 200 + [(0.5, "E504")])

    frame = ROWS.to_polars()

    assert frame.columns == list(ROWS.columns)
    assert frame["version"].to_list() == ["2", "2", "10"]
    assert frame["score"].mean() == 0.625
    assert frame["predicted_at"].to_list() == [AT] * 3
    assert late.to_polars()["score"].sum() == 0.5


@pytest.mark.parametrize("rows", [[], [("a", None, None)]])
def test_numbers_and_times_are_such_also_where_there_are_none(rows):
    some = Rows(("id", "score", "at"), rows, numbers=("score",), times=("at",))
    pandas, polars = some.to_pandas(), some.to_polars()

    assert (str(pandas["score"].dtype), str(pandas["at"].dtype)) == ("float64", "datetime64[us, UTC]")
    assert polars.schema == {"id": pl.String if rows else pl.Null, "score": pl.Float64, "at": pl.Datetime("us", "UTC")}
    assert some.to_dicts() == [{"id": "a", "score": None, "at": None} for _ in rows]


@pytest.mark.deep
def test_no_rows_are_an_empty_frame_with_its_columns():
    empty = Rows(("id", "score"), [])

    assert list(empty.to_pandas().columns) == empty.to_polars().columns == ["id", "score"]


@pytest.mark.deep
@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_without_the_package_the_error_says_what_installs_it(package):
    program = f"""
import sys
sys.modules[{package!r}] = None
from understudy.frames import Rows
try:
    Rows(("id",), [(1,)]).to_{package}()
except ModuleNotFoundError as problem:
    print(problem)
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == f"{package} is not installed: pip install {package}, or 'understudy-serving[frames]'\n"


@pytest.mark.deep
def test_reading_loads_neither_of_them_nor_what_serves_and_judges():
    program = "import sys, understudy.frames; print(*{name.partition('.')[0] for name in sys.modules})"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert set(done.stdout.split()) & {"pandas", "polars", "scipy", "grpc", "fastapi", "typer", "sqlalchemy"} == set()
