"""Durations and moments as people write them: any text is a time in the calendar, or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.durations import MAX_SECONDS, duration_seconds, exact_duration, moment_seconds

NOW = 1_795_000_000.0


@given(st.from_regex(r"[0-9]{1,40}(\.[0-9]{1,5})?[smhdw]", fullmatch=True) | st.text(max_size=20))
def test_a_duration_is_positive_and_at_most_ten_years_or_refused(text):
    try:
        seconds = duration_seconds(text)
    except ValueError:
        return

    assert 0 < seconds <= MAX_SECONDS


@given(st.floats(1e-6, MAX_SECONDS) | st.integers(1, int(MAX_SECONDS)))
def test_an_exact_duration_is_read_as_the_same_seconds(seconds):
    assert duration_seconds(exact_duration(seconds)) == seconds


def test_an_exact_duration_has_the_largest_whole_unit():
    durations = {604_800.0: "1w", 172_800.0: "2d", 129_600.0: "36h", 5_400.0: "90m", 61.0: "61s", 0.5: "0.5s"}

    assert [exact_duration(seconds) for seconds in durations] == list(durations.values())
    assert exact_duration(1e-6) == "0.000001s"


@given(st.dates().map(str) | st.datetimes().map(str) | st.text(max_size=30))
def test_a_moment_is_in_the_past_or_refused(text):
    try:
        moment = moment_seconds(text, NOW)
    except ValueError:
        return

    assert moment < NOW


@pytest.mark.parametrize("text", ["4000d", "9" * 300 + "s", "٣d"])
def test_what_no_calendar_holds_is_no_duration(text):
    with pytest.raises(ValueError, match="is not a duration"):
        duration_seconds(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+12:00", "0001-01-01T00:00:00+00:01"])
def test_what_no_calendar_holds_is_no_moment(text):
    with pytest.raises(ValueError, match="is not a time"):
        moment_seconds(text, NOW)
