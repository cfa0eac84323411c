"""The short ways to a problem's bytes say what the long way says."""

import orjson
import pytest

from understudy.entrypoints.proxy.messages.headers import lines_of
from understudy.entrypoints.proxy.messages.problems import (
    MAX_PATH_SHOWN,
    problem_body,
    problem_headers,
    problem_lines,
    problem_of,
)
from understudy.errors import InputInvalid, Overloaded, QuotaExceeded, UnderstudyError, Violation, leaf_errors

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
            assert problem_lines(error) == lines_of(problem_headers(error))
