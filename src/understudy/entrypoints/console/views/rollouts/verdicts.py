"""The page of a rollout's stored verdicts, each judged again from what it rested on."""

from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

from understudy.core.canary.decision import Verdict
from understudy.core.durations import moment
from understudy.entrypoints.cli.rollout.text import replay_words
from understudy.entrypoints.console.views.links import rollout_path
from understudy.entrypoints.console.views.tone import Tone
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.rollout.verdicts.replay import Damage, Replay

MAX_SHOWN = 200
"""Newest verdicts that have a row; the sentence counts all of them."""
Judged = tuple[RolloutEventRecord, Replay | Damage]
_OF_VERDICT = {Verdict.ADVANCE: Tone.GOOD, Verdict.ROLL_BACK: Tone.BAD, Verdict.INVALID: Tone.BAD}


class VerdictsSeen(NamedTuple):
    """What was judged again."""

    model: str
    rollout_id: int
    verdicts: Sequence[Judged]
    """Oldest first."""


class VerdictRow(NamedTuple):
    """A stored verdict."""

    id: int
    at: str
    verdict: str
    tone: Tone
    reason: str
    replay: str
    """What it comes to today."""
    replay_tone: Tone
    code_version: str


class VerdictsPage(NamedTuple):
    """All of them, newest first."""

    model: str
    rollout_id: int
    rollout_href: str
    sentence: str
    tone: Tone
    rows: tuple[VerdictRow, ...]
    left_out: int
    commands: tuple[str, ...]


def verdicts_page(seen: VerdictsSeen) -> VerdictsPage:
    """Return the page; its words are those of ``understudy rollout show``."""
    sentence, tone = _sentence(seen.verdicts)
    newest = list(reversed(seen.verdicts))
    return VerdictsPage(
        seen.model,
        seen.rollout_id,
        rollout_path(seen.model, seen.rollout_id),
        sentence,
        tone,
        tuple(_row(event, replay) for event, replay in newest[:MAX_SHOWN]),
        max(0, len(newest) - MAX_SHOWN),
        (f"understudy rollout show {quote(seen.model)} {quote(str(seen.rollout_id))}",),
    )


def _sentence(verdicts: Sequence[Judged]) -> tuple[str, Tone]:
    damaged = sum(isinstance(replay, Damage) for _, replay in verdicts)
    other = sum(isinstance(replay, Replay) and not replay.agrees for _, replay in verdicts)
    total = f"{len(verdicts)} stored verdict{'s' * (len(verdicts) != 1)}"
    if not verdicts:
        return "No verdict was stored yet.", Tone.CALM
    if not damaged and not other:
        return f"Judged again, {total}: each is the same.", Tone.CALM
    parts = [f"{other} come to another verdict"] if other else []
    parts += [f"{damaged} cannot be read any more"] if damaged else []
    same = len(verdicts) - damaged - other
    return f"Judged again, {total}: {same} the same, {', '.join(parts)}.", Tone.BAD


def _row(event: RolloutEventRecord, replay: Replay | Damage) -> VerdictRow:
    agrees = isinstance(replay, Replay) and replay.agrees
    return VerdictRow(
        event.id,
        moment(event.at),
        "" if event.verdict is None else event.verdict.value,
        Tone.CALM if event.verdict is None else _OF_VERDICT.get(event.verdict, Tone.CALM),
        event.reason,
        replay_words(event, replay),
        Tone.CALM if agrees else Tone.BAD,
        event.code_version,
    )
