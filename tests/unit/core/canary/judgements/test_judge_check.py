"""A judge: worse, equal, too little, unreadable; none but enough judgements of a judge that answers is a pass."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import orjson
import pytest
from stats.worlds import Traffic, World

from understudy.core.canary.analysis import judge
from understudy.core.canary.checks import BY_NAME, evidence_from_json, needed_of
from understudy.core.canary.decision import CheckState, Decision, Evidence, Verdict
from understudy.core.canary.judge_limits import JudgeLimit
from understudy.core.canary.judgement_records import Judgements, JudgeOutcome
from understudy.core.canary.judgements.judge_check import JUDGE, position_words
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.windows.strata import stratify
from understudy.core.windows.window import WINDOW_SECONDS

QUALITY = JudgeLimit("quality")
POLICY = CanaryPolicy(dwell_seconds=600.0, detectable_ratio=5.0, judge=QUALITY)
STAGE = Stage("fraud", "42", 1, (0.0,), 5, 25.0, {1: 25.0})
COUNT = 160
LATER = COUNT * WINDOW_SECONDS + POLICY.watermark_seconds
STRATA = stratify(Traffic(World("small", requests_per_minute=2_000, error_rate=0.02), 1).windows(0, COUNT, 25.0), 1)


def said(wins: float, count: int = 900, **changes: Any) -> Judgements:
    """Return judgements in which the challenger wins a share of the pairs, spread over the rollout's time."""
    random = np.random.default_rng(2)
    times = tuple(np.linspace(1.0, LATER - 1, count).tolist())
    differences = np.where(random.permutation(count) < round(wins * count), 1.0, -1.0)
    found = Judgements(times, tuple(differences.tolist()), tuple(random.integers(64, size=count).tolist()))
    return found._replace(asked=count, answered=count, first_points=count / 2)._replace(**changes)


def decision_on(judgements: Judgements, policy: CanaryPolicy = POLICY, stage: Stage = STAGE) -> Decision:
    return judge(STRATA, policy, stage, LATER, judgements=judgements)


def row_of(decision: Decision) -> Evidence:
    return next(row for row in decision.evidence if row.check is JUDGE)


def test_a_challenger_that_loses_three_to_two_is_rolled_back_with_both_win_rates():
    decision = decision_on(said(0.4))

    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.reason.startswith("win rate by judge quality 40 % vs 60 % = 0.667x (")
    assert row_of(decision).limit == pytest.approx(0.95)


@pytest.mark.parametrize("wins", [0.5, 0.6, 1.0])
def test_an_equal_or_better_challenger_passes_and_the_step_ends(wins):
    decision = decision_on(said(wins))

    assert decision.verdict is Verdict.ADVANCE
    assert "win rate by judge quality" in decision.reason.partition(";")[0]
    assert row_of(decision).state is CheckState.OK


def test_too_few_judgements_hold_the_step_and_say_why_there_are_no_more():
    decision = decision_on(said(0.0, 60, idle=JudgeOutcome.MONEY_SPENT.value))

    assert decision.verdict is Verdict.HOLD
    assert "60 of 200 judgements, the money of this day is spent" in decision.reason
    assert row_of(decision).state is CheckState.TOO_EARLY


def test_one_entity_that_has_all_the_losses_takes_nothing_back():
    losing = said(0.4)
    one = tuple(5 if difference < 0 else bucket for difference, bucket in zip(*losing[1:3], strict=True))

    decision = decision_on(losing._replace(buckets=one))

    assert row_of(decision).state is not CheckState.FAIL
    assert decision.verdict is Verdict.HOLD


@pytest.mark.parametrize(
    "outcome",
    [JudgeOutcome.DOWN, JudgeOutcome.SLOW, JudgeOutcome.DENIED, JudgeOutcome.OTHER_ID, JudgeOutcome.UNREADABLE],
    ids=lambda outcome: outcome.value,
)
def test_a_judge_that_fails_is_invalid_whatever_it_said_before(outcome):
    decision = decision_on(said(0.2, failing=5, problem=outcome.value))

    assert decision.verdict is Verdict.HOLD
    assert row_of(decision).state is CheckState.INVALID
    assert "the judge cannot be relied on, which holds the step: quality " in decision.reason


def test_a_judge_that_no_setting_names_is_told():
    decision = decision_on(Judgements(idle=JudgeOutcome.UNKNOWN_JUDGE.value))

    assert "UNDERSTUDY_JUDGES of the monitor that leads has no judge quality" in decision.reason


def test_a_judge_that_looks_at_the_place_alone_lets_nothing_pass():
    decision = decision_on(said(0.5, both_ways=40, contradicted=39))

    assert row_of(decision).state is CheckState.INVALID
    assert "quality prefers the same place in 39 of 40 pairs" in decision.reason
    assert decision_on(said(0.5, both_ways=40, contradicted=24)).verdict is Verdict.ADVANCE


def test_how_much_the_place_counts_is_printed():
    words = position_words(said(0.5, 100, first_points=70.0, both_ways=20, contradicted=11))

    assert words == (
        "the answer that stands first gets 70 % of the points; 11 of 20 pairs asked in both orders are contradicted"
    )
    assert position_words(Judgements()) == ""


def test_judgements_that_came_later_do_not_count_yet():
    early = decision_on(said(0.4)._replace(times=(*said(0.4).times[:150], *(LATER + 60.0,) * 750)))

    assert "150 of 200 judgements" in early.reason


def test_a_challenger_that_lost_each_time_has_a_row_that_is_read_back():
    row = row_of(decision_on(said(0.0)))

    assert row.state is CheckState.FAIL
    assert evidence_from_json(orjson.loads(orjson.dumps(row.to_json()))) == row
    won = row_of(decision_on(said(1.0)))
    assert (won.champion, won.change) == (0.0, inf)
    assert evidence_from_json(orjson.loads(orjson.dumps(won.to_json()))) == won


def test_a_plan_without_a_judge_spends_no_alpha_on_one():
    plain = CanaryPolicy()

    assert JUDGE.name not in needed_of(plain)
    assert needed_of(plain, Rules.JUDGE) == needed_of(plain, Rules.INTERVALS)
    assert JUDGE.name in needed_of(POLICY)
    assert JUDGE.name not in needed_of(POLICY, Rules.INTERVALS)
    assert BY_NAME["judge"] is JUDGE


def test_a_verdict_of_rules_before_is_judged_again_without_the_judge():
    before = replace(STAGE, rules=Rules.INTERVALS)

    assert decision_on(said(0.2), stage=before).verdict is Verdict.ADVANCE


def test_what_is_stored_of_judgements_is_read_back():
    stored = orjson.loads(orjson.dumps(said(0.4, 30).to_json()))

    assert Judgements.from_json(stored) == said(0.4, 30)
    with pytest.raises(ValueError, match="different lengths"):
        Judgements.from_json({**stored, "times": [1.0]})
