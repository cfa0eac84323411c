"""A source of versions: a label of a registry that moves, and what is to be done about the version it names now.

The decision keeps nothing. It rests on what both registries say, so it is the same one after a crash at any line, in
a second process, and each time the same label is looked at.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

NOTE: Final = "source"
"""Under which name a version's metrics say which source registered it."""
PLACEHOLDER: Final = "{version}"
"""Stands in a source's file for the version as its registry calls it."""
STEPS: Final = "dev.understudy.rollout.steps"
"""The annotation of an image, or tag of a version, with the shares of its rollout: ``1,5,25,50``; 100 follows."""
FIRST_PERCENT: Final = 10
FINISHED_BADLY: Final = "FAILED"
_STEPS: Final = re.compile(r"[0-9]{1,3}(,[0-9]{1,3}){0,19}")
_WHOLE: Final = 100


class OnNew(StrEnum):
    """What a label that moved leads to."""

    REGISTER = "register"
    ROLLOUT = "rollout"


class SourceSpec(NamedTuple):
    """One source, as a file describes it; texts may hold :data:`PLACEHOLDER` where :meth:`filled` is used."""

    kind: str
    model_name: str
    url: str
    """Of a registry of models; of an image its address, with the tag."""
    registered_model: str
    """The model's name in the registry that is followed."""
    alias: str
    """The label that moves: an alias, or a tag."""
    version: str = PLACEHOLDER
    """The label that a version gets here."""
    on_new: OnNew = OnNew.ROLLOUT
    plan: str | None = None
    first_percent: int = FIRST_PERCENT
    """The largest first step that a version may ask for."""
    group: str | None = None
    """Servers that agents load it onto; ``None``: ``endpoints`` have it."""
    require_validation: bool = False
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
    """The variable with the secret that its webhooks know."""

    @property
    def name(self) -> str:
        """What metrics, logs and the audit call it."""
        return f"{self.model_name}@{self.alias}"


class Offered(NamedTuple):
    """The version that a source's label names now."""

    number: str
    """As its registry calls it."""
    artifact: str
    """The address of its files."""
    note: Mapping[str, Any]
    """What tells it from every other version, also from a later one of the same number."""
    reason: str
    """For the audit: what the label names, and who made it so."""
    steps: str | None = None
    """The shares that it asks for, as :data:`STEPS` has them."""
    distinction: str | None = None
    """What stands behind its label where another version has that; ``None``: its number is the only one."""


class PastRollout(NamedTuple):
    """A rollout of the model, as the decision needs it."""

    id: int
    challenger: str
    phase: str
    is_final: bool


class Delay(NamedTuple):
    """Why agents do not have a version yet."""

    words: str
    is_wanted: bool = True
    """Whether agents still are to load it."""
    is_final: bool = False
    """Whether it stays so until a person acts."""


class Facts(NamedTuple):
    """What this registry says of the model."""

    champion: str | None
    label: str | None
    """Under which the version is registered that is offered; ``None``: it is not."""
    free_label: str | None = None
    """Under which it can be; ``None``: others have its labels."""
    is_retired: bool = False
    had_role: bool = False
    """Whether it ever had one; a rollout gives one from its beginning."""
    rollouts: Sequence[PastRollout] = ()
    """Newest first."""
    sharing: str | None = None
    """A version that has a share of the calls, beside the champion."""
    delay: Delay | None = None


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
    LOAD = "load"
    START = "start"


class Step(NamedTuple):
    """The next thing to be done, and why."""

    do: Do
    state: SourceState
    detail: str
    plan: str | None = None
    """Of a rollout that is to be started; ``None``: what its risk asks for."""


def next_step(spec: SourceSpec, offered: Offered, facts: Facts) -> Step:
    """Return what is to be done about the version that a source offers.

    A version has one rollout by its source: what was rolled back, or promoted and replaced, is not started again when
    the label comes back to it.
    """
    label = facts.label
    if facts.champion is None:
        return _refused("the model has no champion to compare with: make its first one by hand")
    if label is None and facts.free_label is None:
        taken = filled(spec.version, offered)
        return _refused(f"version {taken} was registered from something else: give the source another version: text")
    if label is None:
        return Step(Do.REGISTER, SourceState.WAITING, f"version {facts.free_label} is not registered")
    if facts.champion == label:
        return _done(f"version {label} is the champion")
    if spec.on_new is OnNew.REGISTER:
        return _done(f"version {label} is registered")
    return _rollout_step(spec, offered, facts, label)


def _rollout_step(spec: SourceSpec, offered: Offered, facts: Facts, label: str) -> Step:
    """Return what is to be done about a registered version that is not champion."""
    own = next((one for one in facts.rollouts if one.challenger == label), None)
    if own is not None:
        return _done(_told(own, label))
    if facts.had_role:
        return _done(f"version {label} has had a role; a rollout of it is started by hand")
    if facts.is_retired:
        return _refused(f"version {label} is retired")
    try:
        plan = asked_plan(offered.steps, spec.first_percent) or spec.plan
    except ValueError as problem:
        return _refused(f"version {label} gets no rollout: {problem}")
    start = Step(Do.START, SourceState.WAITING, f"version {label} has had no rollout", plan)
    return _in_the_way(facts, label) or start


def _in_the_way(facts: Facts, label: str) -> Step | None:
    """Return what a rollout waits for; ``None``: it can begin."""
    other = next((one for one in facts.rollouts if not one.is_final), None)
    if other is not None:
        return _waiting(f"rollout {other.id} of version {other.challenger} is open")
    if facts.sharing is not None:
        return _waiting(f"version {facts.sharing} has a share of the calls")
    return None if facts.delay is None else _after(facts.delay, label)


def _after(delay: Delay, label: str) -> Step:
    if delay.is_final:
        return _refused(f"version {label}: {delay.words}")
    do = Do.NOTHING if delay.is_wanted else Do.LOAD
    return Step(do, SourceState.WAITING, f"version {label}: {delay.words}")


def asked_plan(steps: str | None, first_percent: int) -> str | None:
    """Return the plan of the steps that a version asks for, as ``--plan`` takes them; ``None``: it asks for none.

    Raises:
        ValueError: They are none, do not rise, or the first one is larger than the source permits.
    """
    if steps is None:
        return None
    spaceless = steps.replace(" ", "")
    found = [int(step) for step in spaceless.split(",")] if _STEPS.fullmatch(spaceless) else []
    if not found or found != sorted(set(found)) or not 0 < found[0] <= found[-1] <= _WHOLE:
        raise ValueError(f"its {STEPS} is {steps[:60]!r}, not rising percents by commas, such as 1,5,25,50")
    if found[0] > first_percent:
        raise ValueError(f"its {STEPS} begins with {found[0]} %, and at most {first_percent} % is taken")
    return ",".join(map(str, found if found[-1] == _WHOLE else [*found, _WHOLE]))


def filled(text: str, offered: Offered) -> str:
    """Return a text of a source's file for one version."""
    return text.replace(PLACEHOLDER, offered.number)


def labels_of(spec: SourceSpec, offered: Offered) -> tuple[str, ...]:
    """Return the labels that a version may get here, the first one that no other version has."""
    label = filled(spec.version, offered)
    return (label,) if offered.distinction is None else (label, f"{label}-{offered.distinction}")


def note_of(spec: SourceSpec, offered: Offered) -> dict[str, Any]:
    """Return what a version's metrics say of its source."""
    return {"kind": spec.kind, "url": spec.url, **offered.note}


def is_noted(metrics: Any, offered: Offered) -> bool:
    """Whether a version was registered from what is offered, at whatever address its registry had then."""
    noted = metrics.get(NOTE) if isinstance(metrics, Mapping) else None
    return isinstance(noted, Mapping) and all(noted.get(name) == value for name, value in offered.note.items())


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


def _waiting(detail: str) -> Step:
    return Step(Do.NOTHING, SourceState.WAITING, detail)


def _refused(detail: str) -> Step:
    return Step(Do.NOTHING, SourceState.REFUSED, detail)
