"""What every ``KeyLookup`` does."""

from hashlib import sha256

import pytest

from understudy.adapters.memory.key_lookup import MemoryKeyLookup
from understudy.adapters.postgres.registry.key_lookup import PostgresKeyLookup
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.routing.policy import ApiKey
from understudy.ports.registry.key_lookup import KeyLookup
from understudy.ports.registry.registry import NO_KEY_LIMITS, Actor

DIGEST = sha256(b"secret")
KEY = ApiKey("k1", DIGEST.digest(), frozenset({"read", "operate:churn"}), None)
ACTOR = Actor("test", "test")


class Twin:
    """The twin, with the key ``k1``."""

    def __init__(self) -> None:
        self.keys = MemoryKeyLookup()

    async def add(self) -> None:
        self.keys.keys = {KEY.id: KEY}

    async def revoke(self) -> None:
        self.keys.keys = {}


class Table:
    """The table ``ApiKey`` of a database."""

    def __init__(self, database_url: str) -> None:
        self.keys = PostgresKeyLookup(database_url, timeout_seconds=5)
        self._registry = PostgresRegistry(database_url)

    async def add(self) -> None:
        digest, scopes = DIGEST.hexdigest(), sorted(KEY.scopes)
        await self._registry.add_key("k1", digest, scopes, note=None, actor=ACTOR, limits=NO_KEY_LIMITS)

    async def revoke(self) -> None:
        await self._registry.revoke_key("k1", ACTOR)


@pytest.fixture(params=["memory", "postgres"])
def stored(request) -> Twin | Table:
    return Twin() if request.param == "memory" else Table(request.getfixturevalue("database_url"))


async def test_a_key_is_found_by_its_id_until_it_is_revoked(stored):
    await stored.add()
    keys: KeyLookup = stored.keys
    found = await keys.find("k1")
    await stored.revoke()

    assert found == KEY
    assert await keys.find("k1") is None


async def test_several_keys_are_found_at_once(stored):
    await stored.add()

    assert await stored.keys.find_all(("k1", "k2", "k\0")) == {"k1": KEY}
    assert await stored.keys.find_all(("k\0",)) == {}


async def test_an_id_that_no_key_has_finds_none(stored):
    await stored.add()

    assert [await stored.keys.find(key_id) for key_id in ("", "k2", "k\0", "\ud800", "k1 ", "K1")] == [None] * 6
