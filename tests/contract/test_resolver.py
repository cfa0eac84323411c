"""What every resolver does: the twin, and the system's."""

import asyncio
import threading
from ipaddress import ip_address

import pytest

from understudy.adapters.memory.resolver import MemoryResolver
from understudy.adapters.model_servers import system_resolver
from understudy.adapters.model_servers.system_resolver import MAX_QUESTIONS, SystemResolver
from understudy.core.upstream.endpoint_rules import Target
from understudy.ports.upstream.resolver import NameNotResolved, Resolver

KNOWN, UNKNOWN = Target("localhost", 8500), Target("no-such-name.invalid", 8500)


@pytest.fixture(params=["memory", "system"])
def resolver(request: pytest.FixtureRequest) -> Resolver:
    return MemoryResolver({"localhost": ["127.0.0.1", "127.0.0.1"]}) if request.param == "memory" else SystemResolver()


async def test_each_address_of_a_name_comes_once(resolver):
    found = await resolver.addresses(KNOWN)

    assert ip_address("127.0.0.1") in found
    assert len(set(found)) == len(found)


async def test_a_name_that_is_not_known_is_said_so(resolver):
    with pytest.raises(NameNotResolved):
        await resolver.addresses(UNKNOWN)


async def test_all_addresses_of_both_families_come_and_zones_are_left_out():
    texts = ["10.0.0.1", "fd00::1", "fe80::1%eth0", "10.0.0.1", *(f"10.1.{part}.1" for part in range(100))]

    found = await SystemResolver(lambda _host, _port: texts).addresses(KNOWN)

    assert found[:3] == [ip_address("10.0.0.1"), ip_address("fd00::1"), ip_address("fe80::1")]
    assert len(found) == 103


@pytest.mark.parametrize("problem", [OSError("away"), UnicodeError("label too long")])
async def test_a_question_that_fails_is_told_and_the_next_one_is_asked(problem):
    problems = [problem]

    def resolve(_host: str, _port: int) -> list[str]:
        if problems:
            raise problems.pop()
        return ["10.0.0.1"]

    resolver = SystemResolver(resolve)

    with pytest.raises(NameNotResolved):
        await resolver.addresses(KNOWN)
    assert await resolver.addresses(KNOWN) == [ip_address("10.0.0.1")]


async def test_an_answer_without_an_address_is_none():
    with pytest.raises(NameNotResolved, match="no address"):
        await SystemResolver(lambda _host, _port: []).addresses(KNOWN)


async def test_a_name_server_that_hangs_costs_a_bounded_number_of_threads_and_no_one_waits_beyond_the_time(monkeypatch):
    monkeypatch.setattr(system_resolver, "RESOLVE_SECONDS", 0.2)
    goes_on, asked = threading.Event(), []

    def hang(host: str, _port: int) -> list[str]:
        asked.append(host)
        goes_on.wait(60)
        return ["10.0.0.1"]

    resolver = SystemResolver(hang)
    targets = [Target(f"m{number}.test", 8500) for number in range(3 * MAX_QUESTIONS)]
    try:
        found = await asyncio.gather(*(resolver.addresses(target) for target in targets), return_exceptions=True)
        again = await asyncio.gather(*(resolver.addresses(target) for target in targets), return_exceptions=True)
    finally:
        goes_on.set()

    assert all(isinstance(one, NameNotResolved) for one in [*found, *again])
    assert len(asked) == MAX_QUESTIONS
    assert await resolver.addresses(targets[-1]) == [ip_address("10.0.0.1")]


async def test_names_that_were_late_before_keep_no_other_from_an_answer(monkeypatch):
    monkeypatch.setattr(system_resolver, "RESOLVE_SECONDS", 0.5)
    goes_on, clock = threading.Event(), [0.0]

    def resolve(host: str, _port: int) -> list[str]:
        if host != KNOWN.host:
            goes_on.wait(60)
        return ["10.0.0.1"]

    resolver = SystemResolver(resolve, lambda: clock[0])
    dead = [Target(f"m{number}.test", 8500) for number in range(MAX_QUESTIONS)]
    try:
        await asyncio.gather(*(resolver.addresses(target) for target in dead), return_exceptions=True)
        late = asyncio.gather(*(resolver.addresses(target) for target in dead))
        await asyncio.sleep(0)  # they join the questions that hang
        clock[0] += 30.0
        goes_on.set()
        await late
        goes_on.clear()
        async with asyncio.TaskGroup() as group:
            for target in dead:
                group.create_task(expect_none(resolver, target))
            await asyncio.sleep(0)  # all of them ask first
            found = await resolver.addresses(KNOWN)
    finally:
        goes_on.set()

    assert found == [ip_address("10.0.0.1")]


async def expect_none(resolver: SystemResolver, target: Target) -> None:
    with pytest.raises(NameNotResolved):
        await resolver.addresses(target)


async def test_versions_that_ask_at_the_same_time_share_a_question():
    asked = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["10.0.0.1"]

    resolver = SystemResolver(resolve)

    await asyncio.gather(*(resolver.addresses(KNOWN) for _ in range(5)))

    assert asked == ["localhost"]
