"""What follows sources of versions: a client of each registry, over this installation's control plane."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from understudy.adapters.http.mlflow_registry import MlflowRegistry
from understudy.bootstrap.control_plane import ControlPlane
from understudy.bootstrap.registering.pinned_version import pinned_version
from understudy.core.rollout.sources.version_source import SourceSpec, SourceState
from understudy.lifecycle.registry import register_version
from understudy.ports.registry.registry import Actor, NewVersion, VersionRecord
from understudy.ports.registry.version_source import VersionSource
from understudy.rollout.source_follower import ControlParts, SourceFollower
from understudy.settings import Settings


def unset_variables(specs: Sequence[SourceSpec], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the variables that sources name and that hold nothing."""
    named = [name for spec in specs for name in (spec.token_env, spec.webhook_secret_env) if name]
    return [name for name in dict.fromkeys(named) if not environment.get(name)]


@asynccontextmanager
async def open_followers(
    specs: Sequence[SourceSpec], control_plane: ControlPlane, settings: Settings, actor: str
) -> AsyncIterator[list[SourceFollower]]:
    """Open what follows each source; ``actor`` is who signs changes where this process names one."""

    async def register(new: NewVersion, signed: Actor) -> VersionRecord:
        pinned = await pinned_version(control_plane.registry, new, settings, signed)
        return await register_version(control_plane.registry, pinned, signed)

    parts = ControlParts(control_plane.registry, control_plane.rollouts, register, actor)
    async with AsyncExitStack() as stack:
        followers = []
        for spec in specs:
            source: VersionSource = MlflowRegistry(spec, os.environ.get(spec.token_env) if spec.token_env else None)
            stack.push_async_callback(source.close)
            followers.append(SourceFollower(spec, source, parts))
        yield followers


def secrets_of(specs: Sequence[SourceSpec], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the secrets that webhooks of sources are signed with."""
    names = dict.fromkeys(spec.webhook_secret_env for spec in specs if spec.webhook_secret_env)
    return [secret for name in names if (secret := environment.get(name))]


class SourceMetrics:
    """The metrics of a process that follows sources, each of which has all of them from the start."""

    def __init__(self, sources: Sequence[str]) -> None:
        from understudy.adapters.telemetry.prometheus import PrometheusTelemetry  # noqa: PLC0415 - not for one look

        self.sources = tuple(sources)
        self._telemetry = PrometheusTelemetry()
        self.exposition = self._telemetry.exposition
        self.count, self.set = self._telemetry.count, self._telemetry.set
        for name in self.sources:
            for gauge in ("source_away_seconds", "source_waiting_seconds"):
                self.set(gauge, 0.0, name)
            for state in SourceState:
                self._telemetry.count("source_looks_total", name, state, by=0)


def source_metrics(specs: Sequence[SourceSpec]) -> SourceMetrics:
    """Return the metrics of sources."""
    return SourceMetrics([spec.name for spec in specs])
