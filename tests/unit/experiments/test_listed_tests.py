"""Declared tests in a list, and the end of one before it decides."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from understudy.entrypoints.cli.ab.tests_text import cells_of, standing_words
from understudy.errors import MigrationNeeded, NotRegistered, PolicyRefused
from understudy.experiments.declared_tests import MetricChoice, Plan, Wanted
from understudy.experiments.listed_tests import end_test, list_tests
from understudy.ports.experiments.experiment_store import ExperimentRecord
from understudy.ports.registry.registry import Actor

AT = 1_795_000_800.0
KIM = Actor("kim", "console")
PLAN = Plan(Wanted(0.05), MetricChoice(86_400.0), is_share=True, difference=0.02, entities_per_arm=4_000, looks=4)
DECIDED = {"looks": [{"at": AT, "fraction": 0.5, "state": "b_better", "sentence": "B is better."}]}


def a_record(test_id: int = 1, **changes: Any) -> ExperimentRecord:
    plain = ExperimentRecord(test_id, "churn", "converted", 1, 2, AT, PLAN.to_json(), None, "dana", None)
    return plain._replace(**changes)


class Store:
    """Tests in memory."""

    def __init__(self, *records: ExperimentRecord) -> None:
        self.records = records
        self.written: list[tuple[Mapping[str, Any], bool, Actor | None]] = []
        self.is_current = True

    async def newest(self, _model_name: str | None, at_most: int) -> Sequence[ExperimentRecord]:
        return self.records[:at_most]

    async def record(
        self, _before: ExperimentRecord, result: Mapping[str, Any], *, ends: bool, by: Actor | None = None
    ) -> bool:
        self.written.append((result, ends, by))
        return self.is_current


async def test_each_test_says_how_it_stands_and_one_that_cannot_be_read_hides_no_other():
    records = (
        a_record(4, plan={"tempo": 3}),
        a_record(3),
        a_record(2, result=DECIDED, ended_at=AT),
        a_record(1, ended_at=AT, ended_by="kim"),
        a_record(0, ended_at=AT),
    )
    store: Any = Store(*records)

    words = [standing_words(one) for one in await list_tests(store, "churn", 10)]

    assert words[0].startswith("row 4 of Experiment is no test that this release can read")
    assert words[1] == "open: 0 of 4 looks taken, 4,000 entities an arm"
    assert words[2].endswith("at look 1 of 4: B is better.")
    assert words[3].endswith(" by kim, without a decision")
    assert words[4].endswith(", without a decision")
    assert " by " not in words[4]


async def test_a_list_says_how_long_a_test_counts_or_from_which_moment_on():
    store: Any = Store(a_record(3))
    [found] = await list_tests(store, "churn", 10)

    usual, in_utc = (cells_of(found, {1: "6", 2: "7"}, utc=utc) for utc in (False, True))

    assert usual[:5] == ("3", "churn", "converted", "6", "7")
    assert usual[5].endswith(" ago")
    assert in_utc[5] == "2026-11-18 11:20:00Z"


async def test_an_open_test_ends_with_the_looks_that_it_has():
    store: Any = Store(a_record(3))

    ended = await end_test(store, "churn", 3, KIM)

    assert (ended.metric, store.written) == ("converted", [({"looks": []}, True, KIM)])


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (a_record(3, ended_at=AT), PolicyRefused),
        (a_record(2), NotRegistered),
        (a_record(3, plan={}), MigrationNeeded),
    ],
)
async def test_what_is_over_not_there_or_unreadable_is_not_ended(record, error):
    store: Any = Store(record)

    with pytest.raises(error):
        await end_test(store, "churn", 3, KIM)

    assert store.written == []


async def test_a_test_that_a_look_changed_at_this_moment_is_not_said_to_be_ended():
    store: Any = Store(a_record(3))
    store.is_current = False

    with pytest.raises(PolicyRefused, match="changed at this moment"):
        await end_test(store, "churn", 3, KIM)
