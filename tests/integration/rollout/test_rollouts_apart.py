"""The monitor's look at several rollouts: what is wrong with one is not felt by the others, nor by people on call."""

import asyncio
import re
from collections.abc import AsyncIterator

import asyncpg
import pytest
from failing.locked_reports import locked_reports
from worlds.rollout import ReadyProbe

from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.rollout.plan_reader import read_plan
from understudy.core.rollout.state import Command, CommandKind, WarmUpResult
from understudy.core.statistics.difference import Difference
from understudy.errors import MigrationNeeded, RegistryUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, RolloutView
from understudy.rollout.checks.outcome_check import OutcomeCheck
from understudy.rollout.commands import apply_command
from understudy.rollout.executor import RolloutExecutor

ACTOR = Actor("dana", "cli")
ENOUGH_SECONDS = 60.0


class HungProbe(ReadyProbe):
    """Says of every model but ``hung`` that it answers; that one never does."""

    async def probe(self, model_name: str, version_label: str, *, epoch: Epoch | None = None) -> WarmUpResult:
        if model_name == "hung":
            await asyncio.Event().wait()
        return await super().probe(model_name, version_label, epoch=epoch)


class Monitor:
    """The executor over a real database, as the one that leads."""

    def __init__(self, database: asyncpg.Connection, database_url: str, epoch: Epoch) -> None:
        self.database = database
        self.epoch = epoch
        self.store = PostgresRolloutStore(database_url, timeout_seconds=5)
        self.executor = RolloutExecutor(
            self.store,
            PostgresWindowLog(database_url, timeout_seconds=5),
            lambda _: (),
            HungProbe(),
            PrometheusTelemetry(),
            environment="test",
        )

    async def start(self, model_name: str, limits: str | None = None, *, keep_warm_seconds: float = 1_800) -> int:
        for version in ("6", "7"):
            await self.database.execute(
                "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
                " VALUES ($1, $2, 'file:///m', 'sklearn', '{}')",
                model_name,
                version,
            )
        await self.database.execute(
            "INSERT INTO ServingPolicy (model_name, champion_version)"
            " SELECT model_name, id FROM ModelVersion WHERE model_name = $1 AND version = '6'",
            model_name,
        )
        asked = {"keep_warm_seconds": keep_warm_seconds, "canary_limits": {} if limits is None else {"outcome": limits}}
        plan = read_plan(asked)
        return (await self.store.start(NewRollout(model_name, "7", plan, "fresh", 12_000), ACTOR)).id

    async def tick(self) -> None:
        await self.executor.tick(self.epoch)

    async def weight(self, model_name: str) -> int:
        return int(
            await self.database.fetchval(
                "SELECT challenger_weight FROM ServingPolicy WHERE model_name = $1", model_name
            )
        )

    async def told(self) -> list[tuple[str, str]]:
        rows = await self.database.fetch(
            "SELECT dedup_key, action FROM AlertOutbox WHERE action <> 'change' ORDER BY id"
        )
        return [(row["dedup_key"].rpartition("/")[2], row["action"]) for row in rows]


@pytest.fixture
async def monitor(database: asyncpg.Connection, database_url: str) -> AsyncIterator[Monitor]:
    lease = PostgresLease(database_url)
    epoch = await lease.take_or_renew("here")
    assert epoch is not None
    yield Monitor(database, database_url, epoch)
    await lease.close()


async def test_a_rollout_that_cannot_be_read_keeps_no_other_from_its_step(monitor):
    broken = await monitor.start("broken")
    await monitor.start("churn")
    # as a database may have it that was damaged before its rows were guarded
    await monitor.database.execute("ALTER TABLE Rollout DISABLE TRIGGER rollout_guard")
    await monitor.database.execute("UPDATE Rollout SET state = '{}' WHERE id = $1", broken)

    with pytest.raises(MigrationNeeded, match=f"rollout {broken} of broken cannot be read by this release: "):
        await monitor.tick()

    assert await monitor.weight("churn") == 2


async def test_a_version_that_hangs_in_its_warm_up_keeps_no_other_rollout_waiting(monitor):
    await monitor.start("hung")
    churn = await monitor.start("churn")
    await monitor.tick()
    await monitor.database.execute("UPDATE ServingPolicy SET challenger_weight = 0 WHERE model_name = 'churn'")

    ticking = asyncio.create_task(monitor.tick())
    async with asyncio.timeout(ENOUGH_SECONDS):
        while (await monitor.store.view(churn)).record.finished_at is None:  # noqa: ASYNC110 - Postgres has no event
            await asyncio.sleep(0.05)

    assert not ticking.done()
    ticking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ticking


async def test_an_order_ends_the_incident_that_people_were_told_of(monitor):
    churn = await monitor.start("churn")
    await monitor.tick()
    await monitor.database.execute("UPDATE ServingPolicy SET challenger_weight = 30")
    await monitor.tick()
    await monitor.tick()
    before = await monitor.told()

    await apply_command(monitor.store, churn, Command(CommandKind.RESUME, "kim"))
    await monitor.tick()
    await monitor.tick()

    assert before == [("rollout_needs_human", "trigger")]
    assert await monitor.told() == [*before, ("rollout_needs_human", "resolve")]


@pytest.mark.parametrize("kind", [CommandKind.PAUSE, CommandKind.RESUME, CommandKind.PROMOTE])
async def test_a_command_swallows_no_page_for_a_change_that_was_not_alerted_yet(monitor, kind):
    churn = await monitor.start("churn")
    await monitor.tick()
    await monitor.database.execute("UPDATE ServingPolicy SET challenger_weight = 30")
    before = await monitor.store.view(churn)

    said = await apply_command(monitor.store, churn, Command(kind, "kim"))
    after = await monitor.store.view(churn)
    await monitor.tick()

    assert said.event.startswith(
        "not carried out, the monitor acts first: the policy was changed outside the rollout: generation"
    )
    assert said.event.endswith("; give the command again after its next tick, or abort")
    assert (after.record.revision, after.record.state) == (before.record.revision, before.record.state)
    assert await monitor.told() == [("rollout_needs_human", "trigger")]


async def test_an_order_swallows_no_page_for_a_step_whose_time_is_over(monitor):
    churn = await monitor.start("churn")
    await monitor.tick()
    await monitor.database.execute("UPDATE Rollout SET state = jsonb_set(state, '{limit_from}', '1.0')")

    said = await apply_command(monitor.store, churn, Command(CommandKind.RESUME, "kim"))
    before = await monitor.told()
    await monitor.tick()

    assert said.event.startswith("not carried out, the monitor acts first: the time of the step at 2 % is over; ")
    assert before == []
    assert await monitor.told() == [("rollout_stalled", "trigger")]


async def test_a_paused_rollout_that_is_ended_by_hand_is_ended_by_the_monitor_and_not_by_an_order(monitor):
    churn = await monitor.start("churn")
    await monitor.tick()
    await apply_command(monitor.store, churn, Command(CommandKind.PAUSE, "kim"))
    await monitor.database.execute("UPDATE ServingPolicy SET challenger_weight = 0")

    said = await apply_command(monitor.store, churn, Command(CommandKind.RESUME, "kim"))
    is_open = (await monitor.store.view(churn)).record.finished_at is None
    await monitor.tick()

    assert said.event.startswith("not carried out, the monitor acts first: rolled back by hand: ")
    assert is_open
    assert (await monitor.store.view(churn)).record.finished_at is not None


async def test_a_rollout_that_is_aborted_while_it_waits_leaves_no_incident_behind(monitor):
    churn = await monitor.start("churn")
    await monitor.tick()
    await monitor.database.execute("UPDATE ServingPolicy SET challenger_weight = 30")
    await monitor.tick()

    await apply_command(monitor.store, churn, Command(CommandKind.ABORT, "kim"))
    await monitor.tick()

    assert await monitor.told() == [("rollout_needs_human", "trigger"), ("rollout_needs_human", "resolve")]


async def a_proxy(monitor: Monitor, instance: str, generation: int, seconds_ago: float) -> None:
    await monitor.database.execute(
        "INSERT INTO ProxyInstance (instance, generations, seen_at)"
        " VALUES ($1, jsonb_build_object('churn', $2::int), now() - make_interval(secs => $3))",
        instance,
        generation,
        seconds_ago,
    )


async def aborted(monitor: Monitor) -> int:
    churn = await monitor.start("churn")
    await monitor.tick()
    await apply_command(monitor.store, churn, Command(CommandKind.ABORT, "kim"))
    return churn


async def test_an_end_that_no_live_proxy_can_confirm_is_written_down_as_that_at_once(monitor):
    churn = await aborted(monitor)

    await monitor.tick()

    assert await monitor.store.open_ids() == []
    told = (await monitor.store.events(churn))[-1]
    assert told.reason == "no live proxy: the end is unconfirmed"
    assert (told.inputs["proxies"], told.inputs["in_flight"]) == (0, None)


async def test_while_the_reports_are_locked_rollouts_are_looked_at_and_an_end_is_announced_late(monitor, database_url):
    visits = await monitor.start("visits")
    churn = await aborted(monitor)
    await a_proxy(monitor, "live:1", 1_000, 0)

    async with locked_reports(database_url):
        await monitor.tick()
        before = await monitor.store.open_ids()
        await monitor.database.execute(
            "UPDATE Rollout SET finished_at = now() - INTERVAL '31 seconds' WHERE id = $1", churn
        )
        await monitor.tick()
        view = await monitor.store.view(visits)
        tried = await monitor.store.roll_back("visits", ACTOR)

    assert (before, (view.proxies, view.proxies_hidden, view.in_flight)) == ([visits, churn], (0, True, {}))
    assert tried.did == "weight 0"
    told = (await monitor.store.events(churn))[-1]
    assert told.reason == (
        "which proxies are live is unknown, since another session keeps ProxyInstance locked: the end is unconfirmed"
    )
    assert not (await monitor.store.view(visits)).proxies_hidden


async def test_the_record_of_a_rollback_names_who_may_still_send_traffic_by_the_old_policy(monitor):
    churn = await aborted(monitor)
    await a_proxy(monitor, "live:1", 1_000, 0)
    await a_proxy(monitor, "frozen:1", 2, 150)

    await monitor.tick()

    told = (await monitor.store.events(churn))[-1]
    assert told.reason.startswith("1 of 1 live proxies have confirmed the end after ")
    assert "; 1 stale proxy may still send traffic by the old policy: frozen:1, no report for 2 m 3" in told.reason
    assert (told.inputs["proxies"], told.inputs["proxies_on_generation"]) == (1, 1)
    assert [proxy["instance"] for proxy in told.inputs["silent"]["first"]] == ["frozen:1"]


async def test_the_record_of_a_success_counts_no_calls_of_the_new_champion_as_left_over(monitor):
    churn = await monitor.start("churn", keep_warm_seconds=0)
    await monitor.tick()
    while (view := await monitor.store.view(churn)).record.state.promoted_at is None:
        await apply_command(monitor.store, churn, Command(CommandKind.PROMOTE, "kim"))
    await a_proxy(monitor, "live:1", 1_000, 0)
    await monitor.database.execute(
        "UPDATE ProxyInstance SET in_flight = jsonb_build_object($1::text, 40)", str(view.record.challenger_id)
    )

    await monitor.tick()
    await monitor.tick()

    told = (await monitor.store.events(churn))[-1]
    assert re.fullmatch(r"1 of 1 live proxies have confirmed the end after \d+\.\d s", told.reason)
    assert told.inputs["in_flight"] is None


async def test_a_proxy_that_turns_stale_after_the_end_is_waited_for_as_long_as_any_other(monitor):
    churn = await aborted(monitor)
    await monitor.database.execute("UPDATE Rollout SET finished_at = now() - INTERVAL '15 seconds'")
    await a_proxy(monitor, "live:1", 1_000, 0)
    await a_proxy(monitor, "frozen:1", 2, 35)

    await monitor.tick()
    before = await monitor.store.open_ids()
    await monitor.database.execute("UPDATE Rollout SET finished_at = now() - INTERVAL '31 seconds'")
    await monitor.tick()

    assert (before, await monitor.store.open_ids()) == ([churn], [])
    assert "frozen:1, no report for" in (await monitor.store.events(churn))[-1].reason


async def test_outcomes_that_cannot_be_counted_in_time_cost_no_other_rollout_its_own(monitor):
    slow, churn = await monitor.start("slow", "converted"), await monitor.start("churn", "converted")
    await monitor.tick()
    same = Difference(200, 200, 200, 200, 0.5, 0.5, 0.0, 0.25, 0.25)

    hangs = asyncio.Event()

    async def measure(view: RolloutView, _limit: OutcomeLimit) -> Difference | None:
        if view.record.id == slow:
            hangs.set()
            await asyncio.Event().wait()
        return same

    guard = OutcomeCheck(monitor.store, measure)
    for _ in range(2):
        hangs.clear()
        ticking = asyncio.create_task(guard.tick(monitor.epoch))
        await asyncio.wait_for(hangs.wait(), ENOUGH_SECONDS)
        ticking.cancel()  # as the monitor does at the end of a tick's time
        with pytest.raises(asyncio.CancelledError):
            await ticking

    assert guard.latest(churn) == (same,)


async def test_outcomes_that_cannot_be_counted_keep_the_last_measurement(monitor):
    churn = await monitor.start("churn", "converted")
    await monitor.tick()
    same = Difference(200, 200, 200, 200, 0.5, 0.5, 0.0, 0.25, 0.25)
    answers: list[Difference | Exception] = [same, RegistryUnavailable("away"), OverflowError("too large")]

    async def measure(_: RolloutView, _limit: OutcomeLimit) -> Difference | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    guard = OutcomeCheck(monitor.store, measure)
    await guard.tick(monitor.epoch)
    for error in (RegistryUnavailable, OverflowError):
        with pytest.raises(error):
            await guard.tick(monitor.epoch)

    assert guard.latest(churn) == (same,)
