"""Following the log: its newest calls, and those that come after them."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from understudy.errors import RegistryUnavailable
from understudy.ports.prediction_log.live_log import CallLine, LiveLog, NewestAsked

FOLLOW_SECONDS = 1.0
LATE_SECONDS = 30.0
"""How much later than a newer call one may reach the log and still be told: proxies ship their spools apart."""
MAX_CALLS = 1_000
"""Told in one turn."""


class Told(NamedTuple):
    """What is done with calls, with a gap, and while Postgres is away."""

    calls: Callable[[Sequence[CallLine]], None]
    skipped: Callable[[], None]
    """More calls came than are read in one turn."""
    away: Callable[[], None]
    """Postgres does not answer; it is asked again."""


async def follow(
    log: LiveLog, asked: NewestAsked, told: Told, *, pause_seconds: float = FOLLOW_SECONDS, turns: int | None = None
) -> None:
    """Tell the newest calls, then each one that reaches the log after them, until it is cancelled.

    The first look reads more than it tells: what it has read is known, and is not told as new by the next one.

    Args:
        log: What is read.
        asked: The first calls; later ones are of the same model and version.
        told: Who is told.
        pause_seconds: Between two looks.
        turns: How many looks after the first; ``None``: without an end.
    """
    calls = await log.newest(asked._replace(at_most=max(asked.at_most, MAX_CALLS)))
    told.calls(calls[-asked.at_most :])
    seen = {call.id: call.predicted_at for call in calls}
    newest = _past(max(seen.values(), default=time.time()))
    done = 0
    while turns is None or done < turns:
        done += 1
        await asyncio.sleep(pause_seconds)
        try:
            calls = await log.newest(asked._replace(since=newest - LATE_SECONDS, at_most=MAX_CALLS))
        except RegistryUnavailable:
            told.away()
            continue
        fresh = [call for call in calls if call.id not in seen]
        if len(fresh) == MAX_CALLS:
            told.skipped()
        told.calls(fresh)
        seen |= {call.id: call.predicted_at for call in fresh}
        newest = _past(max([newest, *(call.predicted_at for call in fresh)]))
        seen = {number: at for number, at in seen.items() if at >= newest - LATE_SECONDS}


def _past(moment: float) -> float:
    """Return a moment that is not in the future: a proxy whose clock is ahead must not hide other proxies' calls."""
    return min(moment, time.time())
