"""Rollouts from the command line, against a real Postgres and a real model server; no monitor moves anything here."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from getpass import getuser
from typing import Any

import numpy as np
import pytest
from command import CommandLine, Done
from e2e.stack import register, sql
from failing.locked_reports import locked_reports
from traffic.logged import LoggedTraffic, scored_rows
from worlds.experiment import World

from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.connection_urls import postgres_user
from understudy.core.rollout.state import Observation, Phase
from understudy.core.rollout.state_machine import next_step
from understudy.ports.rollout.rollout_store import NewRolloutEvent


@pytest.fixture(autouse=True)
async def _registered(database_url: str, model_port: Callable[[str], int]) -> None:
    """Model ``visits``: champion 1, version 2, which answers, 3, which does not, and 4, which is retired."""
    champion = await register(database_url, 1, [model_port("visits:1")])
    await register(database_url, 2, [model_port("visits:2")])
    await register(database_url, 3, [1])
    retired = await register(database_url, 4, [1])
    await sql(database_url, "UPDATE ModelVersion SET status = 'retired' WHERE id = $1", retired)
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)


def started(understudy: CommandLine, *more: str) -> Done:
    return understudy(
        "rollout", "start", "visits", "2", "--plan", "5,50,100", "--reason", "retrain", "--yes", "--json", *more
    )


def test_a_rollout_is_planned_started_paused_resumed_and_aborted(understudy):
    planned = understudy("plan", "visits", "2", "--plan", "5,100")
    tried = started(understudy, "--dry-run")
    begun = started(understudy)
    paused = understudy("rollout", "pause", "visits", "--reason", "lunch")
    resumed = understudy("rollout", "resume", "visits", "--reason", "back", "--yes", "--json")
    undecided = understudy("rollout", "wait", "visits", "--timeout", "1s")
    aborted = understudy("rollout", "abort", "visits", "--reason", "no", "--yes", "--json")
    number = str(begun.json["rollout"]["rollout_id"])
    ended = understudy("rollout", "wait", "visits", number, "--json")
    not_its = understudy("rollout", "wait", "digits", number)

    assert planned.code == 0
    assert "The risk is high: " in planned.out
    assert "understudy version register --base-model NAME" in " ".join(planned.out.split())
    assert "gets no traffic" in planned.out
    assert "understudy rollout start visits 2 --plan 5,100" in planned.out
    assert tried.json["rollout"] is None
    assert [step["weight_percent"] for step in begun.json["rollout"]["plan"]["steps"]] == [5, 50, 100]
    assert (paused.code, "paused by" in paused.out) == (0, True)
    assert resumed.json["rollout"]["phase"] == Phase.PROGRESSING
    assert (undecided.code, "undecided at 0 %" in undecided.out) == (6, True)
    assert f"waiting for rollout {number} of visits, 1 → 2" in undecided.err
    assert aborted.json["changed"]
    assert (ended.code, ended.json["rollout"]["phase"], ended.json["ended_by"]) == (3, "FAILED", "abort")
    assert not_its.code == 4


@pytest.fixture
async def four_hundred_tenants(database_url: str) -> int:
    """Two thousand calls of 400 entities in a minute, a quarter of an hour ago; the champion's id."""
    [row] = await sql(database_url, "SELECT champion_version AS id FROM ServingPolicy")
    traffic = LoggedTraffic(database_url)
    await traffic.ship(scored_rows(np.full(2_000, 0.5), float(int(time.time())) - 900, row["id"]))
    await traffic.close()
    return int(row["id"])


@pytest.mark.usefixtures("four_hundred_tenants")
def test_a_ladder_that_cannot_end_is_warned_of_before_the_start_and_not_refused(understudy):
    ladder = ("--plan", "2,10,25,50,100")

    planned = understudy("plan", "visits", "2", *ladder)
    unconfirmed = understudy("rollout", "start", "visits", "2", *ladder, "--reason", "retrain")
    begun = understudy("rollout", "start", "visits", "2", *ladder, "--reason", "retrain", "--yes", "--json")

    said = " ".join(planned.out.split())
    assert "2 % meets about 8 of 400 entities, and the analysis asks for 30" in said
    assert "--plan 10,25,50,100" in said
    assert re.search(r"\b1[\d.]*x\b", said)
    assert unconfirmed.code != 0
    assert "! this ladder cannot end at today's traffic: 2 % meets" in " ".join(unconfirmed.said.split())
    assert begun.code == 0
    told = begun.json["plan"]["forecast"]
    assert (told["seconds"], told["nearest_ladder"]) == (None, [10, 25, 50, 100])
    assert told["warnings"][0].startswith("this ladder cannot end at today's traffic: 2 % meets about 8 of 400")


async def test_outcomes_that_hold_a_step_are_forecast_and_one_that_is_not_known_is_named(
    understudy, database, four_hundred_tenants, tmp_path
):
    await World(database).backdate(86_400)
    await database.execute("UPDATE PredictionLog SET policy_generation = (SELECT generation FROM ServingPolicy)")
    await database.execute(
        "INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at)"
        " SELECT 'e' || entity_id, 'visits', entity_id, 'converted', 1, min(predicted_at) + INTERVAL '1 second'"
        " FROM PredictionLog WHERE entity_id LIKE '%1' GROUP BY entity_id"
    )
    plan = tmp_path / "plan.json"
    outcomes = [
        {"name": name, "limit_ratio": 0.2, "within_seconds": 60, "holds_step": True}
        for name in ("converted", "refunds")
    ]
    plan.write_text(json.dumps({"steps": [10, 50, 100], "canary_limits": {"outcomes": outcomes}}))

    planned = await asyncio.to_thread(understudy, "plan", "visits", "2", "--plan", f"@{plan}", "--json")

    first, *others = planned.json["plan"]["forecast"]["warnings"]
    assert four_hundred_tenants
    assert first.startswith(
        "this ladder cannot end at today's traffic: 10 % waits more than 30 d for outcome converted"
    )
    assert "to be shown at least 0.8x: that takes about " in first
    assert first.endswith("challenger entities, and the last day's calls have 400")
    assert others[-1] == (
        "outcome refunds: what it comes to for the champion is not known, so neither is how long it holds each step"
    )


@pytest.mark.usefixtures("four_hundred_tenants")
async def test_a_log_that_does_not_say_the_entities_in_time_keeps_no_rollout_from_its_plan(understudy, database):
    await database.execute("BEGIN; LOCK TABLE PredictionLog IN ACCESS EXCLUSIVE MODE")

    planned = await asyncio.to_thread(understudy, "plan", "visits", "2", "--json")

    assert planned.code == 0
    told = planned.json["plan"]["forecast"]
    assert told["seconds"] > 0
    assert "how many entities there are is not known" in told["warnings"][0]


def test_freeze_windows_are_added_to_the_plan_kept_with_it_and_what_is_none_is_refused(understudy, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('{"steps": [5, 100], "freezes": ["18:00 - 08:00"]}')
    weekend, all_day = "Fri 18:00 - Mon 08:00 Europe/Berlin", "00:00 - 23:59"
    start = ("rollout", "start", "visits", "2", "--plan", f"@{plan}", "--reason", "retrain", "--yes", "--json")

    planned = understudy("plan", "visits", "2", "--freeze", weekend)
    refused = understudy("plan", "visits", "2", "--freeze", "weekends")
    begun = understudy(*start, "--freeze", weekend)
    understudy("rollout", "abort", "visits", "--reason", "no", "--yes")
    frozen = understudy("plan", "visits", "2", "--plan", f"@{plan}", "--freeze", all_day, "--freeze", "23:00 - 01:00")

    assert f"No step is taken: {weekend}." in planned.out
    assert f"--freeze '{weekend}'" in " ".join(planned.out.split())
    assert refused.code == 7
    assert "/freezes/0: expected such as Fri 18:00" in " ".join(refused.said.split())
    assert begun.json["rollout"]["plan"]["freezes"] == ["18:00 - 08:00", weekend]
    assert "/freezes: expected windows that leave a time for steps" in " ".join(frozen.said.split())


def test_different_scores_are_expected_by_the_plan_that_says_so(understudy):
    planned = understudy("plan", "visits", "2", "--plan", "5,100", "--expect-different-scores")
    begun = started(understudy, "--expect-different-scores")
    shown = understudy("rollout", "show", "visits", "--json").document["rollout"]

    assert "--plan 5,100 --expect-different-scores" in planned.said
    assert begun.json["rollout"]["plan"]["expect_different_scores"] is True
    assert shown["plan"]["expect_different_scores"] is True


def test_a_plans_own_salt_is_used_unless_another_is_named(understudy, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('{"steps": [5, 100], "salt": "spring"}')
    start = ("rollout", "start", "visits", "2", "--plan", f"@{plan}", "--reason", "retrain", "--yes", "--json")

    begun = understudy(*start)
    understudy("rollout", "abort", "visits", "--reason", "no", "--yes")
    again = understudy(*start, "--salt", "none")

    assert begun.json["rollout"]["salt"] == "spring"
    assert again.json["rollout"]["salt"] is None


def test_a_rollback_while_a_rollout_warms_up_says_that_it_is_not_over(understudy):
    rollout_id = started(understudy).json["rollout"]["rollout_id"]

    said = understudy("rollback", "visits", "--reason", "it burns", "--yes")

    assert said.code == 1
    assert f"rollout {rollout_id} is not over. → understudy rollout abort visits" in " ".join(said.out.split())


def test_a_rollout_is_shown_within_80_columns(understudy):
    rollout_id = started(understudy).json["rollout"]["rollout_id"]

    listed, shown = understudy("rollout", "list"), understudy("rollout", "show", "visits", str(rollout_id))
    document = understudy("rollout", "show", "visits", "--json").json

    for said in (listed, shown):
        assert said.code == 0
        assert max(map(len, said.out.splitlines())) <= 80
        assert "…" not in said.out
    assert "1 → 2" in listed.out
    assert "begins" in shown.out
    (begins,) = document["events"]
    assert begins["reason"] == "begins"
    for moment in (begins["at"], document["rollout"]["started_at"]):
        assert datetime.fromisoformat(moment).tzinfo is not None


IMPOSSIBLE = [
    (["start", "visits", "9", "--reason", "x", "--yes"], 4, "has no version '9'"),
    (["start", "visits", "1", "--reason", "x", "--yes"], 7, "is the champion of visits already"),
    (["start", "visits", "3", "--reason", "x", "--yes"], 1, "version 3 is not ready"),
    (["start", "visits", "2", "--plan", "5,3", "--reason", "x", "--yes"], 7, "the plan cannot be used"),
    (["start", "visits", "2", "--plan", "@nowhere.json", "--reason", "x", "--yes"], 2, "--plan"),
    (["start", "visits", "2", "--reason", "x"], 2, "there is no terminal to confirm it at"),
    (["start", "visits", "2", "--yes"], 2, "needs a reason"),
    (["start", "visits", "4", "--reason", "x", "--yes"], 7, "is retired and cannot be challenger"),
    (["show", "visits"], 4, "never had a rollout"),
    (["show", "visits", "77"], 4, "understudy rollout list"),
    (["wait", "visits", "--until", "tea"], 2, "is neither"),
    (["pause", "visit", "--reason", "x"], 4, "no model 'visit' is registered; there are: visits"),
    (["watch", "visit"], 4, "no model 'visit' is registered; there are: visits"),
]


def test_what_cannot_be_done_says_why_and_what_next(understudy):
    for arguments, code, says in IMPOSSIBLE:
        said = understudy("rollout", *arguments)

        assert said.code == code, said
        assert says in " ".join(said.err.split()), said
        assert "→" in said.err
    assert "No rollout was started yet" in understudy("rollout", "list").out


def test_a_shadow_is_not_started_before_its_role_is_taken_away(understudy):
    understudy("model", "set", "visits", "--shadow", "2", "--shadow-percent", "5", "--yes", "--reason", "look first")

    said = understudy("rollout", "start", "visits", "2", "--reason", "x", "--yes")
    understudy("model", "set", "visits", "--shadow", "none", "--yes", "--reason", "seen enough")

    assert (said.code, "understudy model set visits --shadow none" in " ".join(said.err.split())) == (7, True)
    assert started(understudy).code == 0


def test_a_rollback_of_a_champion_that_was_set_by_hand_brings_the_one_before_back_and_only_once(understudy):
    understudy("model", "set", "visits", "--champion", "2", "--yes", "--reason", "I trust it")

    asked = understudy("rollback", "visits", "--reason", "it burns")
    first = understudy("rollback", "visits", "--reason", "it burns", "--yes")
    second = understudy("rollback", "visits", "--reason", "it burns", "--yes")
    audit = understudy("audit", "list", "visits", "--limit", "1")

    assert (asked.code, "now: 2 100 %; then 1 answers every call" in " ".join(asked.err.split())) == (2, True)
    assert (first.code, "previous champion back committed as generation 3" in first.out) == (3, True)
    assert second.code == 1
    assert "✖ visits: nothing to roll back: no challenger has weight" in second.out
    assert "1 answers every call" in second.out
    assert "rollback to the champion before: it burns" in audit.out
    assert understudy("model", "show", "visits", "--json").json["model"]["policy"]["champion"] == "1"


async def test_a_rollback_says_of_a_champion_before_that_is_retired_that_it_cannot_come_back(understudy, database_url):
    await understudy.beside("model", "set", "visits", "--champion", "2", "--yes", "--reason", "I trust it")
    await sql(database_url, "UPDATE ServingPolicy SET guard = 'off'")  # a guard keeps the champion before warm
    await sql(database_url, "UPDATE ModelVersion SET status = 'retired' WHERE version = '1'")

    said = await understudy.beside("rollback", "visits", "--reason", "it burns", "--yes", "--json")
    told = await understudy.beside("rollback", "visits", "--reason", "it burns", "--yes")
    restored = await understudy.beside("version", "restore", "visits", "1", "--reason", "it burns")
    back = await understudy.beside("rollback", "visits", "--reason", "it burns", "--yes", "--json")

    assert (said.code, said.json["rollback"]["changed"]) == (1, False)
    assert said.json["rollback"]["did"] == "nothing: version 1, the champion before, is retired"
    assert "understudy version restore visits 1 --reason '…', then understudy rollback visits --reason '…'" in told.said
    assert restored.code == 0
    assert back.json["rollback"]["did"] == "previous champion back"


def test_a_rollback_waits_for_no_reason_also_where_there_is_no_terminal(understudy):
    understudy("model", "set", "visits", "--challenger", "2", "--weight", "20", "--yes", "--reason", "try")

    done = understudy("rollback", "visits", "--yes", "--json")
    audit = understudy("audit", "list", "visits", "--limit", "1", "--json")

    assert (done.code, done.json["rollback"]["did"]) == (3, "weight 0")
    assert (audit.json["audit"][0]["via"], audit.json["audit"][0]["after"]["challenger_weight"]) == ("cli", 0)


def test_a_share_for_a_version_that_was_taken_back_says_so_and_that_no_monitor_would_do_it_again(understudy):
    share = ("model", "set", "visits", "--challenger", "2", "--weight", "20", "--yes", "--reason", "try")
    first = understudy(*share)
    back = understudy("rollback", "visits", "--reason", "it burns", "--yes")
    tried = understudy(*share, "--dry-run")
    again, less = understudy(*share), understudy("model", "set", "visits", "--weight", "5", "--yes", "--reason", "less")

    assert "Earlier, calls" not in first.said
    assert "Earlier, calls" not in back.said
    for said in (tried.said, again.said):
        assert re.search(r"! Earlier, calls of version 2 were taken back by \S+ via cli at [^!]* UTC: it burns", said)
        assert "! No monitor looks at open rollouts and guards: nothing is taken back by itself." in said
    assert "Earlier" not in less.said
    assert "No monitor looks" not in less.said


def test_a_version_that_has_its_calls_again_by_hand_is_warned_of_no_more_and_nor_is_the_one_that_stood_in(understudy):
    share = ("model", "set", "visits", "--challenger", "2", "--yes", "--reason", "try", "--weight")
    understudy(*share, "20")
    understudy("rollback", "visits", "--reason", "it burns", "--yes")
    again, more = understudy(*share, "20"), understudy(*share, "30")
    moves = [
        understudy("model", "set", "visits", "--yes", *roles, "--reason", why)
        for why, roles in (
            ("good", ("--champion", "2", "--challenger", "none", "--weight", "0")),
            ("it burns", ("--champion", "1")),
            ("2 is mended", ("--champion", "2")),
            ("try", ("--challenger", "1", "--weight", "20")),
        )
    ]

    assert "Earlier, calls of version 2 were taken back" in again.said
    assert (more.code, "Earlier" in more.said) == (0, False)
    assert [one.code for one in moves] == [0] * 4
    assert ["Earlier" in one.said for one in moves] == [False, False, True, False]


def test_a_dry_run_of_a_rollback_says_what_would_move_and_moves_nothing(understudy):
    nothing = understudy("rollback", "visits", "--dry-run")
    understudy("model", "set", "visits", "--challenger", "2", "--weight", "20", "--yes", "--reason", "try")
    before = understudy("model", "show", "visits", "--json").json["model"]["policy"]

    tried = understudy("rollback", "visits", "--dry-run")
    told = understudy("rollback", "visits", "--dry-run", "--json")

    assert (nothing.code, "visits: nothing to roll back" in nothing.out) == (1, True)
    assert tried.code == 0
    assert "Would roll visits back; nothing was changed." in tried.said
    assert "weight 0 as generation 3 (now: 1 80 %, 2 20 %; then 1 answers every call)" in tried.said
    found = told.json["rollback"]
    assert (told.code, found["did"], found["changed"], found["dry_run"], found["confirmed"]) == (
        (0, "weight 0", True, True, None)
    )  # fmt: skip
    assert understudy("model", "show", "visits", "--json").json["model"]["policy"] == before
    assert understudy("audit", "list", "visits", "--limit", "1", "--json").json["audit"][0]["reason"] == "try"


def test_a_rollback_sets_weight_0_and_doing_it_again_changes_nothing(understudy):
    understudy("model", "set", "visits", "--challenger", "2", "--weight", "20", "--yes", "--reason", "try")

    unconfirmed = understudy("rollback", "visits", "--reason", "it burns")
    first = understudy("rollback", "visits", "--reason", "it burns", "--yes", "--json")
    second = understudy("rollback", "visits", "--reason", "it burns", "--yes")
    policy = understudy("model", "show", "visits", "--json").json["model"]["policy"]

    assert (unconfirmed.code, "now: 1 80 %, 2 20 %" in unconfirmed.err) == (2, True)
    assert (first.code, first.json["rollback"]["did"]) == (3, "weight 0")
    assert first.json["rollback"]["confirmed"] == {
        "proxies": 0,
        "proxies_on_generation": 0,
        "seconds": None,
        "silent": {"count": 0, "first": []},
    }
    assert first.json["rollback"]["drained"] is None
    assert (second.code, "nothing to roll back" in second.out) == (1, True)
    assert (policy["challenger"], policy["challenger_weight"]) == ("2", 0)


async def test_a_rollback_says_who_has_confirmed_it_and_who_may_not_know_of_it(understudy, database_url):
    await understudy.beside("model", "set", "visits", "--challenger", "2", "--weight", "20", "--yes", "--reason", "try")
    a_proxy = "INSERT INTO ProxyInstance (instance, generations, seen_at) VALUES "
    await sql(database_url, f"{a_proxy} ('web-7:4711', '{{\"visits\": 2}}', now() - INTERVAL '2 minutes')")

    nobody = await understudy.beside("rollback", "visits", "--reason", "it burns", "--yes")
    await understudy.beside("model", "set", "visits", "--weight", "20", "--yes", "--reason", "try again")
    await sql(database_url, f"{a_proxy} ('web-1:1', '{{\"visits\": 1000}}', now() + INTERVAL '1 hour')")
    all_live = await understudy.beside("rollback", "visits", "--reason", "it burns", "--yes")

    assert nobody.code == 3
    assert "no live proxy" in nobody.out
    assert "in flight" not in nobody.out, "nobody can say how many are"
    assert "answers every call" not in nobody.out
    assert all_live.code == 0
    assert "1 of 1 live proxies on generation" in all_live.out
    for said in (nobody, all_live):
        words = " ".join(said.out.split())
        assert "1 stale proxy may still send traffic by the old policy: web-7:4711, no report for 2 m" in words
        assert max(map(len, said.out.splitlines())) <= 80


async def test_a_rollback_by_command_is_done_while_a_proxys_login_keeps_the_reports_locked(understudy, database_url):
    await understudy.beside("model", "set", "visits", "--challenger", "2", "--weight", "20", "--yes", "--reason", "try")

    async with locked_reports(database_url):
        unconfirmed = await understudy.beside("rollback", "visits", "--reason", "it burns")
        said = await understudy.beside("rollback", "visits", "--reason", "it burns", "--yes")
        examined = await understudy.beside("doctor")
        (weight,) = await sql(database_url, "SELECT challenger_weight FROM ServingPolicy")

    assert (unconfirmed.code, "now: 1 80 %, 2 20 %" in unconfirmed.err) == (2, True)
    assert (said.code, weight["challenger_weight"]) == (3, 0)
    words = " ".join(said.out.split())
    assert (
        "which proxies are live is unknown, since another session keeps ProxyInstance locked: the rollback is" in words
    )
    assert "answers every call" not in words
    assert "another session keeps ProxyInstance locked" in " ".join(examined.out.split())


async def test_a_rollout_is_aborted_while_a_proxys_login_keeps_the_reports_locked(understudy, database_url):
    await asyncio.to_thread(started, understudy)

    async with locked_reports(database_url):
        shown = await understudy.beside("rollout", "show", "visits")
        aborted = await understudy.beside("rollout", "abort", "visits", "--reason", "no", "--yes", "--json")
        (rollout,) = await sql(database_url, "SELECT phase FROM Rollout")

    assert "another session keeps ProxyInstance locked, so no step is taken" in " ".join(shown.out.split())
    assert (aborted.json["changed"], rollout["phase"]) == (True, "FAILED")


async def test_a_rollout_that_is_shown_says_who_acts_on_its_policy(understudy, database_url):
    rollout_id = str((await asyncio.to_thread(started, understudy)).json["rollout"]["rollout_id"])
    nobody = await understudy.beside("rollout", "show", "visits", rollout_id)
    await sql(
        database_url,
        "INSERT INTO ProxyInstance (instance, seen_at) VALUES ('web-7:4711', now() - INTERVAL '2 minutes')",
    )

    shown = await understudy.beside("rollout", "show", "visits", rollout_id)
    document = (await understudy.beside("rollout", "show", "visits", rollout_id, "--json")).json
    aborted = await understudy.beside("rollout", "abort", "visits", "--reason", "no", "--yes")

    assert "web-7:4711, no report for 2 m" in " ".join(aborted.out.split())
    assert "no live proxy: which policy is served is unknown, so no step is taken" in " ".join(nobody.out.split())
    assert "web-7:4711, no report for 2 m" in " ".join(shown.out.split())
    assert (document["presence"]["proxies"], document["presence"]["silent"]["count"]) == (0, 1)
    assert max(map(len, shown.out.splitlines())) <= 80


async def test_a_rollout_that_is_shown_says_what_its_challengers_calls_failed_with(understudy, database_url):
    begun = await asyncio.to_thread(started, understudy)
    rollout_id = begun.json["rollout"]["rollout_id"]
    show = ("rollout", "show", "visits", str(rollout_id))
    none_yet = await understudy.beside(*show)
    await sql(
        database_url,
        "INSERT INTO PredictionLog (model_version_id, assigned_version_id, entity_id, input_hash, prediction, "
        "latency_ms, role, reason, status, error_code, rollout_id) "
        "SELECT (SELECT id FROM ModelVersion WHERE version = '1'), (SELECT id FROM ModelVersion WHERE version = '2'), "
        "'u', '', '{}', 1, 'champion', 'bucket', 'fallback', CASE WHEN n < 3 THEN 'E504' ELSE 'E503' END, $1 "
        "FROM generate_series(1, 9) AS n",
        rollout_id,
    )

    shown = await understudy.beside(*show)

    assert "failing calls" not in none_yet.out
    assert (
        "failing calls of 2: E503 BackendUnavailable 7, E504 DeadlineExceeded 2 → understudy explain E503" in shown.said
    )
    assert max(map(len, shown.out.splitlines())) <= 80


async def test_a_rollout_is_shown_also_while_its_log_does_not_answer(understudy, database_url, database):
    await asyncio.to_thread(started, understudy)
    await database.execute("BEGIN; LOCK TABLE PredictionLog IN ACCESS EXCLUSIVE MODE")

    shown = await understudy.beside("rollout", "show", "visits")

    assert shown.code == 0, shown.err
    assert "failing calls of 2: not known, Postgres did not find the answer within 2 s" in shown.said


def test_a_command_that_a_rollout_does_not_obey_is_a_conflict_and_one_that_holds_already_is_done(understudy):
    started(understudy)
    paused = [understudy("rollout", "pause", "visits", "--reason", "lunch") for _ in range(2)]
    understudy("model", "set", "visits", "--challenger", "3", "--yes", "--reason", "by hand")
    refused = understudy("rollout", "resume", "visits", "--reason", "back", "--yes")
    understudy("rollout", "abort", "visits", "--reason", "no", "--yes")
    over = [understudy("rollout", verb, "visits", "--reason", "x", "--yes") for verb in ("abort", "resume", "promote")]

    assert [done.code for done in paused] == [0, 0]
    assert (refused.code, "nothing changed" in refused.said) == (5, True), refused
    assert [done.code for done in over] == [0, 5, 5]


def test_a_change_of_the_policy_under_an_open_rollout_is_warned_of(understudy):
    started(understudy)

    tried = understudy("model", "set", "visits", "--weight", "20", "--dry-run")
    moved = understudy("model", "set", "visits", "--weight", "20", "--reason", "by hand", "--yes")
    other = understudy("model", "set", "visits", "--guard", "alert", "--reason", "calm", "--yes")

    assert (tried.code, "is open and moves this split itself" in tried.said) == (0, True), tried
    assert "its own commands are rollout pause, resume, promote and abort visits" in moved.said
    assert "is open" not in other.said


async def test_a_rollout_that_was_rolled_back_by_hand_says_by_whom_and_why(understudy, database_url, database):
    await asyncio.to_thread(started, understudy)
    await understudy.beside("model", "set", "visits", "--weight", "20", "--yes", "--reason", "sooner")
    await understudy.beside("model", "set", "visits", "--weight", "0", "--yes", "--reason", "it burns")
    row = await database.fetchrow("SELECT id, state, model_name FROM Rollout")
    source = PostgresRolloutStore(database_url, timeout_seconds=5)
    view = await source.view(row["id"])
    assert view.policy is not None
    before = replace(view.record.state, policy=view.policy._replace(weight_percent=20, generation=3))
    seen = Observation(now=view.read_at, policy=view.policy)
    ended = next_step(before, seen)
    await source.apply(view, ended, NewRolloutEvent("monitor"))

    shown = await understudy.beside("rollout", "show", "visits")
    document = (await understudy.beside("rollout", "show", "visits", "--json")).document

    assert ended.state.reason.startswith("rolled back by hand: ")
    login = postgres_user(database_url) or getuser()
    assert re.search(rf"by {re.escape(login)}, cli, \d+ \w+ \d\d:\d\d UTC: it burns", shown.said), shown
    said = document["rolled_back_by"]
    assert {name: said[name] for name in ("actor", "via", "reason", "generation")} == {
        "actor": login, "via": "cli", "reason": "it burns", "generation": view.policy.generation,
    }  # fmt: skip
    assert datetime.fromisoformat(said["at"]).utcoffset() == timedelta(0)


def test_a_list_has_the_share_of_the_policy_where_it_is_not_the_plans(understudy):
    started(understudy)
    understudy("rollout", "promote", "visits", "--reason", "sooner", "--yes")
    understudy("rollout", "pause", "visits", "--reason", "lunch")
    as_planned = understudy("rollout", "list", "visits", "--json").json["rollouts"][0]
    understudy("model", "set", "visits", "--weight", "20", "--yes", "--reason", "by hand")

    shown = understudy("rollout", "show", "visits", "--json").json
    listed, table = understudy("rollout", "list", "--json").json["rollouts"][0], understudy("rollout", "list")

    planned = as_planned["weight_percent"]
    assert as_planned["policy_weight_percent"] == planned
    assert (listed["weight_percent"], listed["policy_weight_percent"]) == (planned, 20)
    assert shown["rollout"]["policy_weight_percent"] == 20
    assert shown["rolled_back_by"] is None
    assert f"20 %, by the plan {planned} %" in table.said


def test_a_rollout_of_a_newer_release_is_named_in_words_and_taken_back_all_the_same(understudy, database_url):
    ended = started(understudy).json["rollout"]["rollout_id"]
    understudy("rollout", "abort", "visits", "--reason", "no", "--yes")
    newest = started(understudy).json["rollout"]["rollout_id"]
    asyncio.run(sql(database_url, "ALTER TABLE Rollout DISABLE TRIGGER rollout_guard"))
    asyncio.run(sql(database_url, "UPDATE Rollout SET plan = plan || '{\"tempo\": 3}' WHERE id = $1", newest))
    asyncio.run(sql(database_url, "UPDATE ServingPolicy SET challenger_weight = 5"))

    table, document = understudy("rollout", "list"), understudy("rollout", "list", "visits", "--json").json
    shown, other = understudy("rollout", "show", "visits"), understudy("rollout", "show", "visits", str(ended))
    changed, of_entity = understudy("explain", "visits"), understudy("explain", "visits", "u-1")
    taken_back = understudy("rollback", "visits", "--reason", "enough", "--yes")

    words = f"rollout {newest} of visits cannot be read by this release: "
    said = [" ".join((one.out + one.err).split()) for one in (table, shown, changed, of_entity)]
    assert [words in one and "tempo" in one for one in said] == [True] * 4
    assert (table.code, shown.code, other.code, changed.code, of_entity.code, taken_back.code) == (0, 1, 0, 0, 0, 3)
    assert "weight 0" in taken_back.out
    assert "A newer release wrote it: use that release" in said[1]
    assert [one["rollout_id"] for one in document["rollouts"]] == [ended]
    assert [(one["id"], one["model_name"]) for one in document["unreadable"]] == [(newest, "visits")]


def test_a_list_of_an_unknown_models_rollouts_says_which_models_there_are(understudy):
    unknown, none_yet = understudy("rollout", "list", "nope"), understudy("rollout", "list", "visits")

    assert (unknown.code, none_yet.code) == (4, 0)
    assert "no model 'nope' is registered; there are: visits" in unknown.said


def test_a_name_that_a_terminal_would_obey_is_shown_and_not_obeyed(understudy, database_url):
    name = "evil\x1b]0;owned\x07\x1b[2J\x9b31m\u202eeman"
    asyncio.run(register_named(database_url, name))

    listed, shown = understudy("version", "list"), understudy("version", "show", name, "1")
    refused, document = understudy("rollout", "list", "no\x1b[2Jpe"), understudy("version", "list", "--json")

    for done in (listed, shown, refused):
        said = done.out + done.err
        assert not any(character in said for character in "\x1b\x07\x9b\u202e"), done
    assert "\ufffd" in listed.out
    assert "\ufffd" in refused.err
    assert "\x1b" not in document.out
    assert name in [one["model_name"] for one in document.json["versions"]]


async def register_named(database_url: str, name: str) -> None:
    insert = "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
    await sql(database_url, f"{insert} VALUES ($1, '1', 's3://m', 'onnx', '{{}}')", name)


async def register_with(database_url: str, label: int, port: int, *features: dict[str, Any]) -> None:
    """Register a version of visits with further inputs."""
    schema = {"features": [*example_version("visits", 1).input_schema["features"], *features]}
    await register(database_url, 2, [port], version=str(label), input_schema=json.dumps(schema))


async def test_a_version_that_needs_a_new_input_is_named_before_it_has_a_share(
    understudy, database_url, model_port, tmp_path
):
    await register_with(database_url, 5, model_port("visits:2"), {"name": "basket", "dtype": "float32"})
    described = tmp_path / "version.json"
    shown = (await understudy.beside("version", "show", "visits", "5", "--json")).json["version"]
    described.write_text(json.dumps({name: shown[name] for name in ("artifact_path", "framework", "input_schema")}))

    registered = await understudy.beside("version", "register", "visits", "6", "--from", str(described))
    planned = await understudy.beside("plan", "visits", "5")
    refused = await understudy.beside("rollout", "start", "visits", "5", "--reason", "try", "--yes")
    as_json = await understudy.beside("plan", "visits", "5", "--json")
    shadowed = await understudy.beside("model", "set", "visits", "--shadow", "5", "--reason", "try", "--yes")
    tried = await understudy.beside("model", "set", "visits", "--champion", "6", "--dry-run", "--json")
    raised = await understudy.beside("model", "set", "visits", "--shadow", "none", "--challenger", "5", "--dry-run")

    why = "basket: new and required, and the champion refuses calls that have it"
    assert (registered.code, planned.code, refused.code, shadowed.code) == (0, 0, 1, 0)
    assert f"the inputs differ: a call that fits 1 fails at 6 (422) {why}" in registered.said
    assert f"the inputs differ: a call that fits 1 fails at 5 (422) {why}" in planned.said
    assert "A rollout of it is refused" in planned.said
    assert "E207 The version is not ready for callers" in refused.said
    assert f"every call that fits 1, the champion, would fail at 5: {why}" in refused.said
    assert as_json.json["plan"]["input_differences"] == {"breaking": [why], "possible": []}
    assert as_json.json["plan"]["deadline_warnings"] == []
    assert f"a call that fits 1 fails at 5 (422) {why}" in shadowed.said
    assert f"a call that fits 1 fails at 5 (422) {why}" in raised.said
    assert tried.json["input_differences"] == {"6": {"breaking": [why], "possible": []}}


async def test_an_input_with_a_default_stands_in_no_rollouts_way(understudy, database_url, model_port):
    await register_with(database_url, 5, model_port("visits:2"), {"name": "basket", "dtype": "float32", "default": 0})

    planned = await understudy.beside("plan", "visits", "5")
    quiet = await understudy.beside("model", "set", "visits", "--shadow", "5", "--reason", "try", "--yes")

    assert planned.code == quiet.code == 0
    assert "inputs differ" not in planned.said + quiet.said


async def test_a_start_warns_that_wrong_scores_would_not_be_seen_until_inputs_are_logged(understudy):
    start = ("rollout", "start", "visits", "2", "--reason", "try")
    command = "understudy model set visits --input-sample-percent 5"

    planned = await understudy.beside("plan", "visits", "2")
    unconfirmed = await understudy.beside(*start)
    expected = await understudy.beside("plan", "visits", "2", "--expect-different-scores")
    as_json = await understudy.beside("plan", "visits", "2", "--json")
    mended = await understudy.beside(*command.split()[1:], "--reason", "compare scores", "--yes")
    after = await understudy.beside("plan", "visits", "2")

    for said in (planned.said, unconfirmed.said):
        assert "! no inputs of visits calls are logged, so 2's scores are not compared with 1's" in said
        assert f"wrong scores without errors are not seen → {command}" in said
    assert len(as_json.json["plan"]["score_warnings"]) == 1
    assert mended.code == 0
    for said in (expected.said, after.said):
        assert "are not compared" not in said


async def test_a_version_that_answers_with_classes_has_no_scores_to_warn_of(understudy, database_url, model_port):
    await register(
        database_url, 2, [model_port("visits:2")], version="5", output_schema='{"labels": ["no", "yes"], "shape": [2]}'
    )

    planned = await understudy.beside("plan", "visits", "5")

    assert planned.code == 0
    assert "are not compared" not in planned.said


async def test_a_share_that_a_person_took_back_is_no_success_and_its_guard_says_who_ended_it_and_why(
    understudy, tmp_path
):
    page = tmp_path / "guard.html"
    await understudy.beside("model", "set", "visits", "--challenger", "2", "--weight", "20", "--reason", "x", "--yes")
    await understudy.beside("rollback", "visits", "--reason", "my first rollback", "--yes")

    shown = await understudy.beside("rollout", "show", "visits")
    listed = await understudy.beside("rollout", "list", "visits")
    as_json = await understudy.beside("rollout", "show", "visits", "--json")
    waited = await understudy.beside("rollout", "wait", "visits")
    drawn = await understudy.beside("rollout", "show", "visits", "--html", str(page))

    document = as_json.json
    by = document["rolled_back_by"]
    ended = f"Ended: weight 0 in generation {by['generation']}; nothing was proven against 2 by {by['actor']}, "
    assert ended in shown.said
    assert "UTC: my first rollback" in shown.said
    assert "ENDED" in listed.out
    assert "the guard of visits 2 ended: weight 0" in waited.said
    assert (waited.code, drawn.code) == (6, 0)
    for said in (shown.said, listed.said, waited.said, page.read_text()):
        assert "SUCCEEDED" not in said
        assert "✔" not in said
    assert "UTC: my first rollback" in page.read_text()
    assert (document["rollout"]["phase"], by["reason"]) == ("SUCCEEDED", "my first rollback")


async def test_a_rollback_of_a_model_that_is_misspelt_names_those_there_are(understudy):
    said = await understudy.beside("rollback", "visit", "--reason", "it burns", "--yes")

    assert said.code == 4
    assert "no model 'visit' is registered; there are: visits" in said.said


def test_what_is_followed_elsewhere_than_on_a_terminal_ends_with_a_whole_line(understudy):
    started(understudy)
    understudy("rollout", "abort", "visits", "--reason", "no", "--yes")

    watched = understudy("rollout", "watch", "visits")

    assert watched.out.endswith("rollout.html\n")
