"""A plan that names metrics: what is wrong with it is said before the start."""

import pytest

from understudy.rollout.start.start import plan_problems

BASKET = {"name": "basket", "source": "shop", "promql": 'up{v="$version"}'}


@pytest.mark.parametrize(
    ("plan", "pointer", "words"),
    [
        ({"canary_limits": {"metrics": [{**BASKET, "promql": "up"}]}}, "/canary_limits/metrics/0/promql", "$version"),
        ({"canary_limits": {"metrics": []}}, "/canary_limits/metrics", "a list of 1 to 4 metrics"),
        ({"canary_policy": "seed", "canary_limits": {"metrics": [BASKET]}}, "/canary_limits/metrics", "seed"),
        ({"strategy": "blue_green", "canary_limits": {"metrics": [BASKET]}}, "/canary_limits/metrics", "blue_green"),
        ({"canary_limits": {"metrics": [BASKET], "metric_share": 2}}, "/canary_limits", "metric_share"),
    ],
)
def test_a_plan_whose_metrics_cannot_be_judged_is_refused(plan, pointer, words):
    (problem,) = plan_problems(plan)

    assert problem.pointer == pointer
    assert words in problem.detail


def test_a_plan_with_metrics_starts():
    assert plan_problems({"canary_limits": {"metrics": [BASKET]}}) == ()
