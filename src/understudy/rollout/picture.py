"""A rollout with all that is shown of it."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.decision import Decision
from understudy.errors import NotRegistered
from understudy.ports import RolloutEventRecord, RolloutStore, RolloutView, WindowLog
from understudy.rollout.look import look_at


class Picture(NamedTuple):
    """A rollout, what happened to it, and how it stands."""

    view: RolloutView
    events: Sequence[RolloutEventRecord]
    decision: Decision | None
    """What the analysis says at this moment; ``None`` when there is nothing to analyse."""


async def picture_of(
    rollouts: RolloutStore, windows: WindowLog, model_name: str, rollout_id: int | None = None
) -> Picture:
    """Return a rollout of a model, by default its newest one.

    Raises:
        NotRegistered: There is no such rollout, or it is another model's.
    """
    view = await view_of(rollouts, model_name, rollout_id)
    state = view.record.state
    decision = None
    if state.step_starts and state.promoted_at is None and not state.phase.is_final:
        found = await windows.of_rollout(state.rollout_id)
        decision = await asyncio.to_thread(look_at, view, found, view.read_at)
    return Picture(view, list(await rollouts.events(state.rollout_id)), decision)


async def view_of(rollouts: RolloutStore, model_name: str, rollout_id: int | None) -> RolloutView:
    """Return a rollout of a model with what it acts on; raises as :func:`picture_of`."""
    view = await rollouts.view(await rollouts.latest_id(model_name) if rollout_id is None else rollout_id)
    if view.record.state.model_name != model_name:
        raise NotRegistered(f"rollout {rollout_id} is of {view.record.state.model_name}, not {model_name}")
    return view
