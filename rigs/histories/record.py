"""What a history consists of: operations with their times and answers, and what the database holds at its end."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from rigs.histories.policy import Policy, policy_of_row

_TAG = re.compile(r"\bop-\d+-\d+\b")


class Kind(StrEnum):
    """What a client asks for."""

    SET = "set"
    """Change fields of the policy, on condition of a generation or without."""
    ADD = "add"
    """Change a field by what it was, within one statement: of two at once none may be lost."""
    ABANDON = "abandon"
    """Change the policy in a transaction that is rolled back."""
    ROLL_BACK = "roll back"
    READ_POLICY = "read policy"
    READ_AUDIT = "read audit"
    RETIRE = "retire"
    RESTORE = "restore"
    START = "start rollout"
    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    ABORT = "abort"
    READ_ROLLOUT = "read rollout"
    PREDICT = "predict"
    FAULT = "fault"


COMMANDS = frozenset({Kind.PAUSE, Kind.RESUME, Kind.PROMOTE, Kind.ABORT})


class Way(StrEnum):
    """By which of the ways that users have."""

    SQL = "sql"
    HTTP = "http"
    CLI = "cli"
    NONE = ""


class Ended(StrEnum):
    """What a client knows of its operation afterwards."""

    DONE = "done"
    REFUSED = "refused"
    """It was not carried out, and the product says so."""
    UNKNOWN = "unknown"
    """It may have been carried out, or be carried out later: the answer got lost."""


@dataclass(frozen=True)
class Operation:
    """One operation of one client, drawn before the history begins.

    Args:
        client: The client's number, from 0.
        number: Its place among the client's operations.
        kind: What is asked for.
        way: By which way.
        asked: The arguments, by name; versions by their labels.
    """

    client: int
    number: int
    kind: Kind
    way: Way = Way.NONE
    asked: Mapping[str, Any] = field(default_factory=dict)
    pause: float = 0.0
    """Seconds that the client waits before it."""

    @property
    def tag(self) -> str:
        """What names the operation in the audit: it is the reason that the client gives."""
        return f"op-{self.client}-{self.number}"


@dataclass(frozen=True)
class Record:
    """An operation that was made.

    Args:
        operation: Which.
        invoked: When the client sent it, in seconds of the runner's clock.
        returned: When the client had its answer; infinite where there is none, since it may be carried out later.
        ended: What the client knows of it.
        answer: What the product said.
    """

    operation: Operation
    invoked: float
    returned: float
    ended: Ended
    answer: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        one = self.operation
        said = {name: value for name, value in self.answer.items() if name not in ("policy", "entries", "calls")}
        times = f"{self.invoked:.3f}-{self.returned:.3f}"
        return f"{one.tag} {one.kind} by {one.way or 'runner'} {dict(one.asked)} {times}: {self.ended} {said}"


@dataclass(frozen=True)
class AuditRow:
    """A row of ``PolicyAudit``; ``at`` is when its transaction began, in seconds of the runner's clock."""

    id: int
    generation: int
    at: float
    actor: str
    via: str
    reason: str
    action: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]

    @property
    def tag(self) -> str | None:
        """The tag of the operation that it is of; ``None`` where it is no client's."""
        return tag_of(self.reason)


@dataclass(frozen=True)
class RolloutRow:
    """What never changes of a row of ``Rollout``; versions by their labels."""

    id: int
    champion: str
    challenger: str
    weights: Sequence[int]
    """Of the plan's steps."""
    salt: str | None
    salt_before: str | None
    reason: str


@dataclass(frozen=True)
class EventRow:
    """A row of ``RolloutEvent``; ``at`` is when its transaction began, in seconds of the runner's clock."""

    id: int
    rollout_id: int
    at: float
    phase: str
    step: int
    actor: str
    reason: str


@dataclass(frozen=True)
class StatusRow:
    """A row of ``RegistryAudit`` by which a version was retired or brought back; ``at`` as in :class:`AuditRow`."""

    id: int
    at: float
    version: str
    is_retired: bool
    actor: str
    reason: str


class Signature(NamedTuple):
    """What the audit has to say of a client that comes by a way."""

    actor: str
    via: str


@dataclass(frozen=True)
class History:
    """Everything that the checker sees.

    Args:
        seed: That the operations were drawn from.
        labels: Of the versions, by their ids.
        records: Operations in the order in which they were sent.
        audit: Rows by their ids, from the model's first policy on.
        policy: The row of ``ServingPolicy`` at the end.
        rollouts: All rows, by their ids.
        events: All rows, by their ids.
        statuses: Versions that were retired or brought back, by the rows' ids.
        signatures: By way.
        logged: Rows of ``PredictionLog`` by the prediction's id.
        proxies: The generation that each live proxy reports at the end.
    """

    seed: int
    labels: Mapping[int, str]
    records: Sequence[Record]
    audit: Sequence[AuditRow]
    policy: Mapping[str, Any]
    rollouts: Sequence[RolloutRow] = ()
    events: Sequence[EventRow] = ()
    statuses: Sequence[StatusRow] = ()
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    logged: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    proxies: Mapping[str, int] = field(default_factory=dict)

    def state(self, row: AuditRow) -> Policy:
        """Return the policy that a row of the audit left."""
        return policy_of_row(row.after, self.labels)

    def with_audit(self, audit: Sequence[AuditRow]) -> Self:
        """Return the same history with another audit, for planted faults."""
        return replace(self, audit=tuple(audit))

    def write(self, path: Path) -> None:
        """Write it to a file that :func:`read_history` reads."""
        path.parent.mkdir(parents=True, exist_ok=True)
        options = orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2
        path.write_bytes(orjson.dumps(asdict(self), default=list, option=options))


def tag_of(reason: str | None) -> str | None:
    """Return the tag of the operation that a reason names."""
    found = _TAG.search(reason or "")
    return None if found is None else found[0]


def read_history(path: Path) -> History:
    """Return a history that was written to a file, to be checked again."""
    document = orjson.loads(path.read_bytes())
    return History(
        seed=document["seed"],
        labels={int(number): label for number, label in document["labels"].items()},
        records=[_record(one) for one in document["records"]],
        audit=[AuditRow(**row) for row in document["audit"]],
        policy=document["policy"],
        rollouts=[RolloutRow(**row) for row in document["rollouts"]],
        events=[EventRow(**row) for row in document["events"]],
        statuses=[StatusRow(**row) for row in document["statuses"]],
        signatures={way: Signature(*signature) for way, signature in document["signatures"].items()},
        logged=document["logged"],
        proxies=document["proxies"],
    )


def _record(document: Mapping[str, Any]) -> Record:
    one = document["operation"]
    operation = Operation(**{**one, "kind": Kind(one["kind"]), "way": Way(one["way"])})
    # JSON has no infinity: what never returned is written as null.
    returned = inf if document["returned"] is None else document["returned"]
    return Record(operation, document["invoked"], returned, Ended(document["ended"]), document["answer"])
