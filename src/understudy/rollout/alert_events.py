"""A rollout's alerts with everything that people on call are told."""

from collections.abc import Iterable

from understudy.core.alerts import AlertEvent
from understudy.core.decision import Decision
from understudy.core.rollout_actions import Action, Alert
from understudy.ports import RolloutView


def alert_events(
    actions: Iterable[Action], view: RolloutView, environment: str, decision: Decision | None = None
) -> list[AlertEvent]:
    """Return the alerts among a transition's actions, as the outbox keeps them.

    Args:
        actions: Of the transition.
        view: What it was decided on.
        environment: Named in the alert.
        decision: The verdict behind it, if there is one.
    """
    state = view.record.state
    details = {
        "rollout": view.record.id,
        "champion": state.champion,
        "challenger": state.challenger,
        "weight_percent": state.weight_percent,
        "checks": [] if decision is None else [row.to_json() for row in decision.evidence],
        "next": f"understudy rollout show {state.model_name} {view.record.id}",
    }
    return [
        AlertEvent(action.action, action.kind, environment, state.model_name, action.summary, view.read_at, details)
        for action in actions
        if isinstance(action, Alert)
    ]
