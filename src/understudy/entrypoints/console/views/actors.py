"""Who did something, in words: a key's id has the note of the key behind it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from understudy.ports.registry.registry import AuditEntry, PolicyRecord
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord

MAX_NOTE = 60
"""Characters of a note; ``understudy key list`` has all of it."""
_KEY_ID = re.compile(r"\b[0-9a-f]{12}\b")
Notes = Mapping[str, str]
"""Of keys, by their ids."""


def noted(actor: str, notes: Notes) -> str:
    """Return an actor: ``4f2a90c1d7be (ana, on call)`` for a key with a note, and any other as it is."""
    note = notes.get(actor)
    if not note:
        return actor
    return f"{actor} ({note if len(note) <= MAX_NOTE else f'{note[: MAX_NOTE - 1]}…'})"


def noted_text(text: str, notes: Notes) -> str:
    """Return a sentence in which each key's id has its note behind it: ``paused by 4f2a90c1d7be (ana): lunch``."""
    return _KEY_ID.sub(lambda found: noted(found[0], notes), text) if notes else text


def noted_entries(entries: Sequence[AuditEntry], notes: Notes) -> list[AuditEntry]:
    """Return changes with their actors in words."""
    return [entry._replace(actor=noted(entry.actor, notes)) for entry in entries]


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
