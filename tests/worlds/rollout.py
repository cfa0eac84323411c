"""Rollouts that lie in the past of a real database: simulated traffic, and the monitor's executor at each minute."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import asyncpg
import numpy as np
import orjson
from stats.worlds import Traffic, World

from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.adapters.postgres.monitoring.metrics import PostgresMetricStore
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.prediction_log.history import PostgresPredictionHistory
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.core.canary.evidence.check_input import Metrics, Outcomes
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.guard_limits import GuardSettings
from understudy.core.rollout.plan import NAMED_PLANS, RolloutPlan, Step, plan_to_json
from understudy.core.rollout.state import Phase, WarmUpResult, new_rollout_state, state_to_json
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import WINDOW_SECONDS, BucketColumn, Window, window_to_json
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, RecordSeen, RolloutRecord, RolloutView
from understudy.rollout.checks.drift_check import DriftCheck
from understudy.rollout.checks.entity_check import EntityCheck
from understudy.rollout.checks.slice_check import SliceCheck
from understudy.rollout.executor import RolloutExecutor
from understudy.rollout.gate_asks import GateAsks
from understudy.rollout.warm_up.score_comparison import ScoreComparison
from understudy.rollout.warm_up.warm_up import WarmUpProbe

LOOK_SECONDS = 60.0
PLAN = RolloutPlan(
    (Step(10, 300, 1_000), Step(50, 300, 2_000), Step(100, 0, 0)),
    keep_warm_seconds=600,
    canary_limits={"detectable_ratio": 3},
)
TWINS = World("twins", requests_per_minute=2_000, entities=20_000, has_scores=True, has_histograms=True)
WORSE = replace(TWINS, name="worse", error_factor=5.0, latency_factor=1.05, score_shift=0.01)
_ADD_WINDOW = """
    INSERT INTO PredictionWindow (model_version_id, window_start, role, rollout_id, policy_generation, shipper, epoch,
                                  calls, errors, counts)
    VALUES ($1, to_timestamp($2), $3, $4, $5, $6, 0, $7, $8, $9)
"""


class PastStore(PostgresRolloutStore):
    """The store of a database whose rollouts happen at ``now`` instead of today."""

    def __init__(self, database_url: str, now: float) -> None:
        super().__init__(database_url, timeout_seconds=5)
        self.now = now

    async def view(self, rollout_id: int) -> RolloutView:
        return (await super().view(rollout_id))._replace(read_at=self.now)

    async def record(self, rollout_id: int) -> RecordSeen:
        return (await super().record(rollout_id))._replace(read_at=self.now)


class ReadyProbe(WarmUpProbe):
    """Says of every version that it answers."""

    def __init__(self) -> None:
        super().__init__(MemoryPolicySource(), lambda _: None, ())  # type: ignore[arg-type,return-value]  # never called

    async def probe(self, model_name: str, version_label: str, *, epoch: Epoch | None = None) -> WarmUpResult:
        return WarmUpResult(passed=True)


class PastRollout:
    """A rollout of churn 7 against 6 that began ``seconds_ago``; :meth:`go_on` lets time pass."""

    def __init__(self, database: asyncpg.Connection, database_url: str, world: World, seconds_ago: float) -> None:
        self._database = database
        self._url = database_url
        self._traffic = Traffic(world, 3)
        self._random = np.random.default_rng(3)
        self._seconds_ago = seconds_ago
        self._generated = 0
        self.telemetry = PrometheusTelemetry()
        self.versions: dict[str, int] = {}
        self.outcomes: dict[int, Outcomes] = {}
        self.metrics_of: Callable[[int], Metrics] = lambda _: ()
        self.scores: ScoreComparison | None = None
        self.guard_settings = GuardSettings()

    async def begin(self, plan: RolloutPlan = PLAN) -> RolloutRecord:
        await self.prepare()
        new = NewRollout("churn", "7", plan, "spring", round(self._traffic.slow_us))
        record = await self.store.start(new, Actor("dana@laptop", "cli", "weekly retrain"))
        await self._date_back(record.id)
        return record

    async def begin_by_hand(self, assignments: str) -> None:
        """Change the policy by SQL, in which ``{}`` is the id of version 7: the database opens a guard."""
        await self.prepare()
        await self._database.execute(f"UPDATE ServingPolicy SET {assignments.format(self.versions['7'])}")
        await self.watch()

    async def watch(self) -> None:
        """Take the guard that a change of the policy has opened, whoever made it, as one that began in the past."""
        guard = await self._database.fetchval("SELECT id FROM Rollout WHERE kind = 'guard'")
        await self.store.set_slow_us(guard, round(self._traffic.slow_us))
        await self._date_back(guard)

    async def prepare(self) -> None:
        """Register both versions, and the policy in which version 6 serves alone."""
        self.versions = await two_versions(self._database)
        now = await self._database.fetchval("SELECT extract(epoch FROM now())::float8")
        self._first = int((now - self._seconds_ago) // WINDOW_SECONDS) * WINDOW_SECONDS
        self.store = PastStore(self._url, float(self._first))
        self.starts_anew()

    def starts_anew(self, gates: GateAsks | None = None) -> None:
        """Let another monitor lead, which remembers nothing."""
        self.entities = EntityCheck(self.store, PostgresPredictionHistory(self._url, timeout_seconds=5))
        metrics = PostgresMetricStore(self._url, timeout_seconds=5)
        self.drifts = DriftCheck(self.store, metrics, environment="test")
        windows = PostgresWindowLog(self._url, timeout_seconds=5)
        self.slices = SliceCheck(self.store, windows)
        self.executor = RolloutExecutor(
            self.store,
            windows,
            self._outcomes_of,
            ReadyProbe(),
            self.telemetry,
            entities=self.entities,
            drifts=self.drifts,
            slices=self.slices,
            gates=gates,
            scores=self.scores,
            metrics_of=self._metrics_of,
            guard_settings=self.guard_settings,
            environment="test",
        )

    def _metrics_of(self, rollout_id: int) -> Metrics:
        return self.metrics_of(rollout_id)

    def _outcomes_of(self, rollout_id: int) -> Outcomes:
        return self.outcomes.get(rollout_id, ())

    async def _date_back(self, rollout_id: int) -> None:
        self.id = rollout_id
        await self._database.execute(
            """UPDATE Rollout SET started_at = to_timestamp($1),
                      state = state || jsonb_build_object('started_at', $1::float8, 'limit_from', $1::float8,
                          'promoted_at', CASE WHEN state ->> 'promoted_at' IS NOT NULL THEN $1::float8 END)""",
            self.store.now,
        )
        # A proxy that acts on whatever the policy says, and never falls silent: without a live one no step is taken.
        await self._database.execute(
            "INSERT INTO ProxyInstance (instance, generations, seen_at)"
            " VALUES ('past:1', '{\"churn\": 1000000}', now() + INTERVAL '1 day')"
        )
        await self._date_events()

    async def served_before(self, minutes: int) -> None:
        """Let the champion have served alone, outside of any rollout and without a threshold, before this one."""
        traffic = Traffic(replace(self._traffic.world, error_factor=1.0, latency_factor=1.0), 4)
        windows = traffic.windows(-minutes * int(LOOK_SECONDS) // WINDOW_SECONDS, minutes * 4, 0.0)
        alone = [
            replace(window, key=window.key._replace(shipper="before"), slow_low=0, slow_high=0, tails=Histogram())
            for window in windows
            if window.key.role is Role.CHAMPION
        ]
        for window in alone:
            window.buckets[:, [BucketColumn.SLOW_LOW, BucketColumn.SLOW_HIGH]] = 0
        view = await self.store.view(self.id)
        await self._database.executemany(_ADD_WINDOW, [self._row(window, view, 0) for window in alone])

    async def go_on(self, minutes: int, minutes_a_look: int = 1) -> None:
        """Let minutes pass, with a look of the monitor at the end of each, or of every few of them."""
        for _ in range(minutes // minutes_a_look):
            view = await self.store.view(self.id)
            weight = view.policy.weight_percent if view.policy and view.policy.rollout_id else 0
            if view.record.state.promoted_at is not None and not view.record.state.phase.is_final:
                await self._ship(view, 100, minutes_a_look)
            elif view.record.state.promoted_at is None and weight:
                await self._ship(view, weight, minutes_a_look)
            else:
                self._generated += minutes_a_look * int(LOOK_SECONDS) // WINDOW_SECONDS
            self.store.now += minutes_a_look * LOOK_SECONDS
            await self.executor.tick(epoch=None)  # type: ignore[arg-type]  # nobody else leads
            await self._date_events()

    async def go_unwatched(self, minutes: int) -> None:
        """Let minutes pass in which proxies ship their windows and no monitor looks."""
        view = await self.store.view(self.id)
        assert view.policy is not None
        await self._ship(view, view.policy.weight_percent, minutes)
        self.store.now += minutes * LOOK_SECONDS

    async def _ship(self, view: RolloutView, weight_percent: int, minutes: int = 1) -> None:
        count = minutes * int(LOOK_SECONDS) // WINDOW_SECONDS
        generation = view.policy.generation if view.policy else 0
        windows = self._traffic.windows(self._generated, count, weight_percent, generation)
        self._generated += count
        called = [window for window in windows if window.volume]
        await self._database.executemany(_ADD_WINDOW, [self._row(window, view, self.id) for window in called])

    def _row(self, window: Window, view: RolloutView, rollout_id: int) -> Sequence[object]:
        key = window.key
        is_challenger = key.role is Role.CHALLENGER
        version_id = view.record.challenger_id if is_challenger else view.record.champion_id
        scores = self._random.beta(2 + 0.2 * is_challenger, 5, min(window.answered, 200))
        counts = window_to_json(replace(window, scores=Histogram.of(scores.tolist())))
        start = float(self._first + key.start)
        generation = key.policy_generation
        role = Role.CHAMPION if view.record.state.promoted_at is not None else key.role
        return (version_id, start, role, rollout_id, generation, key.shipper, window.calls, window.errors, counts)

    async def _date_events(self) -> None:
        await self._database.execute(
            "UPDATE RolloutEvent SET at = to_timestamp($1) WHERE at > now() - INTERVAL '1 minute'", self.store.now
        )
        await self._database.execute(
            """UPDATE Rollout SET finished_at = to_timestamp($1), announced_at = CASE WHEN announced_at IS NOT NULL
               THEN to_timestamp($1) END WHERE finished_at > now() - INTERVAL '1 minute'""",
            self.store.now,
        )


class PastArms(PastRollout):
    """A split of churn between 6, the challenger 7 and further arms, 10 % each, that began ``seconds_ago``.

    Args:
        database: Where it is.
        database_url: The same, for the monitor.
        worlds: What the traffic of each version is like beside the champion's, that of the first one.
        seconds_ago: When it begins.
    """

    def __init__(
        self, database: asyncpg.Connection, database_url: str, worlds: Mapping[str, World], seconds_ago: float
    ) -> None:
        super().__init__(database, database_url, next(iter(worlds.values())), seconds_ago)
        # Of the calls that the version and the champion have together.
        together = {
            name: replace(world, requests_per_minute=0.8 * TWINS.requests_per_minute) for name, world in worlds.items()
        }
        self._traffic_of = {
            version: Traffic(world, 3 + number) for number, (version, world) in enumerate(together.items())
        }
        self.ids: dict[str, int] = {}
        """The row of the guard, by version."""

    async def view(self, version: str) -> RolloutView:
        return await self.store.view(self.ids[version])

    async def begin_arms(self, assignments: str = "guard = 'rollback'") -> None:
        await self.prepare()
        challenger, *others = self._traffic_of
        ranges = []
        for number, version in enumerate(others):
            version_id = await self._database.fetchval(
                "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
                " VALUES ('churn', $1, 'file:///m', 'sklearn', '{}') RETURNING id",
                version,
            )
            ranges.append({"version_id": version_id, "first": 90 - 10 * number, "last": 99 - 10 * number})
        await self._database.execute(
            f"UPDATE ServingPolicy SET {assignments}, challenger_weight = 10, arms = $2,"
            " challenger_version = (SELECT id FROM ModelVersion WHERE version = $1)",
            challenger,
            orjson.dumps(ranges).decode(),
        )
        rows = await self._database.fetch(
            "SELECT r.id, version FROM Rollout r JOIN ModelVersion v ON v.id = challenger_version"
        )
        self.ids = {row["version"]: row["id"] for row in rows}
        await self.store.set_slow_us(self.ids[challenger], round(self._traffic.slow_us))
        await self._date_back(self.ids[challenger])

    async def go_on(self, minutes: int, minutes_a_look: int = 1) -> None:
        """Let minutes pass, with a look of the monitor at the end of each, or of every few of them."""
        count = minutes_a_look * int(LOOK_SECONDS) // WINDOW_SECONDS
        for _ in range(minutes // minutes_a_look):
            roles = [Role.CHAMPION, Role.CHALLENGER]
            for version, traffic in self._traffic_of.items():
                await self._ship_arm(await self.view(version), traffic, count, roles)
                roles = [Role.CHALLENGER]
            self._generated += count
            self.store.now += minutes_a_look * LOOK_SECONDS
            await self.executor.tick(epoch=None)  # type: ignore[arg-type]  # nobody else leads
            await self._date_events()

    async def _ship_arm(self, view: RolloutView, traffic: Traffic, count: int, roles: Sequence[Role]) -> None:
        assert view.policy is not None
        weight = view.weights_percent.get(view.policy.generation, 0.0)
        windows = traffic.windows(self._generated, count, weight, view.policy.generation)
        rows = [self._row(one, view, view.record.split_id) for one in windows if one.volume and one.key.role in roles]
        await self._database.executemany(_ADD_WINDOW, rows)


async def insert_rollout(
    database: asyncpg.Connection,
    model_name: str,
    champion_id: int,
    challenger_id: int,
    *,
    finished_days_ago: float = -1,
) -> int:
    """Insert a rollout's row as a hand may, one that can be read; return its id. Negative days: it is open."""
    rollout_id: int = await database.fetchval("SELECT nextval('rollout_id_seq')")
    policy = PolicySeen("6", "7", 0, 1, rollout_id)
    state = new_rollout_state(rollout_id, model_name, NAMED_PLANS["default"], policy, 1.7e9)
    if finished_days_ago >= 0:
        state = replace(state, phase=Phase.FAILED, reason="errors: 4x")
    await database.execute(
        """INSERT INTO Rollout (id, model_name, champion_version, challenger_version, plan, state, phase, finished_at,
                                announced_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, CASE WHEN $8 >= 0 THEN now() - $8::float8 * INTERVAL '1 day' END,
                   CASE WHEN $8 >= 0 THEN now() END)""",
        rollout_id,
        model_name,
        champion_id,
        challenger_id,
        orjson.dumps(plan_to_json(state.plan)).decode(),
        orjson.dumps(state_to_json(state)).decode(),
        state.phase.value,
        float(finished_days_ago),
    )
    return rollout_id


async def two_versions(database: asyncpg.Connection, schema: str = "{}") -> dict[str, int]:
    """Register churn 6, the champion, and 7; return their ids by label."""
    for version in ("6", "7"):
        await database.execute(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, artifact_digest, framework, input_schema,"
            " metrics) VALUES ('churn', $1, 'file:///m', $2, 'sklearn', $3, '{\"base_model\": \"trees-v2\"}')",
            version,
            f"sha256:{version}",
            schema,
        )
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, salt)"
        " SELECT 'churn', id, 'winter' FROM ModelVersion WHERE version = '6'"
    )
    return {row["version"]: row["id"] for row in await database.fetch("SELECT id, version FROM ModelVersion")}
