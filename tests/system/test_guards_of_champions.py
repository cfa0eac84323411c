"""A bad version that an operator makes the champion by hand: its guard puts the one before back, whoever did it.

Here no champion stands in: callers see its failures until it is back.
"""

import asyncio
import time
from pathlib import Path

import httpx2
import pytest
from command import CommandLine
from e2e.load import Load, calling
from e2e.stack import Stack, a_stack, sql
from system.test_guards import PER_SECOND, body_of, receiving, several_models, start_monitor, told

pytestmark = pytest.mark.timeout(400)
PAST_SECONDS = 75
"""Five windows of the champion before: each counts once, and the new one's have nothing else beside them."""
LIMIT_SECONDS = 90.0
SEEN_SECONDS = 2.0
"""In which proxies act on a change, on a busy machine."""
CALM_SECONDS = 10.0
"""In which callers of a champion that is back see no failure any more."""
MOST_SECONDS = 300.0
BY_SQL, BY_COMMAND, BY_HTTP, ALERTED, GOOD = "by-sql", "by-command", "by-http", "alerted", "good"
MODELS = {BY_SQL: "3", BY_COMMAND: "3", BY_HTTP: "3", ALERTED: "3", GOOD: "2"}
TAKEN_BACK = {BY_SQL, BY_COMMAND, BY_HTTP}
MAKE_CHAMPION = """
    UPDATE ServingPolicy SET champion_version = (SELECT id FROM ModelVersion WHERE model_name = $1 AND version = $2)
    WHERE model_name = $1
"""
BACK = """
    SELECT back.model_name, extract(epoch FROM back.changed_at - made.changed_at)::float8 AS seconds, back.reason
    FROM PolicyAudit AS back JOIN PolicyAudit AS made USING (model_name)
    WHERE back.actor = 'monitor' AND back.before -> 'champion_version' <> back.after -> 'champion_version'
      AND made.after -> 'champion_version' = back.before -> 'champion_version'
      AND made.before -> 'champion_version' = back.after -> 'champion_version'
"""
CHAMPIONS = "SELECT p.model_name, version FROM ServingPolicy p JOIN ModelVersion v ON v.id = p.champion_version"


async def serve_steadily(stack: Stack, database_url: str) -> None:
    """Let what a busy machine adds be little beside the latency of the model that has to stay.

    Its past is its only control: a machine that is twice as slow a minute later looks like a version that is.
    """
    port = stack.start_model("visits:1,latency_ms=30", "visits:2,latency_ms=30")
    await sql(
        database_url,
        "UPDATE ModelEndpoint SET target = $1 FROM ModelVersion v WHERE v.id = model_version_id AND v.model_name = $2",
        f"127.0.0.1:{port}",
        GOOD,
    )


async def make_champions(port: int, database_url: str, understudy: CommandLine) -> None:
    for model in (BY_SQL, ALERTED, GOOD):
        await sql(database_url, MAKE_CHAMPION, model, MODELS[model])
    done = await understudy.beside("model", "set", BY_COMMAND, "--champion", "3", "--reason", "new", "--yes")
    assert done.code == 0, done.err
    async with httpx2.AsyncClient(headers={"authorization": "Bearer ops.secret"}, timeout=30) as client:
        url = f"http://127.0.0.1:{port}/v1/models/{BY_HTTP}/policy"
        answer = await client.patch(url, json={"champion": "3", "reason": "new"}, headers={"if-match": '"1"'})
    assert answer.status_code == 200, answer.text


async def those_back(database_url: str) -> dict[str, tuple[float, str]]:
    """Wait until each of them has its champion of before; return how long it took by the audit's clock, and why."""
    give_up = time.monotonic() + LIMIT_SECONDS + 30
    while True:
        found = {row["model_name"]: (row["seconds"], row["reason"]) for row in await sql(database_url, BACK)}
        if found.keys() >= TAKEN_BACK or time.monotonic() > give_up:
            return found
        await asyncio.sleep(0.5)


@pytest.mark.alone
async def test_a_bad_champion_by_sql_command_or_http_is_replaced_by_the_one_before_within_ninety_seconds(
    tmp_path: Path, database_url: str, understudy: CommandLine
):
    loads = {model: Load() for model in MODELS}
    with receiving() as (alert_port, received), a_stack(tmp_path, database_url) as stack:
        await several_models(stack, database_url, MODELS, ALERTED)
        await serve_steadily(stack, database_url)
        port = stack.start_proxy(workers=2)
        start_monitor(stack, alert_port)
        async with calling(port, loads, body_of, per_second=PER_SECOND, seconds=MOST_SECONDS):
            await asyncio.sleep(PAST_SECONDS)
            made_at = time.monotonic()
            await make_champions(port, database_url, understudy)
            back = await those_back(database_url)
            back_at = time.monotonic()
            is_told = await told(received, "champion_regressed", TAKEN_BACK) and await told(
                received, "guard_failed", {ALERTED}
            )
            doctor = await understudy.beside("doctor")
            shown = await understudy.beside("model", "show", BY_SQL)
            await asyncio.sleep(max(0.0, back_at + CALM_SECONDS - time.monotonic()))
        champions = {row["model_name"]: row["version"] for row in await sql(database_url, CHAMPIONS)}

    print(f"back after {back}, {[len(load.failed) for load in loads.values()]} failed calls")
    assert back.keys() == TAKEN_BACK, received
    assert max(seconds for seconds, _ in back.values()) <= LIMIT_SECONDS
    assert champions == {**dict.fromkeys(TAKEN_BACK, "1"), ALERTED: "3", GOOD: "2"}
    assert is_told, received
    assert doctor.code == 1
    assert f"guard {BY_SQL}" in doctor.said
    assert "failed: version 1 is champion again" in shown.said
    # No call fails but those that the bad version itself had as champion.
    assert loads[GOOD].failed == []
    for model in TAKEN_BACK:
        failed = loads[model].failed
        assert {answer.json["code"] for answer in failed} <= {"E502", "E504"}
        assert all(made_at < answer.sent < back_at + SEEN_SECONDS for answer in failed)
