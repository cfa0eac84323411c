"""What must never be so for long, looked at twice a second while everything else happens."""

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from e2e.stack import sql

from rigs.lifecycle.settled import loaded_at
from rigs.lifecycle.stack import AWAY, MODEL, LifecycleStack
from understudy.core.loading.served_name import is_served_name, served_name

LOOK_SECONDS: Final = 0.5
MAX_SECONDS: Final = {"endpoint": 6.0, "stray": 30.0}
"""How long an endpoint may be there whose server says that it does not have the version, and how long a server may have
a version that is neither wanted there nor recorded, so that no account of its memory is kept."""
# The last endpoint of a version with a role stays; breakers and fallbacks judge it.
_ENDPOINTS = """
    SELECT endpoint.model_version_id, endpoint.server,
           endpoint.model_version_id IN (champion_version, challenger_version, shadow_version)
             AND NOT EXISTS (SELECT FROM ModelEndpoint AS other
                             WHERE other.model_version_id = endpoint.model_version_id AND other.id <> endpoint.id)
    FROM ModelEndpoint AS endpoint JOIN ModelVersion ON ModelVersion.id = endpoint.model_version_id
    LEFT JOIN ServingPolicy USING (model_name) WHERE source = 'agent'
"""
_KNOWN = """
    SELECT model_version_id, server FROM Placement WHERE idle_since IS NULL
    UNION SELECT model_version_id, server FROM LoadedVersion WHERE state <> 'END'
"""


class Wrong(NamedTuple):
    """Something that must not be so for long."""

    what: str
    """A key of ``MAX_SECONDS``."""
    name: str
    """Of the version on the server."""
    server: str


class Watch:
    """Looks until it is cancelled."""

    def __init__(self, stack: LifecycleStack) -> None:
        self._stack = stack
        self._since: dict[Wrong, float] = {}
        self._violations: dict[Wrong, float] = {}
        self.longest: dict[str, float] = dict.fromkeys(MAX_SECONDS, 0.0)
        """How long each was so at most, in seconds."""
        self.looks = 0
        """How often all of it could be seen."""

    def take_violations(self) -> Sequence[str]:
        """Return what was so for too long since this was asked last."""
        taken, self._violations = self._violations, {}
        return [f"{one.what} of {one.name} at {one.server} for {seconds:.1f} s" for one, seconds in taken.items()]

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            with suppress(*AWAY):  # Postgres was killed: what is there is not known
                await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        endpoints = await sql(self._stack.url, _ENDPOINTS)
        known = {(row[0], row[1]) for row in await sql(self._stack.url, _KNOWN)}
        names = {version_id: served_name(MODEL, label) for label, version_id in self._stack.ids.items()}
        for server, member in self._stack.members.items():
            loaded = await loaded_at(member.control_port)
            if loaded is None:
                continue  # it was killed, and says nothing
            called = {names[row[0]] for row in endpoints if row[1] == server and not row[2]}
            recorded = {names[version_id] for version_id, at in known if at == server}
            self._note("endpoint", server, called - set(loaded))
            self._note("stray", server, {name for name in loaded if is_served_name(name)} - recorded)
        self.looks += 1

    def _note(self, what: str, server: str, wrong: Collection[str]) -> None:
        """Take notice of what is wrong now, and of what is no more."""
        now = time.monotonic()
        for one in [known for known in self._since if (known.what, known.server) == (what, server)]:
            if one.name not in wrong:
                del self._since[one]
        for name in wrong:
            one = Wrong(what, name, server)
            seconds = now - self._since.setdefault(one, now)
            self.longest[what] = max(self.longest[what], seconds)
            if seconds > MAX_SECONDS[what]:
                self._violations[one] = seconds
