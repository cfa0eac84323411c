"""Statements of the registry, and their rows as records."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncpg

from understudy.core.routing.arms import BucketRange
from understudy.core.routing.proxy_liveness import LIVE_SECONDS
from understudy.ports.registry.registry import AppliedFile, KeyRecord, NewVersion, PolicyRecord, VersionRecord

ROLES = ("champion", "challenger", "shadow")
POLICY_COLUMNS = frozenset(
    {
        "champion_version",
        "challenger_version",
        "challenger_weight",
        "shadow_version",
        "shadow_percent",
        "fallback",
        "salt",
        "category_roles",
        "rollout_id",
        "input_sample_percent",
        "arms",
        "guard",
        "on_drift",
        "category_holdout_percent",
    }
)
"""What a change of a policy may name."""
_JSON = frozenset({"input_schema", "output_schema", "metrics", "backend", "category_roles", "arms"})
"""Columns of JSON, which the client sends and gets as text."""

# -- versions ----------------------------------------------------------------------------------------------------------

_ENDPOINTS = """(
    SELECT array_agg(target::text ORDER BY target) FROM modelendpoint WHERE model_version_id = v.id) AS endpoints"""
_VERSION_COLUMNS = ", ".join(f"v.{name}" for name in VersionRecord._fields if name != "endpoints")
_VERSIONS = f"SELECT {_VERSION_COLUMNS}, {_ENDPOINTS} FROM modelversion v"  # noqa: S608 - constants
VERSIONS = f"""{_VERSIONS}
    WHERE ($1::text IS NULL OR model_name = $1) AND ($2::text[] IS NULL OR model_name = ANY($2)) AND id > $3::bigint
    ORDER BY id LIMIT $4
"""
VERSION = f"{_VERSIONS} WHERE model_name = $1 AND version = $2"
LABELS = "SELECT version FROM modelversion WHERE model_name = $1 ORDER BY id"
_NOT_COLUMNS = ("endpoints", "group_name", "requires_validation", "replicas")
NEW_VERSION = tuple(name for name in NewVersion._fields if name not in _NOT_COLUMNS)
"""The columns of a version that is registered."""
_NEW_COLUMNS = ", ".join(NEW_VERSION)
_NEW_VALUES = ", ".join(f"${place}" for place, _ in enumerate(NEW_VERSION, 1))
ADD_VERSION = f"INSERT INTO modelversion ({_NEW_COLUMNS}) VALUES ({_NEW_VALUES}) RETURNING id"  # noqa: S608 - constants
ADD_LOADING = """
    INSERT INTO versionloading
        (model_version_id, group_name, wanted_until, requires_validation, replicas_min, replicas_max)
    VALUES ($1, $2, now() + INTERVAL '2 hours', $3, nullif($4, 0), nullif($5, 0))
"""
ADD_ENDPOINT = "INSERT INTO modelendpoint (model_version_id, target) VALUES ($1, $2)"
ADD_MISSING_ENDPOINT = f"{ADD_ENDPOINT} ON CONFLICT DO NOTHING"
REMOVE_ENDPOINT = "DELETE FROM modelendpoint WHERE model_version_id = $1 AND target = $2"
LOCK_VERSION = "SELECT id FROM modelversion WHERE model_name = $1 AND version = $2 FOR UPDATE"
# The same lock as the guards of policies take: rows of the version's calls can still be logged.
LOCK_STATUS = "SELECT id FROM modelversion WHERE model_name = $1 AND version = $2 FOR NO KEY UPDATE"
SET_METRICS = "UPDATE modelversion SET metrics = $3 WHERE model_name = $1 AND version = $2"
SET_STATUS = "UPDATE modelversion SET metrics = $3, status = $4 WHERE model_name = $1 AND version = $2"
OPEN_ROLLOUT = """
    SELECT id FROM rollout
    WHERE (champion_version = $1 OR challenger_version = $1) AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING')
    LIMIT 1
"""

# -- policies ----------------------------------------------------------------------------------------------------------

COUNTS = """
    SELECT model_name, count(*) AS versions FROM modelversion WHERE $1::text IS NULL OR model_name = $1
    GROUP BY model_name ORDER BY model_name
"""
GENERATION = "SELECT generation FROM servingpolicy WHERE model_name = $1 FOR UPDATE"
_LIVE = f"seen_at > now() - INTERVAL '{LIVE_SECONDS:.0f} seconds'"
_PROXIES = f"""
    (SELECT count(*) FROM proxyinstance WHERE {_LIVE}) AS proxies,
    (SELECT count(*) FROM proxyinstance WHERE {_LIVE} AND generations ->> p.model_name = p.generation::text)
        AS proxies_on_generation
"""  # noqa: S608 - constants
# Where another session keeps ProxyInstance locked, no proxy is live.
_NO_PROXIES = "0 AS proxies, 0 AS proxies_on_generation"
_POLICY_COLUMNS = """
    p.model_name, p.challenger_weight, p.shadow_percent, p.fallback, p.salt, p.category_roles, p.rollout_id,
    p.input_sample_percent, p.guard, p.on_drift, p.category_holdout_percent, p.generation, p.updated_at, p.updated_by,
    (SELECT version FROM modelversion WHERE id = p.champion_version) AS champion,
    (SELECT version FROM modelversion WHERE id = p.challenger_version) AS challenger,
    (SELECT version FROM modelversion WHERE id = p.shadow_version) AS shadow,
    (SELECT version FROM modelversion WHERE id = p.previous_champion) AS previous_champion,
    (SELECT jsonb_agg(jsonb_build_array(version, first, last) ORDER BY first) FROM understudy_arms
     WHERE model = p.model_name) AS arms
"""
_OF_MODEL = "FROM servingpolicy p WHERE $1::text IS NULL OR p.model_name = $1"
POLICIES = f"SELECT {_POLICY_COLUMNS}, {_PROXIES} {_OF_MODEL}"
POLICIES_WITHOUT_PROXIES = f"SELECT {_POLICY_COLUMNS}, {_NO_PROXIES} {_OF_MODEL}"


def policy_statement(columns: Sequence[str], *, is_first: bool) -> str:
    """Return the statement that makes a model's policy ($1), or changes it; the columns' values follow from $2 on.

    It names what changes and nothing else: a login may have the right to change some columns, and triggers ask which.

    Raises:
        ValueError: A policy has no such column, or none that a change may name.
    """
    unknown = set(columns) - POLICY_COLUMNS
    if unknown:
        raise ValueError(f"a change of a policy cannot name {', '.join(sorted(unknown))}")
    places = [f"${place}" for place, _ in enumerate(columns, 2)]
    if is_first:
        names, values = ", ".join(("model_name", *columns)), ", ".join(("$1", *places))
        return f"INSERT INTO servingpolicy ({names}) VALUES ({values})"  # noqa: S608 - as below
    changes = ", ".join(f"{column} = {place}" for column, place in zip(columns, places, strict=True))
    return f"UPDATE servingpolicy SET {changes} WHERE model_name = $1"  # noqa: S608 - names of columns, from the list above


# The moment, the actor and the generation are a trigger's to write.
KEEP_FILE = """
    INSERT INTO policyfile (model_name, path, document) VALUES ($1, $2, $3)
    ON CONFLICT (model_name) DO UPDATE SET path = excluded.path, document = excluded.document
"""
APPLIED_FILES = """
    SELECT model_name, path, document, generation, applied_at, applied_by FROM policyfile
    WHERE $1::text IS NULL OR model_name = $1 ORDER BY model_name
"""

# -- keys --------------------------------------------------------------------------------------------------------------

# Without the hash: a login that lists keys needs no right to read it.
_KEY_COLUMNS = ", ".join(KeyRecord._fields)
KEYS = f"""
    SELECT * FROM (SELECT {_KEY_COLUMNS} FROM apikey ORDER BY created_at DESC, id DESC LIMIT $1) AS newest
    ORDER BY created_at, id
"""  # noqa: S608 - constants
ADD_KEY = f"""
    INSERT INTO apikey (id, sha256, scopes, note, created_by, tenant, calls_per_second, bytes_per_second,
        expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING {_KEY_COLUMNS}
"""  # noqa: S608 - constants
REVOKE_KEY = f"""
    UPDATE apikey SET revoked_at = coalesce(revoked_at, now()) WHERE id = $1 RETURNING {_KEY_COLUMNS}
"""  # noqa: S608 - constants

# -- values ------------------------------------------------------------------------------------------------------------


def version_record(row: asyncpg.Record) -> VersionRecord:
    """Return a row of :data:`VERSIONS`."""
    return VersionRecord(**{**_read(row), "endpoints": tuple(row["endpoints"] or ())})


def policy_record(row: asyncpg.Record) -> PolicyRecord:
    """Return a row of :data:`POLICIES`."""
    values = _read(row)
    arms = tuple(BucketRange(*arm) for arm in values["arms"] or ())
    return PolicyRecord(**{**values, "arms": arms})


def applied_file(row: asyncpg.Record) -> AppliedFile:
    """Return a row of :data:`APPLIED_FILES`."""
    model_name, path, document, *applied = row.values()
    return AppliedFile(model_name, path, json.loads(document), *applied)


def key_record(row: asyncpg.Record) -> KeyRecord:
    """Return a row of :data:`KEYS`."""
    return KeyRecord(**{**dict(row), "scopes": tuple(row["scopes"])})


def written(columns: Mapping[str, Any]) -> list[Any]:
    """Return the values of columns as the client takes them; metrics that there are none of are ``NULL``."""
    return [
        json.dumps(value) if name in _JSON and not (name == "metrics" and value is None) else value
        for name, value in columns.items()
    ]


def _read(row: asyncpg.Record) -> dict[str, Any]:
    load: Callable[[str], Any] = json.loads
    return {name: load(value) if name in _JSON and value is not None else value for name, value in row.items()}
