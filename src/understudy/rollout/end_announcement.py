"""Announces that a rollout has ended: once live proxies confirm it and no call is in flight, or that they did not."""

from understudy.core.rollout.state import Kind, Phase
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, is_confirmed_since, stale_proxies_words
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.rollout_store import NewRolloutEvent, RolloutStore, RolloutView
from understudy.rollout.metrics import RolloutMetrics, Trigger
from understudy.rollout.verdicts.verdict_event import ACTOR

DRAIN_SECONDS = 30.0
"""How long a rollback waits for proxies and for calls in flight before it says that they did not come."""


class EndAnnouncement:
    """The last event of a rollout, and what dashboards count only then.

    Args:
        store: Keeps the event.
        metrics: Get rollbacks that an operator asked for, and how long each rollback took.
    """

    def __init__(self, store: RolloutStore, metrics: RolloutMetrics) -> None:
        self._store = store
        self._metrics = metrics

    async def announce(self, view: RolloutView, epoch: Epoch) -> None:
        """Write down when the end had reached every live proxy and nothing was in flight any more, or that it had not.

        Without any live proxy it is written down at once that the end is unconfirmed; where the reports of proxies
        cannot be read, after the time of draining.
        """
        record = view.record
        seconds = view.read_at - (record.finished_at or view.read_at)
        # A challenger that is champion now keeps its calls.
        left = None if record.state.phase is Phase.SUCCEEDED else view.in_flight.get(record.challenger_id, 0)
        is_everywhere = is_confirmed_since(view.proxies, view.proxies_on_generation, view.stale, seconds)
        if (view.proxies or view.proxies_hidden) and seconds < DRAIN_SECONDS and not (is_everywhere and not left):
            return
        inputs = {
            "seconds": seconds,
            "proxies": view.proxies,
            "proxies_on_generation": view.proxies_on_generation,
            "in_flight": left if view.proxies else None,
            "silent": view.stale.to_json(),
        }
        event = NewRolloutEvent(ACTOR, inputs=inputs)
        await self._store.announce(view, _end_words(view, seconds, left), event, epoch=epoch)
        if record.state.phase is Phase.FAILED:
            await self._count_end(view, seconds if is_everywhere else None)

    async def _count_end(self, view: RolloutView, seconds: float | None) -> None:
        """Count what only the end tells: an abort, which no tick decided, and how long the rollback took."""
        record = view.record
        events = await self._store.events(record.id)
        ended = next((event for event in events if event.phase == Phase.FAILED), None)
        if ended is not None and ended.actor != ACTOR:
            is_guard = record.state.kind is Kind.GUARD
            self._metrics.count_rollback(record.state.model_name, Trigger.BY_HAND if is_guard else Trigger.COMMAND)
        if seconds is not None:
            self._metrics.took(record.state.model_name, seconds)


def _end_words(view: RolloutView, seconds: float, left: int | None) -> str:
    """Return how far the end of a rollout has come, with ``left`` calls in flight at its challenger if that drains."""
    confirmed = (
        f"{view.proxies_on_generation} of {view.proxies} live proxies have confirmed the end after {seconds:.1f} s"
    )
    in_flight = "" if left is None else f"{left} calls in flight at version {view.record.state.challenger}"
    unseen = HIDDEN_WORDS if view.proxies_hidden else "no live proxy"
    said = [confirmed, in_flight] if view.proxies else [f"{unseen}: the end is unconfirmed"]
    return "; ".join(filter(None, [*said, stale_proxies_words(view.stale)]))
