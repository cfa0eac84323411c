"""Queries of rollouts, and their rows as values."""

from typing import Any

import asyncpg
import orjson
import structlog

from understudy.adapters.postgres.monitoring.lease import NAME as MONITOR
from understudy.core.canary.decision import Verdict
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan_reader import read_plan
from understudy.core.rollout.state import Kind, state_from_json
from understudy.core.routing.proxy_liveness import (
    FORGOTTEN_SECONDS,
    LIVE_SECONDS,
    MAX_NAMED,
    StaleProxies,
    StaleProxy,
)
from understudy.errors import MigrationNeeded
from understudy.ports.rollout.rollout_store import PolicyReach, RolloutEventRecord, RolloutRecord, UnreadableRollout

_log = structlog.get_logger(__name__)

_DAMAGE_CHARACTERS = 300
_NEXT_STEP = "A newer release wrote it: use that release to show and steer it. A rollback works with this one, too."
_COLUMNS = """
    id, guard_id, CASE WHEN guard_id IS NULL THEN kind ELSE 'guard' END AS kind, champion_version, challenger_version,
    plan, state, revision, salt, slow_us, reason, started_by, model_name, phase,
    extract(epoch FROM started_at)::float8 AS started_at, extract(epoch FROM finished_at)::float8 AS finished_at,
    extract(epoch FROM announced_at)::float8 AS announced_at
"""
ROLLOUT = f"SELECT {_COLUMNS}, extract(epoch FROM now())::float8 AS read_at FROM rollout WHERE id = $1"  # noqa: S608 - constants
LIST = f"SELECT {_COLUMNS} FROM rollout WHERE $1::text IS NULL OR model_name = $1 ORDER BY id DESC LIMIT $2"  # noqa: S608 - constants
_IS_OPEN_GUARD = "(kind = 'guard' OR guard_id IS NOT NULL) AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING')"
# An open guard counts as announced, so that the release before guards lets it alone.
OPEN = f"SELECT id FROM rollout WHERE announced_at IS NULL OR ({_IS_OPEN_GUARD}) ORDER BY id"  # noqa: S608 - constants
GUARDS = f"SELECT id FROM rollout WHERE {_IS_OPEN_GUARD} ORDER BY id"  # noqa: S608 - constants
LOCK_GUARDS = f"SELECT FROM rollout WHERE model_name = $1 AND {_IS_OPEN_GUARD} ORDER BY id FOR UPDATE"
# Of a guard of several versions the one that waits for a person, or else the first that is still watched.
LATEST = """
    SELECT id FROM rollout WHERE model_name = $1
    ORDER BY coalesce(guard_id, id) DESC, phase = 'WAITING' DESC, finished_at IS NULL DESC, id LIMIT 1
"""
MODEL_NAMES = "SELECT DISTINCT model_name FROM modelversion ORDER BY model_name"
EVENTS = """
    SELECT id, extract(epoch FROM at)::float8 AS at, step, phase, verdict, reason, evidence, inputs, thresholds,
           code_version, actor
    FROM rolloutevent WHERE rollout_id = $1 ORDER BY id
"""
# In the order of PolicySeen.
POLICY = """
    SELECT (SELECT version FROM modelversion WHERE id = p.champion_version) AS champion,
           (SELECT version FROM modelversion WHERE id = p.challenger_version) AS challenger,
           p.challenger_weight, p.generation, p.rollout_id, p.salt
    FROM servingpolicy p WHERE p.model_name = $1
"""
POLICIES = """
    SELECT p.model_name, champion.version, challenger.version, p.challenger_weight, p.generation, p.rollout_id, p.salt
    FROM servingpolicy p JOIN modelversion champion ON champion.id = p.champion_version
    LEFT JOIN modelversion challenger ON challenger.id = p.challenger_version
    WHERE p.model_name = ANY ($1::text[])
"""
# The same for a version of a guard of several: it is the challenger here, with its own share, and its row's id.
POLICY_OF_ARM = """
    SELECT (SELECT version FROM modelversion WHERE id = p.champion_version) AS champion,
           (SELECT version FROM modelversion WHERE id = r.challenger_version) AS challenger,
           coalesce((SELECT percent FROM understudy_shares(p) WHERE version_id = r.challenger_version), 0),
           p.generation, CASE WHEN p.guard_id = r.guard_id THEN r.id ELSE p.rollout_id END, p.salt
    FROM servingpolicy p JOIN rollout r ON r.model_name = p.model_name WHERE r.id = $1
"""
# Of every version beside the champion, the challenger first.
SHARES = """
    SELECT v.version, share.percent
    FROM servingpolicy p, understudy_shares(p) AS share JOIN modelversion v ON v.id = share.version_id
    WHERE p.model_name = $1 ORDER BY share.version_id IS DISTINCT FROM p.challenger_version, v.id
"""
# A test that an operator has declared is not to be ended by a guard.
GUARD = """
    SELECT CASE WHEN guard = 'rollback' AND EXISTS (
               SELECT FROM experiment WHERE experiment.model_name = p.model_name AND ended_at IS NULL)
           THEN 'alert' ELSE guard END
    FROM servingpolicy p WHERE p.model_name = $1
"""
UNVALIDATED = "SELECT understudy_unvalidated($1)"
ON_DRIFT = """
    SELECT CASE WHEN EXISTS (SELECT FROM experiment WHERE experiment.model_name = p.model_name AND ended_at IS NULL)
           THEN 'alert' ELSE on_drift END
    FROM servingpolicy p WHERE p.model_name = $1
"""
WEIGHTS = """
    SELECT generation, (after ->> 'challenger_weight')::int AS weight FROM policyaudit
    WHERE model_name = $1 AND (after ->> 'rollout_id')::bigint = $2
"""
# Of what a version beside further arms and the champion have together: entities of others count on neither side.
WEIGHTS_OF_ARM = """
    SELECT generation, 100 * own::float8 / (100 - everyone + own) AS weight
    FROM rollout r JOIN policyaudit a ON a.model_name = r.model_name AND (a.after ->> 'guard_id')::bigint = r.guard_id,
        LATERAL (SELECT coalesce(sum(percent), 0) AS everyone,
                        coalesce(sum(percent) FILTER (WHERE version_id = r.challenger_version), 0) AS own
                 FROM understudy_shares(jsonb_populate_record(NULL::servingpolicy, a.after))) AS shares
    WHERE r.id = $1 AND everyone - own < 100
"""


def _stale(which: str) -> str:
    return f"""(
        SELECT json_build_array((SELECT count(*) FROM silent WHERE {which}), (
            SELECT coalesce(json_agg(json_build_array(instance, age) ORDER BY age, instance), '[]') FROM (
                SELECT * FROM silent WHERE {which} ORDER BY age, instance LIMIT {MAX_NAMED}) AS latest)))"""  # noqa: S608 - constants


# Any login of a proxy writes ProxyInstance: what is no report is left out and counted, and stops no other row's reader.
_IS_NO_COUNT = '@.type() != "number" || @ < 0 || @ > 9007199254740991 || @.floor() != @'
IS_USABLE_REPORT = f"""
    coalesce(isfinite(seen_at) AND seen_at < now() + INTERVAL '1 day'
        AND jsonb_typeof(generations) = 'object' AND jsonb_typeof(in_flight) = 'object'
        AND NOT jsonb_path_exists(generations, 'strict $.* ? ({_IS_NO_COUNT})', silent => TRUE)
        AND NOT jsonb_path_exists(in_flight, 'strict $.* ? ({_IS_NO_COUNT})', silent => TRUE)
        AND NOT jsonb_path_exists(in_flight, 'strict $.keyvalue() ? (!(@.key like_regex "^[0-9]{{1,18}}$"))',
                                  silent => TRUE), FALSE)
"""
# A stale proxy that had confirmed the generation acts on it, or on a later one, if it acts at all.
_LIVENESS = f"""
    WITH reports AS MATERIALIZED (
        SELECT *, {IS_USABLE_REPORT} AS is_usable FROM proxyinstance
        WHERE seen_at > now() - INTERVAL '{FORGOTTEN_SECONDS:.0f} seconds'),
    usable AS MATERIALIZED (SELECT * FROM reports WHERE is_usable),
    known AS (
        SELECT instance, in_flight, extract(epoch FROM now() - seen_at)::float8 AS age,
               seen_at > now() - INTERVAL '{LIVE_SECONDS:.0f} seconds' AS is_live,
               coalesce((generations ->> $1)::numeric >= (
                   SELECT %(generation)s FROM servingpolicy p WHERE p.model_name = $1), FALSE) AS on_generation
        FROM usable),
    silent AS (SELECT instance, age, on_generation FROM known WHERE NOT is_live)
    SELECT extract(epoch FROM now())::float8 AS now,
           (SELECT count(*) FROM reports WHERE NOT is_usable) AS unusable,
           (SELECT count(*) FROM known WHERE is_live) AS proxies,
           (SELECT count(*) FROM known WHERE is_live AND on_generation) AS on_generation,
           (SELECT coalesce(jsonb_object_agg(version_id, calls), '{{}}') FROM (
                SELECT flying.key AS version_id, sum(flying.value::text::numeric::bigint) AS calls
                FROM known, jsonb_each(in_flight) AS flying WHERE is_live GROUP BY flying.key) AS added) AS in_flight,
           {_stale("NOT on_generation")} AS silent,
           {_stale("TRUE")} AS all_silent
"""  # noqa: S608 - constants
LIVENESS = _LIVENESS % {"generation": "p.generation"}
# The same columns where another session keeps ProxyInstance locked: nothing is known of any proxy.
LIVENESS_HIDDEN = """
    SELECT extract(epoch FROM now())::float8 AS now, 0 AS unusable, 0 AS proxies, 0 AS on_generation,
           '{}' AS in_flight, '[0, []]' AS silent, '[0, []]' AS all_silent
"""
# $2: the awaited generation. A later change that no proxy has read yet does not reduce its confirmations.
_REACH = f"""
    SELECT p.generation, seen.*,
           (SELECT extract(epoch FROM now() - renewed_at)::float8 FROM monitorlease WHERE name = '{MONITOR}') AS monitor
    FROM servingpolicy p, (%s) AS seen WHERE p.model_name = $1
"""  # noqa: S608 - constants
REACH = _REACH % (_LIVENESS % {"generation": "coalesce($2, p.generation)"})
REACH_HIDDEN = _REACH % LIVENESS_HIDDEN


def policy_seen(row: asyncpg.Record | None) -> PolicySeen | None:
    """Return the policy as the rollout's state machine reads it."""
    return None if row is None else PolicySeen(*row)


def record_of(row: asyncpg.Record) -> RolloutRecord:
    """Return a rollout.

    Raises:
        MigrationNeeded: Its plan or its state is none that this release knows; names the row.
    """
    try:
        plan = read_plan(orjson.loads(row["plan"]))
        state = state_from_json(orjson.loads(row["state"]), plan, Kind(row["kind"]))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        said = f"rollout {row['id']} of {row['model_name']} cannot be read by this release: {_damage_of(problem)}"
        raise MigrationNeeded(said, hint=_NEXT_STEP, detail_for_callers=said) from None
    return RolloutRecord(
        row["id"],
        state,
        row["revision"],
        row["champion_version"],
        row["challenger_version"],
        row["salt"],
        row["slow_us"],
        row["reason"],
        row["started_by"],
        row["finished_at"],
        row["announced_at"],
        row["guard_id"],
    )


def listed_of(row: asyncpg.Record) -> RolloutRecord | UnreadableRollout:
    """Return a rollout, or what is known of one that this release cannot read."""
    try:
        return record_of(row)
    except MigrationNeeded as problem:
        named = (row["id"], row["kind"], row["model_name"], row["phase"], row["started_at"], row["started_by"])
        return UnreadableRollout(*named, problem.detail)


def _damage_of(problem: Exception) -> str:
    """Return what is wrong with a row, at the length that a sentence bears."""
    said = f"{problem.args[0]!r} is missing" if isinstance(problem, KeyError) else str(problem)
    return said if len(said) <= _DAMAGE_CHARACTERS else f"{said[:_DAMAGE_CHARACTERS]}…"


def reach_of(row: asyncpg.Record, *, proxies_hidden: bool) -> PolicyReach:
    """Return the propagation of a policy."""
    return PolicyReach(
        row["generation"],
        row["proxies"],
        row["on_generation"],
        in_flight_of(row),
        row["monitor"],
        row["now"],
        stale_proxies_of(row),
        proxies_hidden,
    )


def in_flight_of(row: asyncpg.Record) -> dict[int, int]:
    """Return the calls under way by version id, and log how many reports of proxies could not be read."""
    if row["unusable"]:
        _log.warning("rollout.unusable_proxy_reports", table="ProxyInstance", rows=row["unusable"])
    return {int(version_id): calls for version_id, calls in orjson.loads(row["in_flight"]).items() if calls}


def stale_proxies_of(row: asyncpg.Record, column: str = "silent") -> StaleProxies:
    """Return the stale proxies that a column of a rollout's row holds."""
    count, first = orjson.loads(row[column])
    return StaleProxies(count, tuple(StaleProxy(*proxy) for proxy in first))


def event_of(row: asyncpg.Record) -> RolloutEventRecord:
    """Return an event; one with damaged JSON has its problem instead of evidence, inputs and thresholds."""
    verdict = None if row["verdict"] is None else Verdict(row["verdict"])
    event = RolloutEventRecord(**{**row, "verdict": verdict, "evidence": (), "inputs": {}, "thresholds": {}})
    try:
        return event._replace(
            evidence=_evidence_of(row["evidence"]),
            inputs=_object_of(row, "inputs"),
            thresholds=_object_of(row, "thresholds"),
        )
    except (TypeError, ValueError) as problem:  # ValueError: a number that JSONB can hold and a float cannot
        return event._replace(damage=str(problem)[:_DAMAGE_CHARACTERS])


def _evidence_of(text: str) -> list[dict[str, Any]]:
    rows = orjson.loads(text)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TypeError("evidence is no list of objects")
    return rows


def _object_of(row: asyncpg.Record, name: str) -> dict[str, Any]:
    found = orjson.loads(row[name])
    if not isinstance(found, dict):
        raise TypeError(f"{name} is no object")
    return found
