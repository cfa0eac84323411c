import math
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.report import as_json, digits, table, times
from loadtests.section import Check, Findings, Target

amounts = st.floats(0.001, 1e6)


@given(amounts, amounts, amounts, st.booleans())
def test_with_a_peer_the_bound_is_on_the_ratio_and_without_one_on_the_figure(figure, peer, bound, at_least):
    beside = Target("P1", "beside", figure, "µs", bound, peer, at_least=at_least)
    alone = Target("P1", "alone", figure, "µs", bound, at_least=at_least)

    assert beside.judged == figure / peer
    assert alone.judged == figure
    for target in (beside, alone):
        holds = target.judged >= bound if at_least else target.judged <= bound
        assert target.verdict == ("pass" if holds else "short")


@given(amounts, amounts)
def test_the_bound_itself_still_passes(figure, peer):
    assert Target("P1", "", figure, "", figure / peer, peer).verdict == "pass"
    assert Target("P1", "", figure, "", figure / peer, peer, at_least=True).verdict == "pass"


@pytest.mark.parametrize("target", [Target("P1", "", nan, "", 1), Target("P1", "", 1, "", 1, peer=0)])
def test_a_figure_that_could_not_be_taken_is_short(target):
    assert target.verdict == "short"


@given(st.floats(-1e9, 1e9))
def test_a_figure_is_shown_to_three_digits(value):
    shown = float(digits(value).replace(",", ""))

    assert math.isclose(shown, value, rel_tol=0.006, abs_tol=0.0006)


@pytest.mark.parametrize(
    ("ratio", "shown"), [(1 / 45, "1/45"), (1 / 14, "1/14"), (0.9, "0.9"), (1.4, "1.4"), (4.0, "4"), (21.13, "21.1")]
)
def test_small_ratios_are_fractions(ratio, shown):
    assert times(ratio) == shown


def test_there_is_one_table_of_all_sections_and_the_checks_follow():
    found = {
        "P1": Findings([Target("P1", "CPU ÷ seed", 10.0, "µs", 1 / 45, 900.0)], [Check("all 200", True, "0 others")]),
        "P9": Findings([Target("P9", "a tick", 0.3, "s CPU", 0.2)], [Check("judged", False, "3 of 4")], ["by sums"]),
    }

    lines = table(found).splitlines()

    assert lines[0].split() == ["target", "figure", "bound", "peer", "ratio"]
    assert lines[1].split() == ["P1", "CPU", "÷", "seed", "10", "µs", "≤", "1/45", "x", "900", "µs", "1/90", "pass"]
    assert lines[2].split() == ["P9", "a", "tick", "0.3", "s", "CPU", "≤", "0.2", "s", "CPU", "short"]
    assert [line.split()[:2] for line in lines[4:6]] == [["P1", "ok"], ["P9", "NOT"]]
    assert lines[-1] == "P9   by sums"


def test_the_json_has_verdicts_and_the_single_rounds():
    found = {"P1": Findings([Target("P1", "a", 2.0, "µs", 1.5, 1.0)], detail={"rounds": [1, 2]})}

    document = as_json(found, {"at": "now"})

    (target,) = document["sections"]["P1"]["targets"]
    assert (document["at"], target["judged"], target["verdict"]) == ("now", 2.0, "short")
    assert document["sections"]["P1"]["detail"] == {"rounds": [1, 2]}


def test_what_is_enough_passes_whatever_its_ratio_to_a_peer_of_next_to_nothing():
    assert Target("P12", "", 0.4, "ms", 1.5, 0.01, enough=0.5).verdict == "pass"
    assert Target("P12", "", 0.6, "ms", 1.5, 0.01, enough=0.5).verdict == "short"
    assert Target("P12", "", 0.6, "ms", 1.5, 0.5, enough=0.5).verdict == "pass"
    assert Target("P12", "", 0.6, "ms", 1.5, -0.1, enough=0.5).verdict == "short"
