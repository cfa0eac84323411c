"""The short ways to a problem's bytes say what the long way says."""

import orjson
import pytest

from understudy.entrypoints.proxy.messages.headers import header_lines
from understudy.entrypoints.proxy.messages.problems import (
    MAX_PATH_SHOWN,
    MAX_PLACES_BYTES,
    Places,
    problem_body,
    problem_headers,
    problem_lines,
    problem_of,
)
from understudy.errors import (
    MAX_VIOLATIONS,
    InputInvalid,
    Overloaded,
    QuotaExceeded,
    UnderstudyError,
    Violation,
    leaf_errors,
)

PATH = "/v1/models/visits/predict"


def every_problem() -> list[UnderstudyError]:
    return [
        *(error("that is how it is") for error in leaf_errors()),
        InputInvalid("1 problem", (Violation("/inputs/age", "missing"),)),
        InputInvalid("1 problem", (Violation("/inputs/income", "missing"),)),
        Overloaded("7 rows wait for visits 1"),
        Overloaded("8 rows wait for visits 1"),
        Overloaded("8 rows wait for visits 1", hint="Come again tomorrow."),
        QuotaExceeded("the tenant has used up its rate limit", retry_after_seconds=3),
        QuotaExceeded("the tenant has used up its rate limit", retry_after_seconds=4),
    ]


@pytest.mark.parametrize("path", [PATH, "/" + "x" * 999, "/\udcff"], ids=["plain", "long", "no text"])
def test_a_problem_that_was_met_before_has_the_same_bytes_as_one_that_is_worded_anew(path):
    for _ in range(2):
        for error in every_problem():
            shown = path[:MAX_PATH_SHOWN].replace("\udcff", "?")
            assert orjson.loads(problem_body(error, path)) == problem_of(error, shown)
            assert problem_lines(error) == header_lines(problem_headers(error))


def problems(count: int, detail: str = "no") -> InputInvalid:
    return InputInvalid.naming(*(Violation(f"/inputs/{n}", detail) for n in range(count)))


def test_an_answer_names_at_most_a_thousand_places_and_64_kib_of_them_and_they_are_the_first():
    for error in (problems(1_200), problems(900, "x" * 200)):
        named = problem_of(error, PATH)["errors"]

        assert len(named) <= MAX_VIOLATIONS
        assert len(orjson.dumps(named)) <= MAX_PLACES_BYTES
        assert [place["pointer"] for place in named] == [f"/inputs/{n}" for n in range(len(named))]
    assert problems(1_200).detail == "1,000 problems or more"


def test_the_problems_of_one_answer_share_what_it_may_name():
    places = Places()

    first, second, third = (problem_of(problems(600), PATH, places) for _ in range(3))

    assert [len(problem.get("errors", ())) for problem in (first, second, third)] == [600, 400, 0]
    assert third["detail"] == "600 problems; the answer names no more places"
