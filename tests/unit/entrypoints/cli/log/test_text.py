"""Rows of the log at 80 columns: a table where it fits, records where it does not, and calls one line each."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console, RenderableType

from understudy.entrypoints.cli.log.text import CallLines, result_view
from understudy.ports.prediction_log.live_log import CallLine

DIGEST = "6723c577cc8c7ef86c2a1c8a48be97b04b3de524b014dae8114a3423ceaddf21"
MORNING = datetime(2026, 11, 26, 4, 34, 14, 248_065, UTC)


def printed(texts: Sequence[RenderableType], width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as shown:
        for text in texts:
            console.print(text)
    return [line.rstrip() for line in shown.get().splitlines()]


def a_call(**fields: object) -> CallLine:
    of_all = {"id": 1, "prediction_id": "p", "predicted_at": MORNING.timestamp(), "model_name": "visits"}
    rest = {
        "version": "2",
        "role": "champion",
        "status": "ok",
        "error_code": None,
        "score": 0.84312,
        "latency_us": 2_310,
    }
    return CallLine(**{**of_all, **rest, "is_cache_hit": False, "entity_id": "customer-42", **fields})  # type: ignore[arg-type]  # by name


def test_a_result_that_fits_is_a_table_with_its_numbers_to_the_right():
    lines = printed(result_view(["model", "calls"], [("visits", 19_652), ("churn", 7)], 80))

    assert lines == ["model   calls", "─" * 13, "visits  19652", "churn       7"]


def test_a_result_that_is_too_wide_is_one_record_after_the_other_and_no_column_is_squeezed():
    columns = ["id", *(f"column_{number}" for number in range(20)), "input_hash", "predicted_at", "cache_hit"]
    row = [1, *range(20), DIGEST, MORNING, False]

    lines = printed(result_view(columns, [row, row], 80))

    assert lines[0] == "row 1"
    assert lines[1] == "  id            1"
    assert [line for line in lines if line.startswith("row ")] == ["row 1", "row 2"]
    assert "  predicted_at  2026-11-26 04:34:14.248065Z" in lines
    assert "  cache_hit     false" in lines


def test_a_wide_terminal_has_the_table():
    columns = ["id", "input_hash", "predicted_at"]

    assert printed(result_view(columns, [[1, DIGEST, MORNING]], 120), 120)[0].split() == columns
    assert printed(result_view(columns, [[1, DIGEST, MORNING]], 80))[0] == "row 1"


def test_calls_of_several_models_have_a_line_each_within_80_columns():
    failed = a_call(role="challenger", status="fallback", error_code="E504", score=None, latency_us=519_742)
    lines = printed(CallLines(None).texts([a_call(), failed]))

    assert lines == [
        "2026-11-26, times in UTC",
        "time         model    role       answer         score  latency entity",
        "04:34:14.248 visits 2 champion   ok            0.8431   2.3 ms customer-42",
        "04:34:14.248 visits 2 challenger E504 fallback      - 519.7 ms customer-42",
    ]


def test_the_model_is_not_repeated_the_day_is_said_when_it_begins_and_the_cache_is_named():
    lines = CallLines("visits")

    first = printed(lines.texts([a_call(is_cache_hit=True)]))
    next_day = printed(lines.texts([a_call(predicted_at=MORNING.timestamp() + 86_400)]))
    after = printed(lines.texts([a_call(predicted_at=MORNING.timestamp() + 86_401)]))

    assert first[1] == "time         version role       answer         score  latency entity"
    assert "ok, cached" in first[2]
    assert next_day[0] == "2026-11-27, times in UTC"
    assert len(after) == 1
