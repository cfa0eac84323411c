"""The page of who changed a model, its versions and its endpoints: filters, what changed, and the way back to it.

What people do to rollouts without a change of the policy, such as a pause, is in another table, and stands among it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from shlex import quote
from typing import NamedTuple
from urllib.parse import urlencode

from understudy.core.durations import moment
from understudy.entrypoints.cli.shared.texts.change_text import change_text, value_shown
from understudy.entrypoints.console.views.actors import act_words, by_whom
from understudy.entrypoints.console.views.changes import FIELD_WORDS
from understudy.entrypoints.console.views.links import act_path, audit_path, rollout_path
from understudy.entrypoints.documents.policies import changes_of
from understudy.errors import UnknownRoute
from understudy.ports.registry.registry import AuditEntry, AuditFilter, AuditPlace, AuditSubject
from understudy.ports.rollout.rollout_store import RolloutAct, RolloutActFilter

SHOWN = 50
"""Changes of a page; older ones are found by the end of its time."""
RESTORE = "restore"
_MAX_DIGITS = 18
_PLACES = 3
_TIMES = (("", "ever"), ("3600", "the last hour"), ("86400", "the last day"), ("604800", "the last week"))
_VIAS = ("cli", "http", "console", "apply", "rollout", "sql")
OF_ROLLOUTS = "rollout"
_SUBJECTS = ("", *AuditSubject, OF_ROLLOUTS)


class AuditAsked(NamedTuple):
    """What is asked for, as the form has it."""

    who: str = ""
    via: str = ""
    since: str = ""
    subject: str = ""
    after: str = ""
    """Where the page before ended: by the ids of its oldest change of the policy, of anything else, and of its oldest
    act on a rollout, as ``12.7.3``."""


class AuditWanted(NamedTuple):
    """The same as the stores' filters; ``None``: none of that kind is asked for."""

    changes: AuditFilter | None
    subject: AuditSubject | None
    """Of changes; ``None``: of anything."""
    acts: RolloutActFilter | None


class AuditSeen(NamedTuple):
    """What was read of a model's audit."""

    model: str
    entries: Sequence[AuditEntry]
    """One more than is shown, where there are more."""
    labels: Mapping[int, str]
    generation: int
    """Of the policy as it is; 0: there is none."""
    acts: Sequence[RolloutAct] = ()
    """What people did to its rollouts that changed no policy; one more than is shown, where there are more."""


Listed = AuditEntry | RolloutAct
"""What is listed, newest first."""


class AuditRow(NamedTuple):
    """One change, or one act on a rollout."""

    at: str
    who: str
    via: str
    """Empty of an act on a rollout: with what it was done is not written down."""
    what: str
    href: str
    """Of the rollout that it was done to; empty of a change."""
    text: str
    reason: str
    fields: tuple[tuple[str, str, str], ...]
    """That changed: what, before, after."""
    restore_href: str
    """Empty where there is no older policy to restore."""


class AuditPage(NamedTuple):
    """The changes of a model."""

    model: str
    sentence: str
    asked: AuditAsked
    times: tuple[tuple[str, str], ...]
    vias: tuple[str, ...]
    subjects: tuple[str, ...]
    rows: tuple[AuditRow, ...]
    older_href: str
    command: str
    acts_command: str
    """What shows acts on rollouts in a terminal, which the other one does not; empty where there are none."""


def audit_asked(values: Mapping[str, str]) -> AuditAsked:
    """Return what an address asks for."""
    return AuditAsked(*(values.get(name, "").strip() for name in AuditAsked._fields))


def audit_wanted(asked: AuditAsked, now: datetime) -> AuditWanted:
    """Return the same as the stores' filters.

    Raises:
        UnknownRoute: A time is none, or a subject.
    """
    has_changes = asked.subject != OF_ROLLOUTS
    try:
        since = now - timedelta(seconds=_number(asked.since)) if asked.since else None
        subject = AuditSubject(asked.subject) if asked.subject and has_changes else None
        policy, other, act = _place(asked.after)
    except (ValueError, OverflowError):
        raise UnknownRoute("a filter in the address is no time, or names no such thing") from None
    who, via = asked.who or None, asked.via or None
    # With what an act on a rollout was done is not written down, so it is like no ``via``.
    has_acts = asked.subject in ("", OF_ROLLOUTS) and via is None
    return AuditWanted(
        AuditFilter(who, via, since, after=AuditPlace(policy, other)) if has_changes else None,
        subject,
        RolloutActFilter(who, since, act) if has_acts else None,
    )


def _place(text: str) -> Sequence[int | None]:
    parts = text.split(".")
    if len(parts) > _PLACES:
        raise ValueError(text)
    return [_number(part) if part else None for part in [*parts, "", ""][:_PLACES]]


def _number(text: str) -> int:
    """Return a number of an address.

    Raises:
        ValueError: It is none.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise ValueError(text)
    return int(text)


def audit_page(seen: AuditSeen, asked: AuditAsked) -> AuditPage:
    """Return the page; what each change did is what the command line shows."""
    # Merged, not sorted: each list keeps the order of its ids.
    changes: Sequence[Listed] = seen.entries
    found = list(islice(merge(changes, seen.acts, key=_moment_of, reverse=True), SHOWN + 1))
    shown, older = found[:SHOWN], ""
    if len(found) > SHOWN:
        older = _address(seen.model, asked._replace(after=_end_of(shown, asked)))
    return AuditPage(
        seen.model,
        _sentence(shown, asked),
        asked,
        _TIMES,
        _VIAS if asked.via in ("", *_VIAS) else (*_VIAS, asked.via),
        _SUBJECTS,
        tuple(_act_row(one, seen) if isinstance(one, RolloutAct) else _row(one, seen) for one in shown),
        older,
        *_commands(seen.model, asked, [one for one in shown if isinstance(one, RolloutAct)]),
    )


def _moment_of(one: Listed) -> datetime:
    return one.at if isinstance(one, RolloutAct) else one.changed_at


def _end_of(shown: Sequence[Listed], asked: AuditAsked) -> str:
    """Return where a page ends: after its own changes and acts, and after those of the pages before it."""
    ends = [*asked.after.split("."), "", ""][:_PLACES]
    for one in shown:
        if isinstance(one, RolloutAct):
            ends[2] = str(one.id)
        else:
            ends[one.subject is not AuditSubject.POLICY] = str(one.id)
    return ".".join(ends)


def _sentence(shown: Sequence[Listed], asked: AuditAsked) -> str:
    if not shown:
        return "No change is like that." if any(asked) else "Nothing has changed yet."
    newest, count = shown[0], len(shown)
    what, via = ("act on a rollout", "") if isinstance(newest, RolloutAct) else ("change", f" ({newest.via})")
    which = f"The newest {what}" if not any(asked) else f"The newest of {count} like that"
    return f"{which}: {moment(_moment_of(newest).timestamp())} UTC by {by_whom(newest.actor)}{via}."


def _act_row(act: RolloutAct, seen: AuditSeen) -> AuditRow:
    did, why = act_words(act.reason, act.actor)
    what, href = f"rollout {act.rollout_id}", rollout_path(seen.model, act.rollout_id)
    return AuditRow(moment(act.at.timestamp()), act.actor, "", what, href, did, why, (), "")


def _row(entry: AuditEntry, seen: AuditSeen) -> AuditRow:
    is_policy = entry.subject is AuditSubject.POLICY
    name = f"policy, generation {entry.generation}" if is_policy else str(entry.subject)
    if not is_policy and entry.version is not None:
        name += f" {entry.version}" if entry.subject is AuditSubject.VERSION else f" of {entry.version}"
    restore = ""
    if is_policy and entry.after is not None and entry.generation != seen.generation:
        restore = f"{act_path(seen.model, RESTORE, None)}?from={entry.generation}"
    return AuditRow(
        moment(entry.changed_at.timestamp()),
        entry.actor,
        entry.via,
        name,
        "",
        change_text(entry, seen.labels, FIELD_WORDS) or "nothing that is shown",
        entry.reason or "",
        tuple(
            (field, _value(field, old), _value(field, new))
            for field, (old, new) in changes_of(entry, seen.labels).items()
        ),
        restore,
    )


def _value(field: str, value: object) -> str:
    if field == "arms" and isinstance(value, dict):
        return ", ".join(f"{arm} {percent} %" for arm, percent in value.items()) or "none"
    return value_shown(value)


def _address(model: str, asked: AuditAsked) -> str:
    return f"{audit_path(model)}?{urlencode({name: value for name, value in asked._asdict().items() if value})}"


def _commands(model: str, asked: AuditAsked, acts: Sequence[RolloutAct]) -> tuple[str, str]:
    """Return what shows the changes in a terminal, and what shows the acts."""
    of_acts = " ".join(["understudy rollout show", quote(model), *(str(act.rollout_id) for act in acts[:1])])
    if asked.subject == OF_ROLLOUTS:
        return of_acts, ""
    words = ["understudy audit list", quote(model)]
    words += [f"--actor {quote(asked.who)}"] if asked.who else []
    words += [f"--via {quote(asked.via)}"] if asked.via else []
    words += [f"--subject {quote(asked.subject)}"] if asked.subject else []
    words += [f"--since {quote(asked.since)}s"] if asked.since else []
    return " ".join(words), of_acts if acts else ""
