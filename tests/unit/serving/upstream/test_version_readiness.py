"""Clients that ask whether a version is ready do not wait for its model servers, unless they ask for that."""

import asyncio
from collections.abc import Sequence
from functools import partial

from builders import a_version

from understudy.adapters.memory.backend import MemoryBackend
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.tensors import Row, Tensor
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.champion_health import MEMORY_SECONDS
from understudy.serving.upstream.version_readiness import VersionReadiness


def _never_called(_rows: Sequence[Row]) -> Tensor:
    raise AssertionError


class SlowServer(MemoryBackend):
    """A model server that says whether it is ready once it is let."""

    def __init__(self) -> None:
        super().__init__(_never_called)
        self.asked = 0
        self.may_answer = asyncio.Event()

    async def ready(self, timeout_seconds: float) -> bool:
        self.asked += 1
        await self.may_answer.wait()
        return await super().ready(timeout_seconds)


class World:
    def __init__(self) -> None:
        self.server, self.time = SlowServer(), 100.0
        self.readiness = VersionReadiness(BackendPool(self._caller), lambda: self.time)

    def _caller(self, version: ModelVersion) -> BatchingCaller:
        make = partial(BatchingCaller, concurrency=1, gap_seconds=0.0, batch_rows=8, queue_rows=8)
        return make(version, self.server, now=lambda: self.time)


async def test_what_is_known_is_said_at_once_and_asked_for_again_once_it_is_old():
    world, version = World(), a_version()
    world.server.is_ready = False

    assert world.readiness.last_known(version) is world.readiness.last_known(version) is True
    world.server.may_answer.set()
    assert await world.readiness.is_ready(version) is False
    assert world.readiness.last_known(version) is False
    assert world.server.asked == 1
    world.server.is_ready, world.time = True, world.time + MEMORY_SECONDS
    assert world.readiness.last_known(version) is False
    assert await world.readiness.is_ready(version) is True


async def test_a_version_without_endpoints_is_not_ready_before_it_was_asked():
    world = World()

    assert world.readiness.last_known(a_version(endpoints=[])) is False
    await world.readiness.close()


async def test_probes_under_way_end_with_the_process():
    world = World()
    world.readiness.last_known(a_version())
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    await world.readiness.close()

    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
