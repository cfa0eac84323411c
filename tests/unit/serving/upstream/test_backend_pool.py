import asyncio
import gc
import struct
import time
from collections.abc import Sequence
from dataclasses import replace
from weakref import finalize, ref

import numpy as np
import pytest
from builders import a_policy, a_version
from structlog.testing import capture_logs

from understudy.adapters.memory.backend import MemoryBackend
from understudy.core.loading.served_name import served_name
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, VersionUnloaded
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller

ROW = (struct.pack("<2f", 1.0, 2.0),)


def ones(rows: Sequence[Row]) -> Tensor:
    return Tensor(Datatype.FP32, (len(rows), 1), np.ones(len(rows), "<f4"))


class Made:
    """BackendPool over in-memory backends that take a while, and how many were made."""

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self.backends: list[MemoryBackend] = []
        self.delay_seconds = delay_seconds

    def __call__(self, version: ModelVersion) -> BatchingCaller:
        self.backends.append(MemoryBackend(ones, delay_seconds=self.delay_seconds))
        return BatchingCaller(
            version,
            self.backends[-1],
            concurrency=2,
            gap_seconds=0.005,
            batch_rows=16,
            queue_rows=10_000,
            now=time.monotonic,
        )


def snapshot_of(version: ModelVersion) -> PolicySnapshot:
    return PolicySnapshot({"visits": a_policy(champion=version)})


async def test_a_version_keeps_its_caller():
    made = Made()
    backends, version = BackendPool(made), a_version()

    assert backends.of(version) is backends.of(version)
    backends.reconcile(snapshot_of(version))
    assert backends.of(version) is backends.of(version)

    assert len(made.backends) == 1
    await backends.close()


async def test_nothing_holds_a_version_that_has_left_the_policies_once_its_calls_are_answered():
    backends, old, new = BackendPool(Made(delay_seconds=0.02)), a_version(), a_version(endpoints=["127.0.0.1:9001"])
    answer = asyncio.create_task(backends.of(old).call(ROW, time.monotonic() + 5))
    await asyncio.sleep(0.001)
    backends.reconcile(snapshot_of(new))
    held, is_gone = ref(old), asyncio.Event()
    finalize(old, is_gone.set)
    del old

    assert held() is not None  # by its call
    await answer
    del answer
    gc.disable()  # an agent waits for this: no collection is to be waited for
    try:
        async with asyncio.timeout(5):
            await is_gone.wait()
    finally:
        gc.enable()

    await backends.close()


@pytest.mark.deep
async def test_a_swap_under_load_fails_no_row_that_waits_or_is_in_flight():
    made = Made(delay_seconds=0.02)
    backends, old, new = BackendPool(made), a_version(), a_version(endpoints=["127.0.0.1:9001"])
    deadline = time.monotonic() + 5
    waiting = [asyncio.create_task(backends.of(old).call(ROW, deadline)) for _ in range(2_000)]
    await asyncio.sleep(0.001)

    backends.reconcile(snapshot_of(new))
    answers = await asyncio.gather(*waiting)

    assert len(answers) == 2_000
    assert len(backends) == 0
    await backends.close()


async def test_requests_of_the_old_and_the_new_snapshot_do_not_close_each_others_connections():
    made = Made()
    backends, old, new = BackendPool(made), a_version(), a_version(endpoints=["127.0.0.1:9001"])
    deadline = time.monotonic() + 5

    await asyncio.gather(*(backends.of((old, new)[n % 2]).call(ROW, deadline) for n in range(100)))

    assert len(made.backends) == 2
    await backends.close()


async def test_what_no_snapshot_has_any_more_is_closed():
    made = Made()
    backends, old, new = BackendPool(made), a_version(), a_version(endpoints=["127.0.0.1:9001"])
    await backends.of(old).call(ROW, time.monotonic() + 5)

    backends.reconcile(snapshot_of(new))
    await asyncio.sleep(0.01)

    assert not await made.backends[0].ready(1)
    await backends.close()


def unusable(_version: ModelVersion) -> BatchingCaller:
    raise ValueError("Value out of range: 9223372036854775808")


async def test_settings_that_no_backend_can_be_made_of_are_unavailable_and_logged_once_while_the_version_is_known():
    backends, version, other = BackendPool(unusable), a_version(), a_version("2")

    with capture_logs() as logged:
        for each in (version, version, other, version):
            with pytest.raises(BackendUnavailable, match="backend settings cannot be used"):
                backends.of(each)
        backends.reconcile(snapshot_of(other))
        for each in (version, other):
            with pytest.raises(BackendUnavailable):
                backends.of(each)

    found = [(line["event"], line["version"], line["log_level"]) for line in logged]
    assert found == [("backend.not_made", number, "error") for number in ("1", "2", "1")]
    assert len(backends) == 0
    await backends.close()


async def test_a_backend_that_says_why_it_cannot_be_made_is_neither_reworded_nor_logged():
    def refuse(_version: ModelVersion) -> BatchingCaller:
        raise BackendUnavailable("backend.hedge must be true or false")

    backends = BackendPool(refuse)

    with capture_logs() as logged, pytest.raises(BackendUnavailable, match=r"backend\.hedge"):
        backends.of(a_version())

    assert logged == []
    await backends.close()


async def test_a_version_that_agents_have_loaded_nowhere_is_refused_with_when_to_try_again():
    made = Made()
    pool = BackendPool(made)
    version = replace(a_version("1"), endpoints=(), backend={"model_name": served_name("visits", "1")})

    with pytest.raises(VersionUnloaded, match="is loaded at no server now") as refused:
        pool.of(version)

    assert refused.value.retry_after_seconds == 10
    assert made.backends == []
    assert pool.of(replace(version, backend={})) is not None  # people keep its servers: the call says what is wrong
    await pool.close()
