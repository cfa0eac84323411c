"""Who did something, in words: a person, a key with its note, the monitor, or a login of the database.

Only a name that says by itself who it is stands alone: ``understudy`` is a login, and no person of that name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from understudy.ports.registry.registry import AuditEntry, PolicyRecord
from understudy.ports.rollout.rollout_store import MONITOR, RolloutAct, RolloutEventRecord, RolloutRecord

MAX_NOTE = 60
"""Characters of a note; ``understudy key list`` has all of it."""
_KEY_ID = re.compile(r"\b[0-9a-f]{12}\b")
_OWN_LOGIN = re.compile(r"understudy\w*")
"""What logins of the product's own are called: the owner of the tables, and roles such as ``understudy_monitor``."""
_OWN_LOGIN_ACTED = re.compile(r"\b((?:paused|goes on|promoted|approved|aborted|resumed) by )(understudy\w*)(?![\w@.-])")
"""How a rollout's words for an operator's command name such a login."""
_NOT_BY_SQL = frozenset({"cli", "http", "console", "apply", "rollout", "source", "understudy demo"})
"""What the product's own tools say that a change came by; anything else is what a session in SQL calls itself."""
Notes = Mapping[str, str]
"""Of keys, by their ids."""


def noted(actor: str, notes: Notes) -> str:
    """Return an actor: ``4f2a90c1d7be (ana, on call)`` for a key with a note, and any other as it is.

    One that has the product's name is a login, and no person: ``the database login understudy``.
    """
    if _OWN_LOGIN.fullmatch(actor):
        return f"the database login {actor}"
    note = notes.get(actor)
    if not note:
        return actor
    return f"{actor} ({note if len(note) <= MAX_NOTE else f'{note[: MAX_NOTE - 1]}…'})"


def noted_text(text: str, notes: Notes) -> str:
    """Return a sentence in which each key's id has its note behind it: ``paused by 4f2a90c1d7be (ana): lunch``."""
    named = _OWN_LOGIN_ACTED.sub(lambda found: f"{found[1]}{noted(found[2], notes)}", text, count=1)
    return _KEY_ID.sub(lambda found: noted(found[0], notes), named) if notes else named


def by_whom(actor: str) -> str:
    """Return an actor as it stands in a sentence after ``by``."""
    return f"the {MONITOR}" if actor == MONITOR else actor


def noted_entries(entries: Sequence[AuditEntry], notes: Notes) -> list[AuditEntry]:
    """Return changes with their actors in words, also within their reasons; of one by SQL it says so."""
    return [_noted_entry(entry, notes) for entry in entries]


def _noted_entry(entry: AuditEntry, notes: Notes) -> AuditEntry:
    actor = noted(entry.actor, notes) if entry.via in _NOT_BY_SQL else f"SQL as {entry.actor}"
    return entry._replace(actor=actor, reason=entry.reason and noted_text(entry.reason, notes))


def act_words(reason: str, actor: str) -> tuple[str, str]:
    """Return what a person did to a rollout, and why: ``paused by ana: lunch`` is ``paused``, and ``lunch``."""
    did, _, why = reason.partition(f" by {actor}")
    return did, why.removeprefix(":").strip()


def noted_act(act: RolloutAct, notes: Notes) -> RolloutAct:
    """Return what a person did to a rollout with who did it in words, also within its reason."""
    return act._replace(actor=noted(act.actor, notes), reason=noted_text(act.reason, notes))


def noted_event(event: RolloutEventRecord, notes: Notes) -> RolloutEventRecord:
    """Return what happened to a rollout with who did it in words, also within its reason."""
    return event._replace(actor=noted(event.actor, notes), reason=noted_text(event.reason, notes))


def noted_rollout(record: RolloutRecord, notes: Notes) -> RolloutRecord:
    """Return a rollout with who started it, and whom its reason names, in words."""
    state = replace(record.state, reason=noted_text(record.state.reason, notes))
    return record._replace(state=state, started_by=noted(record.started_by, notes))


def noted_policy(policy: PolicyRecord, notes: Notes) -> PolicyRecord:
    """Return a policy with who made it in words."""
    return policy._replace(updated_by=noted(policy.updated_by, notes))
