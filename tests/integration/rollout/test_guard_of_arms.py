"""Guards of further arms in Postgres: each version is watched beside the champion's calls, and taken back by itself."""

from typing import Any

import asyncpg
import orjson
import pytest
from worlds.rollout import two_versions

from understudy.adapters.postgres.connections.checkup import FailingShare, examine_guards, examine_shares
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.canary.decision import Decision, Verdict
from understudy.core.rollout.guard_limits import GuardLimits
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.plan_reader import read_plan
from understudy.core.rollout.state import Command, CommandKind, GuardMode, Kind, Observation, Phase, state_from_json
from understudy.core.rollout.state_machine import next_step
from understudy.errors import PolicyRefused
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, NewRolloutEvent
from understudy.rollout.analysis import policy_of
from understudy.rollout.commands import apply_command

QUALITY = {"name": "quality", "calls_per_minute": 6}
BAD = Decision(Verdict.ROLL_BACK, "error rate 3.1x")
ADD_WINDOW = """
    INSERT INTO PredictionWindow (model_version_id, window_start, role, rollout_id, policy_generation, shipper, epoch,
                                  calls, errors, counts)
    VALUES ($1, to_timestamp($2), $3, $4, 2, 'proxy', 0, $5, 0, '{"calls": 1}')
"""
# What the release before asks for, of a monitor's tick and of its windows.
LOOKED_AT_BEFORE = """
    SELECT id FROM rollout
    WHERE announced_at IS NULL OR (kind = 'guard' AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING')) ORDER BY id
"""
WATCHED_BEFORE = """
    UPDATE servingpolicy p SET rollout_id = 0
    WHERE challenger_weight > 0 AND arms = '[]' AND guard <> 'off' AND NOT EXISTS (
        SELECT FROM rollout r WHERE r.model_name = p.model_name AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING'))
    RETURNING model_name
"""


@pytest.fixture
async def versions(database: asyncpg.Connection) -> dict[str, int]:
    """Champion 6, and versions 7, 8 and 9."""
    versions = await two_versions(database)
    for version in ("8", "9"):
        versions[version] = await database.fetchval(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " VALUES ('churn', $1, 'file:///m', 'sklearn', '{}') RETURNING id",
            version,
        )
    return versions


@pytest.fixture
async def store(database: asyncpg.Connection, database_url: str, versions: dict[str, int]) -> PostgresRolloutStore:
    """Challenger 7 with 10 %, arm 8 with 10 % and arm 9 with 5 %."""
    await change(
        database,
        f"challenger_version = {versions['7']}, challenger_weight = 10, "
        f"arms = {arms(versions, ('8', 90, 99), ('9', 80, 84))}",
    )
    return PostgresRolloutStore(database_url, timeout_seconds=5)


def arms(versions: dict[str, int], *ranges: tuple[str, int, int]) -> str:
    found = [{"version_id": versions[version], "first": first, "last": last} for version, first, last in ranges]
    return f"'{orjson.dumps(found).decode()}'"


async def change(database: asyncpg.Connection, assignments: str) -> None:
    await database.execute(f"UPDATE ServingPolicy SET {assignments} WHERE model_name = 'churn'")


async def watched(database: asyncpg.Connection) -> dict[str, int]:
    """Return the open rows of the guard, by version."""
    rows = await database.fetch(
        "SELECT r.id, version FROM Rollout r JOIN ModelVersion v ON v.id = challenger_version"
        " WHERE finished_at IS NULL ORDER BY r.id"
    )
    return {row["version"]: row["id"] for row in rows}


async def reason_of(database: asyncpg.Connection, rollout_id: int) -> str:
    reason: str = await database.fetchval("SELECT state ->> 'reason' FROM Rollout WHERE id = $1", rollout_id)
    return reason


async def guard_id_of(database: asyncpg.Connection) -> tuple[int | None, int | None]:
    (row,) = await database.fetch("SELECT rollout_id, guard_id FROM ServingPolicy WHERE model_name = 'churn'")
    return row["rollout_id"], row["guard_id"]


async def step(store: PostgresRolloutStore, rollout_id: int, **seen: Any) -> bool:
    view = await store.view(rollout_id)
    observation = Observation(now=view.read_at, policy=view.policy, guard=view.guard, **seen)
    return await store.apply(view, next_step(view.record.state, observation), NewRolloutEvent("monitor"))


async def test_each_version_that_has_calls_beside_further_arms_is_watched_from_the_statement_on(database, store):
    rows = await watched(database)
    views = {version: await store.view(rollout_id) for version, rollout_id in rows.items()}

    assert rows.keys() == {"7", "8", "9"}
    assert await guard_id_of(database) == (None, rows["7"])
    assert await store.open_ids() == await store.guard_ids() == sorted(rows.values())
    assert {version: view.policy.weight_percent for version, view in views.items()} == {"7": 10, "8": 10, "9": 5}
    for view in views.values():
        assert view.record.state.kind is Kind.GUARD
        assert view.policy == view.record.state.policy
        assert (view.guard, view.champion_percent) == (GuardMode.ROLLBACK, 75)
        assert list(view.shares.items()) == [("7", 10), ("8", 10), ("9", 5)]
    assert await database.fetchval("SELECT count(*) FROM PolicyAudit WHERE action = 'update'") == 1


async def test_the_versions_share_the_alpha_of_one_guard(database, store):
    alphas = [policy_of(await store.view(rollout_id)).alpha for rollout_id in (await watched(database)).values()]

    assert alphas == [pytest.approx(0.01 / 3)] * 3


async def test_each_version_is_judged_by_the_metrics_and_the_judge_that_guards_have(database, store):
    limits = GuardLimits([{"name": "basket", "source": "shop", "promql": 'avg(euros{version="$version"})'}], QUALITY)
    rows = await watched(database)
    for rollout_id in rows.values():
        assert await step(store, rollout_id, guard_limits=limits)

    policies = [policy_of(await store.view(rollout_id)) for rollout_id in rows.values()]

    assert [policy.judge and policy.judge.name for policy in policies] == ["quality"] * 3
    assert [[metric.name for metric in policy.metrics] for policy in policies] == [["basket"]] * 3
    assert [policy.alpha for policy in policies] == [pytest.approx(0.01 / 3)] * 3


async def test_shares_are_of_what_a_version_and_the_champion_have_together(database, store, versions):
    rows = await watched(database)
    await change(database, f"arms = {arms(versions, ('8', 80, 99), ('9', 75, 79))}")

    view = await store.view(rows["8"])

    by_generation = [weight for _, weight in sorted(view.weights_percent.items())]
    assert by_generation == pytest.approx([100 * 10 / 85, 100 * 20 / 85])
    assert view.champion_percent == 65


async def test_a_guard_that_is_over_is_shown_beside_what_the_policy_gives_each_version_since(database, store, versions):
    rows = await watched(database)
    await change(
        database,
        f"champion_version = {versions['8']}, challenger_version = {versions['9']}, challenger_weight = 10, "
        f"arms = {arms(versions, ('7', 80, 99))}",
    )

    view = await store.view(rows["8"])

    assert view.record.state.phase.is_final
    assert (view.champion_percent, list(view.shares.items())) == (70, [("9", 10), ("7", 20)])


async def test_the_release_before_sees_nothing_of_them_and_can_read_their_rows(database, store, versions):
    rows = await database.fetch("SELECT kind, plan, state FROM Rollout")

    assert await database.fetch(LOOKED_AT_BEFORE) == []
    assert await database.fetch(WATCHED_BEFORE) == []
    # Its proxies log the calls of a policy under rollout_id: as those of no rollout, which no monitor reads as one's.
    assert (await guard_id_of(database))[0] is None
    for row in rows:
        state_from_json(orjson.loads(row["state"]), read_plan(orjson.loads(row["plan"])), Kind(row["kind"]))

    await change(database, "arms = '[]'")
    assert await database.fetch(WATCHED_BEFORE) == []


async def test_a_proxy_logs_the_calls_of_the_split_under_its_guard_and_counts_slow_ones_by_one_threshold(
    database, store, database_url
):
    rows = await watched(database)
    await store.set_slow_us(rows["9"], 42_000)
    await store.set_slow_us(rows["8"], 43_000)

    source = PostgresPolicySource(database_url, timeout_seconds=5)
    document = (await source.load())["models"]["churn"]
    await source.close()

    assert (document["policy"]["rollout_id"], document["policy"]["slow_us"]) == (rows["7"], 42_000)
    assert [(await store.view(row)).record.slow_us for row in rows.values()] == [42_000] * 3


async def test_each_row_has_the_windows_of_its_version_and_of_the_champion(database, store, versions, database_url):
    rows = await watched(database)
    for number, (version, role) in enumerate(
        (("6", "champion"), ("7", "challenger"), ("8", "challenger"), ("9", "challenger"))
    ):
        for rollout_id in (rows["7"], 0):
            await database.execute(ADD_WINDOW, versions[version], 1_800_000_000.0, role, rollout_id, number + 1)
    log = PostgresWindowLog(database_url, timeout_seconds=5)

    found = {version: await log.of_rollout(rollout_id) for version, rollout_id in rows.items()}
    marks = {
        (await log.marks_of_rollout(one, 1_799_999_100, 1_800_000_900)).marks[1_800_000_000] for one in rows.values()
    }

    for version, windows in found.items():
        assert {window.key.model_version_id for window in windows} == {versions["6"], versions[version]}
        assert {window.key.rollout_id for window in windows} == {rows[version]}
    assert len(marks) == 3


async def test_a_failing_arm_alone_is_taken_back_and_its_buckets_go_to_the_champion(database, store, versions):
    rows = await watched(database)
    for rollout_id in rows.values():
        await step(store, rollout_id)

    assert await step(store, rows["8"], decision=BAD)

    policy = await database.fetchrow("SELECT challenger_weight, arms, guard_id, updated_by FROM ServingPolicy")
    audit = await database.fetchrow("SELECT actor, reason FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    assert tuple(policy) == (10, f'[{{"last": 84, "first": 80, "version_id": {versions["9"]}}}]', rows["7"], "monitor")
    assert audit["actor"] == "monitor"
    assert "version 8 rolled back at 10 %: error rate 3.1x" in audit["reason"]
    assert (await store.view(rows["8"])).record.state.phase is Phase.FAILED
    assert await watched(database) == {"7": rows["7"], "9": rows["9"]}
    assert not await step(store, rows["9"], decision=None) or (await watched(database)).keys() == {"7", "9"}


async def test_a_failing_challenger_is_taken_back_and_the_arms_stay(database, store, versions):
    rows = await watched(database)
    await step(store, rows["7"])

    assert await step(store, rows["7"], decision=BAD)

    policy = await database.fetchrow("SELECT challenger_version, challenger_weight, arms FROM ServingPolicy")
    assert (policy["challenger_version"], policy["challenger_weight"]) == (versions["7"], 0)
    assert len(orjson.loads(policy["arms"])) == 2
    assert (await watched(database)).keys() == {"8", "9"}


async def test_when_all_arms_are_taken_back_the_challenger_keeps_its_share_and_its_evidence(database, store):
    rows = await watched(database)
    for version in ("8", "9"):
        await step(store, rows[version])
        await step(store, rows[version], decision=BAD)

    assert await database.fetchval("SELECT arms FROM ServingPolicy") == "[]"
    assert await watched(database) == {"7": rows["7"]}
    await change(database, "challenger_weight = 0")
    assert await watched(database) == {}
    assert await guard_id_of(database) == (None, None)


async def test_a_guard_that_alerts_leaves_the_arm_and_doctor_names_it(database, store, database_url):
    await change(database, "guard = 'alert'")
    rows = await watched(database)
    for version in ("8", "9"):
        await step(store, rows[version])
    await step(store, rows["8"], decision=BAD)

    (seen,) = await examine_guards(database_url)
    view = await store.view(rows["8"])
    assert view.record.state.has_failed_guard
    assert view.policy.weight_percent == 10
    assert seen.is_watched
    assert seen.failure is not None
    assert "version 8 does worse at 10 %" in seen.failure
    assert await store.latest_id("churn") == rows["8"]


async def test_doctor_names_the_challenger_and_the_arm_that_fail_and_none_without_a_share(
    database, store, database_url, versions
):
    windows = """
        INSERT INTO PredictionWindow (model_version_id, window_start, role, policy_generation, shipper, calls, errors,
                                      counts)
        VALUES ($1, date_trunc('minute', now()) - make_interval(mins => $2), $3, 2, 'proxy', $4, $5, '{}')
    """
    for version, minutes, role, calls, errors in (
        ("6", 5, "champion", 1_000, 500),
        ("7", 5, "challenger", 60, 0),
        ("7", 6, "challenger", 60, 3),
        ("7", 70, "challenger", 100, 100),
        ("8", 5, "challenger", 400, 5),
        ("9", 5, "challenger", 50, 0),
        ("9", 600, "challenger", 150, 10),
        ("9", 1_500, "challenger", 100, 100),
    ):
        await database.execute(windows, versions[version], minutes, role, calls, errors)

    found = await examine_shares(database_url, 100, 0.01)
    await change(database, "challenger_weight = 0, fallback = false")
    without_challenger = await examine_shares(database_url, 100, 0.01)

    lately = [FailingShare("churn", "8", 5, 400, True), FailingShare("churn", "9", 10, 200, True, hours=24)]
    assert found == [FailingShare("churn", "7", 3, 120, True), *lately]
    assert without_challenger == [share._replace(has_fallback=False) for share in lately]


async def test_another_share_goes_on_with_the_evidence_and_another_version_begins_the_next_guard(
    database, store, versions
):
    rows = await watched(database)
    await step(store, rows["8"])
    await change(database, f"challenger_weight = 20, arms = {arms(versions, ('8', 85, 99), ('9', 80, 84))}")
    await step(store, rows["8"])
    grown = await store.view(rows["8"])
    same = await watched(database)

    await change(database, f"arms = {arms(versions, ('8', 85, 99))}")
    fewer = await watched(database)
    await change(database, f"arms = {arms(versions, ('8', 85, 99), ('9', 80, 84))}")
    others = await watched(database)

    assert (same, grown.record.state.weight_percent) == (rows, 15)
    assert fewer == {"7": rows["7"], "8": rows["8"]}
    assert "no share any more" in await reason_of(database, rows["9"])
    assert others.keys() == {"7", "8", "9"}
    assert not set(others.values()) & set(rows.values())
    assert "another version has a share" in await reason_of(database, rows["8"])


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ("challenger_weight = 0, arms = '[]'", "no version has a share any more"),
        ("guard = 'off'", "guard is off"),
    ],
)
async def test_the_statement_that_ends_the_split_ends_its_guard(database, store, assignments, why):
    rows = await watched(database)

    await change(database, assignments)

    assert await watched(database) == {}
    assert await guard_id_of(database) == (None, None)
    for rollout_id in rows.values():
        assert why in await reason_of(database, rollout_id)


@pytest.mark.parametrize(
    "assignments", ["salt = 'autumn'", "champion_version = 0 + (SELECT min(id) FROM ModelVersion WHERE version = '5')"]
)
async def test_other_entities_and_another_champion_begin_the_next_guard(database, store, assignments):
    rows = await watched(database)
    await database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('churn', '5', 'file:///m', 'sklearn', '{}')"
    )

    await change(database, assignments)

    others = await watched(database)
    assert others.keys() == rows.keys()
    assert not set(others.values()) & set(rows.values())
    assert (await guard_id_of(database))[1] == others["7"]


async def test_a_challengers_guard_gives_way_when_arms_come(database, versions):
    await change(database, f"challenger_version = {versions['7']}, challenger_weight = 10")
    alone = await watched(database)

    await change(database, f"arms = {arms(versions, ('8', 90, 99))}")

    assert "further arms" in await reason_of(database, alone["7"])
    assert (await watched(database)).keys() == {"7", "8"}


async def test_arms_alone_are_watched_and_a_policy_may_be_made_with_them(database, versions):
    await database.execute("DELETE FROM ServingPolicy")

    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, arms)"
        f" VALUES ('churn', {versions['6']}, {arms(versions, ('8', 90, 99))})"
    )

    assert (await watched(database)).keys() == {"8"}
    await database.execute("DELETE FROM ServingPolicy")
    assert await watched(database) == {}


async def test_an_old_guard_is_followed_by_the_next_one_for_all_versions_in_one_transaction(database, store):
    rows = await watched(database)
    for rollout_id in rows.values():
        await step(store, rollout_id)

    assert await step(store, rows["8"], guard_seconds=0.0)

    others = await watched(database)
    assert others.keys() == rows.keys()
    assert not set(others.values()) & set(rows.values())
    assert (await guard_id_of(database))[1] == others["7"]


async def test_arms_from_before_get_a_guard_from_the_monitor_once(database, versions, database_url):
    await database.execute("ALTER TABLE ServingPolicy DISABLE TRIGGER USER")
    await change(database, f"arms = {arms(versions, ('8', 90, 99))}, generation = 5")
    await database.execute("ALTER TABLE ServingPolicy ENABLE TRIGGER USER")
    store = PostgresRolloutStore(database_url, timeout_seconds=5)

    assert await store.watch_splits() == ["churn"]
    assert await store.watch_splits() == []

    assert (await watched(database)).keys() == {"8"}


async def test_a_session_that_holds_an_arms_row_does_not_keep_its_share_from_going_to_zero(
    database, store, database_url, versions
):
    rows = await watched(database)
    await step(store, rows["8"])
    holder = await asyncpg.connect(database_url)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("SELECT FROM Rollout FOR UPDATE")

    await database.execute("SET statement_timeout = '3s'")
    await change(database, f"arms = {arms(versions, ('9', 80, 84))}")
    await transaction.rollback()
    await holder.close()
    await step(store, rows["8"])

    assert "the split is there no more" in await reason_of(database, rows["8"])
    assert (await watched(database)).keys() == {"7", "9"}


async def test_a_person_takes_one_arm_back_by_aborting_its_guard(database, store):
    rows = await watched(database)

    await apply_command(store, rows["9"], Command(CommandKind.ABORT, "dana"))

    assert (await watched(database)).keys() == {"7", "8"}
    assert [arm["first"] for arm in orjson.loads(await database.fetchval("SELECT arms FROM ServingPolicy"))] == [90]


async def test_a_rollback_by_hand_ends_all_of_it(database, store):
    said = orjson.loads(await database.fetchval("SELECT understudy_rollback('churn', 'it burns')"))

    assert said["did"] == "weight 0 and the end of all further arms"
    assert said["rollout_id"] is None
    assert await watched(database) == {}


async def test_a_rollout_is_refused_beside_arms_and_takes_over_a_guard_that_they_left(database, store):
    new = NewRollout("churn", "9", NAMED_PLANS["default"], "fresh", None)
    rows = await watched(database)
    with pytest.raises(PolicyRefused, match="further arms"):
        await store.start(new, Actor("dana", "cli", "weekly"))
    untouched = await watched(database)

    await change(database, "arms = '[]'")
    record = await store.start(new, Actor("dana", "cli", "weekly"))

    assert untouched == rows
    assert f"rollout {record.id} takes over" in await reason_of(database, rows["7"])
    assert await watched(database) == {"9": record.id}
    assert await guard_id_of(database) == (record.id, None)
