from datetime import UTC, datetime, timedelta, timezone

import pytest

from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.times import (
    ago,
    ago_and_at,
    day_of,
    event_time,
    instant,
    moment_of,
    seconds_of,
    time_axis_marks,
    when_words,
)

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1_800), ("1.5h", 5_400), ("7d", 604_800), ("2w", 1_209_600), ("7 d", 604_800)],
)
def test_a_duration_is_read(text, seconds):
    assert seconds_of(text, "--within") == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "0d", "7days", "1e3d"])
def test_what_is_no_duration_is_refused_with_examples(text):
    with pytest.raises(CommandRefused) as refused:
        seconds_of(text, "--within")

    assert refused.value.exit_code is ExitCode.USAGE
    assert "--within" in refused.value.detail
    assert "7d" in refused.value.next_step


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("24h", datetime(2026, 11, 19, 12, tzinfo=UTC)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T13:00Z", datetime(2026, 11, 1, 13, tzinfo=UTC)),
        ("2026-11-01T13:00:00+02:00", datetime(2026, 11, 1, 11, tzinfo=UTC)),
    ],
)
def test_a_moment_is_so_long_ago_or_a_date(text, moment):
    assert moment_of(text, NOW, "--since") == moment.timestamp()


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "2026-11-20T12:00Z", "2027-01-01"])
def test_what_is_no_moment_of_the_past_is_refused(text):
    with pytest.raises(CommandRefused) as refused:
        moment_of(text, NOW, "--since")

    assert "--since" in refused.value.detail


def test_a_day_is_told_shortly():
    assert day_of(NOW) == "20 Nov"


@pytest.mark.parametrize(
    ("seconds", "names"),
    [
        (60, ["12:00:00", "12:00:15", "12:00:30", "12:00:45", "12:01:00"]),
        (360, ["12:00:00", "12:01:30", "12:03:00", "12:04:30", "12:06:00"]),
        (3_600, ["12:00", "12:15", "12:30", "12:45", "13:00"]),
        (2.5 * 86_400, ["20 Nov", "21 Nov", "18:00", "22 Nov", "23 Nov"]),
        (3 * 86_400, ["20 Nov", "21 Nov", "22 Nov", "18:00", "23 Nov"]),
        (4 * 86_400, ["20 Nov", "21 Nov", "22 Nov", "23 Nov", "24 Nov"]),
    ],
)
def test_the_marks_of_a_chart_have_five_names(seconds, names):
    assert [name for _, name in time_axis_marks(NOW, NOW + seconds)] == names


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s ago"),
        (119, "119 s ago"),
        (120, "2 min ago"),
        (7_199, "119 min ago"),
        (7_200, "2 h ago"),
        (172_800, "2 d ago"),
        (-3, "just now"),
    ],
)
def test_a_moment_is_told_in_the_largest_unit_that_it_fills_twice(seconds, said):
    now = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

    assert ago(now - timedelta(seconds=seconds), now) == said


def test_a_moment_that_never_was_is_told_as_never():
    assert ago(None) == "never"


def test_a_moment_is_told_in_utc_where_it_was_asked_for_and_beside_how_long_ago_it_was():
    moment, now = datetime(2026, 11, 20, 12, 0, 7, tzinfo=UTC), datetime(2026, 11, 20, 12, 1, 7, tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=2)))

    assert when_words(moment, now, utc=False) == "60 s ago"
    assert when_words(elsewhere, now, utc=True) == instant(moment.timestamp()) == "2026-11-20 12:00:07Z"
    assert when_words(None, now, utc=True) == "never"
    assert ago_and_at(moment, now) == "60 s ago (20 Nov 12:00 UTC)"
    assert (event_time(moment.timestamp(), moment.timestamp() - 64), event_time(moment.timestamp(), None)) == (
        "  1:04",
        "2026-11-20 12:00:07Z",
    )
