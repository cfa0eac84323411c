from hashlib import sha256

import pytest

from understudy.adapters.memory.key_lookup import MemoryKeyLookup
from understudy.core.routing.policy import ApiKey
from understudy.entrypoints.console.sessions import ConsoleSession
from understudy.entrypoints.console.visitors import AWAY_SECONDS, KEPT_SECONDS, Visitor, Visitors, parts_of
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
