"""The first screen of a rollout's page: what a person on call asks first, each answered in a sentence."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from understudy.core.canary.decision import Evidence
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.messages import value_words
from understudy.core.canary.scores.score_agreement import NO_INPUTS, lack_inputs
from understudy.core.durations import duration_words, moment
from understudy.core.rollout.state import Kind, Phase, RolloutState
from understudy.core.routing.policy import Role
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, live_proxies_words, stale_proxies_words
from understudy.entrypoints.cli.rollout.status import heading, monitor_words, shares_of
from understudy.entrypoints.cli.shared.texts.rollback_text import rollback_command
from understudy.entrypoints.console.views.actors import by_whom
from understudy.entrypoints.console.views.changes import change_row
from understudy.entrypoints.console.views.health import trouble_of
from understudy.entrypoints.console.views.rollouts.checks import (
    CheckRow,
    are_known,
    checks_words,
    nothing_compared_words,
)
from understudy.entrypoints.console.views.rollouts.next_step import back_words, next_words
from understudy.entrypoints.console.views.rollouts.seen import Beside, Failing, RolloutSeen
from understudy.entrypoints.console.views.tone import Tone
from understudy.ports.registry.registry import AuditEntry
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.registry.findings.finding import State
from understudy.rollout.start.score_warning import log_inputs_command
from understudy.rollout.status import RolloutStatus
from understudy.rollout.verdicts.verdict_event import ACTOR

_STORES = {"postgres": "Postgres", "redis": "Redis"}
_STORE_WORDS = {State.GOOD: "answers", State.UNKNOWN: "is not seen from here"}
_ALL = 100
MAX_REASON = 100
"""Characters of why something was changed: a monitor's reason has all of its figures, and stands whole further down."""


class GlanceRow(NamedTuple):
    """A question with its answer."""

    question: str
    answer: str
    tone: Tone = Tone.CALM
    command: str = ""
    """What does the same in a terminal."""
    more: tuple[str, ...] = ()
    """What else it is, a line each."""


def glance_rows(
    seen: RolloutSeen, rows: Sequence[Evidence], checks: Sequence[CheckRow], no_way_back: str
) -> tuple[GlanceRow, ...]:
    """Return the questions in the order in which they are asked; ``no_way_back`` says why there is none."""
    status, beside = seen.status, seen.beside
    state = status.view.record.state
    began = heading(status)[1].plain
    back, lines = back_words(status, rows)
    said, tone = nothing_compared_words(status), Tone.CALM
    if checks:
        said, tone = checks_words(checks, is_known=are_known(status, is_old=beside.is_old))
    way_back = no_way_back or rollback_words(status)
    found = [
        GlanceRow(f"Who gets {state.challenger}", getting_words(status)),
        GlanceRow("Since when", f"{_waits_words(status)}{_step_words(status)}{began[:1].upper()}{began[1:]}."),
        GlanceRow("What happens next", next_words(status)),
        *([GlanceRow("What would take it back", back, more=lines)] if back else []),
        GlanceRow("Does a check fail", said, tone),
        *_unseen_rows(status),
        GlanceRow(f"Errors of {state.challenger}", errors_words(state, rows, beside.failing)),
        GlanceRow("Last change", last_change_words(seen.audit, status.events, seen.labels)),
        _health_row(status, beside),
        GlanceRow("Way back", way_back, command="" if no_way_back else rollback_command(state.model_name)),
    ]
    return tuple(found)


def getting_words(status: RolloutStatus) -> str:
    """Return who gets the challenger and how much that is, by the policy and as observed."""
    view, state = status.view, status.view.record.state
    policy = view.policy
    if policy is None:
        return "No caller: the model has no policy."
    shares = view.shares or ({policy.challenger: policy.weight_percent} if policy.challenger else {})
    left = _ALL - sum(shares.values())
    if policy.champion == state.challenger and left == _ALL:
        return f"Every caller: {state.challenger} is champion."
    rest = _rest_words({policy.champion: left, **shares}, state.challenger)
    if policy.champion == state.challenger:
        return f"{left} % of the entities, by a hash of their id, as champion; {rest}"
    percent = shares.get(state.challenger, 0)
    if not percent:
        return f"No caller: {rest}"
    return f"{percent} % of the entities, by a hash of their id{_observed_words(status)}; {rest}"


def _rest_words(percents: Mapping[str, int], challenger: str) -> str:
    """Return what the other versions answer, the champion first: ``6 answers 65 %, 8 answers 10 %.``."""
    others = {version: percent for version, percent in percents.items() if version != challenger}
    answering = [
        f"{version} answers {'every call' if percent == _ALL else f'{percent} %'}"
        for version, percent in others.items()
        if percent or len(others) == 1
    ]
    return f"{', '.join(answering)}."


def _observed_words(status: RolloutStatus) -> str:
    """Return the challenger's share as observed; empty where it is not counted."""
    challenger = status.view.record.state.challenger
    seen = next((one for one in shares_of(status) if (one.role, one.version) == (Role.CHALLENGER, challenger)), None)
    if seen is None or seen.seen_percent is None:
        return ""
    return f" ({seen.seen_percent:.1f} % of the calls in the last 2 m, {seen.calls})"


def _unseen_rows(status: RolloutStatus) -> list[GlanceRow]:
    """Return what the warm-up could not compare, and the command by which the next one can; empty: it could."""
    state = status.view.record.state
    if state.phase.is_final or not any(lack_inputs(event.reason) for event in status.events):
        return []
    said = f"{state.challenger}'s scores with the champion's for the same inputs: {NO_INPUTS}. For the next rollout:"
    return [GlanceRow("What is not compared", said, command=log_inputs_command(state.model_name))]


def _waits_words(status: RolloutStatus) -> str:
    """Return since when a rollout waits for a person; empty while it moves."""
    if status.view.record.state.phase is not Phase.WAITING:
        return ""
    turns = [event for event in status.events if event.phase == Phase.WAITING]
    return f"It has waited since {moment(turns[-1].at)} UTC. " if turns else ""


def _step_words(status: RolloutStatus) -> str:
    """Return since when the challenger has its share; empty before its first one, and once it is over."""
    view, state = status.view, status.view.record.state
    if state.phase.is_final or not state.weight_percent or state.promoted_at is not None:
        return ""
    since = state.step_started_at
    passed = duration_words(max(0.0, round(view.read_at - since)))
    waits = ", the wait included" if state.phase is Phase.WAITING else ""
    return f"{state.weight_percent} % since {datetime.fromtimestamp(since, UTC):%H:%M:%S} UTC ({passed}{waits}). "


def errors_words(state: RolloutState, rows: Sequence[Evidence], failing: Failing | None) -> str:
    """Return how many of the challenger's calls failed, and with what."""
    row = next((row for row in rows if row.check is ERROR_RATE and row.challenger is not None), None)
    rate = "How many calls failed is not counted yet."
    if row is not None:
        share, beside = value_words(row.check, row.challenger), value_words(row.check, row.champion)
        rate = f"{share} of its calls failed, beside {beside} of the champion's."
    if failing is None:
        return f"{rate} Their codes come with the charts."
    opening = f"failing calls of {state.challenger}: "
    what = "; ".join(line.removeprefix(opening) for line in failing.lines)
    as_of = f"as of {failing.read_at} UTC"
    if what:
        return f"{rate} By their codes, {as_of}: {what}"
    # Windows count calls before their rows are in the log, and some rows never are: a rate above 0 is no error of it.
    is_behind = row is not None and bool(row.challenger)
    return f"{rate} The log has {'none of them yet' if is_behind else 'no failing call of it'}, {as_of}."


def last_change_words(
    audit: Sequence[AuditEntry], events: Sequence[RolloutEventRecord], labels: Mapping[int, str]
) -> str:
    """Return who changed what last, and why: the policy, or the rollout by a command, which changes no policy."""
    told = next((event for event in reversed(events) if event.actor != ACTOR), None)
    if audit and (told is None or audit[0].changed_at.timestamp() >= told.at):
        row = change_row(audit[0], labels)
        why = row.reason or "no reason was given"
        why = why if len(why) <= MAX_REASON else f"{why[: MAX_REASON - 1]}…"
        return f"{row.at} UTC by {by_whom(row.actor)} (via {row.via}), {row.text}: {why}"
    if told is None:
        return "None yet."
    by = "" if f" by {told.actor}" in told.reason else f" by {told.actor}"
    return f"{moment(told.at)} UTC{by}: {told.reason}"


def _health_row(status: RolloutStatus, beside: Beside) -> GlanceRow:
    """Return whether all is well; no words of findings, whose figures change at each look, and that not all may see."""
    if beside.is_old:
        return GlanceRow("Is all healthy", "Not known now: there are no newer figures.", Tone.WAIT)
    acted, findings = _acted_words(status), beside.findings
    if findings is None:
        return GlanceRow("Is all healthy", f"{acted} What Health finds comes in a few seconds.")
    states = {one.name: one.state for one in findings}
    stores = [
        f"{title} {_STORE_WORDS.get(states[name], 'is in trouble')}"
        for name, title in _STORES.items()
        if name in states
    ]
    trouble = trouble_of(findings, None, status.view.record.state.model_name)
    well = f"Wrong now: {trouble.named}." if trouble.named else "Health finds nothing wrong at this moment."
    said = f"{acted} {', '.join(stores)}{'. ' if stores else ''}{well}"
    return GlanceRow("Is all healthy", said, trouble.tone)


def _acted_words(status: RolloutStatus) -> str:
    """Return whether proxies act on the policy, and when a monitor was last heard, where it has something to do."""
    view = status.view
    seen = HIDDEN_WORDS if view.proxies_hidden else live_proxies_words(view.proxies, view.proxies_on_generation)
    generation = "" if view.policy is None else f" (generation {view.policy.generation})"
    parts = [f"{seen[:1].upper()}{seen[1:]}{generation}", stale_proxies_words(view.stale)]
    if not view.record.state.phase.is_final:
        parts.append(monitor_words(status.monitor_seconds))
    return f"{'; '.join(filter(None, parts))}."


def rollback_words(status: RolloutStatus) -> str:
    """Return what a rollback does: the database takes back a share, or what moved the champion last."""
    view, state = status.view, status.view.record.state
    if state.phase.is_final:
        return "Takes back at once what moved calls last: a share, or a change of champion."
    if not has_share(status):
        return f"Takes back a share of the calls, of which {state.challenger} has none yet: it changes nothing now."
    champion = state.champion if view.policy is None else _answering_after(status)
    ends = " and the rollout ends" if state.kind is Kind.ROLLOUT and state.step_starts else ""
    return f"{champion} answers every call again at once{ends}."


def _answering_after(status: RolloutStatus) -> str:
    """Return who answers after a rollback: the champion before, where the challenger has its place by now."""
    state, policy = status.view.record.state, status.view.policy
    return state.champion if policy is None or policy.champion == state.challenger else policy.champion


def has_share(status: RolloutStatus) -> bool:
    """Whether calls go to another version than the rollout's champion: by its steps, or set by a person before them."""
    view, state = status.view, status.view.record.state
    if view.policy is None:
        return bool(state.step_starts)
    left = _ALL - view.policy.weight_percent if view.champion_percent is None else view.champion_percent
    return left < _ALL or view.policy.champion != state.champion or bool(state.step_starts)
