"""The page that asks before an act: before and after, who notices, and the same as a command."""

from shlex import quote
from typing import NamedTuple

from understudy.core.rollout.state import CommandKind, RolloutState
from understudy.entrypoints.cli.shared.texts.rollback_text import (
    abort_command,
    nothing_words,
    restore_commands,
    rollback_command,
)
from understudy.entrypoints.console.views.links import ROLL_BACK
from understudy.ports.registry.registry import PolicyRecord
from understudy.ports.rollout.rollout_store import RollbackRecord, RolloutView


class ActPage(NamedTuple):
    """What is asked."""

    act: str
    model: str
    title: str
    sentence: str
    before_after: tuple[tuple[str, str, str], ...]
    """What, now, and then."""
    needs_reason: bool
    needs_name: bool
    command: str
    button: str
    rollout_id: int | None
    revision: int | None
    """Of the rollout as the visitor saw it, where the act holds for that alone."""
    is_possible: bool
    """Whether there is anything to confirm."""
    expects_scores: bool = False
    """Whether scores that differ hold it no more."""
    instead: tuple[str, ...] = ()
    """Commands that help where there is not, in their order."""


class _Words(NamedTuple):
    title: str
    sentence: str
    button: str


_WORDS = {
    CommandKind.PAUSE: _Words(
        "Pause", "It stops where it is; its share stays, and a challenger that does worse is still taken back.", "Pause"
    ),
    CommandKind.RESUME: _Words("Resume", "It goes on from its step, with that step's time again.", "Resume"),
    CommandKind.PROMOTE: _Words(
        "Promote a step", "It takes its next step at once, without the time and the proof that the plan asks for.",
        "Promote a step",
    ),
    CommandKind.APPROVE: _Words(
        "Approve the next step", "It takes its next step at the monitor's next tick, if its proof still stands.",
        "Approve",
    ),
    CommandKind.ABORT: _Words("Stop the rollout", "It ends, and every call goes to the champion.", "Stop it"),
}  # fmt: skip


EXPECTING_WORDS = "It goes on, and is not held again because its scores are unlike the champion's."
OF_WHAT_WAS_SEEN = (CommandKind.PROMOTE, CommandKind.APPROVE)
"""Commands about the next step, which is another one once the rollout has moved on."""


def command_words(kind: CommandKind) -> str:
    """Return what a command does, in a sentence."""
    return _WORDS[kind].sentence


def command_line(kind: CommandKind, model: str) -> str:
    """Return the command that does the same in a terminal."""
    return f"understudy rollout {quote(kind.value)} {quote(model)} --reason '…'"


def resume_expecting_line(model: str) -> str:
    """Return the command that resumes a rollout whose scores differ as they are meant to."""
    return f"understudy rollout resume {quote(model)} --expect-different-scores --reason '…'"


def command_page(kind: CommandKind, view: RolloutView, *, expects_scores: bool = False) -> ActPage:
    """Return what is asked before a command to a rollout; with ``expects_scores`` a resumption that compares none."""
    if expects_scores and kind is CommandKind.RESUME:
        return command_page(kind, view)._replace(
            sentence=EXPECTING_WORDS, command=resume_expecting_line(view.record.state.model_name), expects_scores=True
        )
    state, words = view.record.state, _WORDS[kind]
    return ActPage(
        kind.value,
        state.model_name,
        words.title,
        words.sentence,
        tuple(_changes(kind, state)),
        needs_reason=kind is not CommandKind.RESUME,
        needs_name=kind is CommandKind.PROMOTE,
        command=command_line(kind, state.model_name),
        button=words.button,
        rollout_id=view.record.id,
        revision=view.record.revision if kind in OF_WHAT_WAS_SEEN else None,
        is_possible=not state.phase.is_final,
    )


def rollback_page(model: str, policy: PolicyRecord, tried: RollbackRecord, rollout_id: int | None) -> ActPage:
    """Return what is asked before a rollback; ``tried`` is what it would do at this moment."""
    after = f"{tried.champion} answers every call"
    share = f" with {policy.challenger_weight} %"
    others = "" if policy.challenger is None else f", {policy.challenger} as challenger{share}"
    rows = (
        ("who answers", f"{policy.champion} as champion{others}", after),
        ("policy", f"generation {policy.generation}", tried.did),
    )
    sentence = "Every call goes back at once." if tried.changed else f"There is {nothing_words(tried)}."
    # One that warms up has no share that could be taken back, and will.
    warming = (abort_command(model),) if tried.rollout_id is not None else ()
    return ActPage(
        ROLL_BACK, model, "Roll back", sentence, rows, needs_reason=False, needs_name=False,
        command=rollback_command(model), button="Roll back now", rollout_id=rollout_id, revision=None,
        is_possible=tried.changed, instead=restore_commands(tried) or warming,
    )  # fmt: skip


def blind_rollback_page(model: str, rollout_id: int | None, why: str) -> ActPage:
    """Return what is asked where what is there now cannot be read: the way back does not wait for a page."""
    sentence = f"What is there now cannot be read ({why}). The rollback can be tried all the same."
    return ActPage(
        ROLL_BACK, model, "Roll back", sentence, (), needs_reason=False, needs_name=False,
        command=rollback_command(model), button="Roll back now", rollout_id=rollout_id, revision=None, is_possible=True,
    )  # fmt: skip


def _changes(kind: CommandKind, state: RolloutState) -> list[tuple[str, str, str]]:
    share = f"{state.challenger} at {state.weight_percent} %"
    if kind in OF_WHAT_WAS_SEEN:
        step = state.next_step
        if step is None:
            return []
        last = step is state.plan.steps[-1]
        then = f"{state.challenger} is champion" if last else f"{state.challenger} at {step.weight_percent} %"
        return [("share", share, then)]
    if kind is CommandKind.ABORT:
        return [("share", share, f"{state.champion} answers every call")]
    return [("share", share, "the same"), ("phase", state.phase.value, _PHASES[kind])]


_PHASES = {CommandKind.PAUSE: "WAITING", CommandKind.RESUME: "PROGRESSING"}
