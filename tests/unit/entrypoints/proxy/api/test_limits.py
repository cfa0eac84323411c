"""What the overload manager of a process is made from: settings, and the process's own limits."""

import pytest
from structlog.testing import capture_logs

from understudy.entrypoints.proxy.overload.body_budget import BODY_BUDGET, HeldBody
from understudy.entrypoints.proxy.overload.descriptors import connection_limits, descriptor_limit
from understudy.entrypoints.proxy.overload.overload import OVERLOAD
from understudy.errors import Overloaded


async def test_the_limits_are_those_of_the_settings(start):
    running = await start(
        max_connections=70, max_connections_per_address=7, max_memory_bytes=10**9, max_lag_seconds=0.25
    )

    manager = running.state[OVERLOAD]

    assert manager.limits[:2] == (70, 7)
    assert (manager.pressure.max_memory_bytes, manager.pressure.max_lag_seconds) == (10**9, 0.25)


async def test_without_settings_the_limits_come_from_the_descriptors_of_the_process(start):
    running = await start()

    assert running.state[OVERLOAD].limits == connection_limits(descriptor_limit(), None, None)


async def test_bodies_have_a_quarter_of_the_memory_and_an_address_half_of_that(start):
    running = await start(max_memory_bytes=800_000_000)

    budget = running.state[BODY_BUDGET]

    assert (budget.limit_bytes, budget.per_address_bytes) == (200_000_000, 100_000_000)


async def test_a_body_of_any_permitted_length_fits_into_the_share_of_an_address_however_little_memory_there_is(start):
    running = await start(max_memory_bytes=1_000_000, rank_body_limit_bytes=5_000_000)

    budget = running.state[BODY_BUDGET]

    assert (budget.limit_bytes, budget.per_address_bytes) == (10_000_000, 5_000_000)


async def test_a_refused_body_is_an_overload_that_names_its_address(start):
    running = await start(max_memory_bytes=800_000_000)

    with capture_logs() as logged, pytest.raises(Overloaded):
        HeldBody(running.state[BODY_BUDGET], "10.0.0.1").count(100_000_001)

    assert [(entry["event"], entry["trigger"], entry["address"], entry["limit"]) for entry in logged] == [
        ("overload.began", "bodies", "10.0.0.1", 100_000_000)
    ]
    assert b'connections_refused_total{trigger="bodies"} 1.0' in running.telemetry.exposition()[0]
