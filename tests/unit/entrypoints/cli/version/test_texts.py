"""What ``version diff`` and ``version check`` say, at 80 and at 120 columns."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from rich.console import Console

from understudy.core.routing.arms import BucketRange
from understudy.core.schema.input_diff import InputDifferences
from understudy.core.schema.version_diff import Difference, Part
from understudy.entrypoints.cli.shared.errors import ExitCode
from understudy.entrypoints.cli.version.check import Asked, Checked, check_document, check_texts
from understudy.entrypoints.cli.version.diff import (
    MAX_SHOWN,
    compared_of,
    difference_document,
    difference_texts,
    value_words,
)
from understudy.entrypoints.documents.json_text import json_text
from understudy.ports.registry.registry import ModelRecord, PolicyRecord, VersionRecord
from understudy.registry.findings.finding import Finding, State

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
AGE = {"name": "age", "dtype": "float32", "min": 0, "max": 130}
PLAN = {"name": "plan", "dtype": "string", "enum": ["free", "pro"], "default": "free"}
BASKET = {"name": "basket", "dtype": "float32", "shape": [2]}


def a_version(version: str = "7", *features: dict[str, Any], **changes: Any) -> VersionRecord:
    record = VersionRecord(
        id=7,
        model_name="churn",
        version=version,
        status="staging",
        artifact_path="s3://models/churn",
        artifact_digest=None,
        base_model=None,
        family=None,
        framework="sklearn",
        protocol="oip",
        endpoints=("triton-a:8001",),
        input_schema={"features": list(features or (AGE, PLAN))},
        output_schema={},
        metrics=None,
        backend={},
        deterministic=True,
        cache_ttl_seconds=300,
        timeout_ms=500,
        created_at=NOON,
        deployed_at=None,
    )
    return record._replace(**changes)


def a_model(champion: str | None = "7", **changes: Any) -> ModelRecord:
    if champion is None:
        return ModelRecord("churn", None, 2)
    policy = PolicyRecord(
        model_name="churn",
        champion=champion,
        challenger=None,
        challenger_weight=0,
        shadow=None,
        shadow_percent=100,
        fallback=True,
        salt=None,
        category_roles={},
        rollout_id=None,
        previous_champion=None,
        generation=1,
        updated_at=NOON,
        updated_by="dana@",
        proxies=1,
        proxies_on_generation=1,
    )
    return ModelRecord("churn", policy._replace(**changes), 2)


def screen(texts: Sequence[Any], width: int = 80) -> str:
    shown = io.StringIO()
    console = Console(file=shown, width=width, color_system=None, highlight=False, markup=False)
    for text in texts:
        console.print(text)
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())


OLD = a_version()
NEW = a_version(
    "8",
    {**AGE, "max": 120},
    BASKET,
    output_schema={"tensor": "p", "shape": [2], "score_index": 1},
    endpoints=("triton-b:8001",),
    timeout_ms=80,
    framework="onnx",
    artifact_digest="sha256:2f6ce91dc9d6f7e4b5a0e3c8b1a4d7f0a3c6b9e2d5f8a1c4e7b0d3f6a9c2e5b8",
)

EXPECTED = """\
✖ every call that fits churn 7 fails at 8 (422)
  basket: new and required, and version 7 refuses calls that have it
  age: fewer values are permitted than of version 7
  plan: version 7 takes it and version 8 does not
what                7                             8
────────────────────────────────────────────────────────────────────────────────
input age max       130                           120
input plan          string, default "free", enum  -
                    ["free", "pro"]
input basket        -                             float32 [2], required
output tensor       -                             p
output shape        -                             [2]
output score_index  -                             1
endpoint            triton-a:8001                 -
endpoint            -                             triton-b:8001
timeout_ms          500                           80
framework           sklearn                       onnx
artifact_digest     -                             sha256:2f6ce91dc9d6f7e4b5a0e3c
                                                  8b1a4d7f0a3c6b9e2d5f8a1c4e7b0d
                                                  3f6a9c2e5b8
→ docs/how-to/connect-a-model-server.md has what to do about inputs that differ"""


def test_what_differs_looks_like_this_at_80_columns():
    assert screen(difference_texts(compared_of(OLD, NEW), 80)) == EXPECTED


@pytest.mark.parametrize("width", [80, 120])
def test_each_difference_has_a_line_with_both_sides_and_nothing_is_cut(width):
    shown = screen(difference_texts(compared_of(OLD, NEW), width), width)
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in shown.splitlines()}

    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert rows["input age max"].endswith("max 130 120")
    assert rows["input basket"].endswith("- float32 [2], required")
    assert rows["input plan"].startswith('input plan string, default "free"')
    assert rows["output score_index"].endswith("- 1")
    assert rows["timeout_ms"] == "timeout_ms 500 80"
    assert rows["framework"] == "framework sklearn onnx"
    assert {"endpoint", "output tensor", "artifact_digest"} <= rows.keys()


def test_a_tensor_that_only_one_version_names_is_told_with_the_inputs_in_it():
    packed = {
        "features": [AGE, PLAN],
        "tensors": [{"name": "x", "features": ["age"]}, {"name": "y", "features": ["plan"]}],
    }

    shown = screen(difference_texts(compared_of(OLD, a_version("8", input_schema=packed)), 80))
    rows = [" ".join(line.split()) for line in shown.splitlines()]

    assert {"tensor age float32, of age -", "tensor x - float32 [1], of age"} <= set(rows)


def test_versions_that_differ_in_nothing_say_so_and_what_to_ask_next():
    shown = screen(difference_texts(compared_of(OLD, OLD._replace(version="8")), 80))

    assert shown.splitlines() == [
        "✔ every call that fits churn 7 can be answered by 8",
        "! 7 and 8 are the same call at triton-a:8001: one model there answers both",
        "  Register 7 with --backend version=7 and 8 with --backend version=8, or as the",
        "server calls it; or give each a server of its own.",
        "Nothing differs: inputs, outputs, model servers and settings are the same.",
        "→ understudy version check churn 8 asks whether its model servers answer",
    ]


@pytest.mark.parametrize(
    ("new", "callers", "code"),
    [
        (a_version("8", AGE, PLAN, {**BASKET, "default": [0, 0]}), "all", ExitCode.DONE),
        (a_version("8", {**AGE, "max": 120}, PLAN), "some", ExitCode.PROBLEM),
        (NEW, "none", ExitCode.PROBLEM),
    ],
    ids=["all", "some", "none"],
)
def test_only_where_every_call_fits_both_does_the_command_end_well(new, callers, code):
    compared = compared_of(OLD, new)

    assert compared.exit_code is code
    assert orjson.loads(json_text(difference_document(compared)))["callers"] == callers


def test_differences_are_the_same_for_programs_with_the_values_as_they_were_registered():
    document = orjson.loads(json_text(difference_document(compared_of(OLD, NEW))))

    assert (document["schema"], document["model"], document["old"], document["new"]) == (
        "understudy/v1",
        "churn",
        "7",
        "8",
    )
    assert {"part": "input", "name": "age", "field": "max", "old": 130, "new": 120} in document["differences"]
    assert {"part": "setting", "name": "", "field": "timeout_ms", "old": 500, "new": 80} in document["differences"]
    assert len(document["input_differences"]["breaking"]) == 1
    assert len(document["input_differences"]["possible"]) == 2


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("default", None, "-"),
        ("default", "1", '"1"'),
        ("default", 1, "1"),
        ("default", True, "true"),
        ("tensor", "probabilities", "probabilities"),
        ("shape", [], "[]"),
        ("backend", {"version": "3"}, '{"version": "3"}'),
    ],
)
def test_a_value_is_shown_as_it_is_written_in_the_document(field, value, words):
    assert value_words(Difference(Part.INPUT, "age", field, value, None), value) == words


def test_a_long_value_ends_with_how_much_more_there_is():
    default = [0] * 1_000

    words = value_words(Difference(Part.INPUT, "age", "default", default, None), default)

    assert words == "[" + "0, " * 66 + "0 and 2,800 characters more"
    assert words.index(" and ") == MAX_SHOWN


# -- check -------------------------------------------------------------------------------------------------------------

GOOD = Finding("warm-up", State.GOOD, "5 example calls answered")
AWAY = Finding("server", State.WARNING, "triton-b:8001: nothing listens there (1 ms)", "Mend it.")
REFUSED = Finding("warm-up", State.PROBLEM, "it timed out", "Look at its log.")


def asked(model: ModelRecord, version: VersionRecord = NEW) -> Asked:
    return Asked(model, version, OLD if model.policy is not None else None)


def test_the_verdict_comes_first_and_the_next_command_last():
    shown = screen(check_texts(Checked(asked(a_model()), [AWAY, GOOD])))

    assert shown.splitlines() == [
        "✔ churn 8 is ready for callers. 0 problems, 1 warning.",
        "! server  triton-b:8001: nothing listens there (1 ms)",
        "          → Mend it.",
        "✔ warm-up 5 example calls answered",
        "→ understudy rollout start churn 8 --reason '…' gives it traffic step by step,",
        "and judges it",
    ]


def test_a_problem_makes_a_version_unready_and_what_to_do_about_it_is_the_last_word():
    found = Checked(asked(a_model()), [AWAY, REFUSED])

    shown = screen(check_texts(found))

    assert not found.is_ready
    assert shown.splitlines()[0] == "✖ churn 8 is not ready for callers. 1 problem, 1 warning."
    assert shown.endswith("→ Look at its log.")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (a_model(None), "understudy model set churn --champion 8"),
        (a_model(), "understudy rollout start churn 8"),
        (a_model("8"), None),
        (a_model(challenger="8"), None),
        (a_model(shadow="8"), None),
        (a_model(arms=(BucketRange("8", 90, 99),)), None),
    ],
    ids=["no champion", "no role", "champion", "challenger", "shadow", "arm"],
)
def test_only_a_version_without_a_role_is_told_how_to_get_one(model, says):
    shown = screen(check_texts(Checked(asked(model), [GOOD])))

    assert "→" not in shown if says is None else f"→ {says}" in shown


def test_what_was_found_is_the_same_for_programs():
    inputs = InputDifferences(("basket: new",))

    document = orjson.loads(json_text(check_document(Checked(asked(a_model()), [AWAY, REFUSED], inputs=inputs))))

    assert (document["model"], document["version"], document["against"]) == ("churn", "8", "7")
    assert (document["ready"], document["problems"], document["warnings"]) == (False, 1, 1)
    assert document["input_differences"] == {"breaking": ["basket: new"], "possible": []}
    assert (document["servers"], document["warm_up"]) == ([], None)
    assert [finding["state"] for finding in document["findings"]] == ["warning", "problem"]
