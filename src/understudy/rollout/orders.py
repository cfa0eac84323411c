"""What a person says to a rollout: carried out at once, by the same state machine that the monitor asks."""

from typing import NamedTuple

from understudy.core.rollout import next_step
from understudy.core.rollout_actions import WarmUp
from understudy.core.rollout_moves import abreast
from understudy.core.rollout_state import Command, Observation, Transition
from understudy.errors import GenerationMoved
from understudy.ports.rollout_store import NewRolloutEvent, RolloutStore, RolloutView
from understudy.rollout.picture import view_of

ATTEMPTS = 5
"""The monitor may take a step in the same moment; then the order is asked again of what it left."""


class Ordered(NamedTuple):
    """What an order came to: the rollout as it is now, whether it changed, and what there is to say."""

    view: RolloutView
    changed: bool
    event: str


async def order(store: RolloutStore, model_name: str, rollout_id: int | None, command: Command) -> Ordered:
    """Carry out an order to a rollout of a model, by default its newest one.

    Raises:
        GenerationMoved: The rollout went on moving under the order; nothing was changed.
        NotRegistered: There is no such rollout, or it is another model's.
    """
    before = (await view_of(store, model_name, rollout_id)).record
    said = await give_order(store, before.id, command)
    view = await store.view(before.id)
    return Ordered(view, view.record.revision != before.revision, said.event)


async def give_order(store: RolloutStore, rollout_id: int, command: Command) -> Transition:
    """Carry out an order and return what it came to; one that changes nothing returns the state as it is.

    Raises:
        GenerationMoved: The rollout went on moving under the order; nothing was changed.
        NotRegistered: There is no such rollout.
    """
    for _ in range(ATTEMPTS):
        view = await store.view(rollout_id)
        transition = next_step(view.record.state, _seen(view, command))
        # A warm-up is the monitor's to make, whatever was ordered meanwhile.
        acts = any(not isinstance(action, WarmUp) for action in transition.actions)
        if transition.state == abreast(view.record.state, view.policy) and not acts:
            return transition
        if await store.apply(view, transition, NewRolloutEvent(command.actor)):
            return transition
    raise GenerationMoved(f"rollout {rollout_id} moved on while the order was given")


def _seen(view: RolloutView, command: Command) -> Observation:
    # Without a look and without traffic nothing but the order can move the state machine.
    return Observation(
        now=view.read_at,
        policy=view.policy,
        proxies=view.proxies,
        proxies_on_generation=view.proxies_on_generation,
        command=command,
    )
