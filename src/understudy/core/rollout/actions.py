"""What a rollout may do, as values, which tell their executor whether they still apply, and with what result.

An executor that reads the policy under a lock, asks :meth:`applies_to`, writes :meth:`result` and stores the new state
in the same transaction applies each action once. One that dies between two of these finds out by the next tick.
"""

from typing import NamedTuple

from understudy.core.alerts.alerts import AlertAction, AlertKind
from understudy.core.rollout.plan import GatePlace


class PolicySeen(NamedTuple):
    """The row of ``ServingPolicy`` as far as a rollout cares; versions by their text."""

    champion: str
    challenger: str | None
    weight_percent: int
    generation: int
    rollout_id: int | None
    salt: str | None = None

    def changed(self, *, champion: str, challenger: str | None, weight_percent: int) -> "PolicySeen":
        """Return the row after a change: its generation is one higher, unless the row says that already."""
        if (champion, challenger, weight_percent) == self[:3]:
            return self
        return self._replace(
            champion=champion, challenger=challenger, weight_percent=weight_percent, generation=self.generation + 1
        )

    def is_as(self, other: "PolicySeen") -> bool:
        """Whether it sends every call where the other does, whatever else was changed, a shadow for one."""
        return self == other._replace(generation=self.generation)


class SetWeight(NamedTuple):
    """Give the challenger this share."""

    weight_percent: int
    expected_generation: int

    def applies_to(self, policy: PolicySeen) -> bool:
        """Whether the policy is unchanged since the decision."""
        return policy.generation == self.expected_generation

    def result(self, policy: PolicySeen) -> PolicySeen:
        """Return the policy afterwards."""
        return policy.changed(
            champion=policy.champion, challenger=policy.challenger, weight_percent=self.weight_percent
        )


class Promote(NamedTuple):
    """Make a version the champion, in one change with taking the challenger's role away."""

    version: str
    expected_generation: int

    def applies_to(self, policy: PolicySeen) -> bool:
        """Whether the policy is unchanged since the decision."""
        return policy.generation == self.expected_generation

    def result(self, policy: PolicySeen) -> PolicySeen:
        """Return the policy afterwards."""
        return policy.changed(champion=self.version, challenger=None, weight_percent=0)


class RollBack(NamedTuple):
    """Put these roles in place with weight 0, drain what is in flight, record it."""

    champion: str
    challenger: str
    reason: str
    seen: PolicySeen

    def applies_to(self, policy: PolicySeen) -> bool:
        """Whether the roles are those that were looked at.

        Neither the weight nor the generation is asked, so that no other change can hold a rollback up.
        """
        return (policy.champion, policy.challenger, policy.rollout_id) == (
            self.seen.champion,
            self.seen.challenger,
            self.seen.rollout_id,
        )

    def result(self, policy: PolicySeen) -> PolicySeen:
        """Return the policy afterwards."""
        return policy.changed(champion=self.champion, challenger=self.challenger, weight_percent=0)


PolicyAction = SetWeight | Promote | RollBack


class RetireOld(NamedTuple):
    """Retire a version that gets no calls any more."""

    version: str


class WarmUp(NamedTuple):
    """Send a version a few calls of the monitor's own; the next observation has their result."""

    version: str


class AskGate(NamedTuple):
    """Ask a plan's gate over HTTP whether the next step may be taken; a later observation has its answer."""

    place: GatePlace
    name: str


class Alert(NamedTuple):
    """Alert the operators on call, or tell them that it is over."""

    kind: AlertKind
    action: AlertAction
    summary: str


Beside = WarmUp | AskGate
"""What the monitor does beside its transactions, and nothing else does."""
Action = PolicyAction | RetireOld | Beside | Alert
