"""The two ends of a model server's life: from when on it has what it is to have, and from when on nothing calls it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import Why
from understudy.ports.loading.agent_store import VersionAtServer

_log = structlog.get_logger(__name__)

DECISION_SECONDS: Final = 10.0
"""After so long a new server without versions is to have none: a monitor decides within a second, and a notification
that was lost costs five more."""
BEGIN_SECONDS: Final = 10.0
"""How long a drain is waited for that has not begun: the command that begins it is a process that has to start."""
DRAINING_ROUND_SECONDS: Final = 0.5
"""Pause between two rounds of a drain: no notification tells that another server has a version whose last endpoint was
here."""


class ServerLifetime:
    """Whether one agent's server is ready, and whether it is drained.

    A drain takes every endpoint of the agent back, as if nothing were wanted of the server any more; it has no way
    back but a new agent. The last endpoint of a version with a role stays until another server has one.

    Args:
        now: The monotonic clock, in seconds.
        on_drain: Called when a drain begins, so that the next round need not wait.
    """

    def __init__(self, now: Callable[[], float], on_drain: Callable[[], None]) -> None:
        self._now = now
        self._on_drain = on_drain
        self._first_round_at: float | None = None
        self._is_ready = False
        self._draining_since = 0.0
        self._begun, self._over = asyncio.Event(), asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether the server has once had every version that it was to have.

        One that failed does not count, unless it is a champion that another server has: that one must not end yet.
        """
        return self._is_ready

    @property
    def is_draining(self) -> bool:
        """Whether endpoints are being taken back, or all of them have been."""
        return self._begun.is_set()

    @property
    def next_round_seconds(self) -> float | None:
        """In how many seconds a drain wants the next round; ``None``: it does not."""
        return DRAINING_ROUND_SECONDS if self.is_draining and not self._over.is_set() else None

    def drain(self) -> None:
        """Begin to take the endpoints back; a second call changes nothing."""
        if not self.is_draining:
            self._draining_since = self._now()
            _log.info("agent.drains")
            self._begun.set()
            self._on_drain()

    def seen_by_round(self, versions: Sequence[VersionAtServer]) -> Sequence[VersionAtServer]:
        """Return what a round is to act on: the versions as they are, or in a drain as if none were wanted."""
        return [one._replace(why=None, idle_seconds=None) for one in versions] if self.is_draining else versions

    def note(self, versions: Sequence[VersionAtServer], *, is_validating: bool) -> None:
        """Note what a round has found; a validation that is under way may yet end with a new endpoint."""
        if self.is_draining:
            self._note_drain(versions, is_validating=is_validating)
        elif not self._is_ready:
            if self._first_round_at is None:
                self._first_round_at = self._now()
            wanted = [version for version in versions if version.is_wanted]
            is_decided = bool(wanted) or self._now() - self._first_round_at >= DECISION_SECONDS
            self._is_ready = is_decided and not any(map(_is_missing, wanted))

    def _note_drain(self, versions: Sequence[VersionAtServer], *, is_validating: bool) -> None:
        kept = [version for version in versions if version.has_endpoint and version.owns_endpoint]
        leaving = [one for one in versions if one.record is not None and one.record.state is LoadingState.QUIESCING]
        if not (kept or leaving or is_validating or self._over.is_set()):
            _log.info("agent.drained", seconds=round(self._now() - self._draining_since, 1))
            self._over.set()

    async def drained(self, seconds: float) -> bool:
        """Wait until no proxy can call the server, and return whether it is so.

        Args:
            seconds: Longest wait since the drain began. One that has not begun is waited for for ``BEGIN_SECONDS``.
        """
        await _is_set_within(self._begun, BEGIN_SECONDS)
        if not self.is_draining:
            return False
        is_over = await _is_set_within(self._over, max(0.0, self._draining_since + seconds - self._now()))
        if not is_over:
            _log.warning("agent.not_drained", seconds=seconds)
        return is_over


def _is_missing(version: VersionAtServer) -> bool:
    state = None if version.record is None else version.record.state
    if state is LoadingState.ERROR:
        return version.why is Why.CHAMPION and version.is_elsewhere
    return not (state is LoadingState.AVAILABLE and version.has_endpoint)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
