"""The judge of a plan: what may be asked for, and what its budget permits."""

import pytest

from understudy.core.canary.judge_limits import MAX_JUDGEMENTS, BudgetStop, JudgeLimit, budget_stop, read_judge
from understudy.core.canary.limits import CanaryPolicy

PAID = {"name": "quality", "cost_per_call": 0.002, "money_per_day": 5}


def test_a_judge_is_read_and_written_back():
    limit, violations = read_judge(PAID)

    assert not violations
    assert limit == JudgeLimit("quality", cost_per_call=0.002, money_per_day=5.0)
    policy = CanaryPolicy.from_json({"judge": PAID})
    assert policy.judge == limit
    assert CanaryPolicy.from_json(policy.to_json()) == policy
    assert {"judge", "judge_share"}.isdisjoint(CanaryPolicy().to_json())


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"name": "Quality!"}, "/name"),
        ({"name": "https://judge.internal"}, "/name"),
        ({"url": "https://judge.internal"}, "/url"),
        ({"money_per_day": None}, "/money_per_day"),
        ({"money_per_day": 0.001}, "/money_per_day"),
        ({"money_per_day": -1}, "/money_per_day"),
        ({"cost_per_call": "0.1"}, "/cost_per_call"),
        ({"calls_per_minute": 0}, "/calls_per_minute"),
        ({"calls_per_minute": 1.5}, "/calls_per_minute"),
        ({"min_judgements": 3}, "/min_judgements"),
        ({"limit_ratio": 1.2}, "/limit_ratio"),
        ({"sample_percent": 0}, "/sample_percent"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named_with_its_place(changes, pointer):
    limit, violations = read_judge({**PAID, **changes})

    assert limit is None
    assert [violation.pointer for violation in violations] == [pointer]
    with pytest.raises(ValueError, match=f"canary policy: judge{pointer}"):
        CanaryPolicy.from_json({"judge": {**PAID, **changes}})


def test_a_budget_is_counted_in_millionths_and_never_rounded_up_for_the_caller():
    third = JudgeLimit("quality", cost_per_call=1 / 3, money_per_day=1.0)

    assert (third.cost_micros, third.day_micros) == (333_334, 1_000_000)
    assert JudgeLimit("quality", cost_per_call=0.1, money_per_day=0.3).cost_micros * 3 == 300_000


@pytest.mark.parametrize(
    ("lately", "day_micros", "rows", "stop"),
    [
        (29, 4_998_000, 0, None),
        (30, 0, 0, BudgetStop.MINUTE),
        (0, 4_998_001, 0, BudgetStop.DAY),
        (0, 0, MAX_JUDGEMENTS, BudgetStop.FULL),
    ],
)
def test_a_question_is_asked_only_where_all_of_it_is_within_the_budget(lately, day_micros, rows, stop):
    limit, _ = read_judge(PAID)
    assert limit is not None

    assert budget_stop(limit, lately, day_micros, rows) is stop
