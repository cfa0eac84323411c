"""Plans whose outcomes would never be judged, or hold a step for ever, are refused at the start."""

from typing import Any

import pytest

from understudy.rollout.start.start import plan_problems

HELD = {"name": "converted", "holds_step": True}


def problems(outcomes: Any, limits: dict[str, Any] | None = None, **plan: Any) -> dict[str, str]:
    return dict(plan_problems({**plan, "canary_limits": {"outcomes": outcomes, **(limits or {})}}))


def test_a_plan_with_outcomes_can_start():
    assert problems([HELD, {"name": "refunds", "lower_is_better": True}]) == {}


@pytest.mark.parametrize(
    ("found", "pointer", "words"),
    [
        (problems([{"name": ""}]), "/canary_limits/outcomes/0/name", "expected the name"),
        (problems([HELD], canary_policy="seed"), "/canary_limits/outcomes", "canary_policy seed"),
        (problems([HELD], {"outcome": "x"}), "/canary_limits/outcome", "expected none beside outcomes"),
        (
            problems([HELD], {"outcome_limit_ratio": 0.1}),
            "/canary_limits/outcome_limit_ratio",
            "expected none beside outcomes",
        ),
        (problems([HELD], strategy="rolling"), "/canary_limits/outcomes/0/holds_step", "strategy rolling"),
        (
            problems([{"name": "a"}, {**HELD, "within_seconds": 86_400}]),
            "/canary_limits/outcomes/1/within_seconds",
            "less than the plan's maximum_seconds (86,400)",
        ),
    ],
)
def test_what_keeps_a_plan_from_starting_is_named_at_its_place(found, pointer, words):
    assert list(found) == [pointer]
    assert words in found[pointer]


def test_outcomes_that_hold_nothing_may_take_longer_than_a_step():
    assert problems([{"name": "churned", "within_seconds": 30 * 86_400}]) == {}
