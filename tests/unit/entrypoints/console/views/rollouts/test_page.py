"""The page of a rollout: the command line's words, what may be done, and no colour of a pass where nothing passed."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.core.canary.decision import CheckState, Decision, Evidence, Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.latency.slow_percentiles import SLOW_P99, SLOW_P999
from understudy.core.canary.latency.slow_tail import SLOW_TAIL
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.durations import clock_words
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.freeze import read_freeze
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import (
    GateRecord,
    GuardMode,
    Kind,
    Phase,
    RolloutState,
    WaitingFor,
    new_rollout_state,
)
from understudy.core.routing.policy import Role
from understudy.entrypoints.cli.rollout.status import commands_of, sentence_of
from understudy.entrypoints.cli.shared.times import moment_words
from understudy.entrypoints.console.views.rollouts.page import RolloutPage, rollout_page
from understudy.entrypoints.console.views.rollouts.seen import RolloutSeen
from understudy.entrypoints.console.views.tone import Tone
from understudy.ports.registry.registry import AuditEntry, AuditSubject
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutView
from understudy.registry.rollback_moves import NEWS_SECONDS, newest_words
from understudy.rollout.analysis import checks_to_come
from understudy.rollout.status import RolloutStatus

BEGAN = 1_795_000_800.0
NOW = BEGAN + 480
PLAN = RolloutPlan((Step(10, 300, 1_000), Step(50, 600, 2_000), Step(100, 0, 0)), keep_warm_seconds=1_800)
POLICY = PolicySeen("6", "7", 10, 4, 1)
WARMING = new_rollout_state(1, "churn", PLAN, POLICY._replace(weight_percent=0), BEGAN)
ALONE, NOTHING_YET = "Nothing by itself, since no monitor leads.", "Nothing while no monitor leads. With one:"
SOON = datetime.fromtimestamp(NOW + 200, UTC)
STATE = replace(WARMING, step_starts=(BEGAN + 60,), policy=POLICY)
ERRORS = Evidence(
    ERROR_RATE, CheckState.TOO_EARLY, 0.0021, 0.0034, 1.61, 0.98, 2.4, 1.5, 20.0, 200.0, 2.0, 20.0, 8_000, 917
)
SLOW = ERRORS._replace(check=SLOW_TAIL, state=CheckState.OK, change=1.1, change_low=0.9, change_high=1.3, evidence=1.0)
HOLD = Decision(Verdict.HOLD, "917 of 1,000 challenger requests at 10 %", (ERRORS, SLOW))
EVENTS = (
    RolloutEventRecord(1, BEGAN, 0, "PROGRESSING", None, "begins", (), {}, {}, "0.1.0", "dana"),
    RolloutEventRecord(2, BEGAN + 60, 0, "PROGRESSING", Verdict.ADVANCE, "to 10 %", (), {}, {}, "0.1.0", "monitor"),
)


def a_status(state: RolloutState = STATE, **changes: Any) -> RolloutStatus:
    finished_at = NOW if state.phase.is_final else None
    record = RolloutRecord(1, state, 3, 1, 2, "salt", 9_000, "retrain", "dana@laptop", finished_at, None)
    view = RolloutView(record, state.policy, {4: 10}, 6, 6, {}, NOW)
    view = view._replace(**{name: changes.pop(name) for name in ("proxies", "guard") if name in changes})
    rates = {Role.CHAMPION: 90.0, Role.CHALLENGER: 10.0}
    decision = None if state.phase.is_final else HOLD
    return RolloutStatus(view, EVENTS, decision, (), (917,), rates, 4.2)._replace(**changes)


def a_page(state: RolloutState = STATE, **changes: Any) -> RolloutPage:
    return rollout_page(RolloutSeen(a_status(state, **changes), None, (), {}, (1,)))


def said(page: RolloutPage, question: str) -> str:
    """Return what the first screen answers to a question, its lines behind it; empty where it is not asked."""
    return next((" ".join((row.answer, *row.more)) for row in page.glance if row.question == question), "")


NEXT, BACK = "What happens next", "What would take it back"


def decided(verdict: Verdict, *rows: Evidence) -> Decision:
    return Decision(verdict, "found", rows)


def test_its_sentence_and_its_commands_are_the_command_lines():
    page, status = a_page(), a_status()

    assert page.sentence == sentence_of(status) == f"Stays at 10 %, then version 7 gets 50 %: {HOLD.reason}"
    assert [f"→ {command}" for command in page.commands] == commands_of(status)


def test_it_shows_configured_and_observed_shares_steps_and_checks():
    page = a_page()

    assert [(row.role, row.configured, row.observed) for row in page.shares] == [
        ("champion", "90 %", "90.0 %"),
        ("challenger", "10 %", "10.0 %"),
    ]
    assert [(step.share, step.word, step.tone) for step in page.steps] == [
        ("10 %", "now", Tone.HERE),
        ("50 %", "to come", Tone.CALM),
        ("100 %", "to come", Tone.CALM),
    ]
    assert [(row.name, row.word, row.tone, row.evidence) for row in page.checks] == [
        ("error rate", "too early", Tone.CALM, "20 / 200"),
        ("slow answers", "pass", Tone.GOOD, "1 / 200"),
    ]
    assert (page.place, page.steps[0].text) == ("step 1 of 3, 10 %", "7 m (5 m asked), 917 of 1,000 requests")
    assert [(row.actor, row.verdict) for row in page.events] == [("monitor", "ADVANCE"), ("dana", "")]


@pytest.mark.parametrize(
    ("state", "tone"),
    [
        (CheckState.OK, Tone.GOOD),
        (CheckState.FAIL, Tone.BAD),
        (CheckState.INVALID, Tone.BAD),
        (CheckState.TOO_EARLY, Tone.CALM),
        (CheckState.UNPROVEN, Tone.WAIT),
        (CheckState.WARMING, Tone.WAIT),
        (CheckState.SHARED, Tone.WAIT),
    ],
)
def test_a_check_has_the_tone_of_its_state_and_a_word(state, tone):
    [row] = a_page(decision=decided(Verdict.HOLD, ERRORS._replace(state=state))).checks

    assert row.tone is tone
    assert ("pass" in row.word) == (state is CheckState.OK)


def test_a_check_whose_whole_interval_is_worse_never_has_the_tone_of_a_pass():
    worse = ERRORS._replace(state=CheckState.OK, change_low=1.6)

    [row] = a_page(decision=decided(Verdict.HOLD, worse)).checks

    assert (row.tone, row.word) == (Tone.WAIT, "worse, not proven yet")


def test_a_check_that_fails_goes_before_a_calm_phase():
    assert a_page(decision=decided(Verdict.ROLL_BACK, ERRORS._replace(state=CheckState.FAIL))).tone is Tone.BAD


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"monitor_seconds": None}, "No monitor looks at this rollout"),
        ({"monitor_seconds": 400.0}, "No monitor looks at this rollout"),
        ({"proxies": 0}, "No live proxy"),
    ],
)
def test_a_silent_monitor_and_absent_proxies_are_warned_of_and_are_not_calm(changes, warning):
    page = a_page(**changes)

    assert page.warnings[0].startswith(warning)
    assert page.tone is Tone.WAIT


@pytest.mark.parametrize(
    "changes",
    [
        {"monitor_seconds": None},
        {"monitor_seconds": 400.0},
        {"decision": None, "stored": Verdict.HOLD},
    ],
    ids=["no monitor", "a silent monitor", "windows gone"],
)
def test_a_pass_that_no_monitor_vouches_for_now_is_none(changes):
    found = dict(changes)
    stored = found.pop("stored", None)
    status = a_status(**found)
    if stored is not None:  # what the last verdict stored stands there still
        kept = status.events[0]._replace(verdict=stored, evidence=[SLOW.to_json()])
        status = status._replace(events=(kept,))

    page = rollout_page(RolloutSeen(status, None, (), {}, (1,)))

    assert [(row.word, row.tone) for row in page.checks if row.name == "slow answers"] == [("not known now", Tone.CALM)]
    assert not any(row.tone is Tone.GOOD or "pass" in row.word for row in page.checks)


WAITING = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.PAUSE, reason="paused by dana: lunch")
FAILED = replace(STATE, phase=Phase.FAILED, reason="version 7 rolled back at 10 %")
PROMOTED = replace(STATE, phase=Phase.PROMOTING, step_starts=(1.0, 2.0, 3.0), promoted_at=NOW)


@pytest.mark.parametrize(
    ("state", "names"),
    [
        (WARMING, ["Pause", "Stop it", "Roll back"]),
        (STATE, ["Pause", "Promote a step", "Roll back"]),
        (WAITING, ["Resume", "Promote a step", "Roll back"]),
        (replace(WAITING, waiting_for=WaitingFor.APPROVAL, gate=GateRecord(1.0)), ["Approve", "Pause", "Roll back"]),
        (
            replace(WAITING, waiting_for=WaitingFor.APPROVAL, gate=GateRecord(1.0, is_refused=True)),
            ["Approve", "Ask the gate again", "Pause", "Roll back"],
        ),
        (PROMOTED, ["Roll back"]),
        (FAILED, ["Roll back"]),
        (replace(STATE, kind=Kind.GUARD), ["Roll back"]),
    ],
)
def test_what_the_state_machine_would_do_is_offered_and_a_rollback_always(state, names):
    assert [act.name for act in a_page(state).acts] == names


@pytest.mark.parametrize(
    ("state", "urgent", "rollback"),
    [
        (
            WARMING,
            ["Stop it"],
            "Takes back a share of the calls, of which 7 has none yet: it changes nothing now.",
        ),
        (STATE, ["Roll back"], "6 answers every call again at once and the rollout ends."),
        (replace(STATE, kind=Kind.GUARD), ["Roll back"], "6 answers every call again at once."),
        (replace(WARMING, kind=Kind.GUARD, policy=POLICY), ["Roll back"], "6 answers every call again at once."),
        (FAILED, [], "Takes back at once what moved calls last: a share, or a change of champion."),
    ],
)
def test_each_act_says_what_it_does_and_the_way_out_is_the_one_that_does_something(state, urgent, rollback):
    acts = a_page(state).acts

    assert [act.name for act in acts if act.is_urgent] == urgent
    assert acts[-1].what == rollback
    assert all(act.what for act in acts)


def test_each_act_has_the_command_that_does_the_same():
    page = a_page(WARMING)

    assert [(act.name, act.command) for act in page.acts] == [
        ("Pause", "understudy rollout pause churn --reason '…'"),
        ("Stop it", "understudy rollout abort churn --reason '…'"),
        ("Roll back", "understudy rollback churn --reason '…'"),
    ]
    assert "to end it before its first share: understudy rollout abort churn" in page.commands


def test_a_promotion_that_was_taken_back_opens_with_who_answers_now_and_is_not_green():
    left = POLICY._replace(champion="7", challenger=None)
    over = replace(PROMOTED, phase=Phase.SUCCEEDED, policy=left, reason="version 7 is champion")
    moment = datetime.fromtimestamp(NOW, UTC)
    rows = ({"champion_version": 7}, {"champion_version": 6})
    entry = AuditEntry(
        1, "churn", 5, moment, "k1", "console", "slow", "update", *rows, AuditSubject.POLICY, "churn", None
    )
    later = ({**rows[1], "challenger_version": None}, {**rows[1], "challenger_version": 8})
    only_a_challenger = entry._replace(
        id=2, actor="dana", via="cli", reason="features", before=later[0], after=later[1]
    )
    status = a_status(over)
    audit = (only_a_challenger, entry)
    seen = [
        RolloutSeen(status._replace(view=status.view._replace(policy=now)), None, audit, {}, (1,))
        for now in (left, POLICY)
    ]
    kept, back = [rollout_page(one) for one in seen]

    assert (kept.sentence, kept.tone) == ("version 7 is champion", Tone.GOOD)
    assert back.sentence.startswith("6 answers now (by k1 via console at ")
    assert back.sentence.endswith(": slow). This rollout ended with: version 7 is champion")
    assert back.tone is Tone.WAIT
    unread = rollout_page(seen[1]._replace(audit=(only_a_challenger,)))
    assert unread.sentence == "6 answers now. This rollout ended with: version 7 is champion"


def a_rollback(at: float) -> AuditEntry:
    before = {"champion_version": 6, "challenger_version": 7, "challenger_weight": 10, "arms": []}
    rows = (before, {**before, "challenger_weight": 0})
    moment, subject = datetime.fromtimestamp(at, UTC), AuditSubject.POLICY
    return AuditEntry(1, "churn", 5, moment, "dana", "cli", "slow", "update", *rows, subject, "churn", None)


def test_a_rollback_that_a_newer_rollout_hides_is_told_quietly_and_names_the_version():
    earlier, within = a_rollback(BEGAN - 60), a_rollback(BEGAN + 60)
    long_ago = a_rollback(NOW - NEWS_SECONDS - 1)
    changes, labels = (earlier, within, long_ago), {6: "v6", 7: "v7"}
    pages = [rollout_page(RolloutSeen(a_status(), None, (one,), labels, (1,))) for one in changes]

    assert [page.earlier for page in pages] == [
        f"Earlier, calls of version v7 were taken back {newest_words(earlier)}",
        "",
        "",
    ]
    assert [(page.warnings, page.tone) for page in pages] == [((), Tone.CALM)] * 3


def test_a_rollout_that_succeeded_says_nothing_of_a_rollback_before_it_and_one_that_failed_does():
    audit = (a_rollback(BEGAN - 60),)
    succeeded = replace(PROMOTED, phase=Phase.SUCCEEDED, reason="version 7 is champion")
    pages = [rollout_page(RolloutSeen(a_status(one), None, audit, {}, (1,))) for one in (succeeded, FAILED)]

    assert [bool(page.earlier) for page in pages] == [False, True]


def test_a_champion_that_was_taken_back_is_the_version_that_is_named():
    entry = a_rollback(BEGAN - 60)
    before = {"champion_version": 8, "challenger_version": None, "challenger_weight": 0, "previous_champion": 6}
    back = entry._replace(before=before, after={**before, "champion_version": 6})
    page = rollout_page(RolloutSeen(a_status(), None, (back,), {6: "v6", 8: "v8"}, (1,)))

    assert page.earlier.startswith("Earlier, calls of version v8 were taken back by dana")


def test_a_step_that_was_taken_by_hand_has_no_mark_of_a_pass():
    state = replace(STATE, step_starts=(1.0, 2.0, 3.0))
    proven = RolloutEventRecord(3, 2.0, 1, "PROGRESSING", Verdict.ADVANCE, "to 50 %", (), {}, {}, "0.1.0", "monitor")
    by_hand = RolloutEventRecord(4, 3.0, 2, "PROMOTING", None, "by dana: go", (), {}, {}, "0.1.0", "dana")
    steps = a_page(state, events=(*EVENTS, proven, by_hand)).steps

    assert [(step.word, step.tone) for step in steps] == [
        ("passed", Tone.GOOD),
        ("taken by hand", Tone.WAIT),
        ("now", Tone.HERE),
    ]


def test_acts_are_on_the_newest_rollouts_page_alone():
    page = rollout_page(RolloutSeen(a_status(FAILED), None, (), {}, (2, 1)))

    assert (page.acts, page.is_newest) == ((), False)
    assert [(other.href, other.is_this) for other in page.others] == [
        ("/models/churn/rollouts/2", False),
        ("/models/churn/rollouts/1", True),
    ]


def test_a_model_with_any_name_has_an_address():
    state = replace(STATE, model_name="a/b?<c>")

    assert a_page(state).acts[-1].href == "/models/a%2Fb%3F%3Cc%3E/acts/rollback?rollout=1"


@pytest.mark.parametrize(
    ("state", "changes", "then"),
    [
        (WARMING, {}, "The monitor warms 7 up; then its first share is 10 %."),
        (STATE, {}, "It stays at 10 % until its evidence is there; then version 7 gets 50 %."),
        (
            replace(STATE, step_starts=(NOW - 100,)),
            {},
            f"It stays at 10 % until {SOON:%H:%M:%S} UTC at the earliest; then version 7 gets 50 %.",
        ),
        (
            replace(
                STATE, step_starts=(NOW - 100,), plan=replace(STATE.plan, steps=(Step(10, 3_600, 0), *PLAN.steps[1:]))
            ),
            {},
            f"It stays at 10 % until {clock_words(NOW + 3_500)} at the earliest; then version 7 gets 50 %.",
        ),
        (
            STATE,
            {"decision": replace(HOLD, needs_human=True)},
            "It stays at 10 % until a person decides.",
        ),
        (STATE, {"decision": decided(Verdict.ADVANCE)}, "At the monitor's next tick version 7 gets 50 %."),
        (STATE, {"decision": decided(Verdict.ROLL_BACK)}, "At the monitor's next tick every call goes back to 6."),
        (
            STATE,
            {"decision": decided(Verdict.ROLL_BACK), "monitor_seconds": 60.0},
            f"{ALONE} Roll back gives 6 every call at once; a monitor does it at its first tick.",
        ),
        (
            STATE,
            {"monitor_seconds": None},
            f"{NOTHING_YET} It stays at 10 % until its evidence is there; then version 7 gets 50 %.",
        ),
        (
            replace(STATE, step_starts=(1.0, 2.0)),
            {"decision": decided(Verdict.ADVANCE)},
            "At the monitor's next tick version 7 becomes champion.",
        ),
        (FAILED, {}, "Nothing more: it is over."),
        (
            replace(STATE, kind=Kind.GUARD),
            {"guard": GuardMode.ALERT},
            "Nothing by itself: when a check fails the monitor alerts, and changes nothing.",
        ),
    ],
)
def test_what_happens_next_is_said(state, changes, then):
    assert said(a_page(state, **changes), NEXT) == then


def warming(seconds: float, **changes: Any) -> RolloutPage:
    return a_page(replace(WARMING, limit_from=NOW - seconds, **changes), decision=None)


def test_a_warm_up_says_what_it_waits_for_and_since_when_in_the_command_lines_words():
    page = warming(4)

    assert page.sentence == (
        f"Warming up since {moment_words(NOW - 4)} UTC (4 s); no caller meets 7 until it passes: "
        "7's model servers have to say that they are ready, and to answer example calls."
    )
    assert page.sentence == sentence_of(a_status(replace(WARMING, limit_from=NOW - 4), decision=None))
    assert (page.is_overdue, page.tone) == (False, Tone.CALM)


@pytest.mark.parametrize(
    ("seconds", "then"),
    [
        (61, "After 5 m of failures the monitor asks a person."),
        (480, "By now a monitor that works would have asked a person."),
    ],
)
def test_a_warm_up_of_more_than_a_minute_is_overdue_and_names_where_to_look(seconds, then):
    page = warming(seconds)

    assert "Overdue" in page.sentence
    assert "Health (understudy doctor)" in page.sentence
    assert page.sentence.endswith(then)
    assert (page.is_overdue, page.tone) == (True, Tone.WAIT)


def test_a_warm_up_in_a_freeze_says_so_and_is_not_overdue():
    day = f"{datetime.fromtimestamp(NOW, UTC):%a}"
    page = warming(480, plan=replace(PLAN, freezes=(read_freeze(f"{day} 00:00 - {day} 23:59 UTC"),)))

    assert page.sentence.startswith("Its first step waits: frozen until ")
    assert (page.is_overdue, page.tone) == (False, Tone.CALM)


def test_a_rollout_that_waits_says_for_whom_and_that_it_is_still_watched():
    page = a_page(WAITING)

    assert page.sentence == "Waits for a person: paused by dana: lunch"
    assert page.tone is Tone.WAIT
    assert "until a person resumes" in said(page, NEXT)
    assert "still taken back" in said(page, NEXT)


def test_one_that_waits_after_its_promotion_names_no_act_that_is_not_there():
    page = a_page(replace(WAITING, promoted_at=BEGAN + 400))

    assert said(page, NEXT).startswith(
        "7 answers every call and 6 is kept warm until a person resumes or takes it back."
    )
    assert "Promote a step" not in [act.name for act in page.acts]


def test_what_would_take_it_back_names_each_check_and_those_that_are_nearest_with_their_figures():
    [row] = [row for row in a_page().glance if row.question == BACK]

    assert row.answer == "Any one of these, once it is proven:"
    assert row.more == (
        "error rate above 1.5x the champion's: now 1.61x (0.98\N{EN DASH}2.4); evidence: 20 of the 200 that prove it",
        "slow answers above 1.5x the champion's: now 1.1x (0.9\N{EN DASH}1.3); evidence: 1 of the 200 that prove it",
    )
    many = [ERRORS._replace(check=check) for check in (ERROR_RATE, SLOW_TAIL, TYPICAL_LATENCY, SLOW_P99, SLOW_P999)]
    all_named = a_page(decision=decided(Verdict.HOLD, *many))
    assert said(all_named, BACK).endswith(
        " slowest 1 % above 1.5x the champion's, slowest 0.1 % above 1.5x the champion's"
    )
    ratio = ERRORS._replace(check=SAMPLE_RATIO)
    with_ratio = a_page(decision=decided(Verdict.HOLD, ERRORS, ratio))
    assert not any("sample ratio" in line for one in with_ratio.glance if one.question == BACK for line in one.more)
    assert said(a_page(FAILED), BACK) == ""
    assert said(a_page(decision=None), BACK) == "A check that fails; none has figures yet."


def test_before_the_first_call_it_names_the_checks_that_will_be_made_with_their_limits():
    plan = replace(PLAN, canary_limits={"tolerated_error_ratio": 1.5, "outcomes": [{"name": "bought"}]})
    status = a_status(replace(WARMING, plan=plan), decision=None)
    page = rollout_page(RolloutSeen(status._replace(to_come=checks_to_come(status.view)), None, (), {}, (1,)))

    [row] = [row for row in page.glance if row.question == BACK]
    assert row.answer == "Any one of these, once it is proven by calls that 7 has answered:"
    assert row.more[0] == "error rate above 1.5x the champion's"
    assert "typical latency above 1.1x the champion's" in row.more
    assert "outcome bought beyond 0.95x" in row.more
    assert row.more[-1].startswith("soonest: within 90 s of its first calls where each of them fails")
    assert not any("sample ratio" in line for line in row.more)
    assert page.checks == ()


def test_a_guard_that_only_alerts_takes_nothing_back():
    page = a_page(replace(STATE, kind=Kind.GUARD), guard=GuardMode.ALERT)

    assert said(page, BACK).startswith("Nothing by itself; an operator is alerted by any one of these")


def test_a_champion_without_errors_is_said_in_words_and_not_as_infinity():
    none = ERRORS._replace(champion=0.0, change=float("inf"), change_low=0.0, change_high=float("inf"))
    page = a_page(decision=decided(Verdict.HOLD, none))

    assert page.checks[0].change == "champion had none"
    assert said(page, BACK).endswith(
        "error rate above 1.5x the champion's: champion had none; evidence: 20 of the 200 that prove it"
    )


def test_checks_that_fail_stand_first_and_the_others_as_they_were_judged():
    slow = ERRORS._replace(check=SLOW_TAIL, state=CheckState.FAIL)
    passed = ERRORS._replace(state=CheckState.OK, change=1.0, change_low=0.9)

    assert [row.tone for row in a_page(decision=decided(Verdict.ROLL_BACK, passed, slow)).checks] == [
        Tone.BAD,
        Tone.GOOD,
    ]


def test_one_that_goes_back_says_so_first_and_names_no_further_reason():
    page = a_page(decision=decided(Verdict.ROLL_BACK, ERRORS))

    assert page.sentence == "Goes back to 6 at the monitor's next tick: found"
    assert said(page, BACK) == ""


@pytest.mark.parametrize("changes", [{"phase": Phase.WAITING, "waiting_for": WaitingFor.PAUSE}, {"promoted_at": 3.0}])
def test_one_that_waits_or_is_kept_warm_says_as_well_that_it_goes_back(changes):
    page = a_page(replace(STATE, **changes), decision=decided(Verdict.ROLL_BACK, ERRORS))

    assert page.sentence == "Goes back to 6 at the monitor's next tick: found"
    assert said(page, NEXT) == "At the monitor's next tick every call goes back to 6."
    assert said(page, BACK) == ""


def test_nothing_is_said_to_go_back_while_a_persons_change_is_in_the_way():
    state = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.CONFLICT)
    page = a_page(state, decision=decided(Verdict.ROLL_BACK, ERRORS))

    assert "goes back" not in f"{page.sentence} {said(page, NEXT)}".lower()


@pytest.mark.parametrize(("weight", "then"), [(0, " 6 answers every call."), (10, "")])
def test_after_its_end_it_says_who_answers_where_that_is_one_version(weight, then):
    status = a_status(FAILED)
    seen = status.view._replace(policy=POLICY._replace(weight_percent=weight))
    page = rollout_page(RolloutSeen(status._replace(view=seen), None, (), {}, (1,)))

    assert said(page, NEXT) == f"Nothing more: it is over.{then}"


def test_a_version_that_no_monitor_takes_back_is_not_said_to_go_back():
    page = a_page(STATE, decision=decided(Verdict.ROLL_BACK), monitor_seconds=60.0)

    assert page.sentence == "Has to go back to 6, and no monitor does that: found"
