import re
from typing import Any

import orjson
import pytest

from understudy.core.rollout.guard_metrics import metrics_of_guard, parse_guard_metrics

BASKET = {"name": "basket", "source": "shop", "promql": 'avg(euros{version="$version"})'}
ORDERS = {**BASKET, "name": "orders"}


def json_of(document: Any) -> str:
    return orjson.dumps(document).decode()


def test_a_model_has_its_own_metrics_and_the_others_those_for_all():
    known = parse_guard_metrics(json_of({"churn": [ORDERS], "fraud": [], "*": [BASKET]}))

    names = {model: [one["name"] for one in metrics_of_guard(known, model)] for model in ("churn", "fraud", "visits")}
    assert names == {"churn": ["orders"], "fraud": [], "visits": ["basket"]}


def test_without_a_setting_no_guard_has_any():
    assert metrics_of_guard(parse_guard_metrics(" "), "churn") == ()


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
def test_what_cannot_be_used_is_told_with_its_place(text, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_guard_metrics(text)
