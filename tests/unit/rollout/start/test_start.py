"""What a start means: its forecast takes seconds at worst, in which the event loop answers others."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from understudy.ports.registry.registry import ModelRecord, PolicyRecord, VersionRecord
from understudy.rollout.start.start import prepare

AT = datetime(2026, 11, 20, 13, 0, tzinfo=UTC)
POLICY = PolicyRecord("churn", "6", None, 0, None, 100, True, None, {}, None, None, 4, AT, "dana", 1, 1)


class OneModel:
    """The registry of churn with its versions 6 and 7, and the windows of a model without calls."""

    async def show_model(self, model_name: str) -> ModelRecord:
        return ModelRecord(model_name, POLICY, 2)

    async def show_version(self, model_name: str, version: str) -> VersionRecord:
        return VersionRecord(
            id=int(version), model_name=model_name, version=version, status="staging", artifact_path="",
            artifact_digest=None, base_model=None, family=None, framework="onnx", protocol="oip", endpoints=(),
            input_schema={}, output_schema={}, metrics=None, backend={}, deterministic=True, cache_ttl_seconds=0,
            timeout_ms=500, created_at=AT, deployed_at=None,
        )  # fmt: skip

    async def of_versions(self, _ids: Sequence[int], _since: float, _until: float) -> Sequence[Any]:
        return ()


async def test_the_event_loop_answers_others_while_a_plan_is_forecast():
    answered = asyncio.Event()
    one: Any = OneModel()

    async def another_caller() -> None:
        answered.set()

    other = asyncio.create_task(another_caller())
    prepared = await prepare(one, one, "churn", "7", "5,100", now=0.0, budget_ratio=0.5)

    assert answered.is_set()
    assert (prepared.challenger.version, prepared.generation) == ("7", 4)
    await other
