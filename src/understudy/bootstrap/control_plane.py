"""The control plane as commands work with it: one port, over the database or over HTTP with a key.

What a command says and what it asks are apart: it is written for :class:`ControlPlane`, and does not know which of the
two is behind it.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from understudy.bootstrap.session import Session
from understudy.settings import Settings

if TYPE_CHECKING:  # numpy, and the adapters, which a list of models does without
    from understudy.ports.experiments.outcome_store import OutcomeStore
    from understudy.ports.loading.loading_registry import MissingVersion, VersionLoading
    from understudy.ports.registry.registry import Registry
    from understudy.ports.rollout.rollout_store import Rollbacks
    from understudy.rollout.operations import RolloutOperations


class ControlPlane(Protocol):
    """Everything that CI needs."""

    @property
    def registry(self) -> "Registry":
        """Models, versions, policies and keys."""

    @property
    def rollouts(self) -> "RolloutOperations":
        """Rollouts."""

    @property
    def outcomes(self) -> "OutcomeStore":
        """Outcome events."""

    @property
    def rollbacks(self) -> "Rollbacks":
        """Rollbacks by hand, without what rollouts are judged by: those import in no time."""

    @property
    def loading(self) -> "VersionLoading":
        """What agents load."""

    async def missing_versions(self, model_name: str) -> "Sequence[MissingVersion]":
        """Return the versions of a model that are wanted, and not on every server that is to have them.

        Raises:
            RegistryUnavailable: The database, or the proxy, does not answer in time.
        """


class DatabaseControlPlane:
    """The control plane over the database, under the login of ``DATABASE_URL``.

    Args:
        session: The stores; they are the caller's to close.
        settings: What this process's warm-ups and forecasts go by.
    """

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._settings = settings

    @property
    def registry(self) -> "Registry":
        """Models, versions, policies and keys."""
        return self._session.registry

    @cached_property
    def rollouts(self) -> "RolloutOperations":
        """Rollouts."""
        from understudy.bootstrap.stored_rollouts import rollouts_of_command

        return rollouts_of_command(self._session, self._settings)

    @property
    def outcomes(self) -> "OutcomeStore":
        """Outcome events."""
        return self._session.outcomes

    @property
    def rollbacks(self) -> "Rollbacks":
        """Rollbacks by hand."""
        return self._session.rollouts

    @property
    def loading(self) -> "VersionLoading":
        """What agents load."""
        return self._session.loading

    async def missing_versions(self, model_name: str) -> "Sequence[MissingVersion]":
        """Return the versions of a model that are wanted and not loaded everywhere."""
        return await self._session.loading.list_missing(model_name)
