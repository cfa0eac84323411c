import asyncio
from collections.abc import Collection, Mapping
from hashlib import sha256

import pytest

from understudy.adapters.memory.key_lookup import MemoryKeyLookup
from understudy.core.routing.policy import ApiKey
from understudy.entrypoints.console.access import visitors
from understudy.entrypoints.console.access.sessions import ConsoleSession
from understudy.entrypoints.console.access.visitors import AWAY_SECONDS, KEPT_SECONDS, Visitor, Visitors, parts_of
from understudy.errors import RegistryUnavailable, Unauthenticated

SESSION = ConsoleSession("k1", "s1", 0.0, 0.0)


def a_key(*scopes: str) -> ApiKey:
    return ApiKey("k1", sha256(b"secret").digest(), frozenset(scopes))


class World:
    """Keys, and a clock that stands still until it is set."""

    def __init__(self, *scopes: str) -> None:
        self.now = 1_000.0
        self.keys = MemoryKeyLookup([a_key(*scopes)])
        self.visitors = Visitors(self.keys, lambda: self.now)


@pytest.mark.parametrize("text", ["k1.secret", " k1.secret\n", "Bearer k1.secret", "Authorization: Bearer k1.secret"])
async def test_a_key_is_taken_as_it_is_printed_and_as_it_is_sent(text):
    assert (await World("read").visitors.check(text)).id == "k1"


@pytest.mark.parametrize("text", ["", "k1", "k1.", ".secret", "k1.other", "k2.secret", "k1." + "x" * 600])
async def test_a_wrong_key_is_refused(text):
    with pytest.raises(Unauthenticated):
        await World("read").visitors.check(text)


@pytest.mark.parametrize("scopes", [("predict",), ("outcomes", "predict"), ()])
async def test_a_key_that_may_neither_read_nor_operate_does_not_get_in(scopes):
    with pytest.raises(Unauthenticated):
        await World(*scopes).visitors.check("k1.secret")


def test_a_text_without_a_point_is_no_credential():
    assert parts_of("k1") == ("k1", "")


async def test_a_key_is_asked_for_every_two_seconds_and_for_each_act():
    world = World("read")
    await world.visitors.of(SESSION)
    await world.visitors.of(SESSION)
    assert world.keys.asked == 1

    await world.visitors.of(SESSION, acts=True)
    world.now += KEPT_SECONDS
    world.keys.keys = {}

    assert await world.visitors.of(SESSION) is None
    assert world.keys.asked == 3


async def test_while_postgres_is_away_who_was_there_may_look_on_for_a_time_and_not_act():
    world = World("read")
    await world.visitors.of(SESSION)
    world.keys.available = False
    world.now += KEPT_SECONDS

    assert await world.visitors.of(SESSION) is not None
    with pytest.raises(RegistryUnavailable):
        await world.visitors.of(SESSION, acts=True)
    world.now += AWAY_SECONDS
    with pytest.raises(RegistryUnavailable):
        await world.visitors.of(SESSION)


@pytest.mark.parametrize(
    ("scopes", "reads", "operates", "models"),
    [
        ({"read"}, True, False, None),
        ({"operate"}, True, True, None),
        ({"read:churn"}, True, False, {"churn"}),
        ({"operate:churn", "read:fraud"}, True, True, {"churn", "fraud"}),
        ({"operate:fraud"}, False, False, {"fraud"}),
    ],
)
def test_scopes_say_what_a_visitor_may(scopes, reads, operates, models):
    visitor = Visitor(SESSION, frozenset(scopes))

    assert (visitor.may_read("churn"), visitor.may_operate("churn"), visitor.models) == (reads, operates, models)
    assert (visitor.role_for("churn") == "operate") == operates


class SlowKeys(MemoryKeyLookup):
    """Answers when it is told to, and knows how many wait."""

    def __init__(self, *ids: str) -> None:
        super().__init__([ApiKey(name, sha256(b"secret").digest(), frozenset({"read"})) for name in ids])
        self.gate = asyncio.Event()
        self.waiting = self.most = 0

    async def find_all(self, key_ids: Collection[str]) -> Mapping[str, ApiKey]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await self.gate.wait()
            return await super().find_all(key_ids)
        finally:
            self.waiting -= 1


async def test_two_hundred_requests_of_one_key_are_one_look_up_and_one_that_leaves_ends_it_for_none():
    keys = SlowKeys("k1")
    looking = Visitors(keys)
    asked = [asyncio.create_task(looking.of(SESSION)) for _ in range(200)]
    await asyncio.sleep(0)
    asked[0].cancel()
    keys.gate.set()
    found = await asyncio.gather(*asked[1:])

    assert all(visitor is not None for visitor in found)
    assert (keys.most, keys.asked) == (1, 1)


async def test_few_keys_are_looked_up_at_a_time_for_acts():
    names = [f"k{number}" for number in range(20)]
    keys = SlowKeys(*names)
    looking = Visitors(keys)
    asked = [asyncio.create_task(looking.of(SESSION._replace(key_id=name), acts=True)) for name in names]
    for _ in range(9):
        await asyncio.sleep(0)
    keys.gate.set()
    await asyncio.gather(*asked)

    assert keys.most == visitors.PLACES


async def test_keys_of_many_viewers_are_one_question_each_time_whenever_they_came():
    names, clock = [f"k{number}" for number in range(20)], [1_000.0]
    keys = SlowKeys(*names)
    keys.gate.set()
    looking = Visitors(keys, lambda: clock[0])

    async def all_look() -> None:
        found = await asyncio.gather(*(looking.of(SESSION._replace(key_id=name)) for name in names))
        assert all(visitor is not None for visitor in found)

    for name in names:  # one after the other, within less than half the time that a key is kept
        await looking.of(SESSION._replace(key_id=name))
        clock[0] += KEPT_SECONDS / 50
    keys.asked = 0
    for _ in range(40):  # each looks four times within that time
        clock[0] += KEPT_SECONDS / 4
        await all_look()

    assert (keys.most, keys.asked) == (1, 10)


async def test_a_defect_of_a_look_up_is_raised_for_all_who_wait(monkeypatch):
    world = World("read")

    async def broken(_ids: Collection[str]) -> Mapping[str, ApiKey]:
        raise ZeroDivisionError

    monkeypatch.setattr(world.keys, "find_all", broken)
    found = await asyncio.gather(*(world.visitors.of(SESSION) for _ in range(3)), return_exceptions=True)

    assert [type(one) for one in found] == [ZeroDivisionError] * 3


async def test_acts_of_one_key_are_looked_up_one_after_the_other_each_anew():
    keys = SlowKeys("k1")
    looking = Visitors(keys)
    asked = [asyncio.create_task(looking.of(SESSION, acts=True)) for _ in range(20)]
    await asyncio.sleep(0)
    keys.gate.set()
    await asyncio.gather(*asked)

    assert (keys.most, keys.asked) == (1, 20)


async def test_who_was_there_and_only_looks_does_not_wait_for_a_postgres_that_hangs(monkeypatch):
    monkeypatch.setattr(visitors, "PATIENCE_SECONDS", 0.001)
    keys, now = SlowKeys("k1"), 1_000.0
    keys.gate.set()
    looking = Visitors(keys, lambda: now)
    await looking.of(SESSION)
    keys.gate.clear()
    now += KEPT_SECONDS

    assert await looking.of(SESSION) is not None
    assert keys.waiting == 1
    keys.gate.set()
