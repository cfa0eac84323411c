"""What a person says to a rollout: carried out at once, by the same state machine that the monitor asks."""

from dataclasses import replace
from typing import NamedTuple

from understudy.core.rollout.actions import WarmUp
from understudy.core.rollout.state import Command, Observation, Order, Transition, WaitingFor
from understudy.core.rollout.state_machine import next_step
from understudy.core.rollout.transitions import abreast
from understudy.errors import GenerationMoved
from understudy.ports.rollout_store import NewRolloutEvent, RolloutStore, RolloutView
from understudy.rollout.status import view_of

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

    What the rollout would do without the order is the monitor's to do, which tells people of it: then nothing changes.

    Raises:
        GenerationMoved: The rollout went on moving under the order; nothing was changed.
        NotRegistered: There is no such rollout.
    """
    for _ in range(ATTEMPTS):
        view = await store.view(rollout_id)
        observation = _seen(view, command)
        transition = next_step(view.record.state, observation)
        # A warm-up is the monitor's to make, whatever was ordered meanwhile.
        acts = any(not isinstance(action, WarmUp) for action in transition.actions)
        if transition.state == abreast(view.record.state, view.policy) and not acts:
            return transition
        # A rollback that was decided and not carried out is what an abort asks for.
        is_answer = transition != next_step(view.record.state, replace(observation, command=None))
        if not is_answer and command.order is not Order.ABORT:
            return Transition(view.record.state, (), _left_to_the_monitor(transition))
        if await store.apply(view, transition, NewRolloutEvent(command.actor)):
            return transition
    raise GenerationMoved(f"rollout {rollout_id} moved on while the order was given")


def _left_to_the_monitor(transition: Transition) -> str:
    """Say why an order was not carried out, and what to do."""
    state = transition.state
    # What a step still lacks is not said: without a look nobody knows.
    is_late = state.waiting_for is WaitingFor.TIME
    why = f"the time of the step at {state.weight_percent} % is over" if is_late else transition.event
    return f"not carried out, the monitor acts first: {why}; give the order again after its next look, or abort"


def _seen(view: RolloutView, command: Command) -> Observation:
    # Without a look and without traffic nothing but the order can move the state machine.
    return Observation(
        now=view.read_at,
        policy=view.policy,
        proxies=view.proxies,
        proxies_on_generation=view.proxies_on_generation,
        command=command,
    )
