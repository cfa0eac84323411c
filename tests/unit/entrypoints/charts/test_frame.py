"""Charts: nothing unescaped, nothing outside the frame, and the same in words and in figures."""

import re
from math import inf
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.charts.distributions import Distribution, distributions, pairs_of_values
from understudy.entrypoints.charts.frame import HEIGHT, WIDTH, Chart, Mark, Point, Tone, ticks
from understudy.entrypoints.charts.over_time import (
    Line,
    course_over_time,
    interval_over_time,
    level_over_time,
    lines_over_time,
)

HOSTILE = "<script>alert('x')</script>&\"'"
values = st.floats(-1e9, 1e9)
cells = st.lists(st.integers(0, 10**9), min_size=4, max_size=4)
points = st.lists(
    st.tuples(st.floats(0, 1e10), st.tuples(values, values, values).map(sorted)), min_size=1, max_size=20
).map(lambda rows: [Point(at, value, low, high) for at, (low, value, high) in sorted(rows)])


def numbers_in(chart: Chart) -> list[float]:
    """Return every coordinate that is drawn."""
    root = ET.fromstring(chart.svg)
    drawn = [
        node.get(name, "")
        for node in root.iter()
        for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "d", "points")
    ]
    return [float(number) for text in drawn for number in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)]


@given(cells, cells)
def test_distributions_are_drawn_within_the_frame(one, other):
    chart = distributions(
        "score",
        [Distribution("A", Tone.CHAMPION, one), Distribution("B", Tone.CHALLENGER, other)],
        [0, 0.25, 0.5, 0.75, 1],
    )

    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(chart))


@given(st.lists(st.tuples(values, values), min_size=1, max_size=200))
def test_each_pair_of_values_is_a_dot_within_the_frame(pairs):
    chart = pairs_of_values(HOSTILE, pairs)

    assert chart.svg.count("<circle") == len(pairs)
    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(chart))
    assert HOSTILE not in chart.svg


@given(points)
def test_an_interval_is_drawn_within_the_frame(drawn):
    times = [(drawn[0].at, "then"), (drawn[-1].at, "now")]

    chart = interval_over_time("difference", "it grows", drawn, times, unit="points")

    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(chart))


@given(st.lists(st.tuples(st.floats(0, 1e10), st.floats(0, 1e9)), min_size=1, max_size=20), st.floats(1e-3, 1e6))
def test_a_value_and_its_limit_are_drawn_within_the_frame(drawn, limit):
    points = sorted(drawn)
    first, last = points[0][0], points[-1][0]

    chart = level_over_time(
        "distance",
        "it is near",
        points,
        [(first, "then"), (last, "now")],
        level_at=Mark(limit, HOSTILE),
        moments=[Mark(last, HOSTILE)],
    )

    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(chart))
    assert HOSTILE not in chart.svg


@given(values, values)
def test_ticks_are_round_within_the_span_and_few(one, other):
    low, high = sorted((one, other))

    found = ticks(low, high)

    assert len(found) <= 12
    assert found == sorted(found)
    slack = (high - low) * 1e-6 + max(abs(low), abs(high)) * 1e-11  # ticks are rounded to twelve digits
    assert all(low - slack <= tick <= high + slack for tick in found)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ((-3, 7), [-2, 0, 2, 4, 6]),
        ((0, 0.03), [0, 0.01, 0.02, 0.03]),
        ((5, 5), [5]),
    ],
)
def test_ticks_are_those_that_a_person_would_choose(span, expected):
    assert ticks(*span) == pytest.approx(expected)


ratios = st.one_of(st.floats(0, 1e12), st.just(inf))
courses = st.lists(
    st.tuples(st.floats(0, 1e10), st.tuples(ratios, ratios, ratios).map(sorted)), min_size=1, max_size=20
).map(lambda rows: [Point(at, value, low, high) for at, (low, value, high) in sorted(rows)])


def a_course(drawn: list[Point], marks: list[Mark], *, is_logarithmic: bool = True) -> Chart:
    times = [(drawn[0].at, "then"), (drawn[-1].at, "now")]
    return course_over_time(
        "ratio",
        "it is 1",
        drawn,
        times,
        span=(0.1, 1e5),
        levels=[Mark(1.0, "limit")],
        moments=marks,
        is_logarithmic=is_logarithmic,
    )


@given(courses, st.booleans())
def test_a_course_is_drawn_within_the_frame_whatever_its_values_are(drawn, is_logarithmic):
    chart = a_course(drawn, [Mark(drawn[-1].at, "ended")], is_logarithmic=is_logarithmic)

    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(chart))


@given(st.lists(st.tuples(st.floats(0, 1e10), st.floats(0, 1e9)), min_size=1, max_size=20), st.floats(0, 100))
def test_lines_of_several_arms_are_drawn_within_the_frame(drawn, planned):
    points = sorted(drawn)
    first, last = points[0][0], points[-1][0]
    lines = [
        Line(HOSTILE, Tone.CHAMPION, [(first, planned)], is_stepped=True),
        Line("7", Tone.CHALLENGER, points),
    ]

    chart = lines_over_time("share", HOSTILE, lines, [(first, "then"), (last, "now")], unit="%", moments=[last])

    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(chart))
    assert HOSTILE not in chart.svg


@given(courses)
def test_a_chart_is_read_aloud_as_its_sentence_and_its_figures_are_all_points(drawn):
    chart = a_course(drawn, [])

    root = ET.fromstring(chart.svg)
    title, said = (root.find(name) for name in ("title", "desc"))
    assert title is not None
    assert said is not None
    assert (title.text, said.text) == (chart.title, chart.sentence)
    assert (root.get("aria-labelledby"), root.get("aria-describedby")) == (title.get("id"), said.get("id"))
    in_lines = sum(len(trace.get("points", "").split()) for trace in root.iter("polyline"))
    dots = sum("dot" in dot.get("class", "").split() for dot in root.iter("circle"))
    assert in_lines + dots - 1 == len(chart.rows) == len(drawn), "the newest has a dot besides"
    assert {len(row) for row in chart.rows} == {len(chart.head)}


def test_figures_are_the_values_that_are_drawn():
    step = Line("planned", Tone.CHAMPION, [(0.0, 10.0)], is_stepped=True)
    line = Line("observed", Tone.CHALLENGER, [(0.0, 9.5), (60.0, 10.25)])

    lines = lines_over_time("share", "as planned", [step, line], [(0.0, "00:00"), (60.0, "00:01")], unit="%")
    course = a_course([Point(0.0, 1.5, 0.5, inf), Point(60.0, 2.0, 1.0, 3.0)], [])

    assert (lines.head, lines.rows) == (
        ("time (UTC)", "planned, %", "observed, %"),
        (("01-01 00:00:00", "10", "9.5"), ("01-01 00:01:00", "10", "10.25")),
    )
    assert (course.head, course.rows) == (
        ("time (UTC)", "value", "from", "to"),
        (("01-01 00:00:00", "1.5", "0.5", "∞"), ("01-01 00:01:00", "2", "1", "3")),
    )


def test_a_histogram_says_where_the_middle_values_are():
    arms = [Distribution("6", Tone.CHAMPION, [8, 1, 1]), Distribution("7", Tone.CHALLENGER, [1, 1, 8])]

    chart = distributions("scores", arms, [0, 0.25, 0.5, 1])

    assert chart.sentence == "Half of the values are below 0.25 for 6 and 1 for 7."
    assert chart.rows[0] == ("0", "0.25", "80", "10")
