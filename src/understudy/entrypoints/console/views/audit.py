"""The page of who changed a model, its versions and its endpoints: filters, what changed, and the way back to it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from shlex import quote
from typing import NamedTuple
from urllib.parse import urlencode

from understudy.core.durations import moment
from understudy.entrypoints.cli.shared.texts.change_text import change_text, value_shown
from understudy.entrypoints.console.views.changes import FIELD_WORDS
from understudy.entrypoints.console.views.links import act_path, audit_path
from understudy.entrypoints.documents.policies import changes_of
from understudy.errors import UnknownRoute
from understudy.ports.registry.registry import AuditEntry, AuditFilter, AuditPlace, AuditSubject

SHOWN = 50
"""Changes of a page; older ones are found by the end of its time."""
RESTORE = "restore"
_MAX_DIGITS = 18
_TIMES = (("", "ever"), ("3600", "the last hour"), ("86400", "the last day"), ("604800", "the last week"))
_VIAS = ("cli", "http", "console", "apply", "rollout", "sql")
_SUBJECTS = ("", *AuditSubject)


class AuditAsked(NamedTuple):
    """What is asked for, as the form has it."""

    who: str = ""
    via: str = ""
    since: str = ""
    subject: str = ""
    after: str = ""
    """Where the page before ended: by the ids of its oldest change of the policy and of anything else, as ``12.7``."""


class AuditSeen(NamedTuple):
    """What was read of a model's audit."""

    model: str
    entries: Sequence[AuditEntry]
    """One more than is shown, where there are more."""
    labels: Mapping[int, str]
    generation: int
    """Of the policy as it is; 0: there is none."""


class AuditRow(NamedTuple):
    """One change."""

    at: str
    who: str
    via: str
    what: str
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


def audit_asked(values: Mapping[str, str]) -> AuditAsked:
    """Return what an address asks for."""
    return AuditAsked(*(values.get(name, "").strip() for name in AuditAsked._fields))


def audit_filter(asked: AuditAsked, now: datetime) -> tuple[AuditFilter, AuditSubject | None]:
    """Return the same as the registry's filter.

    Raises:
        UnknownRoute: A time is none, or a subject.
    """
    try:
        since = now - timedelta(seconds=_number(asked.since)) if asked.since else None
        subject = AuditSubject(asked.subject) if asked.subject else None
        after = _place(asked.after)
    except (ValueError, OverflowError):
        raise UnknownRoute("a filter in the address is no time, or names no such thing") from None
    return AuditFilter(asked.who or None, asked.via or None, since, after=after), subject


def _place(text: str) -> AuditPlace:
    policy, _, other = text.partition(".")
    return AuditPlace(_number(policy) if policy else None, _number(other) if other else None)


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
    shown = seen.entries[:SHOWN]
    older = ""
    if len(seen.entries) > SHOWN:
        older = _address(seen.model, asked._replace(after=_end_of(shown, asked)))
    return AuditPage(
        seen.model,
        _sentence(seen, asked),
        asked,
        _TIMES,
        _VIAS if asked.via in ("", *_VIAS) else (*_VIAS, asked.via),
        _SUBJECTS,
        tuple(_row(entry, seen) for entry in shown),
        older,
        _command(seen.model, asked),
    )


def _end_of(shown: Sequence[AuditEntry], asked: AuditAsked) -> str:
    """Return where a page ends: after its own changes, and after those of the pages before it."""
    policy, _, other = asked.after.partition(".")
    for entry in shown:
        if entry.subject is AuditSubject.POLICY:
            policy = str(entry.id)
        else:
            other = str(entry.id)
    return f"{policy}.{other}"


def _sentence(seen: AuditSeen, asked: AuditAsked) -> str:
    if not seen.entries:
        return "No change is like that." if any(asked) else "Nothing has changed yet."
    newest, count = seen.entries[0], min(SHOWN, len(seen.entries))
    which = "The newest change" if not any(asked) else f"The newest of {count} changes like that"
    return f"{which}: {moment(newest.changed_at.timestamp())} UTC by {newest.actor} ({newest.via})."


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


def _command(model: str, asked: AuditAsked) -> str:
    words = ["understudy audit list", quote(model)]
    words += [f"--actor {quote(asked.who)}"] if asked.who else []
    words += [f"--via {quote(asked.via)}"] if asked.via else []
    words += [f"--subject {quote(asked.subject)}"] if asked.subject else []
    words += [f"--since {quote(asked.since)}s"] if asked.since else []
    return " ".join(words)
