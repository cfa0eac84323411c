"""What a new run is read beside: the newest committed figure of each target."""

from math import isnan

import orjson

from loadtests.baseline import Baseline, Committed, committed_baseline
from loadtests.report import table
from loadtests.section import Findings, Target

ECHO = Target("P1", "CPU ÷ echo", 80.0, "µs", 0.9, 20.0)
TICK = Target("P9", "a tick", 0.1, "s CPU", 0.2)


def commit(folder, name: str, at: str, judged: dict[str, float | None]) -> None:
    targets = [
        {"source": text.partition(" ")[0], "text": text.partition(" ")[2], "judged": judged[text]} for text in judged
    ]
    document = {"at": at, "sections": {"one": {"targets": targets}}}
    (folder / name).write_bytes(orjson.dumps(document))


def test_of_two_results_with_a_target_the_newer_one_counts_whatever_its_name(tmp_path):
    commit(tmp_path, "baseline-z.json", "2026-11-20T10:00:00", {"P1 CPU ÷ echo": 7.0, "P9 a tick": 0.3})
    commit(tmp_path, "baseline-a.json", "2026-11-22T10:00:00", {"P1 CPU ÷ echo": 5.0})

    baseline = committed_baseline(tmp_path)

    assert baseline.of(ECHO) == Committed(5.0, "baseline-a.json")
    assert baseline.of(TICK) == Committed(0.3, "baseline-z.json")
    assert baseline.files([ECHO]) == ["baseline-a.json"]


def test_runs_that_were_not_committed_and_results_without_targets_are_left_out(tmp_path):
    commit(tmp_path, "2026-11-26T100000.json", "2026-11-26T10:00:00", {"P9 a tick": 0.3})
    (tmp_path / "baseline-faults.json").write_bytes(orjson.dumps({"at": "2026-11-26T11:00:00", "rows": []}))

    assert committed_baseline(tmp_path) == {}


def test_a_figure_that_was_not_taken_then_is_no_number(tmp_path):
    commit(tmp_path, "baseline-a.json", "2026-11-22T10:00:00", {"P9 a tick": None})

    before = committed_baseline(tmp_path).of(TICK)

    assert before is not None
    assert isnan(before.judged)


def test_the_table_has_the_committed_figure_beside_the_new_one_and_names_its_file():
    found = {"P1": Findings([ECHO]), "P9": Findings([TICK])}

    lines = table(found, Baseline({("P1", "CPU ÷ echo"): Committed(5.2, "baseline-a.json")})).splitlines()

    assert lines[0].split()[-1] == "before"
    assert lines[1].split()[-3:] == ["4", "short", "5.2"]
    assert lines[2].split()[-1] == "pass"
    assert lines[4] == "before: baseline-a.json"


def test_the_committed_results_have_targets():
    assert {source for source, _ in committed_baseline()} >= {
        "P1",
        "P2",
        "P3",
        "P4",
        "P5",
        "P6",
        "P7",
        "P9",
        "P10",
        "P11",
    }
