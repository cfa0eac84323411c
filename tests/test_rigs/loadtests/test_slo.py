import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.answers import Answer, write_beginning, write_rest
from loadtests.loadtest import PARTS
from loadtests.scenarios import SCENARIOS
from loadtests.slo import (
    OBJECTIVES,
    SLO_FILE,
    BadSlo,
    broken,
    how_broken,
    judge,
    main,
    parse_slos,
    read_slos,
    verdict_of,
)

STEADY = "[steady]\navailability_percent = 99.9\np99_ms = 100\n"


@given(st.sampled_from(sorted(OBJECTIVES)), st.floats(0, 100), st.floats(0, 100))
def test_an_objective_is_met_up_to_its_bound_and_not_beyond(name, figure, bound):
    (target,) = judge({"steady": {name: bound}}, "steady", {name: figure})

    holds = figure >= bound if OBJECTIVES[name].at_least else figure <= bound
    assert (target.verdict == "pass") is holds
    assert broken([target]) == ([] if holds else [target])


def test_what_is_broken_is_said_with_scenario_figure_and_by_how_much():
    slos = parse_slos(STEADY)

    targets = judge(slos, "steady", {"availability_percent": 99.2, "p99_ms": 312.4})

    assert [how_broken(target) for target in broken(targets)] == [
        "steady: availability_percent is 99.2 %, 0.7 points too low (should be at least 99.9 %)",
        "steady: p99_ms is 312 ms, 212 ms too high (should be at most 100 ms)",
    ]
    assert verdict_of(targets).startswith("✖ 2 of 2 objectives are not met\n")


def test_what_was_not_measured_is_not_met():
    (target,) = judge({"steady": {"missing_rows": 0}}, "steady", {})

    assert math.isnan(target.figure)
    assert broken([target]) == [target]
    assert how_broken(target) == "steady: missing_rows was not measured, and should be at most 0 rows"


def test_a_scenario_of_which_nothing_is_asked_is_not_judged():
    with pytest.raises(BadSlo, match=r"nothing is asked of burst: write \[burst\]"):
        judge(parse_slos(STEADY), "burst", {"p99_ms": 1.0})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[staedy]\np99_ms = 1", r"\[staedy\]: no such scenario, steady perhaps; there are steady, burst, "),
        ("[steady]\nlatency = 1", r"\[steady\] latency: no such objective; there are availability_percent, "),
        (
            "[steady]\nrefused_pecent = 1",
            r"refused_pecent: wrong unit: refused is measured in %; write refused_percent",
        ),
        ("[steady]\np99_seconds = 0.1", r"\[steady\] p99_seconds: wrong unit: p99 is measured in ms; write p99_ms = "),
        ("[steady]\np99 = 0.1", "p99: wrong unit: p99 is measured in ms; write p99_ms"),
        ("[steady]\navailability_ratio = 1", "measured in %; write availability_percent"),
        ("[steady]\np99_ms = '100 ms'", "p99_ms = '100 ms': write a number without unit; it is in ms"),
        ("[steady]\np99_ms = true", "p99_ms = True: write a number"),
        ("[steady]\np99_ms = nan", "p99_ms = nan: expected 0 or more, in ms"),
        ("[steady]\np99_ms = -1", "expected 0 or more, in ms"),
        ("[steady]\nlate_percent = 101", "late_percent = 101: expected 0 to 100, in %"),
        ("[steady]", r"\[steady\]: no objective in it, so that it would always pass"),
        ("p99_ms = 1", r"'p99_ms' stands outside a scenario: write \[steady\] above it"),
        ("", "no scenario in it"),
        ("[steady", "no TOML: "),
    ],
)
def test_a_file_that_cannot_be_used_says_what_is_wrong_and_what_would_be_right(text, said):
    with pytest.raises(BadSlo, match=said):
        parse_slos(text)


def test_all_that_is_wrong_is_said_at_once_and_where(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[steady]\np99_s = 1\n[brust]\np99_ms = 1\n")

    with pytest.raises(BadSlo) as found:
        read_slos(path)

    lines = str(found.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [str(path)] * 2
    with pytest.raises(BadSlo, match="cannot be read"):
        read_slos(tmp_path / "none.toml")


def test_the_products_own_objectives_are_for_every_scenario_and_each_of_these_is_played():
    slos = read_slos(SLO_FILE)

    assert list(slos) == list(SCENARIOS) == list(PARTS)
    for name, asked in slos.items():
        assert {"availability_percent", "p99_ms", "missing_rows", "doubled_rows", "asked_percent"} <= asked.keys(), name


def test_every_objective_is_explained_in_the_file_of_objectives():
    text = SLO_FILE.read_text(encoding="utf-8").split("[steady]")[0]

    assert [name for name in OBJECTIVES if name not in text] == []


@pytest.mark.parametrize(("took_seconds", "status"), [(0.02, 0), (0.3, 1)])
def test_a_written_load_is_judged_by_exit_status(tmp_path: Path, capsys, took_seconds, status):
    record, slo = tmp_path / "answers.jsonl", tmp_path / "slo.toml"
    slo.write_text(STEADY)
    write_beginning(record, 5.0)
    write_rest(record, 1.0, 2, [Answer(at, at, at + took_seconds, 200, f"id-{at}", "1", 1) for at in (5.0, 5.5)])

    assert main(["steady", str(record), "--slo", str(slo)]) == status

    assert ("steady: p99_ms is 300 ms, 200 ms too high" in capsys.readouterr().out) is bool(status)


def test_a_load_without_an_end_cannot_be_judged(tmp_path, capsys):
    record = tmp_path / "answers.jsonl"
    write_beginning(record, 5.0)

    assert main(["steady", str(record)]) == 2

    assert "not a load that came to its end" in capsys.readouterr().err
