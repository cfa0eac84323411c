"""The Models page: what state each model is in, and why."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from understudy.core.alerts.alerts import AlertKind
from understudy.core.first_names import first_names
from understudy.core.rollout.state import Kind, Phase, RolloutState
from understudy.core.routing.arms import arm_percents
from understudy.entrypoints.cli.shared.times import ago
from understudy.entrypoints.console.views.actors import act_words, by_whom
from understudy.entrypoints.console.views.links import model_path
from understudy.entrypoints.console.views.tone import NOTHING, OF_PHASE, Tone
from understudy.ports.registry.registry import AuditEntry, ModelRecord, PolicyRecord
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, UnreadableRollout
from understudy.registry.rollback_moves import NEWS_SECONDS, UNWATCHED, newest_words

MAX_ROWS = 200
MAX_NAMED = 3
"""Models that the page's first sentence names of those that need a person."""
_SERVING = ("serving", Tone.CALM)
_UNREADABLE = ("of a newer release", Tone.WAIT)
_ORDER = (Tone.BAD, Tone.WAIT, Tone.CALM, Tone.GOOD)


class ModelsSeen(NamedTuple):
    """What was read of all models."""

    models: Sequence[ModelRecord]
    rollouts: Mapping[str, RolloutRecord]
    """The newest rollout or guard of each model that had one of late."""
    events: Mapping[int, RolloutEventRecord]
    """What happened last to those of them that are open."""
    alerts: Mapping[str, Collection[AlertKind]]
    """Incidents that are open, by model."""
    read_at: float
    """Seconds since the epoch."""
    changes: Mapping[str, AuditEntry] = {}
    """What gave each model its champion whose champion is not what its newest rollout left."""
    hidden: Mapping[str, str] = {}
    """That a model was taken back before its newest rollout began, in words."""
    unreadable: Mapping[str, UnreadableRollout] = {}
    """The newest rollout of each model where this release cannot read it; then it is not among ``rollouts``."""
    is_unwatched: bool = False
    """Whether no monitor has looked at open rollouts and guards of late."""
    acts: Mapping[int, RolloutEventRecord] = {}
    """What a person did last to rollouts that are open."""


class ModelRow(NamedTuple):
    """One model."""

    name: str
    href: str
    tone: Tone
    state: str
    champion: str
    challenger: str
    """With its share; empty where there is none."""
    challenger_percent: int
    reason: str
    hidden: str
    """That it was taken back of late, where a newer rollout hides it; else empty."""
    unwatched: str
    """That no monitor looks at it; else empty."""
    guard: str
    decision: str
    alerts: tuple[str, ...]
    changed: str
    """When and by whom last: the policy, or its open rollout by a command, which changes no policy."""


_UNWATCHED_ROW = "No monitor looks at it."
NONE_TO_SEE = "There is no model that this key may see."


class ModelsPage(NamedTuple):
    """All models, those in trouble first."""

    sentence: str
    tone: Tone
    rows: tuple[ModelRow, ...]
    left_out: int
    """Models that did not fit on the page."""


def models_page(seen: ModelsSeen, may_read: Collection[str] | None) -> ModelsPage:
    """Return the page; ``may_read`` are the models that the visitor may see, ``None``: all of them."""
    visible = [model for model in seen.models if may_read is None or model.model_name in may_read]
    rows = sorted(
        (_row(model, seen) for model in visible),
        key=lambda row: (_ORDER.index(row.tone), not row.challenger_percent, row.name),
    )
    troubled = [row for row in rows if row.tone in (Tone.BAD, Tone.WAIT)]
    sentence, tone = _sentence(len(rows), troubled)
    if any(_is_unwatched(seen.rollouts.get(row.name), seen) for row in rows):
        sentence = f"{UNWATCHED} {sentence}"
    if not rows and may_read is not None:
        sentence = NONE_TO_SEE
    return ModelsPage(sentence, tone, tuple(rows[:MAX_ROWS]), max(0, len(rows) - MAX_ROWS))


def _sentence(count: int, troubled: Sequence[ModelRow]) -> tuple[str, Tone]:
    if not count:
        return "There is no model yet. understudy version register adds one.", Tone.CALM
    if not troubled:
        return f"None of {count} model{'s' if count > 1 else ''} needs a person.", Tone.CALM
    named = first_names((f"{row.name} ({row.state.lower()})" for row in troubled), MAX_NAMED)
    verb = "needs" if len(troubled) == 1 else "need"
    return f"{len(troubled)} of {count} {verb} a look: {named}.", troubled[0].tone


def _row(model: ModelRecord, seen: ModelsSeen) -> ModelRow:
    name, policy = model.model_name, model.policy
    alerts = tuple(sorted(kind.value.replace("_", " ") for kind in seen.alerts.get(name, ())))
    if policy is None:
        state = "not served"
        reason = "It has no policy: no version is its champion."
        return ModelRow(
            name, model_path(name), Tone.CALM, state, NOTHING, "", 0, reason, "", "", NOTHING, "", alerts, "never"
        )
    record, unreadable = seen.rollouts.get(name), seen.unreadable.get(name)
    state, tone = _state(record, policy, seen.read_at) if unreadable is None else _UNREADABLE
    event = None if record is None else seen.events.get(record.id)
    is_unwatched = _is_unwatched(record, seen)
    return ModelRow(
        name,
        model_path(name),
        Tone.WAIT if (alerts or is_unwatched) and tone in (Tone.CALM, Tone.GOOD) else tone,
        state,
        policy.champion,
        _challenger(policy),
        policy.challenger_weight,
        _reason(record, event, seen.changes.get(name)) if unreadable is None else unreadable.problem,
        seen.hidden.get(name, ""),
        _UNWATCHED_ROW if is_unwatched else "",
        _guard(policy, record),
        _decision(event),
        alerts,
        _changed(policy, None if record is None else seen.acts.get(record.id), seen.read_at),
    )


def _is_unwatched(record: RolloutRecord | None, seen: ModelsSeen) -> bool:
    return seen.is_unwatched and record is not None and not record.state.phase.is_final


def _state(record: RolloutRecord | None, policy: PolicyRecord, now: float) -> tuple[str, Tone]:
    """Return what a model's row says first: its open rollout's phase, or that its last one was taken back of late."""
    if record is None:
        return _SERVING
    state = record.state
    is_guard = state.kind is Kind.GUARD
    if is_overtaken(record, policy, now):
        return ("rolled back", Tone.BAD) if policy.champion == state.champion else ("changed by hand", Tone.WAIT)
    if state.phase.is_final:
        is_recent = record.finished_at is not None and now - record.finished_at < NEWS_SECONDS
        if state.phase is not Phase.FAILED or not is_recent or not _is_back(state, policy):
            return _SERVING
        return ("taken back by its guard" if is_guard else "rolled back"), Tone.BAD
    if is_guard:
        failed = ("guard failed", Tone.BAD) if state.has_failed_guard else ("guard waits", Tone.WAIT)
        return failed if state.phase is Phase.WAITING else _SERVING
    share = "" if state.promoted_at is not None else f" {policy.challenger_weight} %"
    return f"{state.phase}{share}", OF_PHASE[state.phase]


def is_overtaken(record: RolloutRecord, policy: PolicyRecord, now: float) -> bool:
    """Whether another version has answered for a short time than a rollout that is over left as the champion."""
    state = record.state
    is_news = now - policy.updated_at.timestamp() < NEWS_SECONDS
    return state.phase.is_final and is_news and policy.champion != state.policy.champion


def _is_back(state: RolloutState, policy: PolicyRecord) -> bool:
    """Whether the policy is still as the end of a rollout left it, and not what an operator made of it since."""
    others = (None, state.challenger)
    return policy.champion == state.champion and policy.challenger in others and not policy.challenger_weight


def _challenger(policy: PolicyRecord) -> str:
    shares = arm_percents(policy.split.ranges)
    named = dict.fromkeys([policy.challenger, *shares])
    others = [f"{version} at {shares.get(version, 0)} %" for version in named if version not in (None, policy.champion)]
    return ", ".join(others)


def _reason(record: RolloutRecord | None, event: RolloutEventRecord | None, change: AuditEntry | None) -> str:
    if change is not None:
        return newest_words(change)
    if record is None:
        return ""
    state = record.state
    if state.kind is Kind.GUARD and state.phase.is_final and state.phase is not Phase.FAILED:
        return ""
    return state.reason or (event.reason if event is not None else "")


def _guard(policy: PolicyRecord, record: RolloutRecord | None) -> str:
    if record is not None and record.state.kind is Kind.GUARD and not record.state.phase.is_final:
        return f"{policy.guard}, watches {record.state.challenger}"
    return policy.guard


def _decision(event: RolloutEventRecord | None) -> str:
    if event is None:
        return ""
    when = f"{datetime.fromtimestamp(event.at, UTC):%H:%M:%S}"
    verdict = "" if event.verdict is None else f"{event.verdict.replace('_', ' ')} "
    return f"{verdict}{when} by {by_whom(event.actor)}"


def _changed(policy: PolicyRecord, act: RolloutEventRecord | None, now: float) -> str:
    """Return who changed something last, and when: of a policy and an act of a person on its rollout the newer one."""
    read_at = datetime.fromtimestamp(now, UTC)
    if act is None or act.at <= policy.updated_at.timestamp():
        return f"{ago(policy.updated_at, read_at)} by {by_whom(policy.updated_by)}"
    what = act_words(act.reason, act.actor)[0]
    return f"{ago(datetime.fromtimestamp(act.at, UTC), read_at)} by {act.actor}: rollout {what}"
