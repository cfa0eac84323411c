"""Notes of keys: read once in a while for all pages, and kept while they cannot be read."""

from datetime import UTC, datetime

from understudy.entrypoints.console.key_notes import KEPT_SECONDS, KeyNotes
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

    async def list_keys(self) -> list[KeyRecord]:
        self.asked += 1
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
