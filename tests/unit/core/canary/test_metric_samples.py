"""Samples of a metric: minutes in which both versions have a value, and what is known at a moment."""

import pytest

from understudy.core.canary.metric_samples import MetricPoint, MetricSamples, ReadProblem, samples_of, segment_start

SINCE = 90_000.0
FIRST = 90_060


def problem(at: int, what: ReadProblem) -> MetricPoint:
    return MetricPoint(0, at, float(what), is_challenger=True, is_problem=True)


def test_a_minute_counts_that_began_within_the_step_and_has_a_value_of_both_versions():
    points = [
        MetricPoint(0, 89_940, 1.0),
        MetricPoint(0, 90_000, 2.0),
        MetricPoint(0, FIRST + 60, 4.0),
        MetricPoint(0, FIRST, 3.0),
        MetricPoint(0, FIRST + 120, 5.0),
        MetricPoint(0, 90_000, 9.0, is_challenger=True),
        MetricPoint(0, FIRST, 6.0, is_challenger=True),
        MetricPoint(0, FIRST + 120, 7.0, is_challenger=True),
        MetricPoint(1, FIRST + 60, 8.0, is_challenger=True),
        MetricPoint(0, FIRST + 180, 8.0, is_challenger=True),
    ]

    found = samples_of(points, 0, SINCE, FIRST + 120)

    assert found.times == (FIRST, FIRST + 120)
    assert (found.champion, found.challenger, found.past) == ((3.0, 5.0), (6.0, 7.0), (1.0, 2.0))


def test_the_newest_question_says_whether_the_metric_can_be_read():
    points = [problem(FIRST + 60, ReadProblem.DOWN), problem(FIRST, ReadProblem.NONE)]

    assert samples_of(points, 0, SINCE, FIRST + 90)[4:] == (ReadProblem.DOWN, FIRST + 60)
    assert samples_of(points, 0, SINCE, FIRST + 30)[4:] == (ReadProblem.NONE, FIRST)


def test_what_another_release_wrote_is_unreadable_and_no_number_is_none():
    points = [problem(FIRST, ReadProblem.NONE)._replace(value=99.0), MetricPoint(0, 90_000, float("nan"))]

    found = samples_of(points, 0, SINCE, FIRST)

    assert (found.problem, found.past) == (ReadProblem.UNREADABLE, ())


def test_what_was_known_at_a_moment_has_nothing_of_later():
    samples = MetricSamples((60, 120, 180), (1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (7.0,), ReadProblem.SLOW, 180)

    assert samples.until(120) == ((60, 120), (1.0, 2.0), (4.0, 5.0), (7.0,), ReadProblem.NONE, 120)
    assert samples.until(180) == samples


def test_what_is_stored_comes_back_and_columns_of_different_lengths_are_damage():
    samples = MetricSamples((60, 120), (1.0, 2.0), (4.0, 5.0), (7.0,), ReadProblem.SLOW, 180)

    assert MetricSamples.from_json(samples.to_json()) == samples
    with pytest.raises(ValueError, match="different lengths"):
        MetricSamples.from_json({**samples.to_json(), "times": [60]})


def test_evidence_begins_anew_after_a_day():
    assert [segment_start(1_000.0, 1_000.0 + passed) for passed in (0, 86_399, 86_400, 200_000)] == [
        1_000.0,
        1_000.0,
        87_400.0,
        173_800.0,
    ]
