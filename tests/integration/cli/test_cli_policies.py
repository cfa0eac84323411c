"""``understudy model set`` beside other actors who change the same policy."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from command import CommandLine
from worlds.rollout import two_versions

WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'understudy-registry' AND wait_event_type = 'Lock'
"""


@asynccontextmanager
async def another_change(database_url: str, assignment: str) -> AsyncIterator[None]:
    """Make a change that the block's command meets half-way: it has looked at the policy, and waits to change it."""
    other, watch = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(f"UPDATE ServingPolicy SET {assignment} WHERE model_name = 'churn'")

    async def commit_once_waited_for() -> None:
        deadline = time.monotonic() + 60
        while not await watch.fetchval(WAITING):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        await transaction.commit()

    committing = asyncio.create_task(commit_once_waited_for())
    try:
        yield
        await committing
    finally:
        committing.cancel()
        await asyncio.gather(other.close(), watch.close())


async def test_a_change_that_finds_the_policy_so_already_says_that_it_changed_nothing(
    understudy: CommandLine, database, database_url
):
    await two_versions(database)

    async with another_change(database_url, "shadow_percent = 50"):
        done = await understudy.beside("model", "set", "churn", "--fallback", "--reason", "calm", "--yes", "--json")

    assert (done.document["changed"], done.document["policy"]["generation"]) == (False, 2)
    assert await database.fetchval("SELECT count(*) FROM PolicyAudit") == 2


async def test_a_change_tells_its_own_difference_and_not_that_of_another_actor(
    understudy: CommandLine, database, database_url
):
    await two_versions(database)

    async with another_change(database_url, "shadow_percent = 50"):
        done = await understudy.beside("model", "set", "churn", "--no-fallback", "--reason", "test", "--yes")

    assert "fallback" in done.said
    assert "shadow" not in done.said


async def test_a_part_of_a_category_that_routes_to_the_challenger_is_held_out(understudy: CommandLine, database):
    await two_versions(database)
    await database.execute(
        "UPDATE ServingPolicy SET challenger_version = (SELECT id FROM ModelVersion WHERE version = '7'),"
        ' challenger_weight = 1, category_roles = \'{"gold": "challenger"}\''
    )

    done = await understudy.beside(
        "model", "set", "churn", "--category-holdout", "50", "--reason", "compare gold", "--yes", "--json"
    )
    refused = await understudy.beside(
        "model", "set", "churn", "--category-holdout", "51", "--reason", "more", "--yes", "--json"
    )
    shown = await understudy.beside("model", "show", "churn")

    assert (done.document["policy"]["category_holdout_percent"], done.document["changed"]) == (50, True)
    assert refused.code != 0
    assert "--category-holdout 10" in refused.said
    assert "50 % of the challenger's stay with the champion" in " ".join(shown.out.split())


async def test_an_older_policy_is_restored_as_a_new_change(understudy: CommandLine, database):
    await two_versions(database)

    async def change(*options: str) -> int:
        done = await understudy.beside("model", "set", "churn", *options, "--reason", "go", "--yes", "--json")
        return int(done.document["policy"]["generation"])

    wanted = await change("--challenger", "7", "--guard", "alert", "--arm", "none")
    await change("--weight", "30", "--guard", "off")
    await change("--champion", "7", "--challenger", "none")
    tried = await understudy.beside("model", "restore", "churn", str(wanted), "--dry-run")
    unknown = await understudy.beside("model", "restore", "churn", "99", "--reason", "back", "--yes")
    beyond = await understudy.beside("model", "restore", "churn", str(2**63), "--reason", "back", "--yes")
    done = await understudy.beside("model", "restore", "churn", str(wanted), "--reason", "back", "--yes", "--json")
    again = await understudy.beside("model", "restore", "churn", str(wanted), "--reason", "back", "--yes")
    by_sql = await understudy.beside("audit", "list", "churn", "--via", "sql", "--since", "1h", "--json")
    by_this = await understudy.beside("audit", "list", "churn", "--via", "cli", "--subject", "policy", "--json")

    assert "champion 7 → 6" in " ".join(tried.said.split())
    assert "nothing was changed" in tried.said
    assert "has no generation 99" in unknown.said
    assert (unknown.code, beyond.code) == (4, 4)
    policy = done.document["policy"]
    assert (policy["champion"], policy["challenger"], policy["challenger_weight"], policy["guard"]) == (
        "6", "7", 0, "alert"
    )  # fmt: skip
    assert policy["generation"] == wanted + 3
    assert "is like that already" in again.said
    assert {row["via"] for row in by_sql.document["audit"]} <= {"sql"}
    assert [row["reason"] for row in by_this.document["audit"]] == ["back", "go", "go", "go"]


async def test_only_a_rollout_and_no_guard_is_said_to_move_the_split_itself(understudy: CommandLine, database):
    await two_versions(database)
    share = ("model", "set", "churn", "--challenger", "7", "--weight")
    watched = await understudy.beside(*share, "10", "--reason", "by hand", "--yes")
    under_guard = await understudy.beside(*share, "20", "--dry-run")

    assert await database.fetchval("SELECT kind FROM Rollout JOIN ServingPolicy ON rollout_id = Rollout.id") == "guard"
    assert (watched.code, under_guard.code) == (0, 0)
    assert "moves this split itself" not in under_guard.said
