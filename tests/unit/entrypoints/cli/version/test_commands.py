"""What ``version show`` says of a version's tensors, and of who retired it."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from understudy.core.routing.status_changes import KEY
from understudy.entrypoints.cli.version.record_text import status_facts
from understudy.entrypoints.cli.version.tensors_text import MAX_TENSORS, tensors_text
from understudy.ports.registry.registry import VersionRecord

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CHURN = {
    "features": [
        {"name": "age", "dtype": "float32"},
        {"name": "visits_30d", "dtype": "int64"},
        {"name": "plan", "dtype": "string"},
    ],
    "tensors": [
        {"name": "numbers", "dtype": "float32", "features": ["age", "visits_30d"]},
        {"name": "plan", "features": ["plan"], "shape": [1]},
    ],
}
OFFERS = {
    "features": [
        {"name": "age", "dtype": "float32"},
        {"name": "price", "dtype": "float32", "per": "treatment"},
    ],
    "treatments": {"layout": "nested", "counts": "treatment_counts"},
}


def a_record(**changes: Any) -> VersionRecord:
    return VersionRecord(
        **{
            "id": 7,
            "model_name": "churn",
            "version": "7",
            "status": "staging",
            "artifact_path": "s3://models/churn/7",
            "artifact_digest": None,
            "base_model": None,
            "family": None,
            "framework": "sklearn",
            "protocol": "oip",
            "endpoints": (),
            "input_schema": CHURN,
            "output_schema": {},
            "metrics": None,
            "backend": {},
            "deterministic": True,
            "cache_ttl_seconds": 300,
            "timeout_ms": 500,
            "created_at": NOON,
            "deployed_at": None,
            **changes,
        }
    )


def screen(record: VersionRecord, width: int = 100) -> str:
    shown = io.StringIO()
    console = Console(file=shown, width=width, color_system=None, highlight=False, markup=False)
    for text in tensors_text(record):
        console.print(text)
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())


def cells(record: VersionRecord) -> list[list[str]]:
    """Return the rows of the table, each cell by itself."""
    return [[cell for cell in line.split("  ") if cell] for line in screen(record).splitlines()[3:]]


def test_each_input_and_the_output_have_their_name_datatype_shape_and_content():
    output = {
        "tensor": "probabilities", "dtype": "float32", "shape": [2], "score_index": 1, "min": 0, "max": 1,
        "labels": ["no", "yes"],
    }  # fmt: skip

    said = [[cell.strip() for cell in row] for row in cells(a_record(output_schema=output))]

    assert said == [
        ["input", "numbers", "FP32", "[rows, 2]", "age, visits_30d"],
        ["input", "plan", "BYTES", "[rows, 1]", "plan"],
        ["output", "probabilities", "FP32", "[rows, 2]", "element 1 is the score; from 0 to 1; labels no, yes"],
    ]


def test_a_server_without_a_batch_dimension_gets_shapes_without_rows():
    schema = {"features": [{"name": "embedding", "dtype": "float32", "shape": [4]}], "batch": False}

    said = [[cell.strip() for cell in row] for row in cells(a_record(input_schema=schema))]

    assert said == [
        ["input", "embedding", "FP32", "[4]", "embedding"],
        ["output", "the first one", "any", "any", "the prediction"],
    ]


def test_tensors_of_treatments_have_a_dimension_of_their_own():
    said = screen(a_record(input_schema=OFFERS, output_schema={"dtype": "float32", "shape": [1]}))

    assert "[rows, treatments]" in said  # price
    assert "the number of treatments" in said
    assert "[rows, treatments, 1]" in said  # the output


def test_many_tensors_and_many_features_are_counted_and_not_all_named():
    many = {"features": [{"name": f"f{number}", "dtype": "float32"} for number in range(MAX_TENSORS + 12)]}
    one = {**many, "tensors": [{"name": "x", "features": [feature["name"] for feature in many["features"]]}]}

    assert "and 12 more inputs: --json has them all" in screen(a_record(input_schema=many))
    assert "f7 and 24 more" in screen(a_record(input_schema=one))


def test_a_schema_that_no_proxy_can_use_is_told_and_stands_in_nobodys_way():
    said = " ".join(screen(a_record(input_schema={})).split())

    assert said.startswith("! no proxy can use the version: input_schema")
    assert "docs/reference/schema.md" in said


@pytest.mark.parametrize(
    ("status", "noted", "told"),
    [
        ("retired", {"status": "retired", "reason": "replaced"}, [("retired", "by dana: replaced")]),
        ("champion", {"status": "staging"}, [("restored", "by dana")]),
        ("staging", {"status": "retired"}, []),  # SQL brought it back since
        ("retired", {"status": "staging"}, []),
        ("retired", {"status": "retired", "at": "yesterday"}, []),
    ],
)
def test_who_changed_the_status_is_told_as_long_as_nobody_else_has_changed_it_since(status, noted, told):
    change = {"at": "2020-11-20T12:00:00+00:00", "by": "dana", "reason": None, **noted}

    found = status_facts(a_record(status=status, metrics={KEY: change}))

    assert [(name, words.partition("(20 Nov 12:00 UTC) ")[2]) for name, words in found] == told
