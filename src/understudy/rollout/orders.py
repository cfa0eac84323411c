"""What a person says to a rollout: carried out at once, by the same state machine that the monitor asks."""

from understudy.core.rollout import next_step
from understudy.core.rollout_moves import abreast
from understudy.core.rollout_state import Command, Observation, Transition
from understudy.errors import GenerationMoved
from understudy.ports import NewRolloutEvent, RolloutStore, RolloutView

ATTEMPTS = 5
"""The monitor may take a step in the same moment; then the order is asked again of what it left."""


async def give_order(store: RolloutStore, rollout_id: int, command: Command) -> Transition:
    """Carry out an order and return what it came to; one that changes nothing returns the state as it is.

    Raises:
        GenerationMoved: The rollout went on moving under the order; nothing was changed.
        NotRegistered: There is no such rollout.
    """
    for _ in range(ATTEMPTS):
        view = await store.view(rollout_id)
        transition = next_step(view.record.state, _seen(view, command))
        if transition.state == abreast(view.record.state, view.policy) and not transition.actions:
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
