"""Courses over time: their scale, and labels that do not meet."""

import re

import pytest

from understudy.entrypoints.charts.frame import Chart, Mark, Point, Tone
from understudy.entrypoints.charts.over_time import Line, course_over_time, level_over_time, lines_over_time


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


def test_equal_ratios_are_equally_far_apart_on_a_logarithmic_scale():
    drawn = [Point(float(at), value, value, value) for at, value in enumerate((1.0, 10.0, 100.0))]

    traces = [
        re.search(r'<polyline class="challenger trace" points="([^"]+)"', a_course(drawn, [], is_logarithmic=scale).svg)
        for scale in (True, False)
    ]

    heights = [[float(pair.split(",")[1]) for pair in trace[1].split()] for trace in traces if trace]
    assert heights[0][0] - heights[0][1] == pytest.approx(heights[0][1] - heights[0][2], abs=0.2)
    assert heights[1][0] - heights[1][1] < heights[1][1] - heights[1][2]


def test_of_two_names_that_would_meet_the_later_one_is_written_and_both_lines_are():
    drawn = [Point(0.0, 1, 1, 1), Point(1_000.0, 1, 1, 1)]

    svg = a_course(drawn, [Mark(0.0, "2 %"), Mark(10.0, "5 %"), Mark(500.0, "10 %"), Mark(1_000.0, "ended")]).svg

    assert ">2 %</text>" not in svg
    assert [name for name in ("5 %", "10 %", "ended") if f">{name}</text>" in svg] == ["5 %", "10 %", "ended"]
    assert svg.count('class="moment"') == 4


def lengths(svg: str, name: str) -> list[int]:
    """Return how many points each polyline of a class has."""
    return [len(found.split()) for found in re.findall(rf'<polyline class="challenger {name}" points="([^"]*)"', svg)]


def test_a_line_is_broken_where_there_was_nothing_and_a_point_alone_is_a_dot():
    points = [(float(at), 1.0) for at in (0, 1, 2, 6, 9, 10)]
    times = [(0.0, "then"), (10.0, "now")]
    arm = Line("challenger 7", Tone.CHALLENGER, points, breaks=[4.0, 7.0, 8.0])

    svg = lines_over_time("share", "it is 1", [arm], times, unit="%").svg
    level = level_over_time("distance", "it is 1", points, times, level_at=Mark(1.0, "limit"), breaks=[4.0]).svg

    assert (lengths(svg, "line"), svg.count('class="challenger dot"')) == ([3, 2], 1)
    assert (lengths(level, "trace"), level.count('class="challenger dot"')) == ([3, 3], 1)


def test_without_a_break_a_line_is_one():
    arm = Line("challenger 7", Tone.CHALLENGER, [(0.0, 1.0), (5.0, 2.0), (10.0, 1.0)])

    svg = lines_over_time("share", "it is 1", [arm], [(0.0, "then"), (10.0, "now")], unit="%").svg

    assert (lengths(svg, "line"), "dot" in svg) == ([3], False)
