import io
from dataclasses import replace

from rich.console import Console

from loadtests.slo import judge
from loadtests.summary import Played, as_json, page, show, verdict
from loadtests.target import Check

SLOS = {"steady": {"p99_ms": 100.0, "missing_rows": 0.0}, "burst": {"availability_percent": 99.95}}


def a_scenario(name: str = "steady", *, holds: bool = True, **figures: float) -> Played:
    check = Check("rows = answers", holds, "10 of 10")
    return Played(name, judge(SLOS, name, figures), [check], {"version 1": 10}, 150.0, 0.4)


GOOD = a_scenario(p99_ms=40.0, missing_rows=0)
SLOW = a_scenario(p99_ms=340.0, missing_rows=0)
FAILING = a_scenario("burst", availability_percent=99.2)


def shown(*played: Played) -> list[str]:
    out = io.StringIO()
    show(played, Console(file=out, width=80, color_system=None))
    return out.getvalue().splitlines()


def test_the_verdict_comes_first_and_what_is_wrong_last():
    lines = shown(SLOW, FAILING)

    assert lines[0] == "✖ 2 of 3 objectives and their checks do not hold: steady, burst"
    assert lines[-2:] == [
        "✖ steady: p99_ms is 340 ms, 240 ms too high (should be at most 100 ms)",
        "✖ burst: availability_percent is 99.2 %, 0.75 points too low (should be at least 99.95 %)",
    ]
    assert max(map(len, lines[:-2])) <= 80


def test_all_well_is_one_sentence_and_the_table():
    lines = shown(GOOD)

    assert lines[0] == "✔ all 2 objectives of 1 scenarios are met"
    assert lines[2].split() == ["✔", "steady", "p99_ms", "40", "ms", "≤", "100", "ms"]


def test_a_check_that_does_not_hold_is_wrong_although_all_objectives_are_met():
    odd = a_scenario(holds=False, p99_ms=40.0, missing_rows=0)

    assert not odd.holds
    assert verdict([odd]).startswith("✖ 1 of 2")
    assert odd.wrong() == ["steady: rows = answers: 10 of 10"]


def test_a_machine_that_stood_still_is_named_where_something_is_wrong_and_nowhere_else():
    lines = shown(replace(SLOW, stall_ms=620.0))

    assert lines[-1] == "! steady: the machine itself stood still for 620 ms meanwhile; run it again"
    assert not any("stood still" in line for line in shown(replace(GOOD, stall_ms=620.0)))


def test_the_page_has_the_verdict_every_objective_and_locusts_report_of_each_scenario():
    html = page([GOOD, FAILING], {"commit": "<script>"})

    assert "✖ 1 of 3 objectives" in html
    assert all(f'href="{name}.html"' in html for name in ("steady", "burst"))
    assert all(objective in html for one in SLOS.values() for objective in one)
    assert "<script>" not in html


def test_the_json_has_figures_bounds_and_verdicts():
    document = as_json([GOOD, FAILING], {"at": "now"})

    (target,) = document["scenarios"]["burst"]["targets"]
    assert (document["at"], target["figure"], target["bound"], target["verdict"]) == ("now", 99.2, 99.95, "short")
    assert document["scenarios"]["steady"]["holds"]
