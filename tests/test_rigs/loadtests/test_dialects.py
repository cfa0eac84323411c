"""A comparison of dialects that leaves a figure out says so."""

from loadtests.dialects import MEASURES, PARTS, not_measured
from loadtests.section import Findings
from loadtests.target import Target


def test_each_figure_is_that_of_one_part():
    assert MEASURES.keys() == PARTS.keys()
    assert [source for one in MEASURES.values() for source in one] == [f"D{number}" for number in range(1, 9)]


def test_a_figure_that_could_not_be_measured_is_named():
    measured = Findings(targets=[Target("D8", "p50 beyond native", 0.2, "ms", 0.5)])
    without_mlserver = Findings(notes=["D6 not measured: there is no MLServer"])

    assert not_measured({"latency": measured}) == []
    assert not_measured({"mlserver": without_mlserver, "latency": measured}) == ["D6"]
