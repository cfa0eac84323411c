"""What was read of a rollout for its page."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from understudy.ports.registry.registry import AuditEntry
from understudy.ports.rollout.rollout_store import RollbackRecord
from understudy.registry.findings.finding import Finding
from understudy.rollout.status import RolloutStatus


class Failing(NamedTuple):
    """What failing calls of a challenger failed with, as the log had it at a moment."""

    lines: Sequence[str]
    """In words; empty: the log had no failing call."""
    read_at: str
    """The moment, in UTC."""


class Beside(NamedTuple):
    """What other parts of the console know already of a rollout; ``None``: nothing yet."""

    findings: Sequence[Finding] | None = None
    """Of the last examination by Health."""
    failing: Failing | None = None
    """What failing calls of the challenger failed with."""
    is_old: bool = False
    """Whether there are no newer figures of the rollout, though they are due."""


class RolloutSeen(NamedTuple):
    """What was read of a rollout."""

    status: RolloutStatus
    by_hand: AuditEntry | None
    """The change that ended it by hand."""
    audit: Sequence[AuditEntry]
    """The newest changes of the model's policy, newest first."""
    labels: Mapping[int, str]
    """Of the model's versions, by their ids."""
    recent: Sequence[int] = ()
    """The model's newest rollouts, newest first."""
    tried: RollbackRecord | None = None
    """What a rollback would do at this moment, where its champion is retired; ``None``: not asked."""
    beside: Beside = Beside()
