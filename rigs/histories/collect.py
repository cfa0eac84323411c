"""What the database holds at the end of a history, in one snapshot, in the words of the checker."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import orjson

from rigs.histories.by_sql import SIGNATURE
from rigs.histories.record import AuditRow, EventRow, History, Kind, Record, RolloutRow, Signature, StatusRow, Way
from rigs.histories.stack import KEY_ID, MONITORS, PROXIES, Stack
from understudy.entrypoints.cli.shared.actor import this_login

SETTLE_SECONDS = 30.0
"""How long after the last fault proxies may take to act on the last policy, and rows to be in the log."""
_AUDIT = """
    SELECT id, generation, extract(epoch FROM changed_at)::float8 AS at, actor, via, coalesce(reason, '') AS reason,
           action, before, after
    FROM PolicyAudit WHERE model_name = 'visits' ORDER BY id
"""
_ROLLOUTS = """
    SELECT r.id, c.version AS champion, n.version AS challenger, salt, salt_before, reason,
           ARRAY(SELECT (one ->> 'weight_percent')::int FROM jsonb_array_elements(plan -> 'steps') AS one) AS weights
    FROM Rollout r JOIN ModelVersion c ON c.id = r.champion_version JOIN ModelVersion n ON n.id = r.challenger_version
    ORDER BY r.id
"""
_EVENTS = """
    SELECT id, rollout_id, extract(epoch FROM at)::float8 AS at, phase, step, actor, reason
    FROM RolloutEvent ORDER BY id
"""
_STATUSES = """
    SELECT id, extract(epoch FROM changed_at)::float8 AS at, version, after ->> 'status' = 'retired' AS is_retired,
           actor, coalesce(reason, '') AS reason
    FROM RegistryAudit WHERE subject = 'version' AND action = 'update' AND after ? 'status' ORDER BY id
"""
_LOG = """
    SELECT prediction_id::text AS prediction_id, model_version_id, assigned_version_id, policy_generation, entity_id
    FROM PredictionLog WHERE role <> 'shadow'
"""
_REPORTS = "SELECT instance, (generations ->> 'visits')::bigint AS generation FROM ProxyInstance"


async def collected(stack: Stack, seed: int, records: Sequence[Record]) -> History:
    """Mend everything, wait until proxies and log have settled, and return the history.

    What has not settled by then is a finding of the checker.
    """
    await stack.heal()
    await _settled(stack, records)
    for name in MONITORS:
        process = stack.members[name].process
        assert process is not None
        await asyncio.to_thread(process.stop)
    await _settled(stack, records)
    proxies = [stack.members[name].identity for name in PROXIES]
    return await snapshot(stack.world.url, stack.ids, seed, records, proxies)


async def _settled(stack: Stack, records: Sequence[Record]) -> None:
    """Wait until proxies act on the policy and every answered call is in the log, or time is up."""
    answered = {
        call["prediction_id"]
        for record in records
        if record.operation.kind is Kind.PREDICT
        for call in record.answer.get("calls", ())
    }
    proxies = [stack.members[name].identity for name in PROXIES]
    give_up = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < give_up:
        (policy,) = await stack.world.sql("SELECT generation FROM ServingPolicy WHERE model_name = 'visits'")
        reports = _reports(proxies, await stack.world.sql(_REPORTS))
        (count,) = await stack.world.sql(
            "SELECT count(DISTINCT prediction_id) AS n FROM PredictionLog WHERE prediction_id = ANY($1::uuid[])",
            sorted(answered),
        )
        if (
            set(reports.values()) == {policy["generation"]}
            and len(reports) == len(PROXIES)
            and count["n"] == len(answered)
        ):
            return
        await asyncio.sleep(0.1)


def _reports(proxies: Sequence[str], rows: Sequence[asyncpg.Record]) -> dict[str, int]:
    return {row["instance"]: row["generation"] for row in rows if row["instance"] in proxies}


async def snapshot(
    database_url: str, ids: Mapping[str, int], seed: int, records: Sequence[Record], proxies: Sequence[str] = ()
) -> History:
    """Return a history with what the database holds now; ``ids`` are the versions' by their labels."""
    offset = time.time() - time.monotonic()
    connection = await asyncpg.connect(database_url)
    await connection.set_type_codec("jsonb", encoder=_text, decoder=orjson.loads, schema="pg_catalog")
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            rows = {name: await connection.fetch(query) for name, query in _QUERIES.items()}
    finally:
        await connection.close()
    logged: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows["log"]:
        logged[row["prediction_id"]].append({name: row[name] for name in _LOGGED})
    return History(
        seed=seed,
        labels={number: label for label, number in ids.items()},
        records=sorted(records, key=lambda record: record.invoked),
        audit=[AuditRow(**_at(row, offset)) for row in rows["audit"]],
        policy=rows["policy"][0]["policy"],
        rollouts=[RolloutRow(**row) for row in rows["rollouts"]],
        events=[EventRow(**_at(row, offset)) for row in rows["events"]],
        statuses=[StatusRow(**_at(row, offset)) for row in rows["statuses"]],
        signatures={
            Way.SQL: SIGNATURE,
            Way.HTTP: Signature(KEY_ID, "http"),
            Way.CLI: Signature(this_login(), "cli"),
        },
        logged=dict(logged),
        proxies=dict.fromkeys(proxies, 0) | _reports(proxies, rows["reports"]),
    )


_LOGGED = ("model_version_id", "assigned_version_id", "policy_generation", "entity_id")
_QUERIES: Mapping[str, str] = {
    "audit": _AUDIT,
    "policy": "SELECT to_jsonb(p) AS policy FROM ServingPolicy p WHERE model_name = 'visits'",
    "rollouts": _ROLLOUTS,
    "events": _EVENTS,
    "statuses": _STATUSES,
    "log": _LOG,
    "reports": _REPORTS,
}


def _at(row: asyncpg.Record, offset: float) -> dict[str, Any]:
    """Return a row with its time by the runner's clock."""
    return {**dict(row), "at": row["at"] - offset}


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
