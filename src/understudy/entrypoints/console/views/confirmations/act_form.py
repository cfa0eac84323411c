"""The form that asks before an act on a declared test or a version: what it does, and what it leaves behind."""

from typing import NamedTuple

from understudy.entrypoints.console.views.policy import Field


class ActForm(NamedTuple):
    """What is asked before an act."""

    model: str
    title: str
    sentence: str
    facts: tuple[tuple[str, str], ...]
    fields: tuple[tuple[str, str], ...]
    """Sent with the form."""
    button: str
    is_ending: bool
    remark: str
    """What the act leaves behind."""
    back: str
    command: str
    needs_reason: bool = False
    asked: tuple[Field, ...] = ()
    """What may be changed of it before it is carried out."""
