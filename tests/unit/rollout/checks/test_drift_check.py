"""Challengers of open rollouts beside the champion's hours: judged once an hour, alerted or handed to the analysis."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.core.drift.hours import HOUR_SECONDS, class_hour
from understudy.core.drift.subject_window import SubjectWindow, numeric_window
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import DriftMode, new_rollout_state
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.ports.monitoring.metric_store import ActiveVersion, ActiveVersions, DriftFacts, MetricStore
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutStore, RolloutView
from understudy.rollout.checks.drift_check import DriftCheck

HOURS = 12
NOW = (HOURS + 0.5) * HOUR_SECONDS
BASELINE = {"baseline": {"inputs": {"age": {"kind": "numeric", "n": 9_000, "mean": 0.3, "std": 0.1}}}}


def hours_of(mean: float, seed: int) -> list[SubjectWindow]:
    random = np.random.default_rng(seed)
    return [
        numeric_window(hour * HOUR_SECONDS, random.normal(mean, 0.1, 400), random.integers(0, ANALYSIS_BUCKETS, 400))
        for hour in range(HOURS)
    ]


class OneRollout:
    """Rollout 1 of churn: version 7 (id 2) beside 6 (id 1)."""

    def __init__(self, mode: DriftMode = DriftMode.ALERT, *, expect_different_scores: bool = False) -> None:
        self.open = [1]
        plan = replace(NAMED_PLANS["default"], expect_different_scores=expect_different_scores)
        policy = PolicySeen("6", "7", 2, 4, 1)
        begun = new_rollout_state(1, "churn", plan, policy._replace(weight_percent=0), 0.0)
        state = replace(begun, step_starts=(0.0,), policy=policy)
        record = RolloutRecord(1, state, 1, 1, 2, "salt", 9_000, None, "dana", None, None)
        self._view = RolloutView(record, policy, {4: 2}, 1, 1, {}, NOW, on_drift=mode)

    async def open_ids(self) -> Sequence[int]:
        return self.open

    async def view(self, _rollout_id: int) -> RolloutView:
        return self._view


class Hours:
    """Hours by version id and subject, and the events that were told."""

    def __init__(self, hours: Mapping[int, Mapping[str, Sequence[SubjectWindow]]]) -> None:
        self.hours = hours
        self.asked = 0
        self.told: list[AlertEvent] = []
        self.open: set[tuple[str, str]] = set()
        self.has_classes = False

    @asynccontextmanager
    async def shared_session(self) -> AsyncIterator[None]:
        yield

    async def active(self, model_name: str | None = None) -> ActiveVersions:
        assert model_name == "churn"
        version = ActiveVersion(1, "churn", "1", None, "", None, HOURS * HOUR_SECONDS, has_classes=self.has_classes)
        return ActiveVersions(NOW, [version._replace(id=number, version=str(number)) for number in (1, 2)])

    async def drift_facts(self, version_id: int, since: float, subjects: Collection[str]) -> DriftFacts:
        self.asked += bool(subjects)
        kept = {name: self.hours[version_id].get(name, []) for name in subjects}
        hours = {name: [hour for hour in found if hour.start_seconds >= since] for name, found in kept.items()}
        return DriftFacts(BASELINE, hours)

    async def open_incidents_of_versions(self, _kind: AlertKind, environment: str) -> Collection[tuple[str, str]]:
        assert environment == "test"
        return self.open

    async def tell_drift(self, values: Sequence[Any], event: AlertEvent, *, epoch: int) -> bool:
        assert not values
        assert epoch == 1
        self.told.append(event)
        return True


def check(store: OneRollout, hours: Hours) -> DriftCheck:
    return DriftCheck(cast("RolloutStore", store), cast("MetricStore", hours), environment="test")


def both(challenger_mean: float, subject: str = "prediction") -> Hours:
    return Hours({1: {subject: hours_of(0.3, 1)}, 2: {subject: hours_of(challenger_mean, 2)}})


async def test_a_challenger_that_drifts_is_alerted_under_its_own_key_and_resolved_when_its_rollout_is_over():
    store, hours = OneRollout(), both(0.5)
    drifts = check(store, hours)

    await drifts.tick(1)
    store.open.clear()
    await drifts.tick(1)

    triggered, resolved = hours.told
    assert (triggered.action, resolved.action) == (AlertAction.TRIGGER, AlertAction.RESOLVE)
    assert triggered.dedup_key == resolved.dedup_key == "understudy/test/churn/7/drift"
    assert triggered.summary.startswith("churn: version 7 drifts from the champion: prediction 0.501 vs")
    assert triggered.details["drift"][0]["subject"] == "prediction"


async def test_an_hour_is_compared_once():
    hours = both(0.5)
    drifts = check(OneRollout(), hours)

    await drifts.tick(1)
    asked = hours.asked
    await drifts.tick(1)

    assert hours.asked == asked


async def test_where_the_policy_takes_it_back_the_analysis_gets_it_and_no_alert_is_sent_beside():
    hours = both(0.5)
    drifts = check(OneRollout(DriftMode.ROLLBACK), hours)

    await drifts.tick(1)

    assert [one.subject for one in drifts.latest(1)] == ["prediction"]
    assert hours.told == []


async def test_inputs_are_compared_as_well_and_equal_versions_are_not_alerted():
    moved, equal = both(0.5, "age"), both(0.3)
    drifts, calm = check(OneRollout(), moved), check(OneRollout(), equal)

    await drifts.tick(1)
    await calm.tick(1)

    assert [one.subject for one in drifts.latest(1)] == ["age"]
    assert calm.latest(1) == ()
    assert [event.action for event in equal.told] == [AlertAction.RESOLVE]


async def test_scores_that_are_expected_to_differ_are_not_compared():
    drifts = check(OneRollout(expect_different_scores=True), both(0.5))

    await drifts.tick(1)

    assert drifts.latest(1) == ()


async def test_a_monitor_that_takes_over_ends_the_incidents_of_rollouts_that_ended_meanwhile():
    hours = both(0.3)
    hours.open = {("churn", "5"), ("churn", "7")}
    drifts = check(OneRollout(), hours)

    await drifts.tick(1)
    await drifts.tick(1)

    ended = [event.dedup_key for event in hours.told if event.action is AlertAction.RESOLVE]
    assert ended == ["understudy/test/churn/7/drift", "understudy/test/churn/5/drift"]


async def test_classes_are_compared_with_the_champions_where_both_versions_have_some():
    def classes(of_ten: int) -> list[SubjectWindow]:
        answered = [(f"user-{number}", "pro" if number % 10 < of_ten else "basic") for number in range(2_000)]
        return [class_hour(hour * HOUR_SECONDS, answered) for hour in range(HOURS)]

    hours = Hours({1: {"class": classes(5)}, 2: {"class": classes(7)}})
    before = check(OneRollout(), hours)
    await before.tick(1)
    hours.has_classes = True
    drifts = check(OneRollout(), hours)

    await drifts.tick(1)

    assert before.latest(1) == ()
    (found,) = drifts.latest(1)
    assert (found.subject, found.measure, found.category) == ("class", "shares", "basic")
    assert found.champion == pytest.approx(0.5)
    assert found.challenger == pytest.approx(0.3)
