"""From when on a model server is ready, and how long its drain is waited for, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from virtual_time import run_in_virtual_time

from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import Why
from understudy.loading.server_lifetime import BEGIN_SECONDS, DECISION_SECONDS, ServerLifetime
from understudy.ports.loading.agent_store import LoadingRecord, VersionAtServer


def a_lifetime(on_drain: Callable[[], None] = lambda: None) -> ServerLifetime:
    return ServerLifetime(asyncio.get_running_loop().time, on_drain)


def a_version(state: LoadingState | None, why: Why | None = Why.CHAMPION, *, is_elsewhere: bool = False):
    is_available = state is LoadingState.AVAILABLE
    record = None if state is None else LoadingRecord(state, 0, may_retry=False, digest="sha256:1")
    return VersionAtServer(
        1, "visits", "1", "visits/1", "onnx", None, 1.0, why, is_available, is_available, record,
        is_elsewhere=is_elsewhere,
    )  # fmt: skip


def in_a_loop(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario()

    run_in_virtual_time(run())


@pytest.mark.parametrize(
    ("version", "is_ready"),
    [
        (a_version(None), False),
        (a_version(LoadingState.LOADING), False),
        (a_version(LoadingState.AVAILABLE), True),
        (a_version(LoadingState.ERROR), True),
        (a_version(LoadingState.ERROR, is_elsewhere=True), False),
        (a_version(LoadingState.ERROR, Why.PREVIOUS_CHAMPION, is_elsewhere=True), True),
    ],
)
def test_a_server_is_ready_once_it_has_what_it_is_to_have_but_for_what_no_server_can_load(version, is_ready):
    async def scenario() -> None:
        lifetime = a_lifetime()

        lifetime.note([version], is_validating=False)

        assert lifetime.is_ready is is_ready

    in_a_loop(scenario)


def test_a_server_that_was_ready_once_stays_ready_while_further_versions_are_loaded():
    async def scenario() -> None:
        lifetime = a_lifetime()
        lifetime.note([a_version(LoadingState.AVAILABLE)], is_validating=False)

        lifetime.note([a_version(LoadingState.LOADING)], is_validating=False)

        assert lifetime.is_ready

    in_a_loop(scenario)


def test_a_server_without_versions_is_ready_only_when_a_monitor_has_had_the_time_to_give_it_some():
    async def scenario() -> None:
        lifetime = a_lifetime()
        lifetime.note([], is_validating=False)
        assert not lifetime.is_ready

        await asyncio.sleep(DECISION_SECONDS)
        lifetime.note([], is_validating=False)

        assert lifetime.is_ready

    in_a_loop(scenario)


def test_a_drain_that_does_not_begin_is_waited_for_for_a_few_seconds_only():
    async def scenario() -> None:
        began_at = asyncio.get_running_loop().time()

        assert not await a_lifetime().drained(3_600.0)
        assert asyncio.get_running_loop().time() - began_at == pytest.approx(BEGIN_SECONDS)

    in_a_loop(scenario)


def test_a_wait_that_comes_before_the_drain_lasts_until_the_drain_is_over():
    async def scenario() -> None:
        lifetime = a_lifetime()
        waiting = asyncio.get_running_loop().create_task(lifetime.drained(60.0))
        await asyncio.sleep(1)
        lifetime.drain()
        lifetime.note([a_version(LoadingState.QUIESCING)], is_validating=False)
        await asyncio.sleep(BEGIN_SECONDS)
        assert not waiting.done()

        lifetime.note([a_version(LoadingState.UNLOADING)], is_validating=False)

        assert await waiting

    in_a_loop(scenario)


def test_a_drain_is_not_over_while_a_validation_may_end_with_an_endpoint():
    async def scenario() -> None:
        lifetime = a_lifetime()
        lifetime.drain()
        lifetime.note([a_version(LoadingState.LOADING)], is_validating=True)

        assert not await lifetime.drained(60.0)

    in_a_loop(scenario)


def test_every_wait_ends_together_however_late_it_began():
    async def scenario() -> None:
        lifetime, loop = a_lifetime(), asyncio.get_running_loop()
        lifetime.drain()
        drains_at = loop.time()
        await asyncio.sleep(50)

        assert not await lifetime.drained(60.0)
        assert loop.time() - drains_at == pytest.approx(60.0)
        assert not await lifetime.drained(60.0)
        assert loop.time() - drains_at == pytest.approx(60.0)

    in_a_loop(scenario)


def test_a_drain_begins_once():
    async def scenario() -> None:
        begun: list[bool] = []
        lifetime = a_lifetime(lambda: begun.append(True))

        lifetime.drain()
        lifetime.drain()

        assert begun == [True]

    in_a_loop(scenario)
