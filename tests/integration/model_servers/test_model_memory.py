"""What versions really take of a model server's memory, beside what is expected of them."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from worlds.managed_server import ManagedServer
from worlds.onnx_file import a_matrix_model

from understudy.core.loading.memory import MEBIBYTE, PADS, estimated_bytes
from understudy.core.loading.state import LoadingState
from understudy.errors import NothingFits
from understudy.loading.memory_budget import MemoryBudget
from understudy.ports.loading.agent_store import LoadingRecord, VersionAtServer

SIZES = (8, 24, 64)
"""MiB of the models."""
PAD_BYTES = PADS["understudy"]


class Server(ManagedServer):
    """With artifacts of any size."""

    async def fetched(self, name: str, mebibytes: int) -> tuple[Path, VersionAtServer]:
        (self.artifacts / f"{name}.onnx").write_bytes(a_matrix_model(mebibytes * MEBIBYTE))
        staged = await self.stage.fetch(f"{name}.onnx", None)
        record = LoadingRecord(LoadingState.LOADING, 1, may_retry=False, digest=staged.digest)
        seen = VersionAtServer(mebibytes, "m", name, "", "onnx", None, 1.0, None, False, False, record)
        return staged.folder, seen

    async def load(self, budget: MemoryBudget, name: str, folder: Path, version: VersionAtServer) -> int:
        loaded = await budget.load(version, lambda: self.control.load(name, folder, "onnx"))
        assert loaded is not None
        return loaded.memory_bytes


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    started = await asyncio.to_thread(Server, tmp_path)
    yield started
    await started.stop()


async def test_what_is_expected_by_size_is_within_twice_and_half_of_what_is_measured(server: Server):
    budget = server.budget(10_000 * MEBIBYTE, PAD_BYTES)
    for size in SIZES:
        name = f"m--{size}--00000000"
        folder, version = await server.fetched(name, size)

        taken = await server.load(budget, name, folder, version)

        assert version.record is not None
        assert version.record.digest is not None
        expected = estimated_bytes(await server.stage.files_of(version.record.digest), pad_bytes=PAD_BYTES)
        sys.stdout.write(f"{size} MiB: {expected / MEBIBYTE:.0f} expected, {taken / MEBIBYTE:.0f} measured\n")
        assert 0.5 <= expected / taken <= 2.0


async def test_a_model_that_does_not_fit_is_refused_with_what_was_measured_and_the_server_is_not_asked(server: Server):
    budget = server.budget(200 * MEBIBYTE, PAD_BYTES)
    folder, first = await server.fetched("m--1--00000000", 24)
    await budget.look([first], set(), is_idle=True)  # the server by itself
    taken = await server.load(budget, "m--1--00000000", folder, first)
    assert first.record is not None
    loaded = first._replace(record=first.record._replace(state=LoadingState.AVAILABLE, memory_bytes=taken))
    await budget.look([loaded], {loaded.version_id}, is_idle=True)
    folder, second = await server.fetched("m--2--00000000", 64)

    with pytest.raises(NothingFits, match=r"needs some 141 MiB of memory \(by the size of its files\)") as refused:
        await server.load(budget, "m--2--00000000", folder, second)

    assert f"{taken / MEBIBYTE:,.0f} MiB are by 1 version" in refused.value.detail
    assert "by the server itself" in refused.value.detail
    assert await server.control.loaded() == {"m--1--00000000"}
