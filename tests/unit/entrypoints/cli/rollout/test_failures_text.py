"""What a challenger's calls failed with, in one line."""

import pytest

from understudy.entrypoints.cli.rollout.failures_text import failures_line, unknown_failures
from understudy.ports.prediction_log.prediction_history import LoggedFailures


@pytest.mark.parametrize(
    ("calls_by_code", "is_whole", "said"),
    [
        ({"E503": 1_212}, True, "failing calls of 3: E503 BackendUnavailable 1,212 → understudy explain E503"),
        (
            {"E504": 18, "E503": 2},
            False,
            (
                "failing calls of 3: E504 DeadlineExceeded 18, E503 BackendUnavailable 2, of each version's newest "
                "50,000 calls → understudy explain E504"
            ),
        ),
        (
            {"E504": 4, "E503": 3, "E502": 2, "E999": 1},
            True,
            (
                "failing calls of 3: E504 DeadlineExceeded 4, E503 BackendUnavailable 3, E502 BadAnswer 2 and 1 more "
                "code → understudy explain E504"
            ),
        ),
    ],
)
def test_at_most_three_codes_are_named_the_most_frequent_first(calls_by_code, is_whole, said):
    (line,) = failures_line("3", LoggedFailures(calls_by_code, is_whole))

    assert line.plain == said


def test_where_no_call_failed_nothing_is_said():
    assert failures_line("3", LoggedFailures({}, is_whole=True)) == []


def test_what_nobody_can_tell_is_said_to_be_unknown():
    line = unknown_failures("3", "Postgres did not find the answer within 2 s")

    assert line.plain == "failing calls of 3: not known, Postgres did not find the answer within 2 s"
