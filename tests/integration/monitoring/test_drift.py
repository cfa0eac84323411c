"""Drift from the calls in the log to what people are told, in a real database, hour by hour."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import numpy as np
import orjson
import pytest
from traffic.drift import numeric_baseline
from traffic.logged import LoggedTraffic, StoreAsOf, lead, register, scored_rows
from traffic.spooled_rows import a_row

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.core.drift.baseline import Baselines, FloatArray, baselines_to_json
from understudy.core.drift.hours import HOUR_SECONDS, SETTLE_SECONDS
from understudy.core.drift.logged_baseline import logged_classes
from understudy.core.drift.subject_window import CLASSES
from understudy.core.prediction_log.row import PredictionRow
from understudy.core.routing.policy import Role
from understudy.errors import LeadershipLost
from understudy.monitoring.drift_job import DriftJob

MEAN, DEVIATION = 0.4, 0.1
RANDOM = np.random.default_rng(11)
BASELINE = {
    "baseline": baselines_to_json(
        Baselines(numeric_baseline(MEAN + DEVIATION * RANDOM.normal(size=20_000), threshold=0.5), {})
    )
}
UNDRAWN = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Draw from the beginning: a test's figures must not depend on which ones ran before it."""
    RANDOM.bit_generator.state = UNDRAWN


def scores(shift: float, rows: int = 400) -> FloatArray:
    """Return scores that are shifted by so many of the baseline's deviations."""
    return np.asarray(MEAN + DEVIATION * (shift + RANDOM.normal(size=rows)))


@dataclass
class World:
    """A monitor at a time of the test's choice; an hour passes by :meth:`hour`."""

    database: asyncpg.Connection
    store: StoreAsOf
    traffic: LoggedTraffic
    windows: PostgresWindowLog
    epoch: int
    at: float
    telemetry: MemoryTelemetry = field(default_factory=MemoryTelemetry)

    def __post_init__(self) -> None:
        self.job = self.a_monitor()

    def a_monitor(self) -> DriftJob:
        return DriftJob(self.store, self.windows, self.telemetry, environment="test")

    async def hour(self, *traffic: tuple[int, Role, float]) -> None:
        """Let versions answer for an hour, each in its role and with its shift, and the monitor look afterwards."""
        for version_id, role, shift in traffic:
            await self.traffic.ship(scored_rows(scores(shift), self.at, version_id, role))
        self.at += HOUR_SECONDS
        await self.look()

    async def look(self) -> None:
        self.store.now = self.at + SETTLE_SECONDS
        for _ in range(10):
            await self.job.tick(self.epoch)

    async def told(self) -> list[tuple[str, str, dict[str, Any]]]:
        rows = await self.database.fetch("SELECT action, dedup_key, payload FROM AlertOutbox ORDER BY id")
        return [(row["action"], row["dedup_key"], orjson.loads(row["payload"])) for row in rows]

    async def states(self) -> list[float]:
        rows = await self.database.fetch(
            "SELECT value FROM PredictionMetric WHERE metric_name = 'drift_state' ORDER BY computed_at"
        )
        return [row["value"] for row in rows]


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> AsyncIterator[World]:
    traffic = LoggedTraffic(database_url)
    now: float = await database.fetchval("SELECT extract(epoch FROM now())::float8")
    yield World(
        database,
        StoreAsOf(database_url, timeout_seconds=10),
        traffic,
        PostgresWindowLog(database_url, timeout_seconds=10),
        await lead(database_url),
        now // HOUR_SECONDS * HOUR_SECONDS - 48 * HOUR_SECONDS,
    )
    await traffic.close()


async def served(world: World, metrics: object = BASELINE, **roles: object) -> dict[str, int]:
    """Register versions 6 and 7, and give them their roles: champion and, when asked for, another one."""
    ids = {version: await register(world.database, "churn", version, metrics) for version in ("6", "7")}
    await world.database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", ids["6"]
    )
    for column, value in roles.items():
        await world.database.execute(f"UPDATE ServingPolicy SET {column} = $1", value or ids["7"])
    return ids


async def test_shifted_scores_are_told_once_and_their_end_once(world):
    champion = (await served(world))["6"]

    for _ in range(4):
        await world.hour((champion, Role.CHAMPION, 0.0))
    quiet = await world.told()
    for _ in range(4):
        await world.hour((champion, Role.CHAMPION, 1.0))
    drifting = await world.told()
    await world.look()
    world.job = world.a_monitor()  # a standby that takes over
    await world.look()
    still = await world.told()
    for _ in range(12):
        await world.hour((champion, Role.CHAMPION, 0.0))
    over = await world.told()

    assert quiet == []
    assert [(action, key) for action, key, _ in drifting] == [("trigger", "understudy/test/churn/drift")]
    assert drifting == still
    assert [action for action, _, _ in over] == ["trigger", "resolve"]
    assert drifting[0][2]["summary"].startswith("churn v6 drifts: prediction: mean 0.4 → 0.")
    states = await world.states()
    assert states[:4] == [0.0] * 4
    assert (states[4], states[-1]) == (1.0, 0.0)


async def test_distances_and_limits_are_gauges_that_go_with_the_versions_role(world):
    ids = await served(world)

    await world.hour((ids["6"], Role.CHAMPION, 0.5))
    shown = dict(world.telemetry.gauges)
    # Without a guard, which would keep the champion before warm.
    await world.database.execute("UPDATE ServingPolicy SET champion_version = $1, guard = 'off'", ids["7"])
    await world.look()

    labels = ("churn", "6", "prediction", "mean")
    assert shown["drift_score", *labels] == pytest.approx(0.5, abs=0.2)
    assert shown["drift_threshold", *labels] == 0.1
    assert not [name for name in world.telemetry.gauges if name[2] == "6"]


async def test_the_same_drift_in_every_version_is_said_to_be_the_inputs(world):
    ids = await served(world, shadow_version=None)

    for shift in (0.0, 0.0, 1.0, 1.0):
        await world.hour((ids["6"], Role.CHAMPION, shift), (ids["7"], Role.SHADOW, shift))

    (told,) = await world.told()
    assert told[2]["summary"].endswith("Same drift in v6 and v7: the input moved, not the model.")


async def test_a_shadow_that_drifts_pages_nobody(world):
    ids = await served(world, shadow_version=None)

    for _ in range(3):
        await world.hour((ids["6"], Role.CHAMPION, 0.0), (ids["7"], Role.SHADOW, 1.0))

    assert await world.told() == []
    assert 1.0 in await world.states()


async def test_an_incident_ends_with_the_policy_of_its_model(world):
    champion = (await served(world))["6"]
    for _ in range(3):
        await world.hour((champion, Role.CHAMPION, 1.0))

    await world.database.execute("DELETE FROM ServingPolicy")
    await world.look()

    assert [action for action, _, _ in await world.told()] == ["trigger", "resolve"]


async def test_an_incident_ends_although_its_models_policy_went_while_no_monitor_led(world):
    champion = (await served(world))["6"]
    for _ in range(2):
        await world.hour((champion, Role.CHAMPION, 3.0))
    before = [action for action, _, _ in await world.told()]

    await world.database.execute("DELETE FROM ServingPolicy")
    world.job = world.a_monitor()  # a standby that takes over, and never knew of it
    await world.look()
    await world.look()

    assert before == ["trigger"]
    assert [action for action, _, _ in await world.told()] == ["trigger", "resolve"]


async def test_an_incident_of_another_kind_or_environment_is_not_the_drift_jobs_to_end(world):
    for kind, environment in ((AlertKind.ROLLOUT_STALLED, "test"), (AlertKind.DRIFT, "staging")):
        event = AlertEvent(AlertAction.TRIGGER, kind, environment, "gone", "as it was told", world.at, {})
        await world.store.tell_drift([], event, epoch=world.epoch)

    await world.look()

    assert [action for action, _, _ in await world.told()] == ["trigger", "trigger"]


async def test_a_new_baseline_is_judged_by_at_once(world):
    champion = (await served(world))["6"]
    for _ in range(3):
        await world.hour((champion, Role.CHAMPION, 1.0))
    of_today = {"baseline": baselines_to_json(Baselines(numeric_baseline(scores(1.0, 20_000)), {}))}

    await world.database.execute("UPDATE ModelVersion SET metrics = $1", orjson.dumps(of_today).decode())
    await world.look()

    assert [action for action, _, _ in await world.told()] == ["trigger", "resolve"]
    assert (await world.states())[-1] == 0.0


async def test_the_seeds_rule_is_kept_to_where_it_is_asked_for(world):
    champion = (await served(world, {**BASELINE, "drift_policy": "seed"}))["6"]

    await world.hour((champion, Role.CHAMPION, 1.0))
    within = await world.told()
    for _ in range(2):
        await world.hour((champion, Role.CHAMPION, 6.0))

    assert within == []
    assert [action for action, _, _ in await world.told()] == ["trigger"]


@pytest.mark.parametrize("metrics", [None, {"baseline": {"prediction": {"mean": "high"}}}, [1]])
async def test_a_version_without_a_usable_baseline_is_summed_up_and_neither_good_nor_bad(world, metrics):
    champion = (await served(world, metrics))["6"]

    await world.hour((champion, Role.CHAMPION, 1.0))

    assert await world.told() == []
    assert await world.states() == []
    assert await world.database.fetchval("SELECT max(row_count) FROM DriftHour") == 400


async def test_hours_of_an_outage_are_summed_up_later_and_old_ones_are_not(world):
    champion = (await served(world))["6"]
    await world.hour((champion, Role.CHAMPION, 0.0))
    for _ in range(5):
        await world.traffic.ship(scored_rows(scores(0.0), world.at, champion))
        world.at += HOUR_SECONDS

    await world.look()
    hours = await world.database.fetch("SELECT row_count FROM DriftHour ORDER BY hour_start")
    deleted = await world.store.forget_hours(world.at - 2 * HOUR_SECONDS, epoch=world.epoch)

    assert [row["row_count"] for row in hours] == [0] * 23 + [400] * 6
    assert deleted == 27


async def test_a_monitor_whose_lease_is_over_tells_nobody(world, database_url):
    champion = (await served(world))["6"]
    await world.traffic.ship(scored_rows(scores(3.0), world.at, champion))
    await lead(database_url)
    world.at += HOUR_SECONDS

    with pytest.raises(LeadershipLost):
        await world.look()

    assert await world.database.fetchval("SELECT count(*) FROM DriftHour") == 0
    assert await world.told() == []


async def test_a_version_whose_metrics_cannot_be_read_keeps_no_other_model_from_being_judged(world):
    broken = await register(world.database, "aaa", "1", BASELINE)
    champion = (await served(world))["6"]
    await world.database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('aaa', $1)", broken)
    # JSONB holds it, and no float does.
    await world.database.execute("UPDATE ModelVersion SET metrics = metrics || '{\"f1\": 1e400}' WHERE id = $1", broken)

    for _ in range(4):
        await world.traffic.ship(scored_rows(scores(1.0), world.at, champion, Role.CHAMPION))
        world.at += HOUR_SECONDS
        world.store.now = world.at + SETTLE_SECONDS
        for _ in range(6):
            with pytest.raises(ValueError, match="number"):
                await world.job.tick(world.epoch)

    assert [(action, key.rpartition("/")[0]) for action, key, _ in await world.told()] == [
        ("trigger", "understudy/test/churn")
    ]


async def test_a_model_that_answers_with_classes_drifts_by_their_shares(world):
    known = {"baseline": {"classes": {"kind": "categorical", "n": 40_000, "shares": {"pro": 0.5, "basic": 0.5}}}}
    version = await register(world.database, "churn", "6", known, output={"labels": ["basic", "pro"]})
    await world.database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", version
    )
    for _ in range(2):
        await world.traffic.ship([labelled(number, version, world.at) for number in range(3_000)])
        await world.hour()

    ((action, _, alert),) = await world.told()
    assert action == "trigger"
    assert [(one["subject"], one["readings"][0]["measure"]) for one in alert["details"]["drifts"]] == [
        ("class", "shares")
    ]
    assert "pro 50 % → 60 %" in alert["summary"]
    facts = await world.store.drift_facts(version, 0.0, [CLASSES])
    made = logged_classes(facts.hours[CLASSES])
    assert made is not None
    assert made.shares == {"pro": 0.6, "basic": 0.4}
    assert made.rows == pytest.approx(3_000, rel=0.5)  # each entity called twice


def labelled(number: int, version_id: int, start: float) -> PredictionRow:
    label = "pro" if number % 10 < 6 else "basic"
    answer = orjson.dumps({"label": label, "scores": [0.2, 0.8]})
    row = a_row(number, version_id=version_id, prediction=answer)
    return row._replace(predicted_at=start + 1.2 * number, score=0.8)
