"""A version that never served gets another description: its row stays, and its id with it."""

from collections.abc import Mapping
from shlex import quote
from typing import Any

import asyncpg

from understudy.adapters.postgres.registry import registry_rows as rows
from understudy.core.loading.replicas import EVERY_SERVER
from understudy.errors import VersionInUse
from understudy.ports.registry.registry import NewVersion

_KEYS = ("model_name", "version")
_COLUMNS = tuple(name for name in rows.NEW_VERSION if name not in _KEYS)
_SET = ", ".join(f"{name} = ${place}" for place, name in enumerate(_COLUMNS, 3))
_UPDATE = f"UPDATE modelversion SET {_SET} WHERE model_name = $1 AND version = $2"  # noqa: S608 - constants
# The monitor's placement needs the row of VersionLoading: while it is locked, no agent begins with what is replaced.
_LOCK_LOADING = "SELECT FROM versionloading WHERE model_version_id = $1 FOR UPDATE"
# Calls that the log has archived may still be counted in a window.
_IN_USE = """
    SELECT CASE
        WHEN status <> 'staging' THEN 'is ' || status
        WHEN deployed_at IS NOT NULL THEN 'had a role'
        WHEN EXISTS (SELECT FROM predictionlog WHERE model_version_id = version.id)
            OR EXISTS (SELECT FROM predictionwindow WHERE model_version_id = version.id) THEN 'was called'
        WHEN EXISTS (SELECT FROM rollout WHERE version.id IN (champion_version, challenger_version))
            THEN 'had a part in a rollout'
        WHEN EXISTS (SELECT FROM versionloading WHERE model_version_id = version.id AND pinned_digest IS NOT NULL)
            THEN 'is pinned: an agent has fetched its artifact'
        WHEN EXISTS (SELECT FROM placement WHERE model_version_id = version.id) THEN 'is loaded by agents'
        WHEN EXISTS (SELECT FROM loadedversion
                     WHERE model_version_id = version.id AND state NOT IN ('END', 'ERROR')) THEN 'is loaded by agents'
        END
    FROM modelversion AS version WHERE id = $1
"""
_OTHER_ENDPOINTS = """
    DELETE FROM modelendpoint WHERE model_version_id = $1 AND source = 'manual' AND target <> ALL($2::text[])
"""
_LOADING = """
    INSERT INTO versionloading
        (model_version_id, group_name, wanted_until, requires_validation, replicas_min, replicas_max)
    VALUES ($1, $2, now() + INTERVAL '2 hours', $3, nullif($4, 0), nullif($5, 0))
    ON CONFLICT (model_version_id) DO UPDATE
    SET group_name = excluded.group_name, wanted_until = excluded.wanted_until, asked_at = now(),
        requires_validation = excluded.requires_validation, replicas_min = excluded.replicas_min,
        replicas_max = excluded.replicas_max
"""
_NO_LOADING = "UPDATE versionloading SET wanted_until = NULL WHERE model_version_id = $1"


async def replace_version(connection: asyncpg.Connection, new: NewVersion, values: Mapping[str, Any]) -> bool:
    """Give a version of this name the columns in ``values``, and its endpoints and group; ``False``: there is none.

    Raises:
        VersionInUse: It was deployed or called, or agents load it, or have fetched its artifact.
    """
    version_id = await connection.fetchval(rows.LOCK_VERSION, new.model_name, new.version)
    if version_id is None:
        return False
    await connection.execute(_LOCK_LOADING, version_id)
    in_use = await connection.fetchval(_IN_USE, version_id)
    if in_use is not None:
        named = f"{quote(new.model_name)} {quote(new.version)}"
        unload = f"understudy version unload {named}, then replace it." if in_use == "is loaded by agents" else None
        raise VersionInUse(f"version {new.version} of {new.model_name} {in_use}", hint=unload)
    written = rows.written({name: values[name] for name in _COLUMNS})
    await connection.execute(_UPDATE, new.model_name, new.version, *written)
    targets = list(dict.fromkeys(new.endpoints))
    await connection.execute(_OTHER_ENDPOINTS, version_id, targets)
    for target in targets:
        await connection.execute(rows.ADD_MISSING_ENDPOINT, version_id, target)
    if new.group_name is None:
        await connection.execute(_NO_LOADING, version_id)
    else:
        replicas = new.replicas or EVERY_SERVER
        await connection.execute(_LOADING, version_id, new.group_name, new.requires_validation, *replicas)
    return True
