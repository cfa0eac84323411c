"""What ``rollout show`` and ``rollout watch`` say, at 80 and at 120 columns, and the page of ``--html``."""

import io
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from rich.console import Console
from stats.worlds import Traffic, World

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import CheckState, Decision, Evidence, Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.latency.slow_tail import SLOW_TAIL
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.canary.scores.score_shift import SCORE_SHIFT
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.history import DecisionAt, LeftOut
from understudy.core.rollout.plan import Gate, GatePlace, RolloutPlan, Step
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
from understudy.core.windows.strata import stratify
from understudy.core.windows.strata_codec import strata_to_text
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.entrypoints.cli.rollout.checks_text import check_change_words, sparkline
from understudy.entrypoints.cli.rollout.page import rollout_page
from understudy.entrypoints.cli.rollout.status import heading, status_view
from understudy.entrypoints.cli.rollout.text import end_words, ladder_cells, listing, replay_lines
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutView
from understudy.rollout.analysis import policy_of, stage_of
from understudy.rollout.history import RolloutHistory, history_of
from understudy.rollout.status import RolloutStatus
from understudy.rollout.verdicts.replay import Damage, Replay

BEGAN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp() - 60
PLAN = RolloutPlan(
    (Step(10, 300, 1_000), Step(50, 600, 2_000), Step(100, 0, 0)),
    keep_warm_seconds=1_800,
    canary_limits={"detectable_ratio": 5, "score_shift_limit": 0.2},
)
POLICY = PolicySeen("6", "7", 50, 4, 1)
STATE = replace(
    new_rollout_state(1, "churn", PLAN, POLICY._replace(weight_percent=0), BEGAN),
    step_starts=(BEGAN + 60, BEGAN + 360),
    policy=POLICY,
)
NOW = BEGAN + 480
ERRORS = Evidence(
    ERROR_RATE, CheckState.TOO_EARLY, 0.0021, 0.0034, 1.61, 0.98, 2.4, 1.0, 20.0, 200.0, 2.0, 20.0, 8_000, 917
)
SLOW = ERRORS._replace(
    check=SLOW_TAIL, state=CheckState.OK, champion=0.0001, challenger=0.0897, change=897.0, change_low=122.0,
    change_high=float("inf"), evidence=90.0, evidence_needed=400.0,
)  # fmt: skip
TYPICAL = ERRORS._replace(
    check=TYPICAL_LATENCY, state=CheckState.OK, champion=0.0312, challenger=0.035, change=1.12, change_low=1.08,
    change_high=1.17, limit=1.2, evidence=0.5, evidence_needed=400.0,
)  # fmt: skip
SCORES = ERRORS._replace(
    check=SCORE_SHIFT, state=CheckState.FAIL, champion=0.321, challenger=0.334, change=-0.42, change_low=-0.5,
    change_high=-0.31, limit=0.2, evidence=1e250, evidence_needed=1_000.0,
)  # fmt: skip
SPLIT = ERRORS._replace(
    check=SAMPLE_RATIO, state=CheckState.OK, champion=8_655.0, challenger=1_413.0, change=0.998, change_low=None,
    change_high=None, evidence=1.0, evidence_needed=10_000.0,
)  # fmt: skip
DECISION = Decision(Verdict.HOLD, "917 of 2,000 challenger requests at 50 %", (ERRORS, SLOW, TYPICAL, SCORES, SPLIT))


def an_event(number: int, at: float, phase: Phase, reason: str, **values: Any) -> RolloutEventRecord:
    event = RolloutEventRecord(number, BEGAN + at, 0, phase.value, None, reason, (), {}, {}, "0.0.9", "monitor")
    return event._replace(**values)


EVENTS = (
    an_event(1, 0, Phase.PROGRESSING, "begins", actor="dana"),
    an_event(2, 60, Phase.PROGRESSING, "version 7 goes from 0 to 10 %: the warm-up passed"),
    an_event(
        3, 200, Phase.WAITING, "the challenger met 3 of 100 entities",
        verdict=Verdict.INVALID,
    ),
    an_event(4, 220, Phase.PROGRESSING, "goes on by dana", actor="dana"),
    an_event(5, 360, Phase.PROGRESSING, "version 7 goes from 10 to 50 %: fine"),
)  # fmt: skip


def a_status(state: RolloutState = STATE, policy: PolicySeen | None = POLICY, **changes: Any) -> RolloutStatus:
    finished_at = NOW if state.phase.is_final else None
    record = RolloutRecord(1, state, 3, 1, 2, "salt", 9_000, "weekly retrain", "dana@laptop", finished_at, None)
    view = RolloutView(record, policy, {3: 10, 4: 50}, 6, 6, {}, NOW)
    decisions = [DecisionAt(NOW, DECISION)] * 30
    rates = {Role.CHAMPION: 1_061.4, Role.CHALLENGER: 95.26}
    return RolloutStatus(view, EVENTS, DECISION, decisions, (1_226, 917), rates, 4.2)._replace(**changes)


def screen(texts: Sequence[Any], width: int) -> str:
    shown = io.StringIO()
    console = Console(file=shown, width=width, color_system=None, highlight=False, markup=False)
    for text in texts:
        console.print(text)
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())


AT_80 = """\
churn  6 → 7   PROGRESSING   step 2 of 3   50 %
rollout 1, running 8 m since 20 Nov 11:59 UTC, by dana@laptop "weekly retrain"
generation 4 on 6 of 6 live proxies · monitor 4 s ago

Stays at 50 %, then version 7 becomes champion: 917 of 2,000 challenger requests
at 50 %

  champion 6       ████████████████████████░░  91.8 %  1,061/s  set 50 %
  challenger 7     ██░░░░░░░░░░░░░░░░░░░░░░░░   8.2 %  95.3/s  set 50 %

check            champion  challenger        change (95 %)   limit  verdict
────────────────────────────────────────────────────────────────────────────────
error rate         0.21 %      0.34 %     1.61x (0.98–2.4)      1x  … too early
slow answers       0.01 %      8.97 %         897x (122–∞)      1x  … worse, not
                                                                      proven yet
typical latency   31.2 ms       35 ms    1.12x (1.08–1.17)    1.2x  ✔ pass
mean score          0.321       0.334  −0.42 (−0.50…−0.31)  0.2 sd  ✖ fail
sample ratio        8,655       1,413               0.998x       -  ✔ pass

   10 %  ✔ 5 m   1,226 requests   passed 12:05 UTC
   50 %  ● 2 m of 10 m   917 of 2,000 requests
  100 %  ○ 7 becomes champion, 6 is kept warm for 30 m

  0:00    begins
  1:00    version 7 goes from 0 to 10 %: the warm-up passed
  3:20 !  the challenger met 3 of 100 entities
  3:40    goes on by dana
  6:00    version 7 goes from 10 to 50 %: fine

→ to stop here: understudy rollout pause churn
→ to take it back: understudy rollback churn\
"""  # noqa: RUF001  # as the screen has it
AT_120 = """\
churn  6 → 7   PROGRESSING   step 2 of 3   50 %
rollout 1, running 8 m since 20 Nov 11:59 UTC, by dana@laptop "weekly retrain"
generation 4 on 6 of 6 live proxies · monitor 4 s ago

Stays at 50 %, then version 7 becomes champion: 917 of 2,000 challenger requests at 50 %

  champion 6       █████████████████████████████████████░░░  91.8 %  1,061/s  set 50 %
  challenger 7     ███░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░   8.2 %  95.3/s  set 50 %

                                                                            evidence /
check            champion  challenger        change (95 %)   limit              enough  last 30          verdict
─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
error rate         0.21 %      0.34 %     1.61x (0.98–2.4)      1x            20 / 200  ▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅  … too early
slow answers       0.01 %      8.97 %         897x (122–∞)      1x            90 / 400  ▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆  … worse, not
                                                                                                           proven yet
typical latency   31.2 ms       35 ms    1.12x (1.08–1.17)    1.2x             0 / 400  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  ✔ pass
mean score          0.321       0.334  −0.42 (−0.50…−0.31)  0.2 sd  >1,000,000 / 1,000  ███████████████  ✖ fail
sample ratio        8,655       1,413               0.998x       -          1 / 10,000  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  ✔ pass

   10 %  ✔ 5 m   1,226 requests   passed 12:05 UTC
   50 %  ● 2 m of 10 m   917 of 2,000 requests
  100 %  ○ 7 becomes champion, 6 is kept warm for 30 m

  0:00    begins
  1:00    version 7 goes from 0 to 10 %: the warm-up passed
  3:20 !  the challenger met 3 of 100 entities
  3:40    goes on by dana
  6:00    version 7 goes from 10 to 50 %: fine

→ to stop here: understudy rollout pause churn
→ to take it back: understudy rollback churn\
"""  # noqa: RUF001  # as the screen has it


@pytest.mark.parametrize(("width", "expected"), [(80, AT_80), (120, AT_120)])
def test_a_rollout_under_way_looks_like_this(width, expected):
    text = screen(status_view(a_status(), width), width)

    assert text == expected


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("waiting_for", "commands"),
    [
        (WaitingFor.PAUSE, ["rollout resume churn", "rollout abort churn"]),
        (WaitingFor.CONFLICT, ["audit list churn", "rollout resume churn", "rollout abort churn"]),
        (WaitingFor.TIME, ["rollout promote churn", "rollout resume churn", "rollout abort churn"]),
        (WaitingFor.SPLIT, ["understudy doctor", "rollout resume churn", "rollout abort churn"]),
        (WaitingFor.WARM_UP, ["version show churn 7", "rollout resume churn", "rollout abort churn"]),
        (WaitingFor.APPROVAL, ["rollout approve churn", "rollout show churn --html", "rollout abort churn"]),
    ],
)
def test_a_rollout_that_waits_says_for_what_and_the_commands(waiting_for, commands, width):
    state = replace(STATE, phase=Phase.WAITING, waiting_for=waiting_for, reason="paused by dana: lunch")

    text = screen(status_view(a_status(state), width), width)

    assert "Waits for a person: paused by dana: lunch" in text
    last = [line for line in text.splitlines() if line.startswith("→")]
    assert [command in line for command, line in zip(commands, last, strict=True)] == [True] * len(commands)
    assert max(map(len, text.splitlines())) <= width


def test_a_rollout_at_a_gate_says_for_whom_since_when_and_who_may_stand_in():
    plan = replace(STATE.plan, gates={GatePlace.BEFORE_PROMOTION: Gate(http="quality")})
    state = replace(
        STATE, plan=plan, phase=Phase.WAITING, waiting_for=WaitingFor.GATE, reason="once quality lets it pass",
        gate=GateRecord(NOW - 120),
    )  # fmt: skip
    refused = replace(state, waiting_for=WaitingFor.APPROVAL, gate=GateRecord(NOW - 120, is_refused=True))

    waits, asked_again = (" ".join(screen(status_view(a_status(one), 120), 120).split()) for one in (state, refused))
    begins = screen(status_view(a_status(replace(state, step_starts=())), 120), 120)

    assert "Waits for the service quality: once quality lets it pass; at the gate since" in waits
    assert "UTC (2 m)" in waits
    assert "WAITING   before its first step" in begins
    assert "to approve it in the gate's place: understudy rollout approve churn" in waits
    assert "to ask the gate again: understudy rollout resume churn" in asked_again
    assert "rollout resume" not in waits


def test_a_step_that_has_more_than_was_asked_does_not_read_as_an_error():
    [_, enough, _], [_, short, _] = [ladder_cells(a_status(requests=(1_226, has))) for has in (2_500, 917)]

    assert enough[2] == "2 m of 10 m   2,500 requests (2,000 asked)"
    assert short[2] == "2 m of 10 m   917 of 2,000 requests"


def test_a_list_says_for_whom_each_rollout_waits():
    plan = replace(STATE.plan, gates={GatePlace.BEFORE_PROMOTION: Gate(http="quality")})
    waiting = replace(STATE, phase=Phase.WAITING)
    states = [
        replace(waiting, waiting_for=WaitingFor.PAUSE),
        replace(waiting, waiting_for=WaitingFor.APPROVAL),
        replace(waiting, waiting_for=WaitingFor.GATE, plan=plan, gate=GateRecord(NOW - 120)),
    ]
    records = [a_status(state).view.record for state in (STATE, *states)]

    text = screen([listing(records, {})], 160)

    phases = re.findall("PROGRESSING|WAITING for .*? {2,}", text)
    assert [one.strip() for one in phases] == [
        "PROGRESSING", "WAITING for a person", "WAITING for a person", "WAITING for the service quality",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
def test_a_rollout_that_waits_because_of_its_scores_says_how_they_differ_and_how_it_goes_on(width):
    reason = "version 7 had no call yet: it gives 1 score where the champion gives 170, in 200 calls"
    state = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.WARM_UP, reason=reason)
    held = an_event(9, 60, Phase.WAITING, reason)._replace(verdict=Verdict.HOLD, inputs={"agreement": {}})

    text = screen(status_view(a_status(state)._replace(events=[held]), width), width)

    last = [line for line in text.splitlines() if line.startswith("→")]
    commands = ["log replay churn 7", "resume churn --expect-different-scores", "resume churn", "abort churn"]
    assert [line.endswith(command) for command, line in zip(commands, last, strict=True)] == [True] * 4
    assert max(map(len, text.splitlines())) <= width


PROMOTED = replace(
    STATE,
    phase=Phase.PROMOTING,
    promoted_at=NOW - 120,
    step_starts=(*STATE.step_starts, NOW - 120),
    policy=PolicySeen("7", None, 0, 5, 1),
)


def test_a_check_that_waits_for_a_cold_server_says_so_on_screen_and_page():
    warming = TYPICAL._replace(state=CheckState.WARMING)
    decision = replace(DECISION, reason="typical latency 35 ms vs 31.2 ms: warming", evidence=(ERRORS, warming))
    shown = a_status(decision=decision)

    assert re.search(r"^typical latency .* … warming$", screen(status_view(shown, 80), 80), re.MULTILINE)
    assert ">… warming</td>" in rollout_page(shown, RolloutHistory((), (), None, windows_are_gone=False))


def test_after_the_promotion_it_says_until_when_the_old_champion_is_kept_and_what_brings_it_back():
    status = a_status(PROMOTED, PROMOTED.policy, decisions=(), requests=())

    text = screen(status_view(status, 80), 80)

    said = " ".join(text.split())
    assert "7 is champion; 6 is kept warm until 12:35 UTC (28 m more)." in said
    assert "more than 1.5x the errors or slow answers, or a typical latency of 1.6x" in said
    assert "So far: 917 of 2,000" in said
    assert "6 before" in said
    assert "sample ratio" not in said
    assert "champion 7" in said
    assert "challenger 7" not in said
    assert text.endswith("→ to put 6 back at once: understudy rollback churn")


def test_of_a_new_champion_that_went_back_it_shows_the_checks_beside_the_one_before_it():
    back = replace(PROMOTED, phase=Phase.FAILED, reason="version 6 is champion again, version 7 got worse")
    rows = [row.to_json() for row in DECISION.evidence]
    told = an_event(6, 480, Phase.FAILED, back.reason, verdict=Verdict.ROLL_BACK, evidence=rows)
    rolled_back, taken_back = (
        screen(status_view(a_status(state, decision=None, decisions=(), events=(*EVENTS, event)), 80), 80)
        for state, event in ((back, told._replace(inputs={"after_promotion": True})), (FAILED, told))
    )

    assert "6 before" in rolled_back
    assert "sample ratio" not in rolled_back
    assert "champion" in taken_back
    assert "sample ratio" in taken_back


GUARD = replace(STATE, kind=Kind.GUARD, step_starts=(BEGAN,), plan=RolloutPlan((Step(50, 0, 0), Step(100, 0, 0))))


def test_a_guard_says_what_it_watches_and_no_step_that_it_will_not_take():
    text = screen(status_view(a_status(GUARD), 80), 80)

    assert "guard at 50 %" in text
    assert "guard 1, running" in text
    assert "Watches, rollback when it fails; no verdict yet: 917 of 2,000" in text
    assert "becomes champion" not in text
    assert "understudy rollback churn" in text
    assert "model set churn --guard" in text


def test_beside_further_arms_the_champions_own_share_is_said_and_how_one_version_alone_is_taken_back():
    status = a_status(replace(GUARD), calls_per_second=None)
    view = status.view._replace(record=status.view.record._replace(guard_id=1), champion_percent=30)

    text = screen(status_view(status._replace(view=view), 80), 80)

    assert "30.0 %" in text
    assert "50.0 %" in text
    assert "all shares back: understudy rollback churn" in text
    assert "this one alone: understudy model set churn --arm 7=0" in text


def test_a_guard_that_waits_says_what_it_found_and_one_that_ended_is_no_new_champion():
    failed = replace(GUARD, phase=Phase.WAITING, reason="version 7 does worse at 50 %")
    over = replace(GUARD, phase=Phase.SUCCEEDED, reason="over: weight 0 in generation 9")

    assert "Waits for a person: version 7 does worse" in screen(status_view(a_status(failed), 80), 80)
    assert end_words(a_status(over).view).plain == (
        "– the guard of churn 7 ended: weight 0 in generation 9; nothing was proven against 7"  # noqa: RUF001
    )
    shown = screen(status_view(a_status(over, events=[an_event(7, 500, Phase.SUCCEEDED, over.reason)]), 80), 80)
    assert "churn  6 → 7   ENDED" in shown
    assert "Ended: weight 0 in generation 9; nothing was proven against 7" in shown
    assert "SUCCEEDED" not in shown
    assert re.search(r"^ +50 % +– ", shown, re.MULTILINE)  # noqa: RUF001
    assert "ENDED" in screen([listing([a_status(over).view.record], {})], 100)
    assert "guard" in screen([listing([a_status(over).view.record], {})], 100)


def test_with_utc_events_verdicts_and_lists_have_their_moments():
    verdict = an_event(6, 480, Phase.FAILED, "bad", verdict=Verdict.ROLL_BACK)
    again = replay_lines([(verdict, Replay(DECISION, agrees=True))], None)

    shown = screen([*status_view(a_status(), 80, utc=True), *again], 80)

    assert "2026-11-20 11:59:00Z    begins" in shown
    assert "2026-11-20 12:07:00Z ✖ ROLL_BACK  the same verdict" in shown
    assert "2026-11-20 11:59:00Z" in screen([listing([a_status().view.record], {}, utc=True)], 100)
    assert max(map(len, shown.splitlines())) <= 80


def test_the_guard_of_a_champion_says_whether_the_one_before_comes_back_by_itself():
    status = a_status(replace(PROMOTED, kind=Kind.GUARD), PROMOTED.policy, decisions=(), requests=())
    alerts = status._replace(view=status.view._replace(guard=GuardMode.ALERT))

    assert "It comes back by itself when" in " ".join(screen(status_view(status, 80), 80).split())
    said = " ".join(screen(status_view(alerts, 80), 80).split())
    assert "The monitor alerts, and changes nothing, when, beside its own last hour" in said
    assert "guard of a champion" in said


def test_a_rollout_without_traffic_and_without_a_monitor_says_both():
    text = screen(
        status_view(a_status(calls_per_second=None, monitor_seconds=None, decisions=(), decision=None), 80), 80
    )

    assert "no monitor has ever led" in text
    assert text.count("set; not counted yet") == 2
    assert "50.0 %" in text


def test_a_split_that_was_counted_and_saw_no_call_says_so():
    text = screen(status_view(a_status(calls_per_second={Role.CHAMPION: 0.0, Role.CHALLENGER: 0.0}), 80), 80)

    assert text.count("set; no calls seen") == 2


def test_a_rollout_that_warms_up_can_be_aborted_and_a_monitor_that_is_silent_is_noticed():
    warming_up = replace(STATE, step_starts=(), policy=POLICY._replace(weight_percent=0))
    status = a_status(warming_up, monitor_seconds=340.0, decision=None, decisions=(), requests=())

    text = screen(status_view(status, 80), 80)

    assert "warming up" in text
    assert "no monitor for 5 m 40 s: understudy doctor" in text
    assert text.endswith("→ to end it before its first share: understudy rollout abort churn")


def test_what_ended_is_told_with_the_checks_that_its_verdict_stored():
    reason = "version 7 rolled back at 50 %: error rate 0.34 % vs 0.21 %"
    state = replace(STATE, phase=Phase.FAILED, reason=reason, policy=POLICY._replace(weight_percent=0))
    stored = an_event(6, 480, Phase.FAILED, reason, verdict=Verdict.ROLL_BACK, evidence=[SLOW.to_json()])
    status = a_status(state, None, decision=None, decisions=(), events=(*EVENTS, stored))

    text = screen(status_view(status, 80), 80)

    assert text.count(reason) == 2, "as the verdict, and in the story"
    assert "ROLL BACK" not in text
    assert "INVALID" not in text
    assert "897x (122–∞)" in text  # noqa: RUF001  # as the table has it
    assert "✔ pass" not in text
    assert " 50 %  ✖ 2 m" in text


def test_a_verdict_that_comes_to_another_today_is_told_with_its_time():
    verdict = an_event(6, 480, Phase.FAILED, "bad", verdict=Verdict.ROLL_BACK)
    rows = [(verdict, Replay(DECISION, agrees=False)), (verdict, Replay(DECISION, agrees=True)), (EVENTS[0], None)]

    lines = screen(replay_lines(rows, BEGAN), 80).splitlines()

    assert lines[2] == "  8:00 ✖ ROLL_BACK  now HOLD: 917 of 2,000 challenger requests at 50 %"
    assert lines[3] == "  8:00 ✖ ROLL_BACK  the same verdict"
    assert replay_lines(rows[2:], BEGAN) == []


def test_an_event_that_is_damaged_is_named_among_those_that_are_not():
    verdict = an_event(6, 480, Phase.FAILED, "bad", verdict=Verdict.ROLL_BACK)
    rows: list[tuple[RolloutEventRecord, Replay | Damage | None]] = [
        (verdict, Damage("inputs is no object")),
        (verdict, Replay(DECISION, agrees=True)),
    ]

    lines = screen(replay_lines(rows, BEGAN), 100).splitlines()

    assert lines[2] == "  8:00 ! event 6 is damaged, and what rests on it is left out: inputs is no object"
    assert lines[3] == "  8:00 ✖ ROLL_BACK  the same verdict"


def test_the_sparkline_is_as_high_as_the_evidence_is_near_and_two_looks_share_a_block():
    nothing, half, all_of_it = (
        ERRORS._replace(evidence=evidence, evidence_needed=100.0) for evidence in (1.0, 10.0, 1e6)
    )

    assert sparkline([nothing, nothing, half, nothing, all_of_it, all_of_it]) == "▁▅█"
    assert sparkline([half, nothing, nothing]) == "▅▁"
    assert sparkline([ERRORS._replace(evidence=None, evidence_needed=None)]) == "▁"
    assert sparkline([]) == ""


NONE_BEFORE = {"champion": 0.0, "change": float("inf"), "change_high": float("inf")}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "1.61x (0.98–2.4)"),  # noqa: RUF001  # as the table has it
        ({**NONE_BEFORE, "change_low": 3.0}, "champion had none (at least 3x)"),
        ({**NONE_BEFORE, "change_low": 0.0}, "champion had none"),
        ({**NONE_BEFORE, "check": SAMPLE_RATIO, "change_low": None}, "∞x"),
        ({"change": 31_939.4, "change_low": None, "change_high": None}, "31,939x"),
        ({"change": None}, "-"),
        ({"change": 97.0, "change_low": None, "change_high": None, "since": 86_400.0 + 4_980.0}, "97x since 01:23 UTC"),
    ],
)
def test_a_change_is_said_with_its_interval(changes, words):
    assert check_change_words(ERRORS._replace(**changes)) == words


# -- the page ----------------------------------------------------------------------------------------------------------

FIRST = int(BEGAN + 60)
TRAFFIC = Traffic(World("bad", requests_per_minute=2_000, error_rate=0.02, error_factor=3.0, has_scores=True), 1)


def shifted(windows: Sequence[Window]) -> list[Window]:
    return [replace(w, key=w.key._replace(start=w.key.start + FIRST, model_version_id=1)) for w in windows]


WINDOWS = shifted([*TRAFFIC.windows(0, 20, 10.0, 3), *TRAFFIC.windows(20, 8, 50.0, 4)])
FAILED = replace(STATE, phase=Phase.FAILED, reason="version 7 rolled back at 50 %: <b>bad</b>")


def a_stored_verdict() -> RolloutEventRecord:
    view = a_status().view
    strata = stratify(WINDOWS, 1)
    decision = judge(strata, policy_of(view), stage_of(view), NOW)
    inputs = {"now": NOW, "stage": asdict(stage_of(view)), "strata": strata_to_text(strata)}
    inputs = orjson.loads(orjson.dumps(inputs, option=orjson.OPT_NON_STR_KEYS))
    rows = [row.to_json() for row in decision.evidence]
    return an_event(6, 480, Phase.FAILED, FAILED.reason, verdict=Verdict.ROLL_BACK, evidence=rows, inputs=inputs)


def a_history(windows: Sequence[Window], state: RolloutState = FAILED) -> tuple[RolloutStatus, RolloutHistory]:
    status = a_status(state, decision=None, decisions=(), events=(*EVENTS, a_stored_verdict()))
    return status, history_of(status.view, windows, status.events)


@pytest.mark.deep
def test_the_past_is_judged_again_at_few_moments_and_ends_with_the_verdict():
    status, history = a_history(WINDOWS)

    last = history.decisions[-1]
    assert not history.windows_are_gone
    assert len(history.decisions) <= 60
    assert last.at == NOW
    assert [row.to_json() for row in last.decision.evidence] == list(status.events[-1].evidence)
    judged_until = NOW - WINDOW_SECONDS - CanaryPolicy().watermark_seconds
    judged = [w for w in WINDOWS if w.key.role is Role.CHALLENGER and w.key.start <= judged_until]
    assert sum(history.requests) == sum(w.calls for w in judged)


@pytest.mark.deep
@pytest.mark.parametrize("left", [[], WINDOWS[20:]], ids=["all", "some"])
def test_a_past_whose_windows_were_deleted_is_the_one_that_the_last_verdict_stored(left):
    whole, again = a_history(WINDOWS)[1], a_history(left)[1]

    assert again.windows_are_gone
    assert again.decisions == whole.decisions
    assert again.requests == whole.requests
    assert again.scores is None


@pytest.mark.deep
def test_the_page_begins_with_the_verdict_and_shows_each_check_above_its_evidence():
    document = rollout_page(*a_history(WINDOWS))

    titles = re.findall(r"<title [^>]+>([^<]+)</title>", document)
    of_checks = ("both versions", "challenger / champion", "evidence that it is worse than its limit")
    assert titles == [
        "share of the challenger",
        *(f"{name}: {what}" for name in ("error rate", "slow answers", "typical latency") for what in of_checks),
        "mean score: challenger \N{MINUS SIGN} champion, in standard deviations",
        f"mean score: {of_checks[-1]}",
    ]
    assert re.findall(r"<desc [^>]+>([^<]+)</desc>", document) == re.findall(r"<figcaption>([^<]+)", document)
    assert document.index("&lt;b&gt;bad&lt;/b&gt;") < document.index("<table>") < document.index("<svg")
    assert "<b>bad" not in document
    assert ">10 %</text>" in document
    assert ">50 %</text>" in document
    assert not re.search(r"\bnan\b|\binf\b", document)
    assert "deleted" not in document
    assert "the challenger met 3 of 100 entities" in document


@pytest.mark.deep
def test_the_page_tells_failing_calls_and_a_failed_check_has_the_colour_of_one():
    document = rollout_page(*a_history(WINDOWS), ["failing calls of 7: E502 ServerFailed 9"])

    assert '<div class="says bad">' in document
    assert "failing calls of 7: E502 ServerFailed 9" in document
    assert re.search(r'<tr class="bad"><td data-name="check">[^<]+</td><td data-name="verdict">✖ ', document)


@pytest.mark.deep
def test_what_was_looked_at_once_is_no_chart_of_one_dot():
    status, history = a_history(WINDOWS)
    once = history._replace(decisions=history.decisions[-1:], calls=history.calls[-1:], scores=None)

    document = rollout_page(status, once)

    assert "<svg" not in document
    assert "The checks were looked at once only" in document


def test_evidence_beyond_the_usual_has_its_place_on_the_axis():
    found = [ERRORS._replace(evidence=evidence) for evidence in (90.0, 9e5, 9e6)]
    decisions = [DecisionAt(FIRST + 60.0 * at, replace(DECISION, evidence=(row,))) for at, row in enumerate(found)]

    document = rollout_page(a_status(), RolloutHistory(decisions, (), None, windows_are_gone=False))

    [line] = re.findall(r'"challenger trace" points="([^"]+)"', document.partition("evidence that it is worse")[2])[:1]
    assert len({place.partition(",")[2] for place in line.split()}) == 3


@pytest.mark.deep
def test_the_page_says_when_windows_are_gone_and_when_there_is_nothing_to_draw():
    gone = rollout_page(*a_history([]))
    seeds = replace(FAILED, plan=replace(PLAN, canary_policy="seed"))
    nothing = rollout_page(*a_history(WINDOWS, seeds))

    assert "Its windows were deleted since" in gone
    assert "<svg" in gone
    assert "There are no pictures of the checks" in nothing
    assert "<svg" not in nothing


def test_calls_that_callers_deadlines_took_away_are_counted_below_the_split():
    left_out = {Role.CHAMPION: LeftOut(30, 0), Role.CHALLENGER: LeftOut(4_120, 7)}

    shown = screen(status_view(a_status(left_out=left_out), 120), 120)

    assert (
        "left out: 30 calls of the champion, 4,120 of the challenger; their callers' deadlines are too short" in shown
    )
    assert "slow and no errors: 7 calls of the challenger that ended at their callers' deadlines" in shown
    assert "left out" not in screen(status_view(a_status(), 120), 120)


@pytest.mark.parametrize(
    ("policy", "share"),
    [
        (POLICY, "50 %"),
        (POLICY._replace(weight_percent=0), "0 %, by the plan 50 %"),
        (POLICY._replace(challenger=None, weight_percent=0), "0 %, by the plan 50 %"),
        (POLICY._replace(challenger="8"), "0 %, by the plan 50 %"),
    ],
)
def test_the_share_of_a_rollout_that_waits_is_the_policys_where_an_operator_gave_another(policy, share):
    waiting = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.PAUSE, reason="paused by dana: lunch")
    view = a_status(waiting).view._replace(policy=policy)

    assert end_words(view).plain == f"… churn 7 is undecided at {share}: paused by dana: lunch"
    assert f"WAITING   step 2 of 3   {share}" in heading(a_status(waiting)._replace(view=view))[0].plain
