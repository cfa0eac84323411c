"""Rollouts in Postgres: a transition is carried out whole, once, and only on what it was decided on."""

import asyncio
from typing import Any, NamedTuple

import asyncpg
import orjson
import pytest

from understudy.adapters.postgres.connections.checkup import examine_postgres
from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.metric_samples import MetricPoint
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import (
    Command,
    CommandKind,
    Observation,
    Phase,
    Transition,
    WarmUpResult,
)
from understudy.core.rollout.state_machine import next_step
from understudy.core.routing.proxy_liveness import LIVE_SECONDS
from understudy.errors import GenerationMoved, LeadershipLost, NotRegistered, PolicyRefused
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, NewRolloutEvent, RolloutView
from understudy.rollout.commands import apply_command
from understudy.rollout.propagation import wait_for_propagation

ACTOR = Actor("dana", "cli", "weekly retrain")
EVENT = NewRolloutEvent("monitor", Verdict.HOLD, [{"check": "error_rate"}], {"now": 1.5}, {"alpha": 0.01})


class World(NamedTuple):
    store: PostgresRolloutStore
    database: asyncpg.Connection


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> World:
    for version in ("6", "7"):
        await database.execute(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " VALUES ('churn', $1, 'file:///m', 'sklearn', '{}')",
            version,
        )
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, salt) "
        "SELECT 'churn', id, 'spring' FROM ModelVersion WHERE version = '6'"
    )
    return World(PostgresRolloutStore(database_url, timeout_seconds=5), database)


async def started(world: World, salt: str | None = "fresh") -> RolloutView:
    new = NewRollout("churn", "7", NAMED_PLANS["default"], salt, 12_000)
    record = await world.store.start(new, ACTOR)
    return await world.store.view(record.id)


def after(view: RolloutView, **seen: Any) -> Transition:
    return next_step(view.record.state, Observation(now=view.read_at, policy=view.policy, **seen))


async def moved_on(world: World, view: RolloutView, **seen: Any) -> RolloutView:
    assert await world.store.apply(view, after(view, **seen), EVENT)
    return await world.store.view(view.record.id)


async def policy_of(world: World) -> dict[str, Any]:
    row = await world.database.fetchrow(
        """SELECT c.version AS champion, v.version AS challenger, p.challenger_weight, p.salt, p.rollout_id,
                  p.generation
           FROM ServingPolicy p JOIN ModelVersion c ON c.id = p.champion_version
           LEFT JOIN ModelVersion v ON v.id = p.challenger_version"""
    )
    assert row is not None
    return dict(row)


async def promoted(world: World) -> RolloutView:
    view = await moved_on(world, await started(world), warm_up=WarmUpResult(passed=True))
    while view.record.state.phase is Phase.PROGRESSING:
        view = await moved_on(world, view, command=Command(CommandKind.PROMOTE, "dana"))
    return view


async def test_a_rollout_begins_with_its_challenger_at_weight_0_under_a_fresh_salt(world):
    view = await started(world)

    policy = await policy_of(world)
    assert (policy["champion"], policy["challenger"], policy["challenger_weight"]) == ("6", "7", 0)
    assert (policy["salt"], policy["rollout_id"]) == ("fresh", view.record.id)
    assert (view.record.state.phase, view.record.slow_us, view.record.reason) == (
        Phase.PROGRESSING,
        12_000,
        "weekly retrain",
    )
    seen = await world.store.record(view.record.id)
    assert (seen.record, seen.read_at >= view.read_at) == (view.record, True)
    assert [event.reason for event in await world.store.events(view.record.id)] == ["begins"]
    assert await world.store.open_ids() == [view.record.id] == [await world.store.latest_id("churn")]


@pytest.mark.parametrize(
    ("model", "version", "generation", "refusal"),
    [
        ("fraud", "7", None, (NotRegistered, "fraud has no serving policy")),
        ("churn", "9", None, (NotRegistered, "churn has no version '9'")),
        ("churn", "6", None, (PolicyRefused, "version 6 is the champion of churn already")),
        ("churn", "7", 5, (GenerationMoved, "the policy of churn is at generation 1")),
    ],
)
async def test_a_rollout_that_cannot_begin_says_why_and_changes_nothing(world, model, version, generation, refusal):
    error, why = refusal
    before = await policy_of(world)

    with pytest.raises(error, match=why):
        await world.store.start(
            NewRollout(model, version, NAMED_PLANS["default"], "fresh", None), ACTOR, expected_generation=generation
        )

    assert await policy_of(world) == before
    assert await world.store.open_ids() == []


async def test_a_model_has_one_open_rollout(world):
    await started(world)

    with pytest.raises(PolicyRefused, match="has an open rollout"):
        await started(world)


async def test_a_step_changes_policy_state_event_and_alerts_together(world):
    view = await started(world)
    alert = AlertEvent(AlertAction.CHANGE, AlertKind.ROLLOUT_MOVED, "test", "churn", "moved", view.read_at)

    applied = await world.store.apply(view, after(view, warm_up=WarmUpResult(passed=True)), EVENT, [alert])

    assert applied
    now = await world.store.view(view.record.id)
    assert (now.policy, now.record.state.step_starts) == (now.record.state.policy, (view.read_at,))
    assert now.weights_percent[now.policy.generation] == 2
    (event,) = (await world.store.events(view.record.id))[1:]
    assert (event.verdict, event.evidence, event.inputs, event.thresholds) == (
        EVENT.verdict,
        [{"check": "error_rate"}],
        {"now": 1.5},
        {"alpha": 0.01},
    )
    assert await world.database.fetchval("SELECT dedup_key FROM AlertOutbox") == "understudy/test/churn/rollout_moved"
    said = await world.database.fetchval("SELECT via || ': ' || reason FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    assert said == f"rollout: {event.reason}"


async def test_a_transition_is_carried_out_once_whoever_tries_it_again(world):
    view = await started(world)
    transition = after(view, warm_up=WarmUpResult(passed=True))
    assert await world.store.apply(view, transition, EVENT)

    again = await world.store.apply(view, transition, EVENT)

    assert not again
    assert (await policy_of(world))["challenger_weight"] == 2
    assert len(await world.store.events(view.record.id)) == 2


async def test_a_change_by_somebody_else_between_look_and_write_is_not_overwritten(world):
    view = await started(world)
    await world.database.execute("UPDATE ServingPolicy SET shadow_percent = 50")

    applied = await world.store.apply(view, after(view, warm_up=WarmUpResult(passed=True)), EVENT)

    assert not applied
    assert (await policy_of(world))["challenger_weight"] == 0
    assert len(await world.store.events(view.record.id)) == 1


async def test_a_share_that_is_given_between_look_and_abort_does_not_outlive_the_rollout(world):
    view = await started(world)
    decided = after(view, command=Command(CommandKind.ABORT, "kim"))
    await world.database.execute("UPDATE ServingPolicy SET challenger_weight = 1")

    applied = await world.store.apply(view, decided, EVENT)
    await apply_command(world.store, view.record.id, Command(CommandKind.ABORT, "kim"))

    assert not applied
    assert (await policy_of(world))["challenger_weight"] == 0


async def test_a_champion_that_comes_back_between_look_and_abort_is_not_left_as_if_it_were_another(world):
    view = await promoted(world)
    await world.database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('churn', '8', 'file:///m', 'sklearn', '{}')"
    )
    champion = "UPDATE ServingPolicy SET champion_version = (SELECT id FROM ModelVersion WHERE version = $1)"
    await world.database.execute(champion, "8")
    view = await world.store.view(view.record.id)
    decided = after(view, command=Command(CommandKind.ABORT, "kim"))
    await world.database.execute(champion, "7")

    applied = await world.store.apply(view, decided, EVENT)
    await apply_command(world.store, view.record.id, Command(CommandKind.ABORT, "kim"))

    assert "is no longer the rollout's" in decided.event
    assert not applied
    assert (await policy_of(world))["champion"] == "6"


async def test_a_change_that_sends_no_call_elsewhere_holds_no_end_up(world):
    view = await started(world)
    decided = after(view, command=Command(CommandKind.ABORT, "kim"))
    await world.database.execute("UPDATE ServingPolicy SET shadow_percent = 50")

    assert await world.store.apply(view, decided, EVENT)
    assert (await policy_of(world))["rollout_id"] is None


async def test_a_monitor_whose_lease_is_over_writes_nothing(world, database_url):
    lease = PostgresLease(database_url)
    epoch = await lease.take_or_renew("here")
    view = await started(world)
    transition = after(view, warm_up=WarmUpResult(passed=True))

    with pytest.raises(LeadershipLost):
        await world.store.apply(view, transition, EVENT, epoch=(epoch or 0) - 1)

    assert (await policy_of(world))["challenger_weight"] == 0
    assert await world.store.apply(view, transition, EVENT, epoch=epoch)
    await lease.close()


async def test_a_minute_of_a_metric_is_stored_once_by_the_monitor_that_leads_alone(world, database_url):
    lease = PostgresLease(database_url)
    epoch = await lease.take_or_renew("here")
    record = (await started(world)).record
    champion, challenger = MetricPoint(0, 600, 1.0), MetricPoint(0, 600, 2.0, is_challenger=True)

    with pytest.raises(LeadershipLost):
        await world.store.add_metric_points(record, [champion], epoch=(epoch or 0) - 1)
    await world.store.add_metric_points(record, [champion._replace(value=9.0)], epoch=epoch)
    await world.store.add_metric_points(record, [champion._replace(value=5.0), champion, challenger], epoch=epoch)

    assert sorted(await world.store.metric_points(record, 0)) == [champion, challenger]
    assert await world.store.metric_points(record, 601) == []
    await lease.close()


async def test_a_rollback_gives_the_policy_back_its_salt_and_leaves_the_challenger_at_weight_0(world):
    view = await moved_on(world, await started(world), warm_up=WarmUpResult(passed=True))

    view = await moved_on(world, view, decision=Decision(Verdict.ROLL_BACK, "errors"))

    policy = await policy_of(world)
    assert (policy["challenger"], policy["challenger_weight"], policy["salt"], policy["rollout_id"]) == (
        "7",
        0,
        "spring",
        None,
    )
    assert view.record.state.phase is Phase.FAILED
    assert view.record.finished_at is not None
    assert await world.store.open_ids() == [view.record.id]
    await world.store.announce(view, "6 of 6 live proxies", EVENT)
    assert await world.store.open_ids() == []


async def test_a_promotion_flips_the_champion_in_one_change_and_retires_the_old_one_later(world):
    view = await promoted(world)
    flipped = await policy_of(world)

    warm = after(view)
    seen = Observation(now=view.read_at + 7_200, policy=view.policy, proxies=1, proxies_on_generation=1)
    later = next_step(view.record.state, seen)
    assert await world.store.apply(view, later, EVENT)

    assert (flipped["champion"], flipped["challenger"], flipped["challenger_weight"]) == ("7", None, 0)
    assert warm.actions == ()
    assert await world.database.fetchval("SELECT status FROM ModelVersion WHERE version = '6'") == "retired"
    assert (await world.store.view(view.record.id)).record.state.phase is Phase.SUCCEEDED


async def test_a_rollback_by_hand_sets_weight_0_and_doing_it_again_changes_nothing(world):
    await moved_on(world, await started(world), warm_up=WarmUpResult(passed=True))

    first = await world.store.roll_back("churn", Actor("kim", "cli", "it burns"))
    second = await world.store.roll_back("churn", Actor("kim", "cli", "it burns"))

    assert (first.changed, first.did, first.challenger) == (True, "weight 0", "7")
    assert not second.changed
    assert second.generation == first.generation
    assert await world.database.fetchval("SELECT reason FROM PolicyAudit ORDER BY id DESC LIMIT 1") == "it burns"


async def test_a_rollback_by_hand_after_a_promotion_puts_the_old_champion_back(world):
    view = await promoted(world)

    done = await world.store.roll_back("churn", Actor("kim", "cli"))

    again = await world.store.roll_back("churn", Actor("kim", "cli"))

    assert (done.did, done.champion, done.challenger) == ("previous champion back", "6", "7")
    assert (again.changed, again.champion) == (False, "6")
    seen = (await world.store.view(view.record.id)).policy
    assert next_step(view.record.state, Observation(now=view.read_at, policy=seen)).state.phase is Phase.FAILED


async def test_a_rollback_that_is_only_tried_says_what_it_would_do_and_does_nothing(world):
    await promoted(world)
    before = await policy_of(world)

    tried = await world.store.roll_back("churn", ACTOR, dry_run=True)

    assert (tried.did, tried.champion) == ("previous champion back", "6")
    assert await policy_of(world) == before


async def test_a_trial_that_ended_beside_a_warm_champion_is_the_newest_move_and_no_promotion_is_taken_back(world):
    await promoted(world)
    third = await another_version(world)
    await world.database.execute("UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10", third)

    first = await world.store.roll_back("churn", ACTOR)
    again = [await world.store.roll_back("churn", ACTOR) for _ in range(3)]

    assert (first.did, first.champion) == ("weight 0", "7")
    assert {(done.changed, done.champion) for done in again} == {(False, "7")}


async def test_a_champion_set_by_hand_beside_a_warm_one_gives_way_once(world):
    await promoted(world)
    third = await another_version(world)
    await world.database.execute("UPDATE ServingPolicy SET champion_version = $1", third)

    first = await world.store.roll_back("churn", ACTOR)
    again = [await world.store.roll_back("churn", ACTOR) for _ in range(3)]

    assert (first.did, first.champion) == ("previous champion back", "7")
    assert {(done.changed, done.champion) for done in again} == {(False, "7")}


async def test_a_rollback_while_a_rollout_warms_up_leaves_the_champion_that_was_there_before_it(world):
    older = await world.database.fetchval("SELECT champion_version FROM ServingPolicy")
    third = await another_version(world)
    for champion in (third, older, third):
        await world.database.execute("UPDATE ServingPolicy SET champion_version = $1", champion)
    view = await started(world)

    done = await world.store.roll_back("churn", ACTOR)

    assert (done.champion, done.did) == (
        "9",
        f"nothing: rollout {view.record.id} has no share of the traffic, and the champion was there before it",
    )


async def another_version(world: World) -> int:
    found: int = await world.database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('churn', '9', 's3://models', 'onnx', '{}') RETURNING id"
    )
    return found


async def test_no_rollout_starts_beside_further_arms_and_none_is_left_behind(world):
    arm = await another_version(world)
    ranges = [{"version_id": arm, "first": 90, "last": 99}]
    await world.database.execute("UPDATE ServingPolicy SET arms = $1", orjson.dumps(ranges).decode())

    with pytest.raises(PolicyRefused, match="further arms, so no rollout can begin") as refused:
        await started(world)

    assert "arms = '[]'" in refused.value.next_step
    assert await world.store.open_ids() == await world.store.guard_ids()  # that of the arm, and it is still there
    assert len(await world.store.guard_ids()) == 1


async def test_a_rollback_of_a_model_without_policy_is_refused_with_a_hint(world):
    await world.database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('fraud', '1', 'x', 'sklearn', '{\"features\": [\"v\"]}')"
    )

    with pytest.raises(PolicyRefused, match="nothing to roll back") as refused:
        await world.store.roll_back("fraud", ACTOR)

    assert "understudy_status" in refused.value.next_step


async def test_proxies_and_their_calls_in_flight_are_seen_while_they_are_live(world):
    view = await started(world)
    generation = view.policy.generation if view.policy else 0
    for name, at, flying, seen in (
        ("a", generation, {7: 2}, "now()"),
        ("b", generation - 1, {7: 1, 9: 4}, "now()"),
        ("gone", 1, {7: 50}, "now() - interval '1 minute'"),
    ):
        await world.database.execute(
            f"INSERT INTO ProxyInstance (instance, generations, in_flight, seen_at) VALUES ($1, $2, $3, {seen})",
            name,
            orjson.dumps({"churn": at}).decode(),
            orjson.dumps(flying, option=orjson.OPT_NON_STR_KEYS).decode(),
        )

    view = await world.store.view(view.record.id)

    assert (view.proxies, view.proxies_on_generation, view.in_flight) == (2, 1, {7: 3, 9: 4})
    assert [proxy.instance for proxy in view.stale.first] == ["gone"]
    assert 60 <= view.stale.first[0].seconds < 120


@pytest.mark.parametrize(
    ("generations", "in_flight", "seen_at"),
    [
        ('{"churn": "abc"}', "{}", "now()"),
        ('{"churn": 1e400}', "{}", "now()"),
        ('{"churn": 99999999999999999999999}', "{}", "now()"),
        ('{"churn": null}', "{}", "now()"),
        ('{"churn": {"a": 1}}', "{}", "now()"),
        ('{"churn": [1]}', "{}", "now()"),
        ('{"churn": 1.5}', "{}", "now()"),
        ("[1, 2]", "[1]", "now()"),
        ('"x"', "5", "now()"),
        ("{}", '{"1": "zz"}', "now()"),
        ("{}", '{"1": null}', "now()"),
        ("{}", '{"one": 1}', "now()"),
        ("{}", '{"1": -1e300}', "now()"),
        ("{}", "{}", "'infinity'"),
        ("{}", "{}", "now() + INTERVAL '9 years'"),
    ],
)
async def test_a_report_that_no_proxy_wrote_is_left_out_and_stops_neither_the_monitor_nor_an_operator(
    world, database_url, generations, in_flight, seen_at
):
    view = await started(world)
    generation = view.policy.generation if view.policy else 0
    # As a row of before migration 0016, which refuses most of them.
    await world.database.execute("DROP TRIGGER IF EXISTS proxyinstance_readable ON ProxyInstance")
    add = f"INSERT INTO ProxyInstance (instance, generations, in_flight, seen_at) VALUES ($1, $2, $3, {seen_at})"
    await world.database.execute(add, "evil", generations, in_flight)
    await world.database.execute(
        add.replace(seen_at, "now()"), "good", orjson.dumps({"churn": generation}).decode(), '{"7": 2}'
    )

    left_out: list[tuple[str, int]] = []
    store = PostgresRolloutStore(database_url, timeout_seconds=5, on_unusable=lambda *told: left_out.append(told))
    view = await store.view(view.record.id)
    reach = await store.reach("churn")
    proxies = (await examine_postgres(database_url, 0.0)).proxies

    assert (view.proxies, view.proxies_on_generation, view.in_flight) == (1, 1, {7: 2})
    assert (reach.proxies, reach.proxies_on_generation, reach.in_flight) == (1, 1, {7: 2})
    assert {proxy.instance for proxy in proxies} >= {"good"}
    assert left_out == [("ProxyInstance", 1)] * 2


async def turned_stale(world: World, instance: str, generation: int, seconds_ago: float) -> None:
    await world.database.execute(
        "INSERT INTO ProxyInstance (instance, generations, seen_at)"
        " VALUES ($1, jsonb_build_object('churn', $2::int), now() - make_interval(secs => $3))",
        instance,
        generation,
        seconds_ago,
    )


async def test_a_stale_proxy_is_named_until_it_is_forgotten_unless_it_had_confirmed_the_generation(world):
    view = await started(world)
    generation = view.policy.generation if view.policy else 0
    await turned_stale(world, "behind", generation - 1, 90)
    await turned_stale(world, "abreast", generation, 60)
    await turned_stale(world, "forgotten", 1, 25 * 3600)

    view = await world.store.view(view.record.id)
    reach = await world.store.reach("churn", generation + 1)

    assert (view.proxies, view.stale.count, view.all_stale.count, reach.stale.count) == (0, 1, 2, 2)
    assert [proxy.instance for proxy in view.stale.first] == ["behind"]
    assert [proxy.instance for proxy in view.all_stale.first] == ["abreast", "behind"]
    assert [proxy.instance for proxy in reach.stale.first] == ["abreast", "behind"]


async def test_of_many_stale_proxies_the_latest_five_are_named(world):
    view = await started(world)
    for number in range(8):
        await turned_stale(world, f"web-{number}", 1, 3600 - number * 60)

    stale = (await world.store.view(view.record.id)).stale

    assert stale.count == 8
    assert [proxy.instance for proxy in stale.first] == ["web-7", "web-6", "web-5", "web-4", "web-3"]


async def test_without_a_live_proxy_nobody_confirms_and_nobody_is_waited_for(world):
    generation = (await world.store.roll_back("churn", ACTOR)).generation + 1
    await turned_stale(world, "frozen:1", generation - 1, 120)

    async with asyncio.timeout(60):
        confirmed, _ = await wait_for_propagation(world.store, "churn", generation, patience_seconds=3600)

    assert (confirmed.proxies, confirmed.proxies_on_generation, confirmed.seconds) == (0, 0, None)
    assert [proxy.instance for proxy in confirmed.stale.first] == ["frozen:1"]


async def test_a_proxy_that_turns_stale_while_it_is_waited_for_has_not_confirmed(world):
    generation = (await world.store.roll_back("churn", ACTOR)).generation + 1
    await turned_stale(world, "live:1", generation, -3600)
    await turned_stale(world, "frozen:1", generation - 1, LIVE_SECONDS - 2)

    confirmed, _ = await wait_for_propagation(world.store, "churn", generation, patience_seconds=4)

    assert (confirmed.proxies, confirmed.proxies_on_generation, confirmed.seconds) == (1, 1, None)
    assert [proxy.instance for proxy in confirmed.stale.first] == ["frozen:1"]


async def test_a_proxy_that_was_stale_before_is_not_waited_for(world):
    generation = (await world.store.roll_back("churn", ACTOR)).generation + 1
    await turned_stale(world, "live:1", generation, -3600)
    await turned_stale(world, "killed:1", generation - 1, 120)

    async with asyncio.timeout(60):
        confirmed, _ = await wait_for_propagation(world.store, "churn", generation, patience_seconds=3600)

    assert (confirmed.proxies, confirmed.proxies_on_generation, confirmed.seconds is None) == (1, 1, False)
    assert confirmed.stale.count == 1


async def test_a_rollback_is_confirmed_by_proxies_and_not_by_the_change_that_follows_it(world):
    await world.database.execute("INSERT INTO ProxyInstance (instance, generations) VALUES ('a', '{\"churn\": 1}')")
    generation = (await world.store.roll_back("churn", ACTOR)).generation + 1
    for percent in (50, 60):
        await world.database.execute("UPDATE ServingPolicy SET shadow_percent = $1", percent)

    before, _ = await wait_for_propagation(world.store, "churn", generation, patience_seconds=0)
    await world.database.execute(
        "UPDATE ProxyInstance SET generations = jsonb_build_object('churn', $1::int)", generation
    )
    after_it, reach = await wait_for_propagation(world.store, "churn", generation, patience_seconds=0)

    assert (before.proxies, before.proxies_on_generation, before.seconds) == (1, 0, None)
    assert (after_it.proxies_on_generation, after_it.seconds is None) == (1, False)
    assert reach.generation == generation + 1
    assert (await world.store.reach("churn")).proxies_on_generation == 0


async def test_the_threshold_of_a_slow_call_is_set_once_and_told_to_the_proxies(world, database_url):
    record = await world.store.start(NewRollout("churn", "7", NAMED_PLANS["default"], None, None), ACTOR)
    listener = await asyncpg.connect(database_url)
    heard: list[str] = []
    await listener.add_listener("understudy_policy", lambda *said: heard.append(said[3]))

    await world.store.set_slow_us(record.id, 9_000)
    await world.store.set_slow_us(record.id, 1)

    assert (await world.store.view(record.id)).record.slow_us == 9_000
    await listener.execute("SELECT 1")
    assert heard == ['{"model" : "churn"}']
    listener.terminate()


@pytest.mark.parametrize("way", ["sql", "monitor", "abort"])
async def test_an_old_champion_that_is_shown_calls_as_a_shadow_comes_back_all_the_same(world, way):
    view = await promoted(world)
    await world.database.execute(
        "UPDATE ServingPolicy SET shadow_version = (SELECT id FROM ModelVersion WHERE version = '6')"
    )
    view = await world.store.view(view.record.id)

    if way == "sql":
        await world.database.execute("SELECT understudy_rollback('churn')")
    elif way == "abort":
        await apply_command(world.store, view.record.id, Command(CommandKind.ABORT, "kim"))
    else:
        await moved_on(world, view, decision_after_promotion=Decision(Verdict.ROLL_BACK, "errors"))

    policy = await policy_of(world)
    assert (policy["champion"], policy["challenger"], policy["challenger_weight"]) == ("6", "7", 0)
    assert await world.database.fetchval("SELECT shadow_version FROM ServingPolicy") is None


async def test_an_old_champion_is_not_retired_by_hand_while_it_is_kept_warm(world):
    view = await promoted(world)
    retire = "UPDATE ModelVersion SET status = 'retired' WHERE version = '6'"

    with pytest.raises(asyncpg.CheckViolationError, match="is kept warm by rollout"):
        await world.database.execute(retire)

    await apply_command(world.store, view.record.id, Command(CommandKind.ABORT, "kim"))
    await world.database.execute(
        "UPDATE ServingPolicy SET champion_version = challenger_version, challenger_version = NULL, guard = 'off'"
    )
    await world.database.execute(retire)


@pytest.mark.parametrize(
    ("by_hand", "salt"),
    [
        ("challenger_weight = 30", "spring"),
        ("challenger_weight = 30, salt = 'mine'", "mine"),
        ("challenger_version = NULL, challenger_weight = 0, salt = 'mine'", "mine"),
        ("challenger_version = (SELECT id FROM ModelVersion WHERE version = '8'), salt = 'mine'", "mine"),
        ("challenger_version = (SELECT id FROM ModelVersion WHERE version = '8')", "fresh"),
    ],
)
async def test_the_end_of_a_rollout_deals_nobody_elses_entities_out_anew(world, by_hand, salt):
    view = await moved_on(world, await started(world), warm_up=WarmUpResult(passed=True))
    await world.database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('churn', '8', 'file:///m', 'sklearn', '{}')"
    )
    await world.database.execute(f"UPDATE ServingPolicy SET {by_hand}")

    await apply_command(world.store, view.record.id, Command(CommandKind.ABORT, "kim"))

    assert (await policy_of(world))["salt"] == salt
    assert (await policy_of(world))["rollout_id"] != view.record.id  # nor that of a guard that a share is left to
