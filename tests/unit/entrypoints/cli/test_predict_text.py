"""What ``understudy predict`` says of an answer."""

import io
from typing import Any

import pytest
from rich.console import Console

from understudy.entrypoints.cli.predict_text import Told, answer_texts, stages_of, told_document

TIMING = "route;dur=0.08, features;dur=0.00, cache;desc=miss, upstream;dur=9.35"
ANSWER = {
    "prediction": {"score": 0.5427308},
    "model": "visits",
    "version": "1",
    "role": "champion",
    "prediction_id": "01a1fa3d-d729-7257-ba41-af1b3c130b99",
    "generation": 3,
}
ASSIGNMENT = {
    "hashed": "md5(visits:customer-42) mod 100",
    "bucket": 87,
    "version": "1",
    "role": "champion",
    "reason": "bucket",
    "challenger_weight": 10,
    "joins_challenger_from_weight": 88,
}


def told(*, answer: dict[str, Any] | None = None, headers: dict[str, str] | None = None, **rest: Any) -> Told:
    headers = {"server-timing": TIMING, "x-request-id": "r-1"} if headers is None else headers
    return Told(
        "visits", "customer-42", {"age": 41}, {**ANSWER, **(answer or {})}, headers, 0.0123,
        rest.pop("trace_id", None), rest.pop("assignment", None), **rest,
    )  # fmt: skip


def said(call: Told) -> str:
    console = Console(file=io.StringIO(), width=80)
    for text in answer_texts(call):
        console.print(text)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_stages_are_read_and_what_has_no_duration_is_left_out():
    assert stages_of(TIMING) == {"route": 0.08, "features": 0.0, "upstream": 9.35}
    assert stages_of("") == {}
    assert stages_of("a;dur=x, b;dur=1;desc=y") == {"b": 1.0}


def test_the_answer_comes_first_with_who_gave_it_and_how_long_each_stage_took():
    lines = said(told()).splitlines()

    assert lines[0] == "score 0.5427308   visits 1, champion"
    assert any(" ".join(line.split()) == "server route 0.08, features 0.00, upstream 9.35 ms" for line in lines)
    assert lines[-1].startswith("→ understudy explain visits customer-42")


@pytest.mark.parametrize(
    ("prediction", "words"),
    [
        ({"label": "pro", "scores": [0.2, 0.8]}, "label pro  scores [0.2,0.8]"),
        ({"labels": ["a", "b"]}, 'labels ["a","b"]'),
    ],
)
def test_each_kind_of_prediction_is_said(prediction, words):
    assert said(told(answer={"prediction": prediction})).startswith(words)


def test_a_fallback_and_defaults_are_said():
    answer = {"fallback": {"from_version": "3", "code": "E502"}, "defaulted": ["visits_30d"]}

    text = " ".join(said(told(answer=answer)).split())

    assert "fallback version 3 failed (E502); the champion answered" in text
    assert "defaulted visits_30d" in text


def test_a_trace_says_why_and_by_which_ids_the_call_is_found():
    text = " ".join(said(told(trace_id="a" * 32, assignment=ASSIGNMENT)).split())

    assert "bucket 87 = md5(visits:customer-42) mod 100, weight 10" in text
    assert "why bucket: champion 1" in text
    assert "joins the challenger from weight 88 on" in text
    assert f"trace {'a' * 32}" in text
    assert "request r-1" in text


def test_a_forced_call_does_not_claim_to_follow_its_bucket():
    text = said(told(trace_id="a" * 32, assignment=ASSIGNMENT, is_forced=True))

    assert text.startswith("score 0.5427308   visits 1, forced\n")
    assert "forced: --force-version named it" in text


def test_a_proxy_that_hides_its_headers_is_not_guessed_at():
    text = " ".join(said(told(headers={})).split())

    assert "server did not say how long it took" in text
    assert told_document(told(headers={}))["server_timing_ms"] == {}
