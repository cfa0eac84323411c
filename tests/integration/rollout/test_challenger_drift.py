"""A challenger that drifts from the champion on the same hours is alerted, or taken back, as its policy says."""

from math import ceil
from typing import Any

import numpy as np
import orjson
import pytest
from worlds.rollout import TWINS, PastRollout

from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.alerts.alerts import AlertKind
from understudy.core.canary.decision import Verdict
from understudy.core.drift.hours import HOUR_SECONDS, hour_to_json
from understudy.core.drift.subject_window import numeric_window
from understudy.core.rollout.state import DriftMode, Kind, Phase
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.errors import PolicyRefused
from understudy.ports.registry.registry import Actor
from understudy.rollout.verdicts.replay import replayed

HOURS = 5
ACTOR = Actor("dana", "cli", "a drift is a reason")


async def pass_hours(database, rollout: PastRollout, challenger_mean: float) -> None:
    """Let hours pass in which the champion's scores are about 0.3, and compare them."""
    state = (await rollout.store.view(rollout.id)).record.state
    first = ceil(state.step_starts[0] / HOUR_SECONDS) * HOUR_SECONDS
    random = np.random.default_rng(5)
    for version, mean in (("6", 0.3), ("7", challenger_mean)):
        for start in (first + number * HOUR_SECONDS for number in range(HOURS)):
            hour = numeric_window(start, random.normal(mean, 0.1, 600), random.integers(0, ANALYSIS_BUCKETS, 600))
            await database.execute(
                "INSERT INTO DriftHour (model_version_id, subject, hour_start, row_count, sums)"
                " VALUES ($1, 'prediction', to_timestamp($2), 600, $3::text::jsonb)",
                rollout.versions[version],
                start,
                hour_to_json(hour),
            )
    rollout.store.now = first + HOURS * HOUR_SECONDS + 600.0
    await rollout.drifts.tick(None)  # type: ignore[arg-type]  # nobody else leads


async def alerts_of(database, kind: AlertKind) -> list[dict[str, Any]]:
    rows = await database.fetch("SELECT payload FROM AlertOutbox ORDER BY id")
    return [found for row in rows if (found := orjson.loads(row["payload"]))["kind"] == kind]


@pytest.fixture
async def rollout(database, database_url):
    found = PastRollout(database, database_url, TWINS, seconds_ago=10 * HOUR_SECONDS)
    await found.begin()
    await found.go_on(2)
    return found


async def test_by_default_a_challenger_that_drifts_is_alerted_and_goes_on(database, rollout):
    await pass_hours(database, rollout, 0.4)
    await rollout.go_on(1)

    view = await rollout.store.view(rollout.id)
    (alert,) = await alerts_of(database, AlertKind.DRIFT)
    assert view.on_drift is DriftMode.ALERT
    assert view.record.state.phase is not Phase.FAILED
    assert (alert["version"], alert["action"]) == ("7", "trigger")
    assert "version 7 drifts from the champion: prediction 0.4" in str(alert["summary"])


async def test_with_on_drift_rollback_it_is_taken_back_with_evidence_that_is_judged_again(database, rollout):
    await database.execute("UPDATE ServingPolicy SET on_drift = 'rollback'")
    await pass_hours(database, rollout, 0.4)
    await rollout.go_on(1)

    state = (await rollout.store.view(rollout.id)).record.state
    (verdict,) = [event for event in await rollout.store.events(rollout.id) if event.verdict is Verdict.ROLL_BACK]
    (alert,) = await alerts_of(database, AlertKind.CANARY_ROLLED_BACK)
    assert state.phase is Phase.FAILED
    assert "drifts from the champion: prediction 0.4" in state.reason
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0
    assert [row["subject"] for row in verdict.evidence if row["check"] == "challenger_drift"] == ["prediction"]
    assert alert["details"]["drift"][0]["measure"] in {"mean", "wasserstein", "psi"}
    again = replayed(verdict)
    assert again is not None
    assert again.agrees


async def test_scores_that_moved_for_both_change_nothing(database, rollout):
    await database.execute("UPDATE ServingPolicy SET on_drift = 'rollback'")
    await pass_hours(database, rollout, 0.3)
    await rollout.go_on(1)

    assert (await rollout.store.view(rollout.id)).record.state.phase is not Phase.FAILED
    assert await alerts_of(database, AlertKind.DRIFT) == []


async def test_a_split_set_by_hand_is_taken_back_by_its_guard(database, database_url):
    rollout = PastRollout(database, database_url, TWINS, seconds_ago=10 * HOUR_SECONDS)
    await rollout.begin_by_hand("challenger_version = {}, challenger_weight = 10, on_drift = 'rollback'")
    await rollout.go_on(2)
    await pass_hours(database, rollout, 0.4)
    await rollout.go_on(1)

    state = (await rollout.store.view(rollout.id)).record.state
    assert (state.kind, state.phase) == (Kind.GUARD, Phase.FAILED)
    assert "drifts from the champion" in state.reason


async def test_a_declared_test_is_not_ended_by_a_drift(database, rollout):
    await database.execute("UPDATE ServingPolicy SET on_drift = 'rollback'")
    before = (await rollout.store.view(rollout.id)).on_drift
    await database.execute(
        "INSERT INTO Experiment (model_name, name, champion_version, challenger_version, metric)"
        " SELECT model_name, 'test', champion_version, challenger_version, 'converted' FROM ServingPolicy"
    )

    assert (before, (await rollout.store.view(rollout.id)).on_drift) == (DriftMode.ROLLBACK, DriftMode.ALERT)


async def test_on_drift_is_set_by_the_registry_audited_and_refused_when_it_is_neither(database, database_url, rollout):
    registry = PostgresRegistry(database_url, timeout_seconds=5)

    changed = await registry.set_policy("churn", {"on_drift": "rollback"}, ACTOR)
    with pytest.raises(PolicyRefused):
        await registry.set_policy("churn", {"on_drift": "maybe"}, ACTOR)

    assert changed.before is not None
    assert (changed.before.on_drift, changed.after.on_drift) == ("alert", "rollback")
    audited = orjson.loads(await database.fetchval("SELECT after FROM PolicyAudit ORDER BY id DESC LIMIT 1"))
    assert audited["on_drift"] == "rollback"
    assert rollout.id
