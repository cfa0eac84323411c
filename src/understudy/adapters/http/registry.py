"""``Registry`` over HTTP: the control plane of a proxy, with a key and without a database.

The actor that a method is given is not sent: the proxy signs each change with the key.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from understudy.adapters.http import registry_records as records
from understudy.adapters.http.control_plane import DRY_RUN, ControlPlaneClient, said
from understudy.adapters.http.paths import REGISTRY_PATH, model_path, registry_path
from understudy.errors import DatabaseNeeded, GenerationMoved
from understudy.ports.loading.loading_registry import MissingVersion
from understudy.ports.registry.registry import (
    EVERY_CHANGE,
    EVERY_VERSION,
    Actor,
    AppliedFile,
    AuditEntry,
    AuditFilter,
    AuditPlace,
    AuditSubject,
    ChangedPolicy,
    FileWords,
    KeyLimits,
    KeyRecord,
    ModelRecord,
    NewVersion,
    VersionChange,
    VersionPage,
    VersionRecord,
)

if TYPE_CHECKING:
    from understudy.core.drift.baseline import Baselines

_ATTEMPTS = 5
"""Of a change that is to be made whatever the policy is, when others change it in the same moment."""


class HttpRegistry:
    """Asks one proxy; what a key cannot do raises ``DatabaseNeeded``."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self._client = client

    async def add_version(
        self, new: NewVersion, actor: Actor, *, replace: bool = False, dry_run: bool = False
    ) -> VersionRecord:
        fields = {name: value for name, value in new._asdict().items() if name != "model_name" and value is not None}
        if not new.requires_validation:
            del fields["requires_validation"]  # which a proxy of the release before does not know
        if new.replicas is not None:
            fields["replicas"] = str(new.replicas)
        body = said(
            actor.reason, **{**fields, "endpoints": list(new.endpoints), **({"replace": True} if replace else {})}
        )
        return await self._version("POST", registry_path(new.model_name, "versions"), body, dry_run=dry_run)

    async def list_versions(
        self, model_name: str | None = None, *, only: VersionPage = EVERY_VERSION
    ) -> Sequence[VersionRecord]:
        # Of one model as well: an unknown one has no versions here, and at its own path it is not found.
        named = {} if model_name is None else {"model": model_name}
        found = await self._client.pages("/v1/registry/versions", "versions", named)
        versions = [records.version_record(version) for version in found]
        models = only.models
        wanted = [one for one in versions if one.id > only.after_id and (models is None or one.model_name in models)]
        return wanted[: only.at_most]

    async def show_version(self, model_name: str, version: str) -> VersionRecord:
        return await self._version("GET", registry_path(model_name, "versions", version))

    async def add_endpoint(
        self, model_name: str, version: str, target: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionRecord:
        path = registry_path(model_name, "versions", version, "endpoints", target)
        return await self._version("PUT", path, dry_run=dry_run)

    async def remove_endpoint(
        self, model_name: str, version: str, target: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionRecord:
        path = registry_path(model_name, "versions", version, "endpoints", target)
        return await self._version("DELETE", path, dry_run=dry_run)

    async def set_baselines(
        self,
        model_name: str,
        version: str,
        baselines: "Baselines",
        actor: Actor,
        *,
        source: str,
        dry_run: bool = False,
    ) -> VersionChange:
        raise DatabaseNeeded("baselines of drift are not set over HTTP")

    async def set_retired(
        self, model_name: str, version: str, actor: Actor, *, is_retired: bool, dry_run: bool = False
    ) -> VersionChange:
        path = f"{registry_path(model_name, 'versions', version)}:{'retire' if is_retired else 'restore'}"
        found = await self._client.send("POST", path, said(actor.reason), parameters=DRY_RUN if dry_run else None)
        return VersionChange(records.version_record(found["before"]), records.version_record(found["version"]))

    async def list_models(self) -> Sequence[ModelRecord]:
        return [records.model_record(model) for model in await self._client.pages(REGISTRY_PATH, "models")]

    async def show_model(self, model_name: str) -> ModelRecord:
        return records.model_record((await self._client.get(registry_path(model_name)))["model"])

    async def set_policy(
        self,
        model_name: str,
        changes: Mapping[str, Any],
        actor: Actor,
        *,
        expected_generation: int | None = None,
        file: FileWords | None = None,
        dry_run: bool = False,
    ) -> ChangedPolicy:
        body = said(actor.reason, **changes)
        if "arms" in changes:
            body["arms"] = [{"version": arm, "first": first, "last": last} for arm, first, last in changes["arms"]]
        if file is not None:
            body["file"] = {"path": file.path, "fields": dict(file.fields)}
        for is_last in (False,) * (_ATTEMPTS - 1) + (True,):
            generation = await self._generation(model_name) if expected_generation is None else expected_generation
            try:
                return await self._change(model_name, body, generation, dry_run=dry_run)
            except GenerationMoved:
                if is_last or expected_generation is not None:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _generation(self, model_name: str) -> int:
        policy = (await self.show_model(model_name)).policy
        return 0 if policy is None else policy.generation

    async def _change(
        self, model_name: str, body: Mapping[str, Any], generation: int, *, dry_run: bool
    ) -> ChangedPolicy:
        found = await self._client.send(
            "PATCH",
            model_path(model_name, "policy"),
            body,
            parameters=DRY_RUN if dry_run else None,
            headers={"if-match": f'"{generation}"'},
        )
        before = found["before"]
        return ChangedPolicy(
            None if before is None else records.policy_record(before), records.policy_record(found["policy"])
        )

    async def list_applied(self, model_name: str | None = None) -> Sequence[AppliedFile]:
        named = {} if model_name is None else {"model": model_name}
        return [records.applied_file(one) for one in await self._client.pages("/v1/registry/applied", "applied", named)]

    async def list_audit(
        self,
        model_name: str | None = None,
        limit: int = 50,
        subject: AuditSubject | None = None,
        *,
        only: AuditFilter = EVERY_CHANGE,
    ) -> Sequence[AuditEntry]:
        policy, other = only.after
        asked = {
            "model": model_name,
            "subject": None if subject is None else subject.value,
            "actor": only.actor,
            "via": only.via,
            "since": None if only.since is None else only.since.isoformat(),
            "generation": None if only.generation is None else str(only.generation),
            "cursor": None if only.after == AuditPlace() else f"{policy or ''}.{other or ''}",
        }
        named = {name: value for name, value in asked.items() if value is not None}
        found = await self._client.pages("/v1/audit", "audit", named, at_most=limit)
        return [records.audit_entry(entry) for entry in found]

    async def add_key(
        self,
        key_id: str,
        sha256: str,
        scopes: Sequence[str],
        *,
        note: str | None,
        actor: Actor,
        limits: KeyLimits,
    ) -> KeyRecord:
        own = {name: value for name, value in limits._asdict().items() if value is not None}
        if limits.expires_at is not None:
            own["expires_at"] = limits.expires_at.isoformat()
        body = {"id": key_id, "sha256": sha256, "scopes": list(scopes), **own}
        found = await self._client.send("POST", "/v1/keys", body if note is None else {**body, "note": note})
        return records.key_record(found["key"])

    async def list_keys(self, newest: int | None = None) -> Sequence[KeyRecord]:
        found = [records.key_record(key) for key in await self._client.pages("/v1/keys", "keys")]
        return found if newest is None else found[max(0, len(found) - newest) :]

    async def revoke_key(self, key_id: str, actor: Actor) -> KeyRecord:
        found = await self._client.send("POST", f"/v1/keys/{quote(key_id, safe='')}:revoke")
        return records.key_record(found["key"])

    async def close(self) -> None:
        """The client stays open: its session closes it."""

    async def _version(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, dry_run: bool = False
    ) -> VersionRecord:
        found = await self._client.send(method, path, body, parameters=DRY_RUN if dry_run else None)
        return records.version_record(found["version"])


async def missing_versions(client: ControlPlaneClient, model_name: str) -> Sequence[MissingVersion]:
    """Return the versions of a model that are wanted and not loaded everywhere; raises as the registry's methods."""
    found = (await client.get(registry_path(model_name)))["model"]["not_loaded"]
    return [records.missing_version(one) for one in found]
