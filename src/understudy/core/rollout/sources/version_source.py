"""A source of versions: a label in a model registry that moves, and what is to be done about the version it names now.

The decision keeps nothing. It rests on what the two registries say, so it is the same one after a crash at any line, in
a second process, and each time the same label is looked at.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

NOTE: Final = "source"
"""Under which name a version's metrics say which source registered it."""
PLACEHOLDER: Final = "{version}"
"""Stands in a source's file for the version as its registry numbers it."""
FINISHED_BADLY: Final = "FAILED"


class OnNew(StrEnum):
    """What a label that moved leads to."""

    REGISTER = "register"
    ROLLOUT = "rollout"


class SourceSpec(NamedTuple):
    """One source, as a file describes it; texts may hold :data:`PLACEHOLDER` where :meth:`filled` is used."""

    kind: str
    model_name: str
    url: str
    registered_model: str
    """The model's name in the registry that is followed."""
    alias: str
    version: str = PLACEHOLDER
    """The label that a version gets here."""
    on_new: OnNew = OnNew.ROLLOUT
    plan: str | None = None
    group: str | None = None
    """Servers that agents load it onto; ``None``: ``endpoints`` have it."""
    endpoints: str | None = None
    """Targets of model servers, with commas between; ``None``: those of the version it is like."""
    protocol: str | None = None
    like: str | None = None
    """The version whose schemas and settings it gets; ``None``: the champion."""
    artifacts: str | None = None
    """Where the registry's own store lies, in the place of ``mlflow-artifacts:``."""
    backend: Mapping[str, str] = {}
    token_env: str | None = None
    """The variable with the login of the registry: a token, or ``user:password``."""
    webhook_secret_env: str | None = None
    """The variable with the secret that its webhooks are signed with."""

    @property
    def name(self) -> str:
        """What metrics, logs and the audit call it."""
        return f"{self.model_name}@{self.alias}"


class Offered(NamedTuple):
    """The version that a source's label names now."""

    number: str
    """As its registry counts it."""
    artifact: str
    """The address of its files."""
    note: Mapping[str, Any]
    """What tells it from every other version, also from a later one of the same number."""
    by: str | None = None
    """Who registered it there."""


class PastRollout(NamedTuple):
    """A rollout of the model, as the decision needs it."""

    id: int
    challenger: str
    phase: str
    is_final: bool


class Facts(NamedTuple):
    """What this registry says of the model."""

    champion: str | None
    is_registered: bool
    """Whether there is a version of the label that is offered."""
    is_same: bool
    """Whether that is the version which is offered, and no other one of that label."""
    is_retired: bool
    rollouts: Sequence[PastRollout]
    """Newest first."""
    sharing: str | None = None
    """A version that has a share of the calls, beside the champion."""
    is_cut: bool = False
    """Whether there are older ones, among which one of the version may be."""


class SourceState(StrEnum):
    """How a source stands."""

    AWAY = "away"
    """A registry does not answer; nothing changes until it does."""
    UNSET = "unset"
    """There is no such label."""
    DONE = "done"
    """There is nothing to do until the label moves."""
    WAITING = "waiting"
    """What the label asks for is tried again by itself."""
    REFUSED = "refused"
    """A person has to act."""


class Do(StrEnum):
    """What is to be done next."""

    NOTHING = "nothing"
    REGISTER = "register"
    START = "start"


class Step(NamedTuple):
    """The next thing to be done, and why."""

    do: Do
    state: SourceState
    detail: str


def next_step(label: str, on_new: OnNew, facts: Facts) -> Step:
    """Return what is to be done about a version that a source offers under a label.

    A version has one rollout by its source: what was rolled back, or promoted and replaced, is not started again when
    the label comes back to it.
    """
    if facts.champion is None:
        return _refused("the model has no champion to compare with: make its first one by hand")
    if not facts.is_registered:
        return Step(Do.REGISTER, SourceState.WAITING, f"version {label} is not registered")
    if not facts.is_same:
        return _refused(f"version {label} was registered from something else: give the source another version: text")
    if on_new is OnNew.REGISTER:
        return _done(f"version {label} is registered")
    if facts.champion == label:
        return _done(f"version {label} is the champion")
    return _rollout_step(label, facts)


def _rollout_step(label: str, facts: Facts) -> Step:
    """Return what is to be done about a registered version that is not champion."""
    own = next((one for one in facts.rollouts if one.challenger == label), None)
    other = next((one for one in facts.rollouts if not one.is_final), None)
    if own is not None:
        return _done(_told(own, label))
    if facts.is_retired:
        return _refused(f"version {label} is retired")
    if other is not None:
        return Step(Do.NOTHING, SourceState.WAITING, f"rollout {other.id} of version {other.challenger} is open")
    if facts.sharing is not None:
        return Step(Do.NOTHING, SourceState.WAITING, f"version {facts.sharing} has a share of the calls")
    if facts.is_cut:
        return _refused(f"version {label} is old, and may have had a rollout: start one by hand")
    return Step(Do.START, SourceState.WAITING, f"version {label} has had no rollout")


def filled(text: str, offered: Offered) -> str:
    """Return a text of a source's file for one version."""
    return text.replace(PLACEHOLDER, offered.number)


def artifact_of(spec: SourceSpec, offered: Offered) -> str:
    """Return where a version's files lie for those who load it."""
    inside, store = "mlflow-artifacts:", spec.artifacts
    if store is None or not offered.artifact.startswith(inside):
        return offered.artifact
    return f"{store.rstrip('/')}/{offered.artifact.removeprefix(inside).lstrip('/')}"


def _told(own: PastRollout, label: str) -> str:
    if not own.is_final:
        return f"rollout {own.id} of version {label} is {own.phase}"
    again = "; it is not started again by itself" if own.phase == FINISHED_BADLY else ""
    return f"rollout {own.id} of version {label} ended as {own.phase}{again}"


def _done(detail: str) -> Step:
    return Step(Do.NOTHING, SourceState.DONE, detail)


def _refused(detail: str) -> Step:
    return Step(Do.NOTHING, SourceState.REFUSED, detail)
