"""Guards over simulated traffic and a real database: what the monitor makes of shares and champions set by hand."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import asyncpg
import httpx2
import pytest
from command import CommandLine
from e2e.stack import a_stack, sql, wait_for_port
from worlds.rollout import TWINS, WORSE, PastArms, PastRollout

from understudy.core.canary.decision import Verdict
from understudy.core.rollout.state import Phase, RolloutState
from understudy.rollout.verdicts.replay import Replay, judged_again

pytestmark = pytest.mark.timeout(120)
SHARE = "challenger_version = {}, challenger_weight = 10"
CHAMPION = "champion_version = {}"
Way = Callable[[str, CommandLine, Path], Awaitable[None]]
"""Gives version 7 a share of 10 %, as an operator may."""
POLICY = """
    SELECT version AS champion, challenger_weight AS weight, rollout_id
    FROM ServingPolicy p JOIN ModelVersion v ON v.id = p.champion_version
"""


async def state_of(guard: PastRollout) -> RolloutState:
    return (await guard.store.view(guard.id)).record.state


async def told_of(database: asyncpg.Connection, kind: str) -> int:
    told: int = await database.fetchval(
        "SELECT count(*) FROM AlertOutbox WHERE dedup_key LIKE $1 AND action = 'trigger'", f"%{kind}"
    )
    return told


async def test_a_worse_version_with_a_share_by_hand_goes_back_and_its_verdict_judged_again_is_the_same(
    database, database_url
):
    guard = PastRollout(database, database_url, WORSE, 7_200)
    await guard.begin_by_hand(SHARE)

    await guard.go_on(30)

    replays = [(event, replay) for event, replay in judged_again(await guard.store.events(guard.id)) if replay]
    (verdict, replay), *others = replays
    assert (await state_of(guard)).phase is Phase.FAILED
    assert tuple(await database.fetchrow(POLICY)) == ("6", 0, None)
    assert await told_of(database, "canary_rolled_back") == 1
    assert (verdict.verdict, others) == (Verdict.ROLL_BACK, [])
    assert isinstance(replay, Replay)
    assert replay.agrees


async def by_sql(database_url: str, *_: object) -> None:
    query = "UPDATE ServingPolicy SET challenger_weight = 10, challenger_version = "
    await sql(database_url, f"{query} (SELECT id FROM ModelVersion WHERE version = '7')")


async def by_command(_: str, understudy: CommandLine, __: Path) -> None:
    change = ("--challenger", "7", "--weight", "10", "--reason", "look", "--yes")
    assert (await understudy.beside("model", "set", "churn", *change)).code == 0


async def by_http(database_url: str, _: CommandLine, folder: Path) -> None:
    key = sha256(b"secret").hexdigest()
    await sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('ops', $1, '{operate}')", key)
    with a_stack(folder, database_url) as stack:
        url = f"http://127.0.0.1:{stack.start_proxy(wait_ready=False)}/v1/models/churn/policy"
        wait_for_port(stack.proxy_port)
        headers = {"authorization": "Bearer ops.secret", "if-match": '"1"'}
        async with httpx2.AsyncClient(headers=headers, timeout=30) as client:
            answer = await client.patch(url, json={"challenger": "7", "challenger_weight": 10, "reason": "look"})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("way", [by_sql, by_command, by_http])
async def test_an_equal_version_with_a_share_by_hand_keeps_it_for_an_hour_whatever_share_that_is(
    database: asyncpg.Connection, database_url: str, understudy: CommandLine, tmp_path: Path, way: Way
):
    guard = PastRollout(database, database_url, TWINS, 7_200)
    await guard.prepare()
    await way(database_url, understudy, tmp_path)
    await guard.watch()

    await guard.go_on(30)
    await database.execute("UPDATE ServingPolicy SET challenger_weight = 50")
    await guard.go_on(30)

    state = await state_of(guard)
    assert (state.phase, state.weight_percent) == (Phase.PROGRESSING, 50)
    assert [tuple(row) for row in await database.fetch(POLICY)] == [("6", 50, guard.id)]
    assert await database.fetchval("SELECT count(*) FROM AlertOutbox WHERE action = 'trigger'") == 0


async def test_a_worse_version_whose_guard_alerts_keeps_its_share(database, database_url):
    guard = PastRollout(database, database_url, WORSE, 7_200)
    await guard.begin_by_hand(f"guard = 'alert', {SHARE}")

    await guard.go_on(30)

    assert (await state_of(guard)).has_failed_guard
    assert tuple(await database.fetchrow(POLICY)) == ("6", 10, guard.id)
    assert await told_of(database, "guard_failed") == 1


async def test_a_champion_by_hand_that_fails_everything_is_replaced_by_the_one_before(database, database_url):
    guard = PastRollout(database, database_url, replace(TWINS, name="dead", error_factor=1e6), 7_200)
    await guard.begin_by_hand(CHAMPION)
    await guard.served_before(30)

    await guard.go_on(14)

    assert (await state_of(guard)).phase is Phase.FAILED
    assert tuple(await database.fetchrow(POLICY)) == ("6", 0, None)
    assert await told_of(database, "champion_regressed") == 1


async def test_a_champion_by_hand_whose_guard_alerts_stays_and_the_one_before_is_not_retired(database, database_url):
    guard = PastRollout(database, database_url, replace(TWINS, name="dead", error_factor=1e6), 7_200)
    await guard.begin_by_hand(f"guard = 'alert', {CHAMPION}")
    await guard.served_before(30)

    await guard.go_on(20)
    meanwhile = await state_of(guard)
    await guard.go_on(40)

    assert meanwhile.has_failed_guard
    assert (await state_of(guard)).phase is Phase.FAILED
    assert tuple(await database.fetchrow(POLICY))[:2] == ("7", 0)
    assert await told_of(database, "guard_failed") == 1
    assert await database.fetchval("SELECT status FROM ModelVersion WHERE version = '6'") == "staging"


async def test_a_champion_by_hand_that_serves_as_well_stays_for_an_hour_and_the_one_before_is_retired(
    database, database_url
):
    guard = PastRollout(database, database_url, TWINS, 7_200)
    await guard.begin_by_hand(CHAMPION)
    await guard.served_before(30)

    await guard.go_on(60)

    assert (await state_of(guard)).phase is Phase.SUCCEEDED
    assert tuple(await database.fetchrow(POLICY)) == ("7", 0, None)
    assert await database.fetchval("SELECT status FROM ModelVersion WHERE version = '6'") == "retired"


ARMS_LEFT = "SELECT version FROM understudy_arms ORDER BY version"


async def arms_of(database: asyncpg.Connection) -> list[str]:
    return [row["version"] for row in await database.fetch(ARMS_LEFT)]


async def test_a_worse_arm_alone_goes_back_and_equal_versions_beside_it_stay_for_an_hour(database, database_url):
    guard = PastArms(database, database_url, {"7": TWINS, "8": WORSE, "9": TWINS}, 7_200)
    await guard.begin_arms()

    await guard.go_on(60)

    phases = {version: (await guard.view(version)).record.state.phase for version in guard.ids}
    replays = [replay for _, replay in judged_again(await guard.store.events(guard.ids["8"])) if replay]
    audited = await database.fetchval("SELECT reason FROM PolicyAudit WHERE actor = 'monitor' ORDER BY id DESC LIMIT 1")
    assert phases == {"7": Phase.PROGRESSING, "8": Phase.FAILED, "9": Phase.PROGRESSING}
    assert await arms_of(database) == ["9"]
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 10
    assert await told_of(database, "canary_rolled_back") == 1
    assert "version 8 rolled back at 10 %" in audited
    assert [isinstance(replay, Replay) and replay.agrees for replay in replays] == [True]


async def test_an_arm_whose_guard_alerts_keeps_its_share_and_its_incident_while_others_do_well(database, database_url):
    guard = PastArms(database, database_url, {"7": TWINS, "8": WORSE, "9": TWINS}, 7_200)
    await guard.begin_arms("guard = 'alert'")

    await guard.go_on(30)

    resolved = await database.fetchval("SELECT count(*) FROM AlertOutbox WHERE action = 'resolve'")
    assert (await guard.view("8")).record.state.has_failed_guard
    assert await arms_of(database) == ["8", "9"]
    assert await told_of(database, "/8/guard_failed") == 1
    assert resolved == 0
