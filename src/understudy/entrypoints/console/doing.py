"""Acts: carried out by the same use cases as commands and control-plane calls, once for each form that was shown."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from understudy.bootstrap.session import Session
from understudy.core.rollout.state import Command
from understudy.errors import PolicyRefused, RegistryError
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import VIA_CONSOLE
from understudy.rollout.commands import run_command
from understudy.rollout.propagation import wait_for_propagation

CONFIRM_SECONDS = 2.0
"""Longest time that a rollback waits for the proxies."""
KEPT_SECONDS = 600.0
MAX_KEPT = 1_000
"""Acts whose results are kept for a form that is sent twice; beyond that the oldest are forgotten."""


class Done(NamedTuple):
    """What an act did."""

    sentence: str
    changed: bool
    href: str = ""
    """Of the page that shows it, where that is not the one that the act began at."""
    facts: tuple[tuple[str, str], ...] = ()
    """What it found, where that is kept nowhere."""


class Once:
    """Carries each act out once: a form that is sent a second time gets the first one's result.

    Args:
        now: The clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._acts: OrderedDict[tuple[str, str], tuple[float, asyncio.Task[Done]]] = OrderedDict()

    async def do(self, session_id: str, nonce: str, work: Callable[[], Awaitable[Done]]) -> Done:
        """Return what the act of a form did; one that failed may be tried again with the same form."""
        name, now = (session_id, nonce), self._now()
        known = self._acts.get(name)
        if known is None or now - known[0] >= KEPT_SECONDS or _has_failed(known[1]):
            self._acts[name] = now, asyncio.ensure_future(work())
            self._acts.move_to_end(name)
            while len(self._acts) > MAX_KEPT:
                self._acts.popitem(last=False)
        # Shielded: a visitor who leaves does not stop what was begun.
        return await asyncio.shield(self._acts[name][1])

    def result(self, session_id: str, nonce: str) -> Done | None:
        """Return what an act of this session did, for the page that is shown after it."""
        known = self._acts.get((session_id, nonce))
        if known is None or not known[1].done() or _has_failed(known[1]):
            return None
        return known[1].result()


def _has_failed(task: asyncio.Task[Done]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def give_command(
    session: Session, model_name: str, rollout_id: int | None, command: Command, revision: int | None
) -> Done:
    """Give a command to a rollout; with a ``revision`` only if nothing has moved it since.

    Raises:
        GenerationMoved: The rollout moved meanwhile; nothing was changed.
        NotRegistered: There is no such rollout of the model.
        PolicyRefused: The state machine does not do that now.
    """
    result = await run_command(
        session.rollouts, model_name, rollout_id, command, expected_revision=revision, via=VIA_CONSOLE
    )
    if result.is_refused(command):
        raise PolicyRefused(f"{command.kind.value}: {result.event}", hint="Look at the rollout's page: it says why.")
    if not result.changed:
        return Done(f"Nothing changed: {result.event}", changed=False)
    return Done(f"Done: {result.event}.", changed=True)


async def roll_back(session: Session, model_name: str, actor: Actor) -> Done:
    """Send all traffic back at once, and say how many proxies act on that.

    Raises:
        NotRegistered: There is no such model.
        PolicyRefused: The model has no policy.
    """
    try:
        record = await session.rollouts.roll_back(model_name, actor)
    except PolicyRefused:
        # Says of an unknown model that it is unknown; not before, so that the rollback waits for no other reading.
        await session.registry.show_model(model_name)
        raise
    if not record.changed:
        return Done(f"Nothing to roll back{record.did.removeprefix('nothing')}.", changed=False)
    reach = await reach_words(session, model_name, record.generation)
    return Done(f"Rolled back: {record.did}, generation {record.generation}; {reach}.", changed=True)


async def reach_words(session: Session, model_name: str, generation: int) -> str:
    """Return how many live proxies act on a generation, soon after it was made."""
    with suppress(RegistryError, TimeoutError):
        async with asyncio.timeout(CONFIRM_SECONDS + 1):
            confirmed, _ = await wait_for_propagation(session.rollouts, model_name, generation, CONFIRM_SECONDS)
        count = f"{confirmed.proxies_on_generation} of {confirmed.proxies} live proxies act on it"
        return count if confirmed.seconds is None else f"{count} after {confirmed.seconds:.1f} s"
    return "how many proxies act on it is not known"
