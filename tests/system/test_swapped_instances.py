"""Instances take each other's place under load."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from e2e.stack import a_stack, get
from e2e.test_reloads import ENOUGH_SECONDS, a_proxy, loaded, nothing_is_lost, until


async def until_draining(port: int) -> None:
    await until(lambda: get(f"http://127.0.0.1:{port}/readyz")[0] == 503, "/readyz does not say that the proxy drains")


async def test_two_instances_are_swapped_without_a_lost_call_though_callers_learn_of_it_late(
    tmp_path: Path, database_url: str, model_port: Callable[[str], int]
):
    with a_stack(tmp_path, database_url) as stack:
        target = [await a_proxy(stack, database_url, model_port("visits:1"), drain_seconds=20)]
        leaving = stack.processes["proxy"]
        async with loaded(lambda: target[0]) as load:
            for number in range(2):
                name = f"proxy-{number}"
                other = await asyncio.to_thread(stack.start_proxy, name, drain_seconds=20, state_dir=tmp_path / name)
                leaving.signal(signal.SIGTERM)
                await until_draining(target[0])
                target[0] = other
                await asyncio.to_thread(leaving.child.wait, ENOUGH_SECONDS)
                leaving = stack.processes[name]

        await nothing_is_lost(load, database_url)
