"""Addresses of a receiver's name: asked for once at a time, and an answer that never comes holds nothing up."""

import asyncio
import threading

import pytest

from understudy.adapters.http import name_resolver
from understudy.adapters.http.name_resolver import NameResolver
from understudy.core.upstream.endpoint_rules import Target
from understudy.ports.upstream.resolver import NameNotResolved

TARGET = Target("chat.example", 443)


async def test_calls_at_the_same_time_share_one_question_and_a_later_one_asks_again():
    asked = []
    may_answer = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        may_answer.wait(10)
        return ["127.0.0.1", "127.0.0.1", "fe80::1%eth0"]

    resolver = NameResolver(resolve)
    calls = [asyncio.create_task(resolver.addresses(TARGET)) for _ in range(20)]
    await asyncio.sleep(0)
    may_answer.set()
    found = await asyncio.gather(*calls)
    await resolver.addresses(TARGET)

    assert [str(one) for one in found[0]] == ["127.0.0.1", "fe80::1"]
    assert all(one == found[0] for one in found)
    assert asked == [("chat.example", 443)] * 2


async def test_a_name_without_an_address_is_an_error_of_its_own():
    def resolve(_host: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(NameNotResolved, match="Name or service not known"):
        await NameResolver(resolve).addresses(TARGET)


async def test_a_question_that_hangs_ends_in_time_is_asked_once_and_holds_up_no_exit(monkeypatch):
    monkeypatch.setattr(name_resolver, "RESOLVE_SECONDS", 0.01)
    hangs, threads = threading.Event(), []

    def resolve(_host: str, _port: int) -> list[str]:
        threads.append(threading.current_thread())
        hangs.wait(10)
        return []

    resolver = NameResolver(resolve)
    for _ in range(2):
        with pytest.raises(NameNotResolved, match="no name server answered"):
            await resolver.addresses(TARGET)
    hangs.set()

    assert [thread.daemon for thread in threads] == [True]
