"""What the figures of a checkup mean."""

import pytest

from understudy.core.rollout.state import WarmUpResult
from understudy.ports.upstream.model_backend import ServerSeen
from understudy.registry.findings.finding import State
from understudy.registry.findings.log import judge_archive, judge_lake, judge_partitions, judge_spool
from understudy.registry.findings.servers import (
    OUTAGE,
    judge_clock,
    judge_config,
    judge_monitor,
    judge_postgres,
    judge_proxy,
    judge_redis,
    judge_saved_policies,
    judge_servers,
)
from understudy.registry.findings.traffic import judge_failing_share, judge_gate, judge_guard, judge_rejected


@pytest.mark.parametrize(
    ("needs_key", "is_local", "state"),
    [(True, True, State.GOOD), (False, True, State.GOOD), (True, False, State.GOOD), (False, False, State.WARNING)],
)
def test_only_a_proxy_that_the_network_reaches_and_that_asks_for_no_key_is_worth_a_look(needs_key, is_local, state):
    finding = judge_config(3, "0.0.0.0", needs_key=needs_key, is_local=is_local)

    assert finding.state is state
    assert finding.what.startswith("3 settings from the environment")


@pytest.mark.parametrize(
    ("round_trip_seconds", "state"), [(0.001, State.GOOD), (0.05, State.GOOD), (0.06, State.WARNING)]
)
def test_a_postgres_far_away_is_worth_a_look(round_trip_seconds, state):
    assert judge_postgres("16.4", round_trip_seconds).state is state


@pytest.mark.parametrize(
    ("problem", "eviction_policy", "state"),
    [
        ("", "allkeys-lru", State.GOOD),
        ("", "noeviction", State.WARNING),
        ("connection refused", "", State.WARNING),
    ],
)
def test_a_cache_that_is_away_or_never_forgets_is_worth_a_look_and_never_a_problem(problem, eviction_policy, state):
    finding = judge_redis(problem, "8.1", 0.001, eviction_policy)

    assert finding.state is state
    assert finding.what == (problem or f"8.1, 1.0 ms, {eviction_policy}")


def test_a_cache_that_refuses_us_wants_another_login_and_no_look_at_the_server():
    finding = judge_redis("cache:6379 was reached, and refused the login", "", 0.0, "", is_refusal=True)

    assert (finding.state, finding.what) == (State.WARNING, "cache:6379 was reached, and refused the login")
    assert "correct the user and password in REDIS_URL" in finding.next_step


def test_without_postgres_it_says_what_goes_on_and_what_a_proxy_would_start_with():
    missing, unreadable = judge_saved_policies("/state", None, ""), judge_saved_policies("/state", None, "why")
    saved, [waiting] = judge_saved_policies("/state", 2, ""), judge_spool("/state", 3 * 1_048_576, "")
    [uncounted] = judge_spool("/state", 0, "why")

    assert OUTAGE.what.startswith("if proxies do not reach Postgres either, ")
    assert (missing.state, unreadable.state, uncounted.state) == (State.WARNING,) * 3
    assert "a proxy that starts with it refuses calls" in missing.what
    assert "refuses" not in unreadable.what
    assert (unreadable.what.endswith(": why"), uncounted.what.endswith(": why")) == (True, True)
    assert (saved.state, saved.what.startswith("of 2 models in /state")) == (State.GOOD, True)
    assert (waiting.state, waiting.what.startswith("at most 3.0 MiB of rows wait")) == (State.GOOD, True)
    assert judge_spool("/state", 0, "") == []


def test_a_policy_that_nobody_can_use_is_a_problem_and_one_used_in_part_a_warning():
    assert judge_rejected("visits", "why", is_served=False).state is State.PROBLEM
    assert judge_rejected("visits", "why", is_served=True).state is State.WARNING


@pytest.mark.parametrize(
    ("ahead_seconds", "round_trip_seconds", "state"),
    [
        (0.0, 0.001, State.GOOD),
        (-0.2, 0.001, State.GOOD),
        (0.3, 0.001, State.WARNING),
        (-2.8, 0.001, State.PROBLEM),
        (0.4, 0.5, State.GOOD),
    ],
)
def test_a_clock_is_judged_by_what_the_round_trip_cannot_explain(ahead_seconds, round_trip_seconds, state):
    assert judge_clock(ahead_seconds, round_trip_seconds).state is state


def test_a_wrong_clock_says_by_how_much_and_in_which_direction():
    assert judge_clock(2.8, 0.001).what == "2800 ms ahead of Postgres"
    assert judge_clock(-2.8, 0.001).what == "2800 ms behind Postgres"


@pytest.mark.parametrize(
    ("last_month", "state"),
    [
        (None, State.PROBLEM),
        ("2026-10", State.PROBLEM),
        ("2026-11", State.WARNING),
        ("2026-12", State.WARNING),
        ("2027-01", State.GOOD),
    ],
)
def test_partitions_are_judged_by_the_months_that_they_reach_ahead(last_month, state):
    finding = judge_partitions(last_month, "2026-11")

    assert finding.state is state
    assert bool(finding.next_step) == (state is not State.GOOD)


@pytest.mark.parametrize(
    ("oldest_days", "succeeded_seconds", "is_set", "state"),
    [
        (400.0, None, False, State.GOOD),
        (20.0, None, True, State.GOOD),
        (32.9, 3_600.0, True, State.GOOD),
        (33.1, 3_600.0, True, State.WARNING),
        (33.1, None, True, State.WARNING),
        (33.1, 3_600.0, False, State.WARNING),
        (None, 9e9, True, State.GOOD),
    ],
)
def test_archiving_is_judged_by_the_oldest_month_that_is_still_here_once_somebody_wants_it(
    oldest_days, succeeded_seconds, is_set, state
):
    finding = judge_archive(oldest_days, succeeded_seconds, 30, is_set=is_set)

    assert finding.state is state
    assert ("understudy db archive" in finding.next_step) == (state is State.WARNING)


@pytest.mark.parametrize(
    ("acts_on", "age_seconds", "state"),
    [
        ({"visits": 3, "digits": 1}, 1.0, State.GOOD),
        ({"visits": 2, "digits": 1}, 1.0, State.WARNING),
        ({"visits": 3}, 1.0, State.WARNING),
        ({"visits": 3, "digits": 1}, 31.0, State.WARNING),
    ],
)
def test_a_proxy_is_good_when_it_lives_and_acts_on_every_newest_generation(acts_on, age_seconds, state):
    assert judge_proxy("vm:1", acts_on, {"visits": 3, "digits": 1}, age_seconds).state is state


def test_a_proxy_that_has_a_newer_policy_than_was_read_is_not_behind():
    assert judge_proxy("vm:1", {"visits": 4}, {"visits": 3}, 1.0).state is State.GOOD


def test_a_proxy_that_is_behind_says_on_which_model():
    assert "visits 2 instead of 3" in judge_proxy("vm:1", {"visits": 2}, {"visits": 3}, 1.0).what


@pytest.mark.parametrize(("age_seconds", "state"), [(0.0, State.GOOD), (6.0, State.GOOD), (6.1, State.WARNING)])
def test_a_monitor_whose_lease_is_over_leads_no_more(age_seconds, state):
    finding = judge_monitor("vm:1", age_seconds)

    assert finding.state is state
    assert ("none leads" in finding.what) == (state is State.WARNING)


def test_a_guard_that_failed_is_a_problem_and_a_split_that_nothing_watches_a_warning():
    worse = "version 7 does worse at 10 %: error rate 3.1x"
    failed = judge_guard("churn", "alert", worse, is_watched=True, has_monitor=True)
    unwatched = judge_guard("churn", "off", None, is_watched=False, has_monitor=True)
    unopened = judge_guard("churn", "rollback", None, is_watched=False, has_monitor=True)

    assert judge_guard("churn", "rollback", None, is_watched=True, has_monitor=True).state is State.GOOD
    assert (failed.name, failed.state) == ("guard churn", State.PROBLEM)
    assert "error rate 3.1x" in failed.what
    assert unwatched.state is unopened.state is State.WARNING
    assert "guard is off" in unwatched.what
    assert "no guard is open" in unopened.what


@pytest.mark.parametrize(("guard", "is_watched"), [("rollback", True), ("off", True), ("rollback", False)])
def test_a_split_is_not_called_watched_while_no_monitor_leads_and_that_is_a_problem(guard, is_watched):
    finding = judge_guard("churn", guard, None, is_watched=is_watched, has_monitor=False)

    assert finding.state is State.PROBLEM
    assert "no monitor leads, so nothing watches" in finding.what
    assert f"guard = {guard}" in finding.what
    assert "understudy serve monitor" in finding.next_step
    assert "understudy rollback churn" in finding.next_step


def test_a_rollout_at_a_gate_is_a_warning_once_a_person_has_to_decide():
    waits = judge_gate("churn", "gate", "version 7 becomes champion once quality lets it pass", 20.0)
    stands = judge_gate("churn", "approval", "quality refuses that version 7 becomes champion", 7_200.0)

    assert (waits.state, stands.state) == (State.GOOD, State.WARNING)
    assert stands.what == "quality refuses that version 7 becomes champion; for 2 h now"
    assert "understudy rollout approve churn" in stands.next_step


def test_a_version_that_fails_calls_says_how_many_and_who_answers_them():
    with_fallback = judge_failing_share("churn", "7", 145, 1_200, has_fallback=True)
    without = judge_failing_share("churn", "7", 145, 1_200, has_fallback=False)

    assert (with_fallback.name, with_fallback.state) == ("churn 7 share", State.WARNING)
    assert with_fallback.what == (
        "fails 12.1% of its calls, 145 of 1,200 in the last hour; the champion answers them, later"
    )
    assert without.what.endswith("; their callers get the error")
    of_the_day = judge_failing_share("churn", "7", 145, 1_200, has_fallback=True, hours=24)
    assert "145 of 1,200 in the last day, and fewer in the last hour; the champion" in of_the_day.what


READY = ServerSeen("10.0.0.7:8001", 0.002)
AWAY = ServerSeen("10.0.0.8:8001", 2.0, "nothing listens there")


@pytest.mark.parametrize(
    ("role", "servers", "state"),
    [
        ("champion", [READY, READY], State.GOOD),
        ("champion", [READY, AWAY], State.WARNING),
        ("champion", [AWAY, AWAY], State.PROBLEM),
        ("champion", [], State.PROBLEM),
        ("challenger", [READY], State.GOOD),
        ("challenger", [READY, AWAY], State.WARNING),
        ("challenger", [AWAY], State.WARNING),
        ("shadow", [], State.WARNING),
    ],
)
def test_a_champion_without_a_server_is_a_problem_and_another_role_or_one_of_several_servers_a_warning(
    role, servers, state
):
    assert judge_servers("visits", role, "1", servers, 0.5).state is state


@pytest.mark.parametrize("has_share", [True, False])
def test_a_server_that_is_away_presses_only_where_callers_get_its_answers(has_share):
    finding = judge_servers("visits", "challenger", "2", [READY, AWAY], 0.5, has_share=has_share)

    assert (finding.state, finding.model_name, finding.is_pressing) == (State.WARNING, "visits", has_share)


def test_of_several_servers_the_one_that_is_not_ready_is_named_with_the_reason_and_how_long_each_took():
    finding = judge_servers("visits", "champion", "1", [READY, AWAY], 0.5)

    assert finding.what == (
        "served by 1 of its 2 model servers; 10.0.0.8:8001: nothing listens there (2.0 s); "
        "answered: 10.0.0.7:8001 in 2 ms"
    )
    assert "understudy version remove-endpoint visits 1 HOST:PORT" in finding.next_step


@pytest.mark.parametrize(("seconds", "state"), [(0.5, State.GOOD), (0.51, State.WARNING)])
def test_a_server_that_needs_longer_to_say_that_it_serves_than_a_call_may_take_is_worth_a_look(seconds, state):
    finding = judge_servers("visits", "champion", "1", [READY, ServerSeen("slow:1", seconds)], 0.5)

    assert finding.state is state
    assert finding.what.startswith("served by 2 model servers: slow:1 in 5")


def test_servers_that_live_proxies_reach_are_no_problem_for_a_process_that_does_not_reach_them():
    ready = WarmUpResult(passed=True, detail="ready through 1 live proxy")
    dead = WarmUpResult(
        passed=False, detail="no model server is reached from here, and 1 of 2 live proxies find it ready"
    )

    finding = judge_servers("visits", "champion", "1", [AWAY], 0.5, through=ready)
    problem = judge_servers("visits", "champion", "1", [AWAY], 0.5, through=dead)

    assert (finding.state, problem.state) == (State.GOOD, State.PROBLEM)
    assert problem.what.endswith("; no model server is reached from here, and 1 of 2 live proxies find it ready")
    assert finding.what == (
        "reached through proxies: ready through 1 live proxy; "
        "not from here: 10.0.0.8:8001: nothing listens there (2.0 s)"
    )


def test_of_many_servers_those_that_took_longest_are_named():
    servers = [ServerSeen(f"s{number}:1", number / 1_000) for number in range(20)]

    what = judge_servers("visits", "champion", "1", servers, 0.5).what

    assert what.startswith("served by 20 model servers: s19:1 in 19 ms, s18:1 in 18 ms,")
    assert what.endswith("s12:1 in 12 ms and 12 more")


def test_files_that_wait_for_their_commit_are_a_warning_after_ten_minutes():
    assert judge_lake(3, 90.0).state is State.GOOD
    late = judge_lake(1_200, 5_400.0)
    assert (late.state, late.what) == (
        State.WARNING,
        "1,200 stored files are not in the table yet, the oldest for 90 minutes",
    )
