import re
from typing import Any

import orjson
import pytest

from understudy.core.rollout.guard_limits import (
    GuardLimits,
    GuardSettings,
    limits_in,
    limits_words,
    parse_guard_judges,
    parse_guard_metrics,
    with_limits,
)
from understudy.core.rollout.plan import NAMED_PLANS

BASKET = {"name": "basket", "source": "shop", "promql": 'avg(euros{version="$version"})'}
ORDERS = {**BASKET, "name": "orders"}
QUALITY = {"name": "quality", "calls_per_minute": 6}
STRICT = {"name": "strict"}


def json_of(document: Any) -> str:
    return orjson.dumps(document).decode()


def test_a_model_has_its_own_metrics_and_judge_and_the_others_those_for_all():
    known = GuardSettings(
        parse_guard_metrics(json_of({"churn": [ORDERS], "fraud": [], "*": [BASKET]})),
        parse_guard_judges(json_of({"churn": STRICT, "fraud": None, "*": QUALITY}), ["quality", "strict"]),
    )

    found = {model: known.limits_of(model) for model in ("churn", "fraud", "visits")}

    assert found == {
        "churn": GuardLimits([ORDERS], STRICT),
        "fraud": GuardLimits([], None),
        "visits": GuardLimits([BASKET], QUALITY),
    }


def test_without_settings_no_guard_has_any():
    settings = GuardSettings(parse_guard_metrics(" "), parse_guard_judges("", []))

    assert settings.limits_of("churn") == GuardLimits()
    assert limits_words(settings.limits_of("churn")) == ""


@pytest.mark.parametrize(
    "limits", [GuardLimits(), GuardLimits([BASKET]), GuardLimits((), QUALITY), GuardLimits([BASKET, ORDERS], QUALITY)]
)
def test_a_plan_gives_back_what_it_was_given(limits):
    plan = with_limits(NAMED_PLANS["default"], limits)

    assert limits_in(plan) == limits
    assert (plan == NAMED_PLANS["default"]) == (limits == GuardLimits())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "expected a JSON object"),
        ("[1]", "expected a JSON object such as"),
        (json_of({"churn": {}}), "/churn: expected a list of 1 to 4 metrics"),
        (json_of({"*": [BASKET, {**BASKET, "limit_ratio": 1.2}]}), "/*/1/limit_ratio: expected a share"),
        (json_of({"*": [BASKET, BASKET]}), "/*"),
    ],
)
def test_metrics_that_cannot_be_used_are_told_with_their_place(text, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_guard_metrics(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "expected a JSON object"),
        ("[1]", 'expected a JSON object such as {"*": {"name": …}}'),
        (json_of({"churn": []}), "/churn: expected an object such as"),
        (json_of({"churn": {"name": "kind"}}), "/churn/name: UNDERSTUDY_JUDGES has no judge kind"),
        (json_of({"*": {**QUALITY, "cost_per_call": 1}}), "/*/money_per_day: expected an amount"),
        (json_of({"*": {**QUALITY, "calls": 1}}), "/*"),
    ],
)
def test_judges_that_cannot_be_used_are_told_with_their_place(text, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_guard_judges(text, ["quality"])
