"""Drift of inputs from the rows in the log to what people are told, in a real database, hour by hour."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import numpy as np
import orjson
import pytest
from traffic.drift import numeric_baseline
from traffic.logged import LoggedTraffic, StoreAsOf, lead, register, scored_rows

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.core.drift.baseline import Baseline, Baselines, CategoricalBaseline, baselines_to_json
from understudy.core.drift.hours import HOUR_SECONDS, SETTLE_SECONDS
from understudy.monitoring.drift_job import DriftJob

RANDOM = np.random.default_rng(23)
ROWS = 400
AGE = numeric_baseline(40 + 10 * RANDOM.normal(size=20_000))
COUNTRY = CategoricalBaseline({"BR": 0.2, "US": 0.8}, rows=20_000, null_ratio=0.0)
INPUTS: dict[str, Baseline] = {"age": AGE, "country": COUNTRY, "prediction": AGE}
UNDRAWN = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Draw from the beginning: a test's figures must not depend on which ones ran before it."""
    RANDOM.bit_generator.state = UNDRAWN


def metrics_of(inputs: Mapping[str, Baseline]) -> dict[str, Any]:
    return {"baseline": baselines_to_json(Baselines(None, inputs))}


def drawn(shift: float, brazil: float) -> list[bytes]:
    """Return the inputs of an hour: ages shifted by so many deviations, and this share from one country."""
    ages = (40 + 10 * (shift + RANDOM.normal(size=ROWS))).tolist()
    usual = (40 + 10 * RANDOM.normal(size=ROWS)).tolist()
    countries = np.where(RANDOM.random(ROWS) < brazil, "BR", "US").tolist()
    columns = zip(ages, usual, countries, strict=True)
    return [orjson.dumps({"age": age, "prediction": other, "country": name}) for age, other, name in columns]


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
        self.job = DriftJob(self.store, self.windows, self.telemetry, environment="test")

    async def serve(self, metrics: object = None, version: str = "6") -> int:
        version_id = await register(self.database, "churn", version, metrics_of(INPUTS) if metrics is None else metrics)
        await self.database.execute(
            "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1) ON CONFLICT DO NOTHING",
            version_id,
        )
        return version_id

    async def hour(self, version_id: int, shift: float = 0.0, brazil: float = 0.2) -> None:
        """Let a version answer for an hour, and the monitor look afterwards."""
        rows = scored_rows(0.4 + 0.1 * RANDOM.normal(size=ROWS), self.at, version_id)
        inputs = drawn(shift, brazil)
        await self.traffic.ship([row._replace(inputs=text) for row, text in zip(rows, inputs, strict=True)])
        self.at += HOUR_SECONDS
        await self.look()

    async def look(self) -> None:
        self.store.now = self.at + SETTLE_SECONDS
        for _ in range(10):
            await self.job.tick(self.epoch)

    async def told(self) -> list[tuple[str, dict[str, Any]]]:
        rows = await self.database.fetch("SELECT action, payload FROM AlertOutbox ORDER BY id")
        return [(row["action"], orjson.loads(row["payload"])) for row in rows]

    async def hours(self) -> list[tuple[str, int]]:
        rows = await self.database.fetch(
            "SELECT subject, sum(row_count)::int AS rows FROM DriftHour GROUP BY subject ORDER BY subject"
        )
        return [tuple(row) for row in rows]


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


async def test_inputs_like_the_baseline_are_summed_up_and_nobody_is_told(world):
    champion = await world.serve()

    for _ in range(8):
        await world.hour(champion)

    assert await world.hours() == [
        ("age", 8 * ROWS),
        ("country", 8 * ROWS),
        ("input:prediction", 8 * ROWS),
        ("prediction", 8 * ROWS),
    ]
    assert await world.told() == []
    states = await world.database.fetch(
        "SELECT metric_name, value FROM PredictionMetric WHERE metric_name ~ '^drift_st'"
    )
    assert {tuple(row) for row in states} == {
        ("drift_state/age", 0.0),
        ("drift_state/country", 0.0),
        ("drift_state/input:prediction", 0.0),
    }


@pytest.mark.parametrize(
    ("shift", "brazil", "subject"), [(1.0, 0.2, "age"), (0.0, 0.6, "country")], ids=["numbers", "categories"]
)
async def test_an_input_that_moves_is_told_within_three_hours_and_the_others_are_not(world, shift, brazil, subject):
    champion = await world.serve()
    for _ in range(4):
        await world.hour(champion)
    quiet = await world.told()

    for _ in range(3):
        await world.hour(champion, shift, brazil)

    assert quiet == []
    ((action, payload),) = await world.told()
    assert action == "trigger"
    assert payload["summary"].startswith(f"churn v6 drifts: {subject}: ")
    assert [one["subject"] for one in payload["details"]["drifts"]] == [subject]
    assert {labels[3] for labels in world.telemetry.gauges} == {"age", "country", "input:prediction"}


async def test_an_input_without_a_baseline_is_not_summed_up(world):
    champion = await world.serve(metrics_of({"age": AGE}))

    await world.hour(champion)

    assert await world.hours() == [("age", ROWS), ("prediction", ROWS)]


async def test_an_input_is_summed_up_from_the_hour_in_which_it_gets_a_baseline(world):
    champion = await world.serve({})
    await world.hour(champion)

    await world.database.execute("UPDATE ModelVersion SET metrics = $1", orjson.dumps(metrics_of(INPUTS)).decode())
    await world.hour(champion)

    assert await world.hours() == [
        ("age", ROWS),
        ("country", ROWS),
        ("input:prediction", ROWS),
        ("prediction", 2 * ROWS),
    ]


async def test_many_inputs_are_judged_over_several_ticks_and_told_once_all_of_them_are(world):
    many = {f"x{place:03d}": AGE for place in range(60)}
    champion = await world.serve(metrics_of(many))
    rows = scored_rows(0.4 + 0.1 * RANDOM.normal(size=ROWS), world.at, champion)
    values = 40 + 10 * (1.0 + RANDOM.normal(size=ROWS))
    inputs = [orjson.dumps(dict.fromkeys(many, value)) for value in values.tolist()]
    await world.traffic.ship([row._replace(inputs=text) for row, text in zip(rows, inputs, strict=True)])
    world.at += HOUR_SECONDS
    world.store.now = world.at + SETTLE_SECONDS

    ticks = 0
    while not await world.told():
        await world.job.tick(world.epoch)
        ticks += 1
        assert ticks < 20

    # Hours of a day: the one that was summed up and those before it. Then 61 subjects, 25 at a time.
    assert ticks > 3
    (told,) = await world.told()
    assert len(told[1]["details"]["drifts"]) == 60


async def test_a_model_with_more_inputs_than_an_hour_has_room_for_is_judged_to_the_end(world):
    many = {f"x{place:03d}": AGE for place in range(60)}
    champion = await world.serve(metrics_of(many))
    for _ in range(6):
        rows = scored_rows(0.4 + 0.1 * RANDOM.normal(size=ROWS), world.at, champion)
        values = 40 + 10 * (1.0 + RANDOM.normal(size=ROWS))
        inputs = [orjson.dumps(dict.fromkeys(many, value)) for value in values.tolist()]
        await world.traffic.ship([row._replace(inputs=text) for row, text in zip(rows, inputs, strict=True)])
        world.at += HOUR_SECONDS
        world.store.now = world.at + SETTLE_SECONDS
        for _ in range(2):
            await world.job.tick(world.epoch)

    assert [action for action, _ in await world.told()] == ["trigger"]
