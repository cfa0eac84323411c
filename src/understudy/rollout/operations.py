"""What operators and CI do to rollouts: a port over the database, or over a proxy's control plane."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.state import Command
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import RolloutListing, RolloutRecord, RolloutView, UnreadableRollout
from understudy.rollout.commands import CommandResult
from understudy.rollout.start.start import Prepared


class StartAsked(NamedTuple):
    """A rollout as it is asked for."""

    model_name: str
    version: str
    plan: str | Mapping[str, Any] | None = None
    """A plan's name, its weights or its JSON object; ``None``: what the risk asks for."""
    freezes: Sequence[str] = ()
    """Windows beside the plan's own."""
    expect_different_scores: bool = False


class FoundRollouts(NamedTuple):
    """Rollouts, newest first, and the policies of their models by name, of those that have one."""

    records: Sequence[RolloutRecord | UnreadableRollout]
    policies: Mapping[str, PolicySeen]


class RolloutOperations(RolloutListing, Protocol):
    """Every method raises ``RegistryUnavailable`` where the database, or the proxy, does not answer in time."""

    async def prepare(self, asked: StartAsked) -> Prepared:
        """Return what a start would mean; raises as :func:`understudy.rollout.start.start.prepare`."""

    async def require_ready(self, asked: StartAsked) -> None:
        """Go on only with a version that answers its warm-up, where that is asked before a person confirms.

        Raises:
            VersionNotReady: It does not.
        """

    async def start(self, asked: StartAsked, prepared: Prepared, salt: str | None, actor: Actor) -> RolloutRecord:
        """Begin what was prepared; ``salt`` is what the policy hashes meanwhile, ``None`` for the model's name.

        Raises:
            PolicyRefused: The model has an open rollout, or the database refuses the version.
            VersionNotReady: Its model servers do not answer.
            GenerationMoved: The policy changed since it was prepared.
        """

    async def found(self, model_name: str | None, limit: int) -> FoundRollouts:
        """Return the newest rollouts, of one model or of all.

        Raises:
            NotRegistered: There is no such model.
        """

    async def newest(self, model_name: str) -> RolloutView:
        """Return a model's newest rollout; how far proxies and calls have come is not part of it.

        Raises:
            NotRegistered: It never had one.
        """

    async def numbered(self, model_name: str, rollout_id: int) -> RolloutView:
        """Return a model's rollout by its number; as :meth:`newest` otherwise.

        Raises:
            NotRegistered: It has none of this number; over HTTP, none among its newest.
        """

    async def again(self, seen: RolloutView) -> RolloutView:
        """Return a rollout that :meth:`newest` returned as it is now."""

    async def command(self, model_name: str, command: Command) -> CommandResult:
        """Carry out a command to a model's newest rollout; raises as ``run_command``."""
