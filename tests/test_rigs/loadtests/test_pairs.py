import math
from math import nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.checkouts import Sides
from loadtests.compare import as_json, compare, table
from loadtests.pairs import MARGIN, Compared, Pairs, interval_of
from loadtests.section import Effort, Findings, Section
from loadtests.target import Check

costs = st.floats(0.01, 1e6)
pairs_of_costs = st.lists(st.tuples(costs, costs), min_size=1, max_size=40)


def pairs_of(*ratios: float, text: str = "CPU per request") -> Pairs:
    return Pairs("P1", text, "µs", Sides([100.0] * len(ratios), [100.0 * ratio for ratio in ratios]))


@given(pairs_of_costs, costs)
def test_a_machine_that_is_slower_for_a_whole_pair_changes_no_ratio(figures, slower):
    before, now = (list(side) for side in zip(*figures, strict=True))
    quiet = Pairs("P1", "", "µs", Sides(before, now))

    noisy = Pairs("P1", "", "µs", Sides([before[0] * slower, *before[1:]], [now[0] * slower, *now[1:]]))

    assert noisy.ratio == pytest.approx(quiet.ratio)


def test_the_ratio_is_the_median_of_the_pairs_ratios_and_not_the_ratio_of_the_medians():
    found = Pairs("P1", "", "µs", Sides([100.0, 200.0, 400.0], [110.0, 200.0, 800.0]))

    assert found.ratios == [1.1, 1.0, 2.0]
    assert found.ratio == 1.1


@given(st.lists(costs, min_size=1, max_size=60))
def test_the_interval_holds_the_median_of_what_was_seen(values):
    low, high, _ = interval_of(values)

    assert low <= sorted(values)[(len(values) - 1) // 2] <= sorted(values)[len(values) // 2] <= high


@pytest.mark.parametrize(
    ("count", "rank", "coverage"),
    [(3, 1, 0.75), (5, 1, 0.9375), (6, 1, 0.96875), (15, 4, 0.9648), (30, 10, 0.9572)],
)
def test_the_ranks_of_the_interval_are_those_of_the_sign_tests_tables(count, rank, coverage):
    found = interval_of([float(number) for number in range(1, count + 1)])

    assert (found.low, found.high) == (rank, count + 1 - rank)
    assert math.isclose(found.coverage, coverage, abs_tol=0.0001)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((1.0,) * 15, "ok"),
        ((1.0 + MARGIN,) * 15, "ok"),
        ((1.01,) * 15, "ok"),
        ((1.08,) * 15, "worse"),
        ((1.08,) * 12 + (0.5,) * 3, "worse"),
        ((1.08,) * 11 + (0.9,) * 4, "within spread"),
        ((0.9,) * 15, "better"),
        ((0.9,) * 11 + (1.2,) * 4, "ok"),
        ((1.04, 1.05, 1.2), "worse"),
        ((0.99, 1.05, 1.2), "within spread"),
    ],
)
def test_worse_is_what_is_over_the_margin_and_outside_the_spread(ratios, verdict):
    found = pairs_of(*ratios)

    assert found.verdict == verdict
    assert found.fails == (verdict == "worse")


@pytest.mark.parametrize("figures", [Sides([0.0, 1.0, 1.0], [1.0] * 3), Sides([1.0] * 3, [nan, 1.0, 1.0])])
def test_a_figure_that_could_not_be_taken_fails_the_comparison(figures):
    found = Pairs("P1", "", "µs", figures)

    assert (found.verdict, found.fails) == ("not measured", True)


def test_a_check_that_does_not_hold_fails_the_comparison():
    assert not Compared([pairs_of(1.0, 1.0, 1.0)], [Check("all 200", True, "")]).fails
    assert Compared([pairs_of(1.0, 1.0, 1.0)], [Check("all 200", False, "")]).fails


@given(pairs_of_costs, pairs_of_costs)
def test_later_pairs_are_added_behind_the_first_ones(first, later):
    one, more = (Pairs("P1", "", "µs", Sides(*map(list, zip(*some, strict=True)))) for some in (first, later))

    assert one.with_more(more).ratios == [*one.ratios, *more.ratios]


def shown(*pairs: Pairs) -> list[str]:
    left_out = Section("P9", "the monitor", lambda _scene, _effort: nothing_found(), left_out="in this process")
    return table({"P1": Compared([*pairs], [Check("all 200", True, "0 others")])}, [left_out]).splitlines()


def nothing_found() -> Findings:
    raise NotImplementedError


def test_the_table_has_both_figures_the_ratio_and_its_spread():
    lines = shown(pairs_of(1.0, 1.01, 1.02))

    assert lines[0].split() == ["target", "before", "now", "ratio", "interval"]
    assert lines[1].split() == [
        *("P1", "CPU", "per", "request", "100", "µs", "101", "µs", "1.010", "1.000", "to", "1.020", "ok")
    ]
    assert lines[3:5] == [
        "nothing is worse by more than 3%",
        "3 pairs: the interval holds the true median with 75%",
    ]
    assert lines[-1] == "P9   left out: in this process"


def test_the_table_says_what_is_worse_what_is_noise_and_where_a_change_can_go_unseen():
    worse = pairs_of(1.1, 1.1, 1.2)
    noise = pairs_of(0.8, 1.1, 1.2, text="p99")

    lines = shown(worse, noise)

    assert "worse by more than 3%: P1 CPU per request (+10.0%)" in lines
    assert "over 3%, but within the spread of the pairs, so not shown to be worse: P1 p99 (+10.0%)" in lines
    assert "wider than ± 3%, so that a change of this size can go unseen: P1 p99" in lines
    assert not any("nothing is worse" in line for line in lines)


def test_the_json_has_the_single_pairs():
    document = as_json({"P1": Compared([pairs_of(1.1, 1.1, 1.2)])}, {"at": "now"})

    (one,) = document["sections"]["P1"]["pairs"]
    assert (one["before"], one["ratio"], one["verdict"]) == ([100.0] * 3, 1.1, "worse")


class Comparing:
    """A section that finds these ratios each time it is asked."""

    def __init__(self, *ratios: float) -> None:
        self.asked = 0
        self._ratios = ratios

    def __call__(self, _scene, _effort, _checkouts) -> Compared:
        self.asked += 1
        return Compared([pairs_of(*self._ratios)])


@pytest.mark.parametrize(
    ("ratios", "quick", "asked"),
    [((1.0, 1.01, 1.02), False, 1), ((0.9, 1.0, 1.1), False, 2), ((0.9, 1.0, 1.1), True, 1)],
)
def test_a_wide_interval_is_measured_again_once_unless_it_is_a_quick_look(ratios, quick, asked):
    comparing = Comparing(*ratios)
    not_needed: Any = None

    found = compare(
        Section("P1", "", lambda _s, _e: nothing_found(), comparing), not_needed, Effort(3, 1, quick), not_needed
    )

    assert comparing.asked == asked
    assert len(found.pairs[0].ratios) == 3 * asked
