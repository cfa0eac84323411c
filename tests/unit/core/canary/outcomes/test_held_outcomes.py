"""Outcomes that hold a step: until they are shown to be within their margins, with what is missing in words."""

from dataclasses import replace

import numpy as np
import pytest
from stats.worlds import Traffic, World

from understudy.core.canary.analysis import evaluate
from understudy.core.canary.checks import evidence_from_json, needed_of
from understudy.core.canary.decision import CheckState, Decision, Verdict
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.canary.outcomes.held_outcomes import entities_to_show
from understudy.core.canary.outcomes.outcome_check import OUTCOME, OUTCOMES
from understudy.core.statistics.difference import ArmEntities, Difference, compare
from understudy.core.windows.window import WINDOW_SECONDS

CONVERTED = OutcomeLimit("converted", 0.1, holds_step=True)
REFUNDS = OutcomeLimit("refunds", 0.2, lower_is_better=True)
POLICY = CanaryPolicy(dwell_seconds=600.0, detectable_ratio=5.0, outcomes=(CONVERTED, REFUNDS))
STAGE = Stage("fraud", "42", 1, (0.0,), 5, 25.0, {1: 25.0})
COUNT = 48
LATER = COUNT * WINDOW_SECONDS + POLICY.watermark_seconds
WINDOWS = Traffic(World("small", requests_per_minute=2_000, error_rate=0.02), 1).windows(0, COUNT, 25.0)


def counted(entities_a: int, ratio_a: float, entities_b: int, ratio_b: float) -> Difference:
    def arm(entities: int, ratio: float) -> ArmEntities:
        numerator = np.zeros(entities)
        numerator[: round(entities * ratio)] = 1.0
        return ArmEntities(numerator, np.ones(entities))

    found = compare(arm(entities_a, ratio_a), arm(entities_b, ratio_b))
    assert found is not None
    return found


EQUAL = counted(400_000, 0.2, 400_000, 0.2)
FEW = counted(12_000, 0.2, 4_000, 0.198)


def judged(*outcomes: Difference | None, policy: CanaryPolicy = POLICY, stage: Stage = STAGE) -> Decision:
    return evaluate(WINDOWS, policy, stage, LATER, outcomes)


def test_a_step_ends_when_each_outcome_that_holds_it_is_within_its_margin():
    decision = judged(EQUAL, None)

    assert decision.verdict is Verdict.ADVANCE
    assert "outcome converted" in decision.reason.partition("; not known yet: ")[0]
    assert "outcome refunds" in decision.reason.partition("; not known yet: ")[2]


def test_a_step_is_held_by_an_outcome_that_is_not_shown_yet_with_its_figures_and_what_is_missing():
    decision = judged(FEW, EQUAL)

    assert decision.verdict is Verdict.HOLD
    missing = "not shown yet to be at least 0.9x: outcome converted 0.198 vs 0.2 = 0.99x (0.8"
    assert decision.reason.startswith(missing)
    assert "holds the step; an equal version takes about " in decision.reason
    assert decision.reason.endswith("challenger entities, 4,000 are counted")


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (None, "none of the outcome converted is counted yet, which holds the step: entities count 1 h after"),
        (
            counted(300, 0.2, 60, 0.2),
            "60 of 100 entities of each version for the outcome converted, which holds the step",
        ),
        (counted(30_000, 0.0, 10_000, 0.0), "the champion's mean is not surely above or below 0 yet"),
    ],
)
def test_a_step_is_held_while_nothing_can_be_said(outcome, words):
    decision = judged(outcome, EQUAL)

    assert decision.verdict is Verdict.HOLD
    assert words in decision.reason


def test_an_outcome_that_is_beyond_its_margin_rolls_back_and_is_named():
    decision = judged(EQUAL, counted(400_000, 0.02, 400_000, 0.04))

    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.reason.startswith("outcome refunds 0.04 vs 0.02 = 2x (")


def test_an_outcome_that_holds_nothing_lets_a_step_end_in_which_it_is_not_known():
    assert judged(EQUAL, FEW).verdict is Verdict.ADVANCE


def test_an_outcome_that_looks_worse_holds_its_step_in_one_sentence():
    worse = counted(12_000, 0.2, 4_000, 0.165)
    decision = judged(worse, EQUAL)

    assert decision.verdict is Verdict.HOLD
    assert decision.reason.count("outcome converted") == 1


def test_all_outcomes_together_have_the_alpha_of_one():
    alone, several = needed_of(replace(POLICY, outcomes=(), outcome="converted")), needed_of(POLICY)
    spent = [np.exp(-needed) for name, needed in several.items() if name.startswith("outcome_")]

    assert len(spent) == len(POLICY.outcomes)
    assert sum(spent) == pytest.approx(np.exp(-alone[OUTCOME.name]))
    assert several["error_rate"] == pytest.approx(alone["error_rate"])


def test_an_outcome_may_have_a_larger_share_than_others():
    uneven = replace(POLICY, outcomes=(CONVERTED._replace(alpha_share=0.75), REFUNDS))
    needed = needed_of(uneven)

    assert np.exp(needed["outcome_2"] - needed["outcome_1"]) == pytest.approx(3)


def test_rules_before_several_outcomes_neither_judge_nor_hold_by_them():
    earlier = judged(None, None, stage=replace(STAGE, rules=Rules.COLD))

    assert earlier.verdict is Verdict.ADVANCE
    assert not [row for row in earlier.evidence if row.check in OUTCOMES]


def test_the_row_of_an_outcome_comes_back_from_json_with_its_name():
    row = next(row for row in judged(EQUAL, FEW).evidence if row.check is OUTCOMES[1])

    assert evidence_from_json(row.to_json()) == row
    assert (row.to_json()["check"], row.title, row.state) == ("outcome_2", "outcome refunds", CheckState.OK)


def test_the_entities_that_an_equal_version_takes_grow_with_the_square_of_a_smaller_margin():
    narrow, wide = (entities_to_show(EQUAL, CONVERTED._replace(limit_ratio=margin)) for margin in (0.05, 0.1))

    assert wide is not None
    assert narrow is not None
    assert 3.5 < narrow / wide < 5.5


def test_no_number_of_entities_shows_a_share_of_nothing():
    assert entities_to_show(counted(3_000, 0.0, 1_000, 0.1), CONVERTED) is None


def test_as_many_entities_as_are_said_show_an_equal_version():
    asked = entities_to_show(FEW, CONVERTED)

    assert asked is not None
    assert judged(counted(3 * asked, 0.2, asked, 0.2), EQUAL).verdict is Verdict.ADVANCE
    assert judged(counted(asked, 0.2, asked // 3, 0.2), EQUAL).verdict is Verdict.HOLD
