"""The twelve figures: what they are made of, and that nothing passes that was not measured on this code."""

from itertools import count
from typing import Any

import orjson
import pytest

from loadtests.result import about, source_digest
from rigs.faults.figures import (
    FIGURES,
    FUZZ,
    NOT_MEASURED,
    PASS,
    PINS,
    SHORT,
    Evidence,
    Judged,
    documents_in,
    evidence_of,
    judge,
    newest,
    pins,
    table,
    to_run,
)
from rigs.faults.matrix import ROWS

CODE, OTHER = "a" * 16, "b" * 16
ROW_IDS = [row.id for row in ROWS]


def a_row(row: str, **figures: float) -> dict[str, Any]:
    return {"id": row, "verdict": PASS, "figures": figures}


def a_run(*rows: dict[str, Any], source: str = CODE, at: str = "2026-11-22T03:00:00+00:00") -> dict[str, Any]:
    stamp = {"at": at, "commit": source[:4], "load_average": [1.0, 1.0, 1.0]}
    return {**stamp, "source": source, "rows": list(rows)}


def figures_that_hold() -> dict[str, dict[str, float]]:
    """Return for each row figures with which every part of the twelve holds."""
    found: dict[str, dict[str, float]] = {row: {} for row in ROW_IDS}
    for figure in FIGURES:
        for part in figure.parts:
            for row in part.rows:
                if row in found:
                    found[row].update({part.names[0]: part.limit} if part.at_least else {})
                    found[row].setdefault(part.names[0], 0.0)
    for row in ROW_IDS:
        found[row]["requests"] = 30_000.0
    return found


def all_that_holds(source: str = CODE) -> dict[str, Evidence]:
    rows = [a_row(row, **figures) for row, figures in figures_that_hold().items()]
    fuzz = {"generated": 52_000.0, "found": 0.0, "unnamed_5xx": 0.0}
    return {
        **newest([a_run(*rows, source=source)], CODE),
        FUZZ: Evidence(FUZZ, "", fuzz, {"source": source}),
        PINS: Evidence(PINS, PASS, {"unhashed": 0.0}, {"source": source}),
    }


def verdicts(judged: list[Judged]) -> list[str]:
    return [one.verdict for one in judged]


def changed(evidence: dict[str, Evidence], row: str, **figures: float) -> dict[str, Evidence]:
    one = evidence[row]
    return {**evidence, row: one._replace(figures={**one.figures, **figures})}


def test_there_are_twelve_figures_of_rows_that_exist():
    assert [figure.number for figure in FIGURES] == list(range(1, 13))
    assert {row for figure in FIGURES for row in figure.sources} <= {*ROW_IDS, FUZZ, PINS}


def test_all_pass_when_every_part_holds():
    assert verdicts(judge(all_that_holds(), CODE)) == [PASS] * 12


def test_what_was_measured_on_other_code_is_not_measured_and_never_a_pass():
    evidence = all_that_holds(OTHER)

    assert verdicts(judge(evidence, CODE)) == [NOT_MEASURED] * 12
    assert verdicts(judge(evidence, None)) == [PASS] * 12
    assert f"{len(evidence)} results are of other code" in table(judge(evidence, CODE), evidence)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_each_source_of_a_figure_that_is_missing_leaves_it_unmeasured(figure):
    for source in figure.sources:
        evidence = {key: one for key, one in all_that_holds().items() if key != source}

        assert verdicts(judge(evidence, CODE))[figure.number - 1] == NOT_MEASURED


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_each_part_beyond_its_limit_makes_its_figure_short(figure):
    for part in figure.parts:
        beyond = part.limit - 1 if part.at_least else part.limit + 1
        evidence = all_that_holds()
        for row in part.rows:
            evidence = changed(evidence, row, **{name: 0.0 for name in part.names if name in evidence[row].figures})
        evidence = changed(evidence, part.rows[0], **{part.names[0]: beyond})

        assert verdicts(judge(evidence, CODE))[figure.number - 1] == SHORT


def test_a_row_that_broke_or_says_nothing_is_not_measured_and_one_that_is_not_here_is_left_out_and_named():
    evidence = all_that_holds()
    broken = {**evidence, "RD-01": evidence["RD-01"]._replace(verdict="broken", figures={"passed": 0.0})}
    not_here = {**evidence, "RD-01": evidence["RD-01"]._replace(verdict="not here", figures={"passed": 0.0})}
    silent = changed(evidence, "CH-10", p99_ms=float("nan"))

    assert verdicts(judge(broken, CODE))[:3] == [NOT_MEASURED, NOT_MEASURED, SHORT]
    assert verdicts(judge(not_here, CODE))[:3] == [PASS, PASS, SHORT]
    assert "without RD-01" in table(judge(not_here, CODE), {})
    assert verdicts(judge(silent, CODE))[4] == NOT_MEASURED


def test_the_newest_result_of_this_code_counts_and_of_other_code_only_when_there_is_no_other():
    times = count(1)

    def run(value: float, source: str) -> dict[str, Any]:
        return a_run(a_row("CH-10", failed=value), source=source, at=f"2026-11-22T0{next(times)}:00:00+00:00")

    found = newest([run(1, CODE), run(2, CODE), run(3, OTHER)], CODE)
    other = newest([run(4, OTHER)], CODE)

    assert found["CH-10"].figures["failed"] == 2
    assert other["CH-10"].about["source"] == OTHER


def test_a_rows_own_stamp_goes_before_that_of_its_file():
    run = a_run({**a_row("CH-10", failed=0), "source": OTHER}, a_row("CH-01", recover_s=0))

    found = newest([run], CODE)

    assert {key: one.is_of(CODE) for key, one in found.items()} == {"CH-10": False, "CH-01": True}


def test_only_what_is_missing_or_of_other_code_is_run():
    evidence = {**all_that_holds(), **newest([a_run(a_row("PR-05"), source=OTHER)], CODE)}
    del evidence["PR-01"], evidence[FUZZ]

    rows, fuzzes = to_run([FIGURES[3], FIGURES[7]], evidence, CODE)

    assert ([row.id for row in rows], fuzzes) == (["PR-01", "PR-05"], False)
    assert to_run([FIGURES[8]], evidence, CODE) == ([], True)


def test_the_fuzzers_5xx_are_those_that_no_reference_names_and_bursts_are_no_generated_cases():
    classes = [
        {"class": "predict", "sent": 40_000, "found": 1, "statuses": {"200": 39_990, "503": 8, "500": 2}},
        {"class": "at once: long bodies", "sent": 400, "found": 0, "statuses": {"503": 300, "500": 1}},
    ]
    files = {"class": "files", "sent": 2_000, "found": 0, "statuses": {"read": 1_000, "refused": 1_000}}

    (found,) = evidence_of({"rounds": [{"classes": classes}], "files": files, "source": CODE})

    assert found.figures == {"generated": 42_000, "found": 1, "unnamed_5xx": 2}


def test_results_of_anything_else_say_nothing_here(tmp_path):
    (tmp_path / "faults-1.json").write_bytes(orjson.dumps(a_run(a_row("CH-10", failed=0))))
    (tmp_path / "baseline-2026.json").write_bytes(b"{}")

    assert len(documents_in(tmp_path)) == 1
    assert evidence_of({"rows": [{"section": "P5"}]}) == []


def test_a_package_without_a_hash_is_counted_and_no_packages_are_not_measured(tmp_path):
    (tmp_path / "a.txt").write_text("# x==1\none==1 \\\n    --hash=sha256:aa\ntwo==2\n")
    assert pins(tmp_path).figures == {"unhashed": 1}

    (tmp_path / "a.txt").write_text("")
    (found,) = [one for one in judge({PINS: pins(tmp_path)}, None)[11].found if one.part.rows == (PINS,)]
    assert found.verdict == NOT_MEASURED


def test_a_result_names_the_code_that_it_was_measured_on(tmp_path):
    (tmp_path / "one.py").write_text("x = 1\n")
    before = source_digest(tmp_path)
    (tmp_path / "one.pyc").write_bytes(b"compiled")
    assert source_digest(tmp_path) == before

    (tmp_path / "one.py").write_text("x = 2\n")

    assert source_digest(tmp_path) != before
    assert about()["source"] == source_digest()
