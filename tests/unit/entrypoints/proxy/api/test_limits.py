"""What the overload manager of a process is made from: settings, and the process's own limits."""

from understudy.entrypoints.proxy.server.descriptors import connection_limits, descriptor_limit
from understudy.entrypoints.proxy.server.overload import OVERLOAD


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
