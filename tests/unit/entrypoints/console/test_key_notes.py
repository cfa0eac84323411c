"""Notes of keys: read once in a while for all pages, and kept while they cannot be read."""

import asyncio
from datetime import UTC, datetime

from understudy.entrypoints.console.key_notes import KEPT_SECONDS, MAX_KEYS, KeyNotes
from understudy.errors import RegistryUnavailable
from understudy.ports.registry.registry import KeyRecord

ANA = KeyRecord("4f2a90c1d7be", ("operate",), "ana", datetime.now(UTC), "dana", None)
UNNAMED = ANA._replace(id="000000000000", note=None)


class Keys:
    """What the registry has, how often it was asked, and the clock."""

    def __init__(self) -> None:
        self.found: list[KeyRecord] | None = [ANA, UNNAMED]
        self.asked = 0
        self.now = 0.0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def list_keys(self, newest: int) -> list[KeyRecord]:
        assert newest == MAX_KEYS
        self.asked += 1
        await self.may_answer.wait()
        if self.found is None:
            raise RegistryUnavailable("away")
        return self.found


async def test_they_are_read_once_in_their_time_and_a_key_without_a_note_has_none():
    keys = Keys()
    notes = KeyNotes(keys.list_keys, lambda: keys.now)

    first = [await notes.read(), await notes.read()]
    keys.now, keys.found = KEPT_SECONDS, []
    later = await notes.read()

    assert (first, later, keys.asked) == ([{ANA.id: "ana"}] * 2, {}, 2)


async def test_while_the_registry_is_away_those_that_are_known_are_kept():
    keys = Keys()
    notes = KeyNotes(keys.list_keys, lambda: keys.now)
    await notes.read()
    keys.now, keys.found = KEPT_SECONDS, None

    assert await notes.read() == {ANA.id: "ana"}


async def test_a_page_does_not_wait_for_a_slow_reading_which_is_one_for_all_pages():
    keys = Keys()
    notes = KeyNotes(keys.list_keys, lambda: keys.now)
    keys.may_answer.clear()

    early = [*await asyncio.gather(notes.read(), notes.read())]
    keys.may_answer.set()
    async with asyncio.timeout(10):
        while not (later := await notes.read()):
            pass

    assert (early, later, keys.asked) == ([{}, {}], {ANA.id: "ana"}, 1)
