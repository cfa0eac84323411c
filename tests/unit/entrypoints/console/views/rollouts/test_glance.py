"""The first screen of a rollout's page: ten questions of a person on call, each answered in one sentence."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.core.canary.decision import CheckState, Decision, Evidence, Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.latency.slow_tail import SLOW_TAIL
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Kind, Phase, RolloutState, WaitingFor, new_rollout_state
from understudy.core.routing.policy import Role
from understudy.entrypoints.console.views.rollouts.glance import MAX_REASON, has_share
from understudy.entrypoints.console.views.rollouts.page import RolloutPage, rollout_page
from understudy.entrypoints.console.views.rollouts.seen import Beside, Failing, RolloutSeen
from understudy.entrypoints.console.views.tone import Tone
from understudy.ports.registry.registry import AuditEntry, AuditSubject
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutView
from understudy.registry.findings.finding import Finding, State
from understudy.registry.findings.servers import UNSEEN_REDIS
from understudy.rollout.status import RolloutStatus
from understudy.rollout.stored_move import MOVED

BEGAN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()
NOW = BEGAN + 480
PLAN = RolloutPlan((Step(10, 300, 1_000), Step(50, 600, 2_000), Step(100, 0, 0)), keep_warm_seconds=1_800)
BEFORE = PolicySeen("6", "7", 0, 3, 1)
POLICY = BEFORE._replace(weight_percent=10, generation=4)
WARMING = new_rollout_state(1, "churn", PLAN, BEFORE, BEGAN)
STATE = replace(WARMING, step_starts=(BEGAN + 60,), policy=POLICY)
ERRORS = Evidence(ERROR_RATE, CheckState.OK, 0.0021, 0.0034, 1.61, 0.98, 2.4, 1.5, 20.0, 200.0, 2.0, 20.0, 8_000, 917)
SLOW = ERRORS._replace(check=SLOW_TAIL, state=CheckState.TOO_EARLY, change=1.1)
HOLD = Decision(Verdict.HOLD, "917 of 1,000 challenger requests at 10 %", (ERRORS, SLOW))
WELL = (Finding("postgres", State.GOOD, "18.1, 0.4 ms"), Finding("redis", State.GOOD, "8.1, 0.2 ms, allkeys-lru"))
FAILS = "Does a check fail"
AT = "20 Nov 12:07:50"
BEGINS = RolloutEventRecord(1, BEGAN, 0, "PROGRESSING", None, "begins", (), {}, {}, "0.1.0", "dana@laptop")


def a_change(at: float, **changes: Any) -> AuditEntry:
    row = {"champion_version": 6, "challenger_version": 7, "arms": []}
    rows = ({**row, "challenger_weight": 0}, {**row, "challenger_weight": 10})
    moment = datetime.fromtimestamp(at, UTC)
    entry = AuditEntry(
        1, "churn", 4, moment, "monitor", "rollout", "fine", "update", *rows, AuditSubject.POLICY, "churn", None
    )
    return entry._replace(**changes)


def a_status(state: RolloutState = STATE, **changes: Any) -> RolloutStatus:
    finished_at = NOW if state.phase.is_final else None
    record = RolloutRecord(1, state, 3, 1, 2, "salt", 9_000, "retrain", "dana@laptop", finished_at, None)
    view = RolloutView(record, changes.pop("policy", state.policy), {4: 10}, 6, 6, {}, NOW)
    decision = HOLD if state.step_starts and not state.phase.is_final else None
    rates = {Role.CHAMPION: 91.0, Role.CHALLENGER: 9.0}
    return RolloutStatus(view, (BEGINS,), decision, (), (917,), rates, 4.2)._replace(**changes)


def a_page(state: RolloutState = STATE, **changes: Any) -> RolloutPage:
    beside, audit = changes.pop("beside", Beside()), changes.pop("audit", (a_change(BEGAN + 60),))
    return rollout_page(RolloutSeen(a_status(state, **changes), None, audit, {}, (1,), beside=beside))


def said(page: RolloutPage, question: str) -> str:
    return next(row.answer for row in page.glance if row.question == question)


def test_it_asks_what_is_asked_at_night_in_that_order():
    assert [row.question for row in a_page().glance] == [
        "Who gets 7",
        "Since when",
        "What happens next",
        "What would take it back",
        "Does a check fail",
        "Errors of 7",
        "Last change",
        "Is all healthy",
        "Way back",
    ]


@pytest.mark.parametrize(
    ("state", "changes", "words"),
    [
        (
            STATE,
            {},
            "10 % of the entities, by a hash of their id (9.0 % of the calls in the last 2 m, 9/s); 6 answers 90 %.",
        ),
        (STATE, {"calls_per_second": None}, "10 % of the entities, by a hash of their id; 6 answers 90 %."),
        (WARMING, {}, "No caller: 6 answers every call."),
        (replace(STATE, promoted_at=NOW), {"policy": PolicySeen("7", "6", 0, 5, 1)}, "Every caller: 7 is champion."),
        (replace(STATE, phase=Phase.FAILED), {"policy": BEFORE}, "No caller: 6 answers every call."),
        (STATE, {"policy": None}, "No caller: the model has no policy."),
    ],
)
def test_who_gets_the_challenger_and_how_much_is_said_by_the_policy_and_as_observed(state, changes, words):
    assert said(a_page(state, **changes), "Who gets 7") == words


@pytest.mark.parametrize(
    ("policy", "shares", "words"),
    [
        (PolicySeen("8", "9", 10, 9, None), {"9": 10}, "No caller: 8 answers 90 %, 9 answers 10 %."),
        (
            PolicySeen("7", "8", 50, 9, None),
            {"8": 50},
            "50 % of the entities, by a hash of their id, as champion; 8 answers 50 %.",
        ),
        (
            PolicySeen("8", "9", 10, 9, None),
            {"9": 10, "7": 20},
            "20 % of the entities, by a hash of their id; 8 answers 70 %, 9 answers 10 %.",
        ),
        (
            PolicySeen("7", None, 0, 9, None),
            {"8": 20},
            "80 % of the entities, by a hash of their id, as champion; 8 answers 20 %.",
        ),
        (PolicySeen("7", None, 0, 9, None), {}, "Every caller: 7 is champion."),
    ],
)
def test_after_a_rollout_its_version_is_said_to_get_what_the_policy_of_this_moment_gives_it(policy, shares, words):
    status = a_status(replace(STATE, phase=Phase.SUCCEEDED), policy=policy)
    view = status.view._replace(shares=shares, champion_percent=100 - sum(shares.values()))
    page = rollout_page(RolloutSeen(status._replace(view=view), None, (), {}, (2, 1)))

    assert said(page, "Who gets 7") == words


def test_what_is_observed_of_another_challenger_is_not_said_of_this_one():
    status = a_status(policy=PolicySeen("6", "9", 10, 9, None))
    view = status.view._replace(shares={"9": 10, "7": 20}, champion_percent=70)
    page = rollout_page(RolloutSeen(status._replace(view=view), None, (), {}, (1,)))

    assert said(page, "Who gets 7") == "20 % of the entities, by a hash of their id; 6 answers 70 %, 9 answers 10 %."


def test_it_says_since_when_the_share_holds_and_who_began_the_rollout():
    assert said(a_page(), "Since when") == (
        '10 % since 12:01:00 UTC (7 m). Rollout 1, running 8 m since 20 Nov 12:00 UTC, by dana@laptop "retrain".'
    )
    assert said(a_page(WARMING), "Since when").startswith("Rollout 1, running 8 m since 20 Nov 12:00 UTC")


def test_of_a_rollout_that_waits_it_says_since_when_and_what_follows_once_it_is_resumed():
    waits = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.PAUSE)
    paused = BEGINS._replace(at=BEGAN + 300, phase=Phase.WAITING, actor="ana", reason="paused by ana: lunch")
    page = a_page(waits, events=(BEGINS, paused, paused._replace(at=BEGAN + 360, phase=Phase.PROGRESSING)))

    assert said(page, "Since when").startswith(
        "It has waited since 20 Nov 12:05:00 UTC. 10 % since 12:01:00 UTC (7 m, the wait included)."
    )
    assert said(page, "What happens next").startswith(
        "It stays at 10 % until a person resumes, promotes or takes it back. Once resumed: after 5 m at this share"
        " (the wait counts, so over since 20 Nov 12:06:00 UTC) and 1,000 requests of its own,"
        " where no check fails, version 7 gets 50 %."
    )


def test_time_at_a_share_that_is_not_over_yet_has_its_end_and_of_another_share_the_step_begins_again():
    waits = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.PAUSE, step_starts=(NOW - 60,))
    changed = a_page(waits, policy=STATE.policy._replace(weight_percent=5))

    assert "(the wait counts, so over at 20 Nov 12:12:00 UTC)" in said(a_page(waits), "What happens next")
    assert said(changed, "What happens next").startswith(
        "It stays at 5 % until a person resumes, promotes or takes it back. Once resumed: the step at 10 % begins"
        " again; after 5 m at this share and 1,000 requests of its own, where no check fails, version 7 gets 50 %."
    )


def test_what_the_warm_up_could_not_compare_is_named_with_the_command_that_lets_it():
    lacking = BEGINS._replace(
        reason="version 7 goes from 0 to 10 %: the warm-up passed; its scores were not compared: "
        "no inputs of the champion's calls are logged"
    )
    [row] = [row for row in a_page(events=(BEGINS, lacking)).glance if row.question == "What is not compared"]

    assert row.answer == (
        "7's scores with the champion's for the same inputs: no inputs of the champion's calls are logged."
        " For the next rollout:"
    )
    assert row.command == "understudy model set churn --input-sample-percent 5"
    over = a_page(replace(STATE, phase=Phase.FAILED), events=(BEGINS, lacking))
    assert not [row for row in over.glance if row.question == "What is not compared"]


def test_whether_a_check_fails_is_one_sentence_with_the_tone_of_the_answer():
    [calm] = [row for row in a_page().glance if row.question == "Does a check fail"]
    worse = Decision(Verdict.ROLL_BACK, "found", (ERRORS._replace(state=CheckState.FAIL), SLOW))
    [bad] = [row for row in a_page(decision=worse).glance if row.question == "Does a check fail"]

    assert (calm.answer, calm.tone) == ("None of 2 fails: 1 pass, 1 too early.", Tone.CALM)
    assert (bad.answer, bad.tone) == ("error rate fails; of 2: 1 fail, 1 too early.", Tone.BAD)


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        (None, "Their codes come with the charts."),
        (Failing((), AT), f"The log has none of them yet, as of {AT} UTC."),
        (
            Failing(("failing calls of 7: E504 DeadlineExceeded 12 → understudy explain E504",), AT),
            f"By their codes, as of {AT} UTC: E504 DeadlineExceeded 12 → understudy explain E504",
        ),
    ],
)
def test_which_errors_the_challenger_made_is_said_as_soon_as_the_log_was_read(failing, words):
    shown = said(a_page(beside=Beside(failing=failing)), "Errors of 7")

    assert shown == f"0.34 % of its calls failed, beside 0.21 % of the champion's. {words}"


@pytest.mark.parametrize(
    ("challenger", "rate"),
    [
        (0.0, "0 % of its calls failed, beside 0.21 % of the champion's."),
        (None, "How many calls failed is not counted yet."),
    ],
)
def test_only_beside_no_error_that_is_counted_the_log_is_said_to_have_no_failing_call(challenger, rate):
    none = replace(HOLD, evidence=(ERRORS._replace(challenger=challenger), SLOW))
    shown = said(a_page(decision=none, beside=Beside(failing=Failing((), AT))), "Errors of 7")

    assert shown == f"{rate} The log has no failing call of it, as of {AT} UTC."


def test_who_changed_what_last_is_the_newest_of_the_policys_changes_and_of_commands_which_change_no_policy():
    paused = BEGINS._replace(at=BEGAN + 300, actor="4f2a90c1d7be (ana)", reason="paused by 4f2a90c1d7be (ana): lunch")
    looked = BEGINS._replace(at=BEGAN + 400, actor="monitor", reason="holds")

    assert said(a_page(), "Last change") == (
        "20 Nov 12:01:00 UTC by the monitor (via rollout), generation 4: challenger's share 0 % → 10 %: fine"
    )
    assert said(a_page(events=(BEGINS, paused, looked)), "Last change") == (
        "20 Nov 12:05:00 UTC: paused by 4f2a90c1d7be (ana): lunch"
    )
    later = (a_change(BEGAN + 350, reason=None),)
    assert said(a_page(events=(BEGINS, paused), audit=later), "Last change").endswith("no reason was given")
    assert said(a_page(events=(), audit=()), "Last change") == "None yet."
    long = (a_change(BEGAN + 60, reason="w" * 1_000),)
    assert said(a_page(audit=long), "Last change").endswith(f": {'w' * (MAX_REASON - 1)}…")


ACTED = "6 of 6 live proxies act on the policy (generation 4); monitor 4 s ago."
NO_MODEL_SERVER = Finding("churn 7 challenger", State.PROBLEM, "has no model server", model_name="churn")


@pytest.mark.parametrize(
    ("findings", "words", "tone"),
    [
        (None, "What Health finds comes in a few seconds.", Tone.CALM),
        (WELL, "Postgres answers, Redis answers. Health finds nothing wrong at this moment.", Tone.CALM),
        (
            (WELL[0], UNSEEN_REDIS),
            "Postgres answers, Redis is not seen from here. Health finds nothing wrong at this moment.",
            Tone.CALM,
        ),
        (
            (WELL[0], WELL[1]._replace(state=State.WARNING, is_pressing=True), NO_MODEL_SERVER),
            "Postgres answers, Redis is in trouble. Wrong now: churn 7 challenger, redis.",
            Tone.BAD,
        ),
    ],
)
def test_whether_all_is_healthy_names_monitor_proxies_and_both_stores(findings, words, tone):
    [row] = [row for row in a_page(beside=Beside(findings)).glance if row.question == "Is all healthy"]

    assert (row.answer, row.tone) == (f"{ACTED} {words}", tone)


def test_the_way_back_is_said_with_its_command():
    row = a_page().glance[-1]

    assert (row.answer, row.command) == (
        "6 answers every call again at once and the rollout ends.",
        "understudy rollback churn --reason '…'",
    )


def test_a_share_that_no_monitor_has_seen_yet_is_one_that_can_be_taken_back():
    guard = replace(WARMING, kind=Kind.GUARD, policy=POLICY)

    assert has_share(a_status(guard))
    assert a_page(guard, monitor_seconds=None).acts[-1][2:4] == (True, "6 answers every call again at once.")
    assert not has_share(a_status(WARMING))


def test_without_a_monitor_a_guard_says_that_nothing_is_taken_back_and_since_when_its_share_is_set():
    page = a_page(replace(WARMING, kind=Kind.GUARD, policy=POLICY), monitor_seconds=None)

    assert said(page, "Who gets 7").startswith("10 % of the entities")
    assert said(page, "Since when").startswith("10 % since 12:00:00 UTC (8 m). Guard 1, running 8 m")
    assert said(page, "What happens next") == (
        "Nothing by itself, since no monitor leads: 7 is not taken back, however bad it is."
    )
    assert said(page, "What would take it back") == (
        "Nothing while no monitor leads; with one, a check that fails; none has figures yet."
    )
    assert said(a_page(monitor_seconds=None), "What would take it back").startswith(
        "Nothing while no monitor leads; with one, any one of these, once it is proven:"
    )


COUNTED = "The charts count calls of both versions, and judge none."


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (WARMING, f"Nothing is judged before its first share. {COUNTED}"),
        (
            replace(WARMING, kind=Kind.GUARD, policy=POLICY),
            f"Nothing is judged before a monitor watches it. {COUNTED}",
        ),
        (STATE, f"Nothing is judged yet: the first whole 15 s of calls at this share are not in. {COUNTED}"),
        (replace(STATE, phase=Phase.FAILED), "It ended before anything was compared."),
    ],
)
def test_where_nothing_is_compared_it_says_why_beside_charts_that_have_figures(state, words):
    page = a_page(state, decision=None)

    assert (page.checks, page.no_checks) == ((), words)
    assert said(page, "Does a check fail") == words
    assert a_page().no_checks == ""


@pytest.mark.parametrize(
    ("change", "low", "why"),
    [
        (1.61, 0.98, "beyond its limit, which may be chance: its interval reaches to the other side"),
        (1.61, None, "beyond its limit, which may be chance"),
        (1.4, 0.98, ""),
    ],
)
def test_a_pass_beyond_its_limit_says_why_it_passes(change, low, why):
    [row, _] = a_page(decision=replace(HOLD, evidence=(ERRORS._replace(change=change, change_low=low), SLOW))).checks

    assert (row.word, row.tone, row.why) == ("pass", Tone.GOOD, why)


def test_one_that_fails_or_is_too_early_needs_no_such_words():
    rows = [ERRORS._replace(state=state) for state in (CheckState.FAIL, CheckState.TOO_EARLY)]
    shown = [a_page(decision=replace(HOLD, evidence=(row,))).checks[0].why for row in rows]

    assert shown == ["", ""]


def test_old_figures_say_neither_that_a_check_passes_nor_that_all_is_healthy():
    page = a_page(beside=Beside(WELL, Failing((), AT), is_old=True))

    assert said(page, "Does a check fail") == "Not known now: none of 2 had failed when last judged."
    assert said(page, "Is all healthy") == "Not known now: there are no newer figures."
    assert not any(row.tone is Tone.GOOD or row.why for row in page.checks)


@pytest.mark.parametrize("seconds", [None, 900.0])
def test_while_no_monitor_looks_no_sentence_says_that_no_check_fails_and_one_that_failed_is_said(seconds):
    passing = replace(HOLD, evidence=(ERRORS, SLOW._replace(state=CheckState.OK)))
    failing = replace(HOLD, evidence=(ERRORS._replace(state=CheckState.FAIL), SLOW))
    [bad] = [row for row in a_page(decision=failing, monitor_seconds=seconds).glance if row.question == FAILS]

    assert said(a_page(decision=passing, monitor_seconds=seconds), FAILS) == (
        "Not known now: none of 2 had failed when last judged."
    )
    assert (bad.answer, bad.tone) == ("error rate fails; of 2: 1 fail, 1 too early.", Tone.BAD)


def test_the_split_has_no_limit_that_its_figure_could_be_beyond():
    split = ERRORS._replace(check=SAMPLE_RATIO, change=1.01, change_low=None, limit=1.0)

    assert [row.why for row in a_page(decision=replace(HOLD, evidence=(split,))).checks] == [""]


HELD = replace(WARMING, phase=Phase.WAITING, waiting_for=WaitingFor.WARM_UP, reason="its scores differ")
BY_SCORES = BEGINS._replace(verdict=Verdict.HOLD, inputs={MOVED: {}})


def test_one_that_its_scores_hold_can_be_resumed_in_two_ways_and_another_in_one():
    held, other = a_page(HELD, events=(BEGINS, BY_SCORES)), a_page(HELD)

    assert [act.name for act in held.acts][:2] == ["Resume", "Resume, scores differ as meant"]
    assert held.acts[1].href == "/models/churn/acts/resume?rollout=1&scores=expected"
    assert held.acts[1].command == "understudy rollout resume churn --expect-different-scores --reason '…'"
    assert [act.name for act in other.acts][:2] == ["Resume", "Stop it"]
