"""``LoadingRegistry`` over HTTP, as far as commands use it: the proxy signs each change with the key."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from understudy.adapters.http.control_plane import ControlPlaneClient, said
from understudy.adapters.http.paths import registry_path
from understudy.core.loading.replicas import Replicas, parse_replicas
from understudy.errors import UnknownRoute
from understudy.ports.loading.loading_registry import (
    ServerRecord,
    ValidationRecord,
    VersionAtServerRecord,
    VersionLoadingRecord,
)
from understudy.ports.registry.registry import Actor


class HttpLoading:
    """Asks one proxy."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self._client = client

    async def load(
        self,
        model_name: str,
        version: str,
        actor: Actor,
        *,
        group_name: str | None,
        seconds: float | None,
        requires_validation: bool | None = None,
        replicas: Replicas | None = None,
        dry_run: bool = False,
    ) -> VersionLoadingRecord:
        """Have agents load a version."""
        asked = {"keep": "true"} if seconds is None else {"seconds": str(seconds)}
        if group_name is not None:
            asked["group"] = group_name
        if requires_validation is not None:
            asked["require_validation"] = str(requires_validation).lower()
        if replicas is not None:
            asked["replicas"] = str(replicas)
        return await self._changed(model_name, version, "load", actor, asked, dry_run=dry_run)

    async def unload(
        self, model_name: str, version: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionLoadingRecord:
        """Have agents unload a version."""
        return await self._changed(model_name, version, "unload", actor, {}, dry_run=dry_run)

    async def show(self, model_name: str, version: str) -> VersionLoadingRecord | None:
        """Return what there is of a version."""
        try:
            found = (await self._client.get(registry_path(model_name, "versions", version, "loading")))["loading"]
        except UnknownRoute:  # a proxy of the release before
            return None
        return None if found is None else loading_record(found)

    async def list_servers(self) -> Sequence[ServerRecord]:
        """Return the model servers with an agent."""
        found = (await self._client.get("/v1/registry/servers"))["servers"]
        # A proxy of the release before does not say whether a server is draining.
        return [ServerRecord(**{name: one[name] for name in ServerRecord._fields if name in one}) for one in found]

    async def _changed(
        self, model_name: str, version: str, verb: str, actor: Actor, asked: Mapping[str, str], *, dry_run: bool
    ) -> VersionLoadingRecord:
        path = f"{registry_path(model_name, 'versions', version)}:{verb}"
        parameters = {**asked, "dry_run": str(dry_run).lower()}
        found = await self._client.send("POST", path, said(actor.reason), parameters=parameters)
        return loading_record(found["loading"])


def loading_record(document: Mapping[str, Any]) -> VersionLoadingRecord:
    """Return what agents do about a version."""
    own = {name: document[name] for name in VersionLoadingRecord._fields if name in document}
    return VersionLoadingRecord(
        **{
            **own,
            "wanted_until": _moment(own["wanted_until"]),
            "servers": tuple(_at_server(one) for one in document["servers"]),
            "validations": tuple(_validation(one) for one in document["validations"]),
            "replicas": parse_replicas(own["replicas"]) if own.get("replicas") else None,
        }
    )


def _at_server(document: Mapping[str, Any]) -> VersionAtServerRecord:
    own = {name: document[name] for name in VersionAtServerRecord._fields}
    return VersionAtServerRecord(**{**own, "updated_at": _moment(own["updated_at"])})


def _validation(document: Mapping[str, Any]) -> ValidationRecord:
    own = {name: document[name] for name in ValidationRecord._fields}
    return ValidationRecord(**{**own, "judged_at": _moment(own["judged_at"])})


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
