"""A model with versions, calls and outcomes in a real database, made of plain rows that a test can count by itself."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import NamedTuple
from uuid import UUID

import asyncpg
import orjson

from understudy.core.prediction_log.prediction_id import prediction_id
from understudy.core.routing.route import bucket_of

MODEL = "churn"
HOUR, DAY = 3_600.0, 86_400.0
_COLUMNS = (
    "prediction_id", "predicted_at", "model_version_id", "assigned_version_id", "entity_id", "input_hash", "prediction",
    "score", "latency_ms", "latency_us", "role", "reason", "bucket", "policy_generation", "cache_hit", "status",
)  # fmt: skip


class Call(NamedTuple):
    """One row of ``PredictionLog``."""

    entity_id: str
    at: float
    assigned: int
    generation: int
    served: int | None = None
    """``None``: by the version that it was assigned to."""
    role: str = "champion"
    reason: str = "bucket"
    status: str = "ok"
    score: float | None = None
    latency_us: int = 10_000
    cache_hit: bool = False
    prediction_id: str | None = None


class Told(NamedTuple):
    """One outcome event."""

    at: float
    entity_id: str | None = None
    value: float = 1.0
    prediction_id: str | None = None
    name: str = "converted"


class World:
    """What a test writes into its database."""

    def __init__(self, database: asyncpg.Connection) -> None:
        self.database = database
        self.versions: dict[str, int] = {}
        self._ids = count(1)

    async def add_versions(self, *labels: str, schema: str = "{}") -> None:
        for label in labels:
            self.versions[label] = await self.database.fetchval(
                "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
                " VALUES ($1, $2, 's3://models', 'sklearn', $3) RETURNING id",
                MODEL,
                label,
                schema,
            )

    async def set_policy(
        self,
        champion: str,
        challenger: str | None = None,
        weight: int = 0,
        shadow: str | None = None,
        percent: int = 100,
        *,
        arms: Mapping[str, tuple[int, int]] | None = None,
    ) -> int:
        """Set the policy, and return its generation; ``arms`` are buckets from first to last by version."""
        ids = [None if label is None else self.versions[label] for label in (champion, challenger, shadow)]
        ranges = [
            {"version_id": self.versions[label], "first": first, "last": last}
            for label, (first, last) in (arms or {}).items()
        ]
        generation: int = await self.database.fetchval(
            "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight,"
            " shadow_version, shadow_percent, arms) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT"
            " (model_name) DO UPDATE SET champion_version = $2, challenger_version = $3, challenger_weight = $4,"
            " shadow_version = $5, shadow_percent = $6, arms = $7 RETURNING generation",
            MODEL, ids[0], ids[1], weight, ids[2], percent, orjson.dumps(ranges).decode(),
        )  # fmt: skip
        return generation

    async def backdate(self, seconds: float) -> None:
        """Let every change of the policy have been made so much earlier."""
        await self.database.execute("ALTER TABLE PolicyAudit DISABLE TRIGGER ALL")
        await self.database.execute(
            "UPDATE PolicyAudit SET changed_at = changed_at - make_interval(secs => $1)", seconds
        )
        await self.database.execute("ALTER TABLE PolicyAudit ENABLE TRIGGER ALL")

    def new_id(self, at: float) -> str:
        return prediction_id(int(at * 1_000), next(self._ids))

    async def call(self, calls: Iterable[Call]) -> list[Call]:
        """Write the calls, and return them with their prediction ids."""
        named = [call._replace(prediction_id=call.prediction_id or self.new_id(call.at)) for call in calls]
        rows = [
            (
                UUID(call.prediction_id), datetime.fromtimestamp(call.at, UTC), call.served or call.assigned,
                call.assigned, call.entity_id, "0" * 64, "{}", call.score, call.latency_us // 1_000, call.latency_us,
                call.role, call.reason, bucket_of(MODEL, call.entity_id), call.generation, call.cache_hit, call.status,
            )
            for call in named
        ]  # fmt: skip
        await self.database.copy_records_to_table("predictionlog", records=rows, columns=_COLUMNS)
        return named

    async def tell(self, told: Iterable[Told]) -> None:
        rows = [
            (
                f"e{next(self._ids)}", MODEL, event.entity_id, event.prediction_id and UUID(event.prediction_id),
                event.name, event.value, datetime.fromtimestamp(event.at, UTC),
            )
            for event in told
        ]  # fmt: skip
        columns = ("event_id", "model_name", "entity_id", "prediction_id", "name", "value", "occurred_at")
        await self.database.copy_records_to_table("outcomeevent", records=rows, columns=columns)


def arm_by_bucket(versions: Mapping[str, int], entity_id: str, weight: int, labels: tuple[str, str]) -> int:
    """Return the version that a weight assigns an entity to."""
    return versions[labels[1] if bucket_of(MODEL, entity_id) < weight else labels[0]]
