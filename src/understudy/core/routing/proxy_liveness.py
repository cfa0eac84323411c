"""Which proxies count: a *live* one has reported of late, a *silent* one has stopped without signing off.

A proxy that stops cleanly signs off: its row is deleted. One that is killed cannot, nor can one that is frozen or cut
off from Postgres, and these two go on, or will go on, by the last policy that they have read. Nobody can tell them
apart from outside. So only live proxies confirm a change, and silent ones are named wherever a person relies on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from understudy.core.durations import duration_words

LIVE_SECONDS = 30.0
"""Longest time since the last report of a live proxy; the view ``understudy_status`` has the same number."""
FORGOTTEN_SECONDS = 86_400.0
"""After so long a silent proxy is forgotten."""
MAX_NAMED = 5
"""So many silent proxies are named; the others are counted."""


class SilentProxy(NamedTuple):
    """A proxy that reports no more and has not signed off."""

    instance: str
    """``host:pid``."""
    seconds: float
    """Since its last report."""


@dataclass(frozen=True, slots=True)
class SilentProxies:
    """Silent proxies that had not confirmed what is asked about before they fell silent."""

    count: int = 0
    first: Sequence[SilentProxy] = ()
    """The :data:`MAX_NAMED` that fell silent last, latest first: the likeliest to be still there."""

    def were_live(self, seconds_ago: float) -> bool:
        """Whether one of them was live so long ago."""
        return bool(self.first) and self.first[0].seconds - seconds_ago <= LIVE_SECONDS

    def to_json(self) -> dict[str, Any]:
        """Return them as answers and records hold them."""
        return {"count": self.count, "first": [proxy._asdict() for proxy in self.first]}


NONE_SILENT = SilentProxies()


def is_live(age_seconds: float) -> bool:
    """Whether a proxy is live that last reported so long ago."""
    return age_seconds <= LIVE_SECONDS


def is_confirmed(live: int, on_generation: int) -> bool:
    """Whether a generation is confirmed: by all live proxies, and at least one, since nobody confirms nothing."""
    return 0 < live <= on_generation


def is_confirmed_since(live: int, on_generation: int, silent: SilentProxies, seconds_ago: float) -> bool:
    """Whether all confirmed who were live when a change was made, so long ago: falling silent confirms nothing."""
    return is_confirmed(live, on_generation) and not silent.were_live(seconds_ago)


def live_words(live: int, on_generation: int) -> str:
    """Return how many live proxies act on a policy."""
    if live == 0:
        return "no live proxy: nobody can say who acts on the policy"
    return f"{on_generation} of {live} live proxies act on the policy"


def silent_words(silent: SilentProxies) -> str:
    """Return what silent proxies mean for a change that they have not confirmed; nothing when there are none."""
    if not silent.count:
        return ""
    named = "; ".join(f"{proxy.instance}, silent for {duration_words(round(proxy.seconds))}" for proxy in silent.first)
    others = silent.count - len(silent.first)
    more = f"; and {others} more" if others else ""
    proxies = "1 silent proxy" if silent.count == 1 else f"{silent.count} silent proxies"
    return f"{proxies} may still send traffic by the old policy: {named}{more}"
