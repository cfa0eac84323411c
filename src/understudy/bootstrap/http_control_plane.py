"""The control plane over HTTP: a proxy's URL and a key, and no database."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from understudy.adapters.http.paths import model_path, registry_path
from understudy.errors import ControlPlaneAway

if TYPE_CHECKING:
    from understudy.ports.experiments.outcome_store import OutcomeStore
    from understudy.ports.loading.loading_registry import MissingVersion, VersionLoading
    from understudy.ports.registry.registry import Registry
    from understudy.ports.rollout.rollout_store import Rollbacks
    from understudy.rollout.operations import RolloutOperations


__all__ = ["HttpControlPlane", "model_path", "registry_path"]


class HttpControlPlane:
    """The control plane of one proxy; an asynchronous context manager, which closes its connections.

    Args:
        url: The proxy's.
        credential: ``<id>.<secret>``; ``None`` sends no key.
        timeout_seconds: Longest time of one call; ``None``: as long as the slowest may take.
    """

    def __init__(self, url: str, credential: str | None, *, timeout_seconds: float | None = None) -> None:
        from understudy.adapters.http.control_plane import ControlPlaneClient

        own = {} if timeout_seconds is None else {"timeout_seconds": timeout_seconds}
        self._client = ControlPlaneClient(url, credential, **own)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._client.__aexit__(*problem)

    @cached_property
    def registry(self) -> "Registry":
        """Models, versions, policies and keys."""
        from understudy.adapters.http.registry import HttpRegistry

        return HttpRegistry(self._client)

    @cached_property
    def rollouts(self) -> "RolloutOperations":
        """Rollouts."""
        from understudy.bootstrap.http_rollouts import HttpRollouts

        return HttpRollouts(self._client)

    @cached_property
    def rollbacks(self) -> "Rollbacks":
        """Rollbacks by hand."""
        from understudy.adapters.http.rollbacks import HttpRollbacks

        return HttpRollbacks(self._client)

    @cached_property
    def outcomes(self) -> "OutcomeStore":
        """Outcome events."""
        from understudy.adapters.http.outcomes import HttpOutcomes

        return HttpOutcomes(self._client)

    @cached_property
    def loading(self) -> "VersionLoading":
        """What agents load."""
        from understudy.adapters.http.loading import HttpLoading

        return HttpLoading(self._client)

    async def look(
        self,
        path: str,
        parameters: Mapping[str, str],
        *,
        method: str = "GET",
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """Return what a proxy says of something that it alone can judge.

        Raises:
            UnderstudyError: The leaf that the proxy's problem names.
        """
        return await self._client.send(method, path, body, parameters=parameters)

    async def look_again(self, path: str, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        """Return what a proxy says to who asks again and again; raises as :meth:`look`.

        Raises:
            ControlPlaneAway: Also while the proxy has just started, or has too much to do.
        """
        from understudy.adapters.http.control_plane import PASSING

        try:
            return await self.look(path, parameters)
        except PASSING as problem:
            raise ControlPlaneAway(problem.detail, hint=problem.next_step) from problem

    async def missing_versions(self, model_name: str) -> "Sequence[MissingVersion]":
        """Return the versions of a model that are wanted and not loaded everywhere."""
        from understudy.adapters.http.registry import missing_versions

        return await missing_versions(self._client, model_name)
