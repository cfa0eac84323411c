"""Which proxies count: a *live* one has reported of late, a *stale* one has stopped without signing off.

A proxy that stops cleanly signs off: its row is deleted. One that is killed cannot, nor can one that is frozen or cut
off from Postgres, and these two go on, or will go on, by the last policy that they have read. Neither Postgres nor an
operator can tell the three apart. So only live proxies confirm a change, and stale ones are named wherever an operator
relies on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from understudy.core.durations import duration_words

LIVE_SECONDS = 30.0
"""Longest time since the last report of a live proxy; the view ``understudy_status`` has the same number."""
FORGOTTEN_SECONDS = 86_400.0
"""After so long a stale proxy is forgotten."""
MAX_NAMED = 5
"""So many stale proxies are named; the others are counted."""


class StaleProxy(NamedTuple):
    """A proxy that reports no more and has not signed off."""

    instance: str
    """``host:pid``."""
    seconds: float
    """Since its last report."""


@dataclass(frozen=True, slots=True)
class StaleProxies:
    """Stale proxies that had not confirmed what is asked about before they turned stale."""

    count: int = 0
    first: Sequence[StaleProxy] = ()
    """The :data:`MAX_NAMED` that turned stale last, latest first: the likeliest to be still there."""

    def were_live(self, seconds_ago: float) -> bool:
        """Whether one of them was live so long ago."""
        return bool(self.first) and self.first[0].seconds - seconds_ago <= LIVE_SECONDS

    def to_json(self) -> dict[str, Any]:
        """Return them as answers and records hold them."""
        return {"count": self.count, "first": [proxy._asdict() for proxy in self.first]}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "StaleProxies":
        """Return what an answer holds; what a later release added to it is passed over."""
        return cls(said["count"], tuple(StaleProxy(one["instance"], one["seconds"]) for one in said["first"]))


NONE_STALE = StaleProxies()

HIDDEN_WORDS = "which proxies are live is unknown, since another session keeps ProxyInstance locked"
"""Why no live proxy is seen where their reports cannot be read."""


def is_live(age_seconds: float) -> bool:
    """Whether a proxy is live that last reported so long ago."""
    return age_seconds <= LIVE_SECONDS


def is_confirmed(live: int, on_generation: int) -> bool:
    """Whether a generation is confirmed: by all live proxies, of which there is at least one."""
    return 0 < live <= on_generation


def is_confirmed_since(live: int, on_generation: int, stale: StaleProxies, seconds_ago: float) -> bool:
    """Whether all confirmed who were live when a change was made, so long ago: turning stale confirms nothing."""
    return is_confirmed(live, on_generation) and not stale.were_live(seconds_ago)


def live_proxies_words(live: int, on_generation: int) -> str:
    """Return how many live proxies act on a policy, in words."""
    if live == 0:
        return "no live proxy: which policy is served is unknown"
    return f"{on_generation} of {live} live proxies act on the policy"


def stale_proxies_words(stale: StaleProxies) -> str:
    """Return what stale proxies mean for a change that they have not confirmed; nothing when there are none."""
    if not stale.count:
        return ""
    ages = [(proxy.instance, duration_words(round(proxy.seconds))) for proxy in stale.first]
    named = "; ".join(f"{instance}, no report for {age}" for instance, age in ages)
    others = stale.count - len(stale.first)
    more = f"; and {others} more" if others else ""
    proxies = "1 stale proxy" if stale.count == 1 else f"{stale.count} stale proxies"
    return f"{proxies} may still send traffic by the old policy: {named}{more}"
