"""What follows sources of versions: a client of each registry, over this installation's control plane."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from understudy.adapters.http.mlflow_registry import MlflowRegistry
from understudy.bootstrap.artifacts import image_access, limits_of
from understudy.bootstrap.control_plane import ControlPlane
from understudy.bootstrap.registering.pinned_version import pinned_version
from understudy.core.loading.image_tag import image_of
from understudy.core.loading.oci_address import OciLogin, oci_address
from understudy.core.rollout.sources.source_file import OCI
from understudy.core.rollout.sources.source_webhook import WebhookSecret
from understudy.core.rollout.sources.version_source import SourceSpec, SourceState
from understudy.ports.registry.registry import Actor, NewVersion, VersionRecord
from understudy.ports.registry.version_source import VersionSource
from understudy.registry.changes import register_version
from understudy.rollout.source_follower import ControlParts, SourceFollower
from understudy.settings import Settings

REST_SECONDS = 120.0
"""What a look takes beside reading an artifact: two registries, and a start with its warm-up."""


class OpenSource(NamedTuple):
    """A source, and the client of its registry."""

    spec: SourceSpec
    source: VersionSource


def variable_problems(specs: Sequence[SourceSpec], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return in words what is wrong with the variables that sources name; no word repeats what one holds."""
    problems = []
    for spec in specs:
        for name in filter(None, (spec.token_env, spec.webhook_secret_env)):
            value = environment.get(name, "").strip()
            if not value:
                problems.append(f"{name}: not set")
            elif not (value.isascii() and value.isprintable()):
                problems.append(f"{name}: it has characters that no header can have")
            elif name == spec.token_env and spec.kind == OCI and ":" not in value:
                problems.append(f"{name}: the login of an image registry is user:password")
    return list(dict.fromkeys(problems))


@asynccontextmanager
async def open_sources(
    specs: Sequence[SourceSpec], settings: Settings, environment: Mapping[str, str] = os.environ
) -> AsyncIterator[list[OpenSource]]:
    """Open the registries of sources."""
    found = [OpenSource(spec, _source(spec, settings, environment)) for spec in specs]
    try:
        yield found
    finally:
        for one in found:
            await one.source.close()


def follower_of(one: OpenSource, control_plane: ControlPlane, settings: Settings, actor: str) -> SourceFollower:
    """Return what follows a source; ``actor`` is who signs changes where this process names one."""

    async def register(new: NewVersion, signed: Actor) -> VersionRecord:
        is_pinned = image_of(new.artifact_path) is not None
        pinned = new if is_pinned else await pinned_version(control_plane.registry, new, settings, signed)
        return await register_version(control_plane.registry, pinned, signed)

    parts = ControlParts(control_plane.registry, control_plane.rollouts, control_plane.loading, register, actor)
    return SourceFollower(one.spec, one.source, parts)


def look_seconds(settings: Settings) -> float:
    """Return the longest time of a look: what is not done by then is done by the next one."""
    return settings.artifact_seconds + REST_SECONDS


def secrets_of(specs: Sequence[SourceSpec], environment: Mapping[str, str] = os.environ) -> list[WebhookSecret]:
    """Return the secrets that senders of sources' webhooks know."""
    named = ((spec.kind, spec.webhook_secret_env) for spec in specs if spec.webhook_secret_env)
    return [WebhookSecret(kind, environment[name].strip()) for kind, name in dict.fromkeys(named)]


class SourceMetrics:
    """The metrics of a process that follows sources, each of which has all of them from the start."""

    def __init__(self, specs: Sequence[SourceSpec]) -> None:
        from understudy.adapters.telemetry.prometheus import PrometheusTelemetry  # noqa: PLC0415 - not for one look

        telemetry = PrometheusTelemetry()
        self.exposition = telemetry.exposition
        self.count, self.set = telemetry.count, telemetry.set
        for spec in specs:
            for gauge in ("source_away_seconds", "source_waiting_seconds"):
                self.set(gauge, 0.0, spec.name)
            for state in SourceState:
                telemetry.count("source_looks_total", spec.name, state, by=0)


def _source(spec: SourceSpec, settings: Settings, environment: Mapping[str, str]) -> VersionSource:
    login = environment[spec.token_env].strip() if spec.token_env else None
    if spec.kind != OCI:
        return MlflowRegistry(spec, login)
    from understudy.adapters.artifacts.image_tag import LOOK_SECONDS, ImageTag  # noqa: PLC0415 - for images alone

    access = image_access(settings)
    if login is not None:
        user, _, password = login.partition(":")
        own = {oci_address(spec.url).registry: OciLogin(user, password)}
        access = access._replace(logins={**access.logins, **own})
    return ImageTag(spec, access, limits_of(settings)._replace(seconds=LOOK_SECONDS))
