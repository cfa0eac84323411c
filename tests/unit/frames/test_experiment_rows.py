"""Declared tests as rows."""

from datetime import UTC, datetime

from understudy.core.experiments.ab import AbState
from understudy.experiments.declared_rows import result_to_json
from understudy.experiments.declared_tests import DeclaredTest, Figures, InterimAnalysis, MetricChoice, Plan, Wanted
from understudy.frames.experiment_rows import EXPERIMENT_COLUMNS, experiment_rows
from understudy.ports.experiments.experiment_store import ExperimentRecord

PLAN = Plan(Wanted(0.05), MetricChoice(604_800.0), True, 0.002, 40_000, 2)
BARE = ExperimentRecord(3, "churn", "converted", 11, 12, 1_795_000_000.0, PLAN.to_json(), None, "dana", None)
LABELS = {11: "6", 12: "7"}


def rows_of(record: ExperimentRecord) -> list[dict[str, object]]:
    return [dict(zip(EXPERIMENT_COLUMNS, row, strict=True)) for row in experiment_rows(record, LABELS)]


def test_each_look_is_a_row_with_its_test():
    looks = (
        InterimAnalysis(1_795_100_000.0, 0.5, AbState.UNDECIDED, "Not yet."),
        InterimAnalysis(
            1_795_200_000.0, 1.0, AbState.B_BETTER, "B is better.", Figures(900, 880, 0.2, 0.25, 0.05, 0.01, 0.09)
        ),
    )
    done = BARE._replace(result=result_to_json(DeclaredTest(BARE, PLAN, looks)), ended_at=1_795_200_000.0)

    first, second = rows_of(done)

    assert (first["champion_version"], first["challenger_version"], first["metric"]) == ("6", "7", "converted")
    assert (first["look"], first["fraction"], first["state"]) == (1, 0.5, AbState.UNDECIDED.value)
    assert (second["look"], second["state"], second["sentence"]) == (2, AbState.B_BETTER.value, "B is better.")
    numbers = ("champion", "challenger", "change", "change_low", "change_high", "p_value", "champion_entities")
    assert [second[name] for name in numbers] == [0.2, 0.25, 0.05, 0.01, 0.09, None, 900]
    assert {first[name] for name in numbers} == {None}, "a look of the release before kept none"
    assert second["ended_at"] == second["at"] == datetime.fromtimestamp(1_795_200_000, UTC)


def test_a_test_without_a_look_has_one_row_and_so_has_one_that_cannot_be_read():
    (waiting,) = rows_of(BARE)
    (damaged,) = rows_of(BARE._replace(plan={}, champion_id=99))

    assert (waiting["look"], waiting["looks_planned"], waiting["entities_per_arm"]) == (None, 2, 40_000)
    assert (damaged["state"], damaged["champion_version"]) == ("damaged", "id 99")
    assert "row 3 of Experiment" in str(damaged["sentence"])
