"""Charts and pages: nothing from outside, nothing unescaped, nothing outside the frame."""

import re
from html.parser import HTMLParser
from math import inf
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.charts import (
    HEIGHT,
    WIDTH,
    Distribution,
    Mark,
    Point,
    Tone,
    course_over_time,
    distributions,
    interval_over_time,
    level_over_time,
    page,
    pairs_of_values,
    story,
    table,
    ticks,
)

HOSTILE = "<script>alert('x')</script>&\"'"
values = st.floats(-1e9, 1e9)
cells = st.lists(st.integers(0, 10**9), min_size=4, max_size=4)
points = st.lists(
    st.tuples(st.floats(0, 1e10), st.tuples(values, values, values).map(sorted)), min_size=1, max_size=20
).map(lambda rows: [Point(at, value, low, high) for at, (low, value, high) in sorted(rows)])


def numbers_in(svg: str) -> list[float]:
    """Return every coordinate that is drawn."""
    root = ET.fromstring(svg)
    drawn = [
        node.get(name, "")
        for node in root.iter()
        for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "d", "points")
    ]
    return [float(number) for text in drawn for number in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)]


class Tags(HTMLParser):
    """Collects elements and the addresses that they name."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action")]


@given(cells, cells)
def test_distributions_are_drawn_within_the_frame(one, other):
    svg = distributions(
        "score",
        [Distribution("A", Tone.CHAMPION, one), Distribution("B", Tone.CHALLENGER, other)],
        [0, 0.25, 0.5, 0.75, 1],
    )

    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(svg))


@given(st.lists(st.tuples(values, values), min_size=1, max_size=200))
def test_each_pair_of_values_is_a_dot_within_the_frame(pairs):
    svg = pairs_of_values(HOSTILE, pairs)

    assert svg.count("<circle") == len(pairs)
    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(svg))
    assert HOSTILE not in svg


@given(points)
def test_an_interval_is_drawn_within_the_frame(drawn):
    svg = interval_over_time("difference", drawn, [(drawn[0].at, "then"), (drawn[-1].at, "now")], "points")

    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(svg))


@given(st.lists(st.tuples(st.floats(0, 1e10), st.floats(0, 1e9)), min_size=1, max_size=20), st.floats(1e-3, 1e6))
def test_a_value_and_its_limit_are_drawn_within_the_frame(drawn, limit):
    points = sorted(drawn)
    first, last = points[0][0], points[-1][0]

    svg = level_over_time(
        "distance", points, [(first, "then"), (last, "now")], level=Mark(limit, HOSTILE), moments=[Mark(last, HOSTILE)]
    )

    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(svg))
    assert HOSTILE not in svg


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


def test_a_page_holds_every_text_as_text_and_asks_for_nothing():
    arms = [Distribution(HOSTILE, Tone.CHAMPION, [1, 2]), Distribution(HOSTILE, Tone.SHADOW, [2, 1])]
    parts = [
        distributions(HOSTILE, arms, [0, 1, 2]),
        interval_over_time(HOSTILE, [Point(0, 0, -1, 1)], [(0, HOSTILE)], HOSTILE),
        table([HOSTILE], [[HOSTILE]]),
    ]

    document = page(HOSTILE, [HOSTILE], parts, HOSTILE)

    found = Tags()
    found.feed(document)
    assert "script" not in found.tags
    assert found.addresses == []
    assert HOSTILE not in document
    assert "url(" not in document
    assert "@import" not in document


def test_each_arm_has_its_colour_its_line_and_its_name():
    document = page("t", [], [distributions("s", [Distribution("A 6", Tone.CHAMPION, [1])], [0, 1])], "")

    assert "--champion:#0072B2" in document
    assert "--challenger:#D55E00" in document
    assert "prefers-color-scheme:dark" in document
    assert ".challenger.area,.challenger.line{stroke-dasharray:7 3}" in document
    assert ">A 6</text>" in document


ratios = st.one_of(st.floats(0, 1e12), st.just(inf))
courses = st.lists(
    st.tuples(st.floats(0, 1e10), st.tuples(ratios, ratios, ratios).map(sorted)), min_size=1, max_size=20
).map(lambda rows: [Point(at, value, low, high) for at, (low, value, high) in sorted(rows)])


def a_course(drawn: list[Point], marks: list[Mark], *, is_logarithmic: bool = True) -> str:
    times = [(drawn[0].at, "then"), (drawn[-1].at, "now")]
    return course_over_time(
        "ratio",
        drawn,
        times,
        span=(0.1, 1e5),
        levels=[Mark(1.0, "limit")],
        moments=marks,
        is_logarithmic=is_logarithmic,
    )


@given(courses, st.booleans())
def test_a_course_is_drawn_within_the_frame_whatever_its_values_are(drawn, is_logarithmic):
    svg = a_course(drawn, [Mark(drawn[-1].at, "ended")], is_logarithmic=is_logarithmic)

    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers_in(svg))


def test_equal_ratios_are_equally_far_apart_on_a_logarithmic_scale():
    drawn = [Point(float(at), value, value, value) for at, value in enumerate((1.0, 10.0, 100.0))]

    traces = [
        re.search(r'<polyline class="challenger trace" points="([^"]+)"', a_course(drawn, [], is_logarithmic=scale))
        for scale in (True, False)
    ]

    heights = [[float(pair.split(",")[1]) for pair in trace[1].split()] for trace in traces if trace]
    assert heights[0][0] - heights[0][1] == pytest.approx(heights[0][1] - heights[0][2], abs=0.2)
    assert heights[1][0] - heights[1][1] < heights[1][1] - heights[1][2]


def test_of_two_names_that_would_meet_the_later_one_is_written_and_both_lines_are():
    drawn = [Point(0.0, 1, 1, 1), Point(1_000.0, 1, 1, 1)]

    svg = a_course(drawn, [Mark(0.0, "2 %"), Mark(10.0, "5 %"), Mark(500.0, "10 %"), Mark(1_000.0, "ended")])

    assert ">2 %</text>" not in svg
    assert [name for name in ("5 %", "10 %", "ended") if f">{name}</text>" in svg] == ["5 %", "10 %", "ended"]
    assert svg.count('class="moment"') == 4


def test_a_story_holds_every_text_as_text():
    assert HOSTILE not in story(HOSTILE, [(HOSTILE, HOSTILE)])
    assert HOSTILE not in a_course([Point(0.0, 1, 1, 1)], [Mark(0.0, HOSTILE)])
