"""A version that only proxies reach is warmed up by them; the monitor's own reach decides whether they are asked."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from builders import a_policy, a_version, a_version_row, policy_rows
from virtual_time import in_virtual_time

from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.adapters.memory.warm_ups import MemoryWarmUps
from understudy.adapters.model_servers.connect import PROTOCOLS
from understudy.core.rollout.proxy_warm_up import LiveProxy
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.rollout.warm_up.proxy_warm_up import ANSWER_SECONDS, ProxyWarmUp
from understudy.rollout.warm_up.warm_up import CALLS, WarmUpProbe
from understudy.rollout.warm_up.warm_up_answerer import WarmUpAnswerer

HERE = "monitor-1"


def zeros(rows: Sequence[Row]) -> Tensor:
    return Tensor(Datatype.FP32, (len(rows),), np.zeros(len(rows), np.float32))


@dataclass
class World:
    """Proxies with a model server each, and a monitor that reaches none of them."""

    warm_ups: MemoryWarmUps = field(
        default_factory=lambda: MemoryWarmUps("visits", lambda: asyncio.get_running_loop().time())
    )
    servers: dict[str, MemoryBackend] = field(default_factory=dict)
    own: MemoryBackend = field(default_factory=lambda: MemoryBackend(zeros))
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.own.is_ready = self.own.is_connected = False

    def add(self, instance: str, *, is_ready: bool = True, answers: bool = True, runs: bool = True) -> MemoryBackend:
        server = self.servers[instance] = MemoryBackend(zeros)
        server.is_ready = is_ready
        self.warm_ups.live = [*(self.warm_ups.live or ()), LiveProxy(instance, answers_warm_ups=answers)]
        if runs:
            answerer = WarmUpAnswerer(self.warm_ups, instance, snapshot, lambda _: server)
            self.warm_ups.on_ask.append(answerer.wake)
            self.tasks.append(asyncio.create_task(answerer.run()))
        return server

    async def probe(self, endpoints: Sequence[str] = ("tfs:8500",)):
        versions = [a_version_row(label, endpoints=list(endpoints)) for label in ("1", "2")]
        policies = MemoryPolicySource({"models": {"visits": policy_rows(versions=versions)}, "keys": []})
        proxies = ProxyWarmUp(self.warm_ups, HERE)
        found = await WarmUpProbe(policies, lambda _: self.own, PROTOCOLS, proxies).probe("visits", "2")
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        return found


def snapshot() -> PolicySnapshot:
    versions: list[ModelVersion] = [a_version("1"), a_version("2")]
    return PolicySnapshot({"visits": a_policy(champion=versions[0], challenger=versions[1])})


@in_virtual_time
async def test_each_live_proxy_makes_the_calls_that_the_monitor_cannot_make():
    world = World()
    servers = [world.add("web-1:7"), world.add("web-2:7")]

    found = await world.probe()

    assert found.passed, found.detail
    assert found.proxies == ("web-1:7", "web-2:7")
    assert [len(server.calls) for server in servers] == [CALLS, CALLS]
    assert world.own.calls == []


@in_virtual_time
async def test_a_proxy_whose_own_server_is_dead_holds_it_back_by_name():
    world = World()
    world.add("web-1:7")
    world.add("web-2:7", is_ready=False)

    found = await world.probe()

    assert not found.passed
    assert found.detail == (
        "no model server is reached from here, and 1 of 2 live proxies find it ready; "
        "web-2:7: no model server says that it is ready"
    )


@in_virtual_time
async def test_proxies_of_a_release_before_and_those_that_are_silent_are_named_and_not_waited_for_longer_than_a_tick():
    world = World()
    world.add("web-1:7")
    world.add("web-2:7", answers=False, runs=False)
    world.add("web-3:7", runs=False)

    found = await world.probe()

    assert not found.passed
    assert "web-2:7: its release answers no warm-ups: upgrade it" in found.detail
    assert f"web-3:7: it did not answer within {ANSWER_SECONDS:g} s" in found.detail
    assert list(world.warm_ups.asked[0].instances) == ["web-1:7", "web-3:7"]
    assert asyncio.get_running_loop().time() < ANSWER_SECONDS + 1


@in_virtual_time
async def test_where_all_proxies_are_of_a_release_before_none_is_asked():
    world = World()
    world.add("web-1:7", answers=False, runs=False)

    found = await world.probe()

    assert "web-1:7: its release answers no warm-ups" in found.detail
    assert world.warm_ups.asked == []


@in_virtual_time
async def test_without_a_live_proxy_what_the_monitor_found_is_said():
    found = await World().probe()

    assert (found.passed, found.detail) == (False, "no model server says that it is ready")


@in_virtual_time
async def test_while_the_reports_of_proxies_are_locked_it_is_not_ready_and_says_why():
    world = World()
    world.warm_ups.live = None

    found = await world.probe()

    assert not found.passed
    assert "another session keeps ProxyInstance locked" in found.detail


@in_virtual_time
async def test_that_proxies_cannot_be_asked_is_why_it_is_not_ready_and_no_failure_of_the_tick():
    world = World()
    world.add("web-1:7", runs=False)
    world.warm_ups.available = False

    found = await world.probe()

    assert not found.passed
    assert found.detail.startswith("no model server says that it is ready; live proxies cannot be asked: ")


@in_virtual_time
async def test_a_server_that_the_monitor_reaches_is_called_by_the_monitor_alone():
    world = World()
    world.own.is_ready = world.own.is_connected = True
    world.add("web-1:7", is_ready=False)

    found = await world.probe()

    assert (found.passed, found.proxies) == (True, ())
    assert world.warm_ups.asked == []


@in_virtual_time
async def test_a_server_that_the_monitor_reaches_and_that_is_not_ready_is_not_asked_through_proxies():
    world = World()
    world.own.is_connected = True
    world.add("web-1:7")

    found = await world.probe()

    assert (found.passed, found.detail) == (False, "no model server says that it is ready")
    assert world.warm_ups.asked == []


@in_virtual_time
async def test_a_loopback_address_that_answers_the_monitor_says_nothing_of_the_pods_of_proxies():
    world = World()
    world.own.is_ready = world.own.is_connected = True
    world.add("web-1:7", is_ready=False)

    found = await world.probe(["127.0.0.1:8500"])

    assert not found.passed
    assert "web-1:7: no model server says that it is ready" in found.detail


@in_virtual_time
async def test_proxies_on_the_monitors_own_machine_share_its_loopback_address():
    world = World()
    world.own.is_ready = world.own.is_connected = True
    world.add(f"{HERE}:7", is_ready=False)

    assert (await world.probe(["127.0.0.1:8500"])).passed
