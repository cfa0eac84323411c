"""Which versions share a split, and how many of their tests have found a difference."""

from collections.abc import Sequence
from typing import Any

import pytest

from understudy.core.experiments.ab import AbState
from understudy.experiments.ab_arms import Split, rejected_beside, split_of
from understudy.experiments.ab_plan import versions_beside
from understudy.experiments.attribution import periods
from understudy.experiments.declared_rows import declared_test
from understudy.experiments.declared_tests import MetricChoice, Plan, Wanted
from understudy.experiments.declaring import Found
from understudy.ports.experiments.experiment_log import Allocation
from understudy.ports.experiments.experiment_store import ExperimentRecord, NewExperiment
from understudy.ports.registry.registry import Actor

A, B, C, D = 1, 2, 8, 9


def an_allocation(generation: int, weight: int = 30, salt: str = "churn", **arms: int) -> Allocation:
    others = {int(name.removeprefix("v")): percent for name, percent in arms.items()}
    return Allocation(generation, 10.0 * generation, A, B, weight, None, 100, salt, others)


def split(*allocations: Allocation) -> Split | None:
    return split_of(Found(A, B, allocations, None), periods(allocations, A, B))


def test_three_versions_that_share_the_calls_are_one_split_with_an_epoch_for_each_way_to_share():
    found = split(
        an_allocation(1),
        an_allocation(2, v8=10),
        an_allocation(3, v8=10),
        an_allocation(4, v8=20, v9=10),
        an_allocation(5, v8=20, v9=10, salt="s2"),
    )

    assert found is not None
    assert found.version_ids == (A, B, C, D)
    assert found.epochs == {1: 0, 2: 1, 3: 1, 4: 2, 5: 3}
    assert found.shares[0] == pytest.approx((0.7, 0.3, 0, 0))
    assert found.shares[1] == pytest.approx((0.6, 0.3, 0.1, 0))
    assert found.shares[2] == found.shares[3] == pytest.approx((0.4, 0.3, 0.2, 0.1))


def test_two_versions_are_compared_without_others():
    assert split(an_allocation(1), an_allocation(2, weight=50)) is None


def test_generations_in_which_b_had_no_share_are_left_out():
    found = split(an_allocation(1, weight=0, v8=10), an_allocation(2, v8=10))

    assert found is not None
    assert found.epochs == {2: 0}


def test_a_test_shares_alpha_with_those_that_have_calls_now():
    assert versions_beside([an_allocation(1, v8=10), an_allocation(2, v8=10, v9=0)], B) == (C,)
    assert versions_beside([an_allocation(1, v8=10)], None) == (C,)
    assert versions_beside([an_allocation(1, v8=10)], C) == (B,)
    assert versions_beside([an_allocation(1)], B) == versions_beside([], B) == ()


class StoredTests:
    """The newest test of each pair of versions."""

    def __init__(self, *records: ExperimentRecord) -> None:
        self.records = {(record.champion_id, record.challenger_id): record for record in records}

    async def latest(
        self, model_name: str, metric: str, versions: tuple[int, int] | None = None
    ) -> ExperimentRecord | None:
        assert (model_name, metric) == ("churn", "converted")
        return None if versions is None else self.records.get(versions)

    async def newest(self, model_name: str | None, at_most: int) -> Sequence[ExperimentRecord]:
        raise NotImplementedError

    async def declare(self, new: NewExperiment) -> ExperimentRecord | None:
        raise NotImplementedError

    async def record(self, before: ExperimentRecord, result: Any, *, ends: bool, by: Actor | None = None) -> bool:
        raise NotImplementedError


def a_record(version_id: int, *beside: int, found: AbState = AbState.UNDECIDED, at: float = 10.0) -> ExperimentRecord:
    plan = Plan(Wanted(0.05), MetricChoice(604_800.0), True, 0.002, 9_000, 5, beside=beside).to_json()
    looks = [{"at": at, "fraction": 0.4, "state": found.value, "sentence": ""}]
    ended_at = None if found is AbState.UNDECIDED else at
    return ExperimentRecord(
        version_id, "churn", "converted", A, version_id, 1.0, plan, {"looks": looks}, "dana", ended_at
    )


async def test_the_tests_of_the_same_family_that_found_a_difference_leave_their_share():
    own = declared_test(a_record(B, C, D))
    won, lost = a_record(C, B, D, found=AbState.B_BETTER), a_record(D, B, C, found=AbState.A_BETTER)

    assert await rejected_beside(StoredTests(won), own) == 1
    assert await rejected_beside(StoredTests(won, lost), own) == 2
    assert await rejected_beside(StoredTests(), own) == 0
    assert await rejected_beside(StoredTests(a_record(C, B, D)), own) == 0
    assert await rejected_beside(StoredTests(a_record(C, B, D, found=AbState.NO_DIFFERENCE)), own) == 0
    assert await rejected_beside(StoredTests(a_record(C, B, found=AbState.B_BETTER)), own) == 0


async def test_an_unreadable_test_beside_another_has_found_nothing_and_stops_only_its_own_report():
    own, beside = declared_test(a_record(B, C, D)), a_record(C, B, D, found=AbState.B_BETTER)
    unreadable = beside._replace(plan={**beside.plan, "looks": 30_000_000})

    assert await rejected_beside(StoredTests(unreadable), own) == 0


async def test_a_decided_test_keeps_the_share_that_it_had():
    later, earlier = (a_record(C, B, found=AbState.B_BETTER, at=at) for at in (30.0, 5.0))
    decided = declared_test(a_record(B, C, found=AbState.B_BETTER, at=20.0))

    assert await rejected_beside(StoredTests(later), decided) == 0
    assert await rejected_beside(StoredTests(earlier), decided) == 1
