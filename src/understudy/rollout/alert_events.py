"""A rollout's alerts with everything that the operator on call is told."""

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import Any

from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.core.canary.decision import Decision
from understudy.core.drift.beside_champion import BesideChampion
from understudy.core.rollout.actions import Action, Alert
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, stale_proxies_words
from understudy.ports.rollout.rollout_store import RolloutView

ROLLED_BACK = (AlertKind.CANARY_ROLLED_BACK, AlertKind.CHAMPION_REGRESSED)
"""The alerts of a rollback on evidence."""
OF_THE_MODEL = (*ROLLED_BACK, AlertKind.ROLLOUT_MOVED)
"""The kinds of which a model has one incident, whichever of its versions it is about: nothing that waits ends them."""


def alert_events(
    actions: Iterable[Action],
    view: RolloutView,
    environment: str,
    decision: Decision | None = None,
    drift: Sequence[BesideChampion] = (),
) -> list[AlertEvent]:
    """Return the alerts among a transition's actions, as the outbox keeps them.

    Args:
        actions: Of the transition.
        view: What it was decided on.
        environment: Named in the alert.
        decision: The verdict behind it, if there is one.
        drift: How the challenger drifts from the champion, if the verdict rests on that.
    """
    state = view.record.state
    details: dict[str, Any] = {
        "rollout": view.record.id,
        "kind": state.kind,
        "champion": state.champion,
        "challenger": state.challenger,
        "weight_percent": state.weight_percent,
        "checks": [] if decision is None else [row.to_json() for row in decision.evidence],
        "proxies": {"live": view.proxies, "silent": view.all_stale.to_json()},
        "next": f"understudy rollout show {quote(state.model_name)} {view.record.id}",
    }
    if drift:
        details["drift"] = [one.to_json() for one in drift]
    alerts = [action for action in actions if isinstance(action, Alert)]
    return [
        AlertEvent(
            alert.action, alert.kind, environment, state.model_name, _summary(alert, view), view.read_at, details,
            version=None if view.record.guard_id is None or alert.kind in OF_THE_MODEL else state.challenger,
        )
        for alert in alerts
    ]  # fmt: skip


def _summary(alert: Alert, view: RolloutView) -> str:
    """Return what happened; of a rollback also which proxies may not hear of it."""
    if alert.action is not AlertAction.TRIGGER or alert.kind not in ROLLED_BACK:
        return alert.summary
    unseen = HIDDEN_WORDS if view.proxies_hidden else "no live proxy hears of it"
    unheard = "" if view.proxies else unseen
    return "; ".join(filter(None, [alert.summary, unheard, stale_proxies_words(view.all_stale)]))
