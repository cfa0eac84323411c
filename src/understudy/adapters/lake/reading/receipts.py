"""``ReceiptLog`` over the lake: single calls, found by the hours that they can be in."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol

import orjson

from understudy.adapters.lake.reading.question import Lake, Question, micros
from understudy.adapters.lake.reading.snapshot import Wanted
from understudy.ports.prediction_log.lake import VersionName
from understudy.ports.prediction_log.receipts import (
    EARLY_SECONDS,
    LATE_SECONDS,
    MAX_DEFAULTED,
    MAX_LABEL,
    MAX_OF_PREDICTION,
    EntityAsked,
    Receipt,
)

_COLUMNS = (
    "prediction_id", "predicted_at", "model", "version", "assigned_version_id", "entity_id", "role", "reason", "status",
    "error_code", "score", "prediction", "latency_us", "bucket", "policy_generation", "rollout_id", "cache_hit",
    "defaulted", "model_version_id",
)  # fmt: skip
_NAMES = ", ".join(_COLUMNS)
_READ = f"SELECT * REPLACE (epoch_us(predicted_at) AS predicted_at) FROM (SELECT {_NAMES} FROM batch)"  # noqa: S608
_OF_ENTITY = f"{_READ} WHERE coalesce(role, '') <> 'shadow' ORDER BY predicted_at DESC, prediction_id DESC LIMIT $most"
_Row = dict[str, Any]


class VersionNames(Protocol):
    """Names versions."""

    async def names_of(self, version_ids: Sequence[int]) -> Mapping[int, VersionName]:
        """Return the names of versions; one that is not registered (any more) is left out."""


class LakeReceiptLog:
    """Implements ``ports.ReceiptLog``.

    Args:
        lake: Has the calls.
        names: Names the versions of routes, which a row has by number alone.
    """

    def __init__(self, lake: Lake, names: VersionNames) -> None:
        self._lake = lake
        self._names = names

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def of_prediction(self, prediction_id: str, at: float) -> Sequence[Receipt]:
        # Rows have ids as they are made, in small letters; Postgres reads both.
        equal = (("prediction_id", prediction_id.lower()),)
        wanted = Wanted(_COLUMNS, micros(at - EARLY_SECONDS), micros(at + LATE_SECONDS), equal=equal)
        async with self._lake.open() as steps:
            rows = await steps.do(lambda question: _rows(question.gather(wanted, _READ)))
        rows.sort(key=lambda row: (row["role"] == "shadow", row["predicted_at"]))
        return await self._receipts(rows[:MAX_OF_PREDICTION])

    async def of_entity(self, asked: EntityAsked, timeout_seconds: float) -> Sequence[Receipt]:
        wanted = Wanted(
            _COLUMNS,
            micros(asked.since),
            micros(asked.until),
            models=[asked.model_name],
            equal=(("entity_id", asked.entity_id),),
        )

        def found(question: Question) -> list[_Row]:
            rows = _rows(question.gather(wanted, _OF_ENTITY, {"most": asked.at_most}))
            return sorted(rows, key=lambda row: (row["predicted_at"], row["prediction_id"]), reverse=True)

        async with self._lake.open(timeout_seconds) as steps:
            return await self._receipts((await steps.do(found))[: asked.at_most])

    async def _receipts(self, rows: Sequence[_Row]) -> list[Receipt]:
        names = await self._names.names_of(sorted({row["assigned_version_id"] for row in rows} - {None}))
        return [_receipt(row, names.get(row["assigned_version_id"])) for row in rows]


def _rows(found: Sequence[Sequence[Any]]) -> list[_Row]:
    return [dict(zip(_COLUMNS, row, strict=True)) for row in found]


def _receipt(row: _Row, assigned: VersionName | None) -> Receipt:
    return Receipt(
        prediction_id=row["prediction_id"],
        predicted_at=row["predicted_at"] / 1e6,
        model_name=row["model"],
        version=row["version"],
        assigned=None if assigned is None else assigned.version,
        entity_id=row["entity_id"],
        role=row["role"],
        reason=row["reason"],
        status=row["status"],
        error_code=row["error_code"],
        score=row["score"],
        label=_label(row["prediction"]),
        latency_us=row["latency_us"],
        bucket=row["bucket"],
        generation=row["policy_generation"],
        rollout_id=row["rollout_id"],
        is_cache_hit=row["cache_hit"],
        defaulted=_names_in(row["defaulted"]),
    )


def _label(prediction: str | None) -> str | None:
    answer = orjson.loads(prediction) if prediction else None
    if not isinstance(answer, dict) or "label" not in answer:
        return None
    text = orjson.dumps(answer["label"])
    return text.decode() if len(text) <= MAX_LABEL else None


def _names_in(defaulted: str | None) -> tuple[str, ...]:
    if defaulted is None or len(defaulted.encode()) > MAX_DEFAULTED:
        return ()
    found = orjson.loads(defaulted)
    return tuple(str(name) for name in found) if isinstance(found, list) else ()
