"""A busy installation for dashboards to look at: two models, two proxies, a monitor, and what may happen to them."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

import asyncpg
import numpy as np
import orjson
from e2e.load import Connection, Load, run_load
from e2e.stack import Process, Stack, register, sql
from traffic.drift import numeric_baseline
from traffic.logged import LoggedTraffic, scored_rows

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.drift.baseline import Baselines, baselines_to_json
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, RolloutRecord

VISITS, STORED = "visits", "stored"
PATIENT_MS = 2_000
PEOPLE = 600
ROWS = example_rows()
FROM_STORE = "physical_limitation"
COPY_VERSION = """
    INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, output_schema, timeout_ms,
                              deterministic, backend, metrics)
    SELECT 'stored', version, artifact_path, framework, $2, output_schema, timeout_ms, FALSE, $3, $4
    FROM ModelVersion WHERE model_name = 'visits' AND version = $1
"""
COPY_ENDPOINTS = """
    INSERT INTO ModelEndpoint (model_version_id, target)
    SELECT copy.id, e.target FROM ModelEndpoint e
    JOIN ModelVersion original ON original.id = e.model_version_id
    JOIN ModelVersion copy ON copy.model_name = 'stored' AND copy.version = original.version
"""
ACTOR = Actor("test", "test", "to be looked at")
HOUR_SECONDS = 3_600.0
CAUTIOUS = RolloutPlan((Step(20, 3_600, 100_000), Step(100, 0, 0)), expect_different_scores=True)
LONG = RolloutPlan(
    (Step(50, 3_600, 1_000_000), Step(100, 0, 0)),
    canary_limits={"outcome": "converted", "outcome_within_seconds": 2, "min_entities": 20, "warm_up_seconds": 0},
)
"""It stays open, and is judged by an outcome as well."""


def visits_body(number: int) -> bytes:
    """Return a call; every second one repeats inputs that the cache has, and one in forty nobody can use."""
    inputs: dict[str, object] = dict(ROWS[number % 40].inputs)
    if number % 2:
        inputs = {**ROWS[number % 500].inputs, "log_incentive": number / 1e6}
    if number % 40 == 0:
        inputs["log_incentive"] = "much"
    return orjson.dumps({"entity_id": f"person-{number % PEOPLE}", "inputs": inputs})


def stored_body(number: int) -> bytes:
    """Return a call that leaves a feature to the store, which has it of two persons in three."""
    inputs = {**ROWS[number % 500].inputs, "log_incentive": number / 1e6}
    del inputs[FROM_STORE]
    return orjson.dumps({"entity_id": f"person-{number % PEOPLE}", "inputs": inputs})


@dataclass
class Watched:
    """What runs, once :meth:`start` has returned."""

    stack: Stack
    url: str
    webhook_url: str
    versions: dict[str, dict[str, int]] = field(default_factory=dict)
    proxies: list[str] = field(default_factory=list)
    """``host:port`` of each proxy's metrics."""
    monitor: str = ""
    ports: list[int] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    _tasks: list[asyncio.Task[object]] = field(default_factory=list)

    async def start(self) -> None:
        """Start servers, proxies (one of them with two workers), the monitor, and calls to both models."""
        await self._register()
        await self._remember_hours()
        for name, workers in (("proxy-a", 1), ("proxy-b", 2)):
            await asyncio.to_thread(self._start_proxy, name, workers)
        self._start_monitor()
        for model, body_of, per_second in ((VISITS, visits_body, 60), (STORED, stored_body, 25)):
            for port, share in zip(self.ports, (0.75, 0.25), strict=True):
                load = Load()
                path = f"/v1/models/{model}/predict"
                calls = run_load(port, path, body_of, per_second=per_second * share, seconds=3_600, load=load)
                self._tasks.append(asyncio.create_task(calls))
                self.loads.append(load)
        self._tasks += [asyncio.create_task(self._tell_outcomes()), asyncio.create_task(self._talk_nonsense())]

    async def stop(self) -> None:
        """End the calls."""
        for load in self.loads:
            load.is_over = True
        for task in self._tasks[len(self.loads) :]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def roll_out(self, model: str, version: str, plan: RolloutPlan) -> RolloutRecord:
        """Start a rollout and wait until its challenger has a share."""
        store = PostgresRolloutStore(self.url, timeout_seconds=10)
        record = await store.start(NewRollout(model, version, plan, version, None), ACTOR)
        give_up = time.monotonic() + 60
        while not (state := (await store.view(record.id)).record.state).step_starts:
            assert time.monotonic() < give_up, state
            await asyncio.sleep(0.3)
        return record

    async def ended(self, rollout_id: int, seconds: float) -> str:
        """Wait until a rollout's end was announced; return its phase."""
        store = PostgresRolloutStore(self.url, timeout_seconds=10)
        give_up = time.monotonic() + seconds
        while True:
            record = (await store.view(rollout_id)).record
            if record.announced_at is not None:
                return record.state.phase.value
            assert time.monotonic() < give_up, record.state
            await asyncio.sleep(0.5)

    def replace_model(self, name: str, spec: str) -> None:
        """Put a server with other faults in the place of one."""
        port = int(self.stack.processes[name].log.stem.removeprefix("model-"))
        self.stack.processes[name].stop()
        self.stack.start_model(spec, name=name, port=port)

    async def break_connections(self) -> None:
        """Have Postgres drop everybody, a few times."""
        for _ in range(8):
            await sql(
                self.url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            await asyncio.sleep(0.25)

    async def lose_a_table(self, seconds: float) -> None:
        """Take away for a moment what only the monitor's measuring jobs read."""
        await sql(self.url, "ALTER TABLE drifthour RENAME TO drifthour_away")
        await asyncio.sleep(seconds)
        await sql(self.url, "ALTER TABLE drifthour_away RENAME TO drifthour")

    # -- what is there -------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        # Answers that vary make some of them late, so that there are hedges; a shadow that is slow has calls dropped.
        spec = "visits:1,latency_ms=8,jitter_ms=7"
        replicas = [self.stack.start_model(spec, name=name) for name in ("one-a", "one-b")]
        servers = {
            "1": replicas,
            "2": [self.stack.start_model("visits:2", name="two")],
            "3": [self.stack.start_model("visits:3", name="three")],
            "4": [self.stack.start_model("visits:4,latency_ms=250", name="four")],
        }
        ids = {
            label: await register(self.url, int(label), ports, timeout_ms=PATIENT_MS, cache_ttl_seconds=300)
            for label, ports in servers.items()
        }
        self.versions[VISITS] = ids
        await sql(
            self.url,
            "INSERT INTO ServingPolicy (model_name, champion_version, shadow_version, input_sample_percent)"
            " VALUES ('visits', $1, $2, 100)",
            ids["1"],
            ids["4"],
        )
        self.versions[STORED] = await self._register_stored()
        await sql(
            self.url,
            "INSERT INTO ServingPolicy (model_name, champion_version, input_sample_percent) VALUES ('stored', $1, 100)",
            self.versions[STORED]["1"],
        )

    async def _register_stored(self) -> dict[str, int]:
        """Register ``stored``, which is ``visits`` with a feature that the store has, and with a baseline."""
        schema = orjson.loads(orjson.dumps(example_version(VISITS, 1).input_schema))
        for feature in schema["features"]:
            if feature["name"] == FROM_STORE:
                feature |= {"source": "store", "default": 0.0}
        scores = 0.4 + 0.1 * np.random.default_rng(5).normal(size=20_000)
        metrics = {"baseline": baselines_to_json(Baselines(numeric_baseline(scores, threshold=0.5), {}))}
        await sql(self.url, "CREATE TABLE features (model_name text, entity_id text, features jsonb)")
        await sql(
            self.url,
            "INSERT INTO features SELECT 'stored', 'person-' || n, jsonb_build_object($1::text, 0.25)"
            " FROM generate_series(0, $2::int - 1) AS n WHERE n % 3 > 0",
            FROM_STORE,
            PEOPLE,
        )
        await sql(self.url, "CREATE UNIQUE INDEX ON features (model_name, entity_id)")
        for label in ("1", "2"):
            await sql(
                self.url,
                COPY_VERSION,
                label,
                orjson.dumps(schema).decode(),
                orjson.dumps({"model_name": VISITS, "version": label}).decode(),
                orjson.dumps(metrics).decode(),
            )
        await sql(self.url, COPY_ENDPOINTS)
        rows = await sql(self.url, "SELECT version, id FROM ModelVersion WHERE model_name = 'stored'")
        return {row["version"]: row["id"] for row in rows}

    async def _remember_hours(self) -> None:
        """Log three hours of the past, so that there are hours to be judged."""
        traffic = LoggedTraffic(self.url)
        scores = 0.42 + 0.1 * np.random.default_rng(6).normal(size=600)
        now = time.time() // HOUR_SECONDS * HOUR_SECONDS
        for hours_ago in (4, 3, 2):
            rows = scored_rows(scores, now - hours_ago * HOUR_SECONDS, self.versions[STORED]["1"])
            await traffic.ship(rows)
        await traffic.close()

    def _start_proxy(self, name: str, workers: int) -> None:
        metrics_port = free_port()
        port = self.stack.start_proxy(
            name,
            workers=workers,
            metrics_port=metrics_port,
            state_dir=self.stack.folder / name,
            instance=name,
            shadow_limit=2,
            feature_table="features",
        )
        self.ports.append(port)
        self.proxies.append(f"127.0.0.1:{metrics_port}")

    def _start_monitor(self) -> None:
        port = free_port()
        environment = {
            "DATABASE_URL": self.url,
            "UNDERSTUDY_MONITOR_TICK_SECONDS": "1",
            "UNDERSTUDY_MONITOR_METRICS_PORT": str(port),
            "UNDERSTUDY_ENVIRONMENT": "test",
            "UNDERSTUDY_ALERT_WEBHOOK_URL": self.webhook_url,
            "UNDERSTUDY_FEATURE_TABLE": "features",
        }
        arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
        self.stack.processes["monitor"] = Process("monitor", arguments, self.stack.folder, environment)
        self.monitor = f"127.0.0.1:{port}"

    # -- what happens --------------------------------------------------------------------------------------------------

    async def _tell_outcomes(self) -> None:
        """Let every third person convert, again and again."""
        for turn in range(3_600):
            with suppress(asyncpg.PostgresError, OSError):  # connections are broken on purpose
                await sql(
                    self.url,
                    "INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at)"
                    " SELECT $1 || '-' || n, 'stored', 'person-' || n, 'converted', 1, now()"
                    " FROM generate_series(0, $2::int - 1, 3) AS n",
                    str(turn),
                    PEOPLE,
                )
            await asyncio.sleep(1)

    async def _talk_nonsense(self) -> None:
        """Send what is no request, which a proxy refuses before it knows a route."""
        connection = Connection("127.0.0.1", self.ports[0])
        try:
            while True:
                await connection.post(f"/v1/models/{VISITS}/predict", b"{")
                await connection.post("/v1/models/nobody/predict", b'{"entity_id": "a", "inputs": {}}')
                await asyncio.sleep(0.5)
        finally:
            connection.close()
