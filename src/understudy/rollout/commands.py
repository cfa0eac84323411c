"""Commands of operators to a rollout: carried out at once, by the same state machine that the monitor asks."""

from dataclasses import replace
from typing import NamedTuple

from understudy.core.rollout.actions import Beside
from understudy.core.rollout.policy_conflict import at_seen_generation
from understudy.core.rollout.state import Command, CommandKind, Observation, Phase, Transition, WaitingFor
from understudy.core.rollout.state_machine import next_step
from understudy.errors import GenerationMoved
from understudy.ports.rollout.rollout_store import VIA_ROLLOUT, NewRolloutEvent, RolloutStore, RolloutView
from understudy.rollout.status import view_of
from understudy.rollout.warm_up.warm_up_verdict import EXPECTED

ATTEMPTS = 5
"""The monitor may take a step in the same moment; then the command is tried again on what it left."""


class CommandResult(NamedTuple):
    """The rollout after a command, whether it changed, and what happened."""

    view: RolloutView
    changed: bool
    event: str

    def is_refused(self, command: Command) -> bool:
        """Whether the rollout is not what the command was to make of it; one that is so already refuses nothing."""
        state = self.view.record.state
        phase, step = state.phase, state.next_step
        is_approved = step is not None and not phase.is_final and state.approved_step == len(state.step_starts)
        is_meant = step is not None and command.to_percent in (None, step.weight_percent)
        wanted = {
            CommandKind.PAUSE: phase is Phase.WAITING,
            CommandKind.RESUME: phase in (Phase.PROGRESSING, Phase.PROMOTING),
            CommandKind.ABORT: phase is Phase.FAILED,
            CommandKind.PROMOTE: False,
            CommandKind.APPROVE: is_approved and is_meant,
        }
        return not self.changed and not wanted[command.kind]


async def run_command(
    store: RolloutStore,
    model_name: str,
    rollout_id: int | None,
    command: Command,
    *,
    expected_revision: int | None = None,
    via: str = VIA_ROLLOUT,
) -> CommandResult:
    """Carry out a command to a rollout of a model, by default its newest one; ``via`` is for the audit.

    With an ``expected_revision`` only if the rollout is still at it: a step that was taken meanwhile is not taken for
    the one that the operator saw.

    Raises:
        GenerationMoved: The rollout went on moving under the command, or before it; nothing was changed.
        NotRegistered: There is no such rollout, or it is another model's.
    """
    before = (await view_of(store, model_name, rollout_id)).record
    transition = await apply_command(store, before.id, command, expected_revision=expected_revision, via=via)
    view = await store.view(before.id)
    return CommandResult(view, view.record.revision != before.revision, transition.event)


async def apply_command(
    store: RolloutStore,
    rollout_id: int,
    command: Command,
    *,
    expected_revision: int | None = None,
    via: str = VIA_ROLLOUT,
) -> Transition:
    """Carry out a command and return the transition; one that changes nothing returns the state as it is.

    A step that the rollout would take without the command is left to the monitor, which sends its alerts.

    Raises:
        GenerationMoved: The rollout went on moving under the command, or is at another revision than the expected one;
            nothing was changed.
        NotRegistered: There is no such rollout.
    """
    for _ in range(ATTEMPTS):
        view = await store.view(rollout_id)
        if expected_revision is not None and view.record.revision != expected_revision:
            raise GenerationMoved(f"rollout {rollout_id} has moved on since the command was asked for")
        observation = _observation(view, command)
        transition = next_step(view.record.state, observation)
        # Only the monitor makes a warm-up or asks a gate, whatever the command.
        acts = any(not isinstance(action, Beside) for action in transition.actions)
        if transition.state == at_seen_generation(view.record.state, view.policy) and not acts:
            return transition
        # A rollback that was decided and not carried out is what an abort asks for.
        is_effect = transition != next_step(view.record.state, replace(observation, command=None))
        if not is_effect and command.kind is not CommandKind.ABORT:
            return Transition(view.record.state, (), _left_to_the_monitor(transition))
        inputs = {EXPECTED: True} if command.expects_different_scores else {}
        if await store.apply(view, transition, NewRolloutEvent(command.actor, inputs=inputs, via=via)):
            return transition
    raise GenerationMoved(f"rollout {rollout_id} moved on while the command was carried out")


def _left_to_the_monitor(transition: Transition) -> str:
    """Return why a command was not carried out, and what to do."""
    state = transition.state
    # What a step still lacks takes an analysis to know, which only the monitor makes.
    is_late = state.waiting_for is WaitingFor.TIME
    why = f"the time of the step at {state.weight_percent} % is over" if is_late else transition.event
    return f"not carried out, the monitor acts first: {why}; give the command again after its next tick, or abort"


def _observation(view: RolloutView, command: Command) -> Observation:
    # Without a decision and without traffic nothing but the command can move the state machine.
    return Observation(
        now=view.read_at,
        policy=view.policy,
        proxies=view.proxies,
        proxies_on_generation=view.proxies_on_generation,
        proxies_hidden=view.proxies_hidden,
        guard=view.guard,
        command=command,
    )
