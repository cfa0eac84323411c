"""Freeze windows: what is read, when one is open, and how much time is left."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.rollout.freeze import DAYS, freeze_words, open_window, read_freeze, unfrozen_seconds

WEEKEND = read_freeze("Fri 18:00 - Mon 08:00 Europe/Berlin")
NIGHT = read_freeze("18:00 - 08:00")
HOLIDAYS = read_freeze("2026-12-23 18:00 - 2027-01-04 08:00")
HOUR = 3_600.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("window", "moment", "is_open"),
    [
        (WEEKEND, "2026-11-20T16:59:59+00:00", False),
        (WEEKEND, "2026-11-20T17:00:00+00:00", True),
        (WEEKEND, "2026-11-23T06:59:59+00:00", True),
        (WEEKEND, "2026-11-23T07:00:00+00:00", False),
        (NIGHT, "2026-11-23T17:59:59+00:00", False),
        (NIGHT, "2026-11-23T18:00:00+00:00", True),
        (NIGHT, "2026-11-24T07:59:59+00:00", True),
        (NIGHT, "2026-11-24T08:00:00+00:00", False),
        (read_freeze("12:00 - 13:00"), "2026-11-24T12:30:00+00:00", True),
        (read_freeze("12:00 - 13:00"), "2026-11-24T13:30:00+00:00", False),
        (read_freeze("Mon 08:00 - Mon 07:00"), "2026-11-23T07:30:00+00:00", False),
        (read_freeze("Mon 08:00 - Mon 07:00"), "2026-11-22T07:30:00+00:00", True),
        (HOLIDAYS, "2026-12-23T17:59:59+00:00", False),
        (HOLIDAYS, "2026-12-31T00:00:00+00:00", True),
        (HOLIDAYS, "2027-01-04T08:00:00+00:00", False),
        (HOLIDAYS, "2027-12-31T00:00:00+00:00", False),
    ],
)
def test_a_window_is_open_from_its_beginning_until_its_end(window, moment, is_open):
    assert (open_window([window], at(moment)) is not None) == is_open


def test_a_window_begins_and_ends_by_the_clocks_of_its_zone_also_where_they_change():
    # the night from 24 to 25 October 2026 has 25 hours in Berlin
    friday, monday = at("2026-10-23T18:00:00+02:00"), at("2026-10-26T08:00:00+01:00")

    assert open_window([WEEKEND], friday - 1) is None
    assert open_window([WEEKEND], friday) == (WEEKEND, monday)
    assert monday - friday == 63 * HOUR


def test_of_several_windows_the_one_that_ends_last_is_named():
    sunday = at("2026-11-22T03:00:00+00:00")

    assert freeze_words([NIGHT, WEEKEND], sunday) == (
        "frozen until Mon 2026-11-23 08:00 Europe/Berlin (Fri 18:00 - Mon 08:00 Europe/Berlin)"
    )
    assert freeze_words([NIGHT, WEEKEND], at("2026-11-23T12:00:00+00:00")) == ""


def test_a_window_is_said_with_its_zone_once():
    assert (WEEKEND.words(), NIGHT.words()) == ("Fri 18:00 - Mon 08:00 Europe/Berlin", "18:00 - 08:00 UTC")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected such as"),
        ("Fri 18:00", "expected such as"),
        ("weekends", "expected such as"),
        ("Fri 18:00 - 08:00", "both ends with a weekday"),
        ("Fri 18:00 - Fri 18:00", "an end that is not its beginning"),
        ("18:00 - 18:00 UTC", "an end that is not its beginning"),
        ("2026-12-23 18:00 - 2026-12-23 18:00", "an end after its beginning"),
        ("2026-02-30 10:00 - 2026-03-01 10:00", "day .*; expected such as"),
        ("Fry 18:00 - Mon 08:00", "there are Mon, Tue"),
        ("18:00 - 24:30", "hour .*; expected such as"),
        ("18:00 - 08:00 Mars/Base", "not a known time zone"),
        ("18:00 - 08:00 ../../etc/passwd", "expected such as"),
        ("18:00 - 08:00 Europe", "not a known time zone"),
    ],
)
def test_what_is_no_window_is_refused_with_what_is_expected(text, said):
    with pytest.raises(ValueError, match=said):
        read_freeze(text)


WINDOWS = st.lists(
    st.one_of(
        st.builds(
            "{} {:02}:00 - {} {:02}:30 {}".format,
            st.sampled_from(DAYS),
            st.integers(0, 23),
            st.sampled_from(DAYS),
            st.integers(0, 23),
            st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia"]),
        ),
        st.builds("{:02}:00 - {:02}:30".format, st.integers(0, 23), st.integers(0, 23)),
    ).map(read_freeze),
    max_size=3,
)


@pytest.mark.deep
@given(windows=WINDOWS, since=st.integers(1_700_000_000, 1_800_000_000), hours=st.integers(0, 400))
def test_the_time_outside_of_windows_is_what_asking_each_half_hour_adds_up_to(windows, since, hours):
    since = since // 1_800 * 1_800
    free = [moment for moment in range(since, since + hours * 3_600, 1_800) if open_window(windows, moment) is None]

    assert unfrozen_seconds(windows, since, since + hours * HOUR) == len(free) * 1_800


@given(windows=WINDOWS, moment=st.integers(1_700_000_000, 1_800_000_000))
def test_an_open_window_lasts_until_it_ends_and_a_week_at_most(windows, moment):
    found = open_window(windows, moment)

    if found is not None:
        window, ends = found
        assert moment < ends <= moment + timedelta(days=7, hours=2).total_seconds()
        assert open_window([window], ends - 1) is not None
        assert datetime.fromtimestamp(ends, ZoneInfo(window.zone)).time() == window.ends
