"""What concurrent misses share, and what they do not."""

import asyncio
import time

from builders import a_version

from understudy.adapters.local_cache import PredictionMemory
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import Prediction
from understudy.core.schema.schema import assembled
from understudy.core.schema.tensors import Row
from understudy.serving.upstream.cached_inference import CachedInference


class AnswersOf:
    """A caller of a version that answers by how the version's outputs are read, once it may."""

    def __init__(self, version: ModelVersion, may_answer: asyncio.Event) -> None:
        self._answer = Prediction(version.output_schema.activation.encode(), 1.0)
        self._may_answer = may_answer

    async def call(self, row: Row, deadline: float, *, keeps_output: bool = False) -> Prediction:
        del row, deadline, keeps_output
        await self._may_answer.wait()
        return self._answer


class Callers:
    """Has a caller for each version."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    def of(self, version: ModelVersion) -> AnswersOf:
        return AnswersOf(version, self.may_answer)


async def test_calls_under_two_definitions_of_one_version_do_not_share_an_answer():
    before, after = (
        a_version(cache_ttl_seconds=60, output_schema={"tensor": "p", "activation": activation})
        for activation in ("none", "sigmoid")
    )
    callers = Callers()
    inference = CachedInference(
        callers,  # type: ignore[arg-type]  # two of its methods are asked
        memory_cache=PredictionMemory(1_000_000),
        shared_cache=None,
        telemetry=MemoryTelemetry(),
        now=time.monotonic,
    )
    deadline = time.monotonic() + 60
    calls = [asyncio.create_task(inference.infer(one, assembled((b"1234",)), deadline)) for one in (before, after)]
    await asyncio.sleep(0)
    callers.may_answer.set()

    assert [(await call)[0].json for call in calls] == [b"none", b"sigmoid"]
    assert before.id == after.id
