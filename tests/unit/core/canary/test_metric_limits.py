"""A list of metrics: what it may say, that each mistake is named at its place, and what is put into a query."""

import pytest

from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.metric_limits import MetricLimit, metric_shares, query_of, read_metrics

PROMQL = 'sum(rate(orders_total{version="$version"}[5m]))'
BASKET = {"name": "basket", "source": "shop", "promql": PROMQL, "limit_ratio": 0.1}


def test_a_metric_has_its_own_limits_and_usual_ones_where_it_names_none():
    limits, violations = read_metrics([BASKET, {**BASKET, "name": "refunds", "lower_is_better": True}])

    assert not violations
    assert limits[0] == MetricLimit("basket", PROMQL, "shop", 0.1)
    assert limits[1].lower_is_better
    assert metric_shares(limits) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("value", "pointer", "words"),
    [
        ("basket", "", "a list of 1 to 4 metrics"),
        ([BASKET] * 5, "", "a list of 1 to 4 metrics"),
        (["basket"], "/0", "expected an object such as"),
        ([{**BASKET, "name": ""}], "/0/name", "a name of 1 to 80 characters"),
        ([BASKET, BASKET], "/1/name", "is named before: expected each metric once"),
        ([{**BASKET, "source": "https://shop"}], "/0/source", "the name that UNDERSTUDY_METRIC_SOURCES has"),
        ([{**BASKET, "url": "https://shop"}], "/0/url", "is not known; there are name, promql, source"),
        ([{**BASKET, "promql": "up"}], "/0/promql", "expected $version or $role in it"),
        ([{**BASKET, "promql": 'up{v="$version"}[$window]'}], "/0/promql", "$window is not known; there are $model,"),
        ([{**BASKET, "promql": "up{v=`$version`}"}], "/0/promql", "in the place of backticks"),
        ([{**BASKET, "promql": "a{v=$version}"}], "/0/promql", "expected quotes around"),
        ([{**BASKET, "promql": 'a_${model}{v="$version"}'}], "/0/promql", "expected quotes around"),
        ([{**BASKET, "promql": 'a{m="it\\"s"} # "$version"'}], "/0/promql", "expected quotes around"),
        ([{**BASKET, "promql": "$version" * 1_000}], "/0/promql", "a query of 1 to 4,000 characters"),
        ([{**BASKET, "limit_ratio": 1.2}], "/0/limit_ratio", "0.2 tolerates 1.2 or 0.8 times as much"),
        ([{**BASKET, "limit_ratio": -0.1}], "/0/limit_ratio", "a number from 0 to 0.99"),
        ([{**BASKET, "lower_is_better": 1}], "/0/lower_is_better", "expected true or false"),
        ([{**BASKET, "alpha_share": 2}], "/0/alpha_share", "a number from 0.01 to 1"),
        ([{**BASKET, "alpha_share": 1.0}, {**BASKET, "name": "b"}], "", "left for each metric that has none"),
    ],
)
def test_what_is_wrong_is_named_at_its_place(value, pointer, words):
    _, violations = read_metrics(value)

    assert [violation.pointer for violation in violations] == [pointer]
    assert words in violations[0].detail


@pytest.mark.parametrize(
    ("promql", "version", "query"),
    [
        ('a{v="$version",m="${model}",r="$role"}', "v1.2-rc", 'a{v="v1.2-rc",m="churn",r="challenger"}'),
        ('a{v="$version"}', '3"} or up{x="', r'a{v="3\x22\x7d or up\x7bx\x3d\x22"}'),
        ("a{v='$version'}", "3'\\", r"a{v='3\x27\x5c'}"),
        ('a{v="$version"}', "ß$role", r'a{v="\xc3\x9f\x24role"}'),
        ('a{v=~"^$version$"}', "3", 'a{v=~"^3$"}'),
        ('a{v=~"$version-.*",w="#$version"}', "1.0", r'a{v=~"1\\x2e0-.*",w="#1.0"}'),
        ("a{v!~ 'it\\'s|$version'}", '7|"ß\n', r"a{v!~ 'it\'s|7\\x7c\\x22\xc3\x9f\\x0a'}"),
        ('a{v="$version"} # of $version', "7", 'a{v="7"} # of $version'),
    ],
)
def test_what_is_put_into_a_query_is_itself_and_cannot_end_the_string_that_it_stands_in(promql, version, query):
    assert query_of(MetricLimit("a", promql, "shop"), model="churn", version=version, role="challenger") == query


def test_a_policy_with_metrics_comes_back_from_json_and_one_without_has_no_new_key():
    policy = CanaryPolicy.from_json({"metrics": [BASKET], "metric_share": 0.5})

    assert CanaryPolicy.from_json(policy.to_json()) == policy
    assert not {"metrics", "metric_share"} & CanaryPolicy().to_json().keys()


def test_a_policy_whose_metrics_cannot_be_used_names_the_place():
    with pytest.raises(ValueError, match="canary policy: metrics/0/promql: expected a query"):
        CanaryPolicy.from_json({"metrics": [{**BASKET, "promql": ""}]})
