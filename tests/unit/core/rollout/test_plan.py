"""Plans: how risky a change is, what people may write, and how long it takes."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.metric_limits import MetricLimit
from understudy.core.durations import duration_words
from understudy.core.rollout.expected_traffic import EntityCalls, Traffic
from understudy.core.rollout.forecast import Needs, forecast
from understudy.core.rollout.plan import (
    LADDER,
    NAMED_PLANS,
    Risk,
    Step,
    Strategy,
    VersionFacts,
    compressed,
    grade_risk,
    plan_for,
    plan_to_json,
)
from understudy.core.rollout.plan_reader import MAX_STEPS, plan_violations, read_plan

CURRENT = VersionFacts("6", "sha256:aa", "llama-70b-v1", framework="onnx")

texts = st.none() | st.sampled_from(["", "a", "a-1", "a-2", "b-1"])
facts = st.builds(VersionFacts, st.just("1"), texts, texts, texts, texts)
steps = st.lists(st.integers(1, 99), min_size=1, max_size=MAX_STEPS - 1, unique=True).map(
    lambda weights: [*sorted(weights), 100]
)
plans = st.builds(
    lambda weights, strategy, keep_warm_seconds, salt: read_plan(
        {"steps": weights, "strategy": strategy, "keep_warm_seconds": keep_warm_seconds, "salt": salt}
    ),
    steps,
    st.sampled_from(["canary", "rolling"]),
    st.floats(0, 604_800),
    st.none() | st.text(min_size=1, max_size=20),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values, max_size=4),
    max_leaves=12,
)
field_names = st.sampled_from([*plan_to_json(NAMED_PLANS["default"]), "weight_percent", "other"])


@pytest.mark.parametrize(
    ("target", "risk"),
    [
        (VersionFacts("7", "sha256:aa"), Risk.LOW),
        (VersionFacts("7", "sha256:bb", "llama-70b-v1", framework="onnx"), Risk.MEDIUM),
        (VersionFacts("7", "sha256:bb", "llama-70b-v1", framework="torch"), Risk.HIGH),
        (VersionFacts("7", "sha256:bb", "llama-70b-v2", framework="onnx"), Risk.HIGH),
        (VersionFacts("7", "sha256:bb", "mistral-7b", family="llama", framework="onnx"), Risk.HIGH),
        (VersionFacts("7", "sha256:bb", "mistral-7b", framework="onnx"), Risk.CRITICAL),
        (VersionFacts("7", family="mistral", framework="onnx"), Risk.CRITICAL),
        (VersionFacts("7"), Risk.HIGH),
        (VersionFacts("7", "sha256:bb", "", "", "onnx"), Risk.HIGH),
    ],
)
def test_the_less_is_the_same_the_riskier_is_the_change(target, risk):
    assert grade_risk(CURRENT, target).risk is risk


@given(facts, facts)
def test_the_grade_does_not_depend_on_the_direction_and_nothing_known_is_high(one, other):
    assert grade_risk(one, other).risk is grade_risk(other, one).risk
    assert grade_risk(one, VersionFacts("1")).risk is Risk.HIGH


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (VersionFacts("7", "sha256:aa"), "both versions have the same artifact_digest"),
        (VersionFacts("7", "", "llama-70b-v1", framework="onnx"), "both versions have the base model llama-70b-v1"),
        (VersionFacts("7", "", "llama-70b-v1"), "llama-70b-v1 is the same, the framework is not: onnx → unknown"),
        (VersionFacts("7", "", "llama-8b"), "is another of the family llama: llama-70b-v1 → llama-8b"),
        (VersionFacts("7", "", None, "mistral"), "is of another family: llama-70b-v1 → mistral"),
    ],
)
def test_a_grade_says_what_is_the_same_and_what_is_not(target, reason):
    assert reason in grade_risk(CURRENT, target).reason


@pytest.mark.parametrize(
    ("current", "target", "named"),
    [
        (CURRENT, VersionFacts("7"), "version 7 has no base model recorded"),
        (VersionFacts("6"), CURRENT._replace(version="7"), "version 6 has no base model recorded"),
        (VersionFacts("6"), VersionFacts("7"), "versions 6 and 7 have no base model recorded"),
    ],
)
def test_a_version_without_a_base_model_is_named_with_the_option_that_records_it(current, target, named):
    grade = grade_risk(current, target)

    assert grade.risk is Risk.HIGH
    assert grade.reason.startswith(named)
    assert "understudy version register --base-model NAME" in grade.reason


@pytest.mark.parametrize(
    ("risk", "first"),
    [
        (Risk.MEDIUM, Step(10, 3_600, 2_000)),
        (Risk.HIGH, Step(5, 14_400, 500)),
        (Risk.CRITICAL, Step(2, 86_400, 200)),
    ],
)
def test_a_risk_asks_for_the_first_step_of_the_source_and_then_for_the_ladder(risk, first):
    plan = plan_for(risk)

    assert plan.strategy is Strategy.CANARY
    assert plan.steps[0] == first
    assert plan.steps[1:] == tuple(step for step in LADDER if step.weight_percent > first.weight_percent)
    assert plan.maximum_seconds >= 2 * first.dwell_seconds


def test_the_same_artifact_rolls_without_proof():
    plan = plan_for(Risk.LOW)

    assert plan.strategy is Strategy.ROLLING
    assert not any(step.min_requests for step in plan.steps)


def test_the_default_plan_is_the_sources_table():
    weights, dwells, requests = zip(*NAMED_PLANS["default"].steps, strict=True)

    assert weights == (2, 5, 10, 25, 50, 100)
    assert dwells == (1_800, 1_800, 3_600, 3_600, 7_200, 0)
    assert requests == (200, 500, 2_000, 5_000, 10_000, 0)


@given(plans)
def test_a_plan_written_as_json_is_read_as_the_same_plan(plan):
    document = orjson.loads(orjson.dumps(plan_to_json(plan)))

    assert read_plan(document) == plan


def test_a_plan_without_freeze_windows_is_written_as_releases_before_them_read_it():
    frozen = read_plan({"freezes": ["Fri 18:00 - Mon 08:00 Europe/Berlin"]})

    assert "freezes" not in plan_to_json(NAMED_PLANS["default"])
    assert plan_to_json(frozen)["freezes"] == ["Fri 18:00 - Mon 08:00 Europe/Berlin"]
    assert read_plan(plan_to_json(frozen)) == frozen


def test_a_plan_says_that_different_scores_are_expected_only_where_it_does():
    expecting = read_plan({"expect_different_scores": True})

    assert "expect_different_scores" not in plan_to_json(read_plan({"expect_different_scores": False}))
    assert plan_to_json(expecting)["expect_different_scores"] is True
    assert read_plan(plan_to_json(expecting)) == expecting


@pytest.mark.parametrize("name", NAMED_PLANS)
def test_every_named_plan_keeps_the_rules(name):
    assert read_plan(name) is NAMED_PLANS[name]
    assert plan_violations(plan_to_json(NAMED_PLANS[name])) == ()


def test_weights_alone_are_a_plan_with_the_ladders_times():
    plan = read_plan("1, 5,30,100")

    assert plan.steps == (Step(1, 1_800, 200), Step(5, 1_800, 500), Step(30, 7_200, 10_000), Step(100, 0, 0))


@given(plans, st.floats(1, 10_000))
def test_a_compressed_plan_has_the_same_weights_and_shorter_times_and_still_wants_requests(plan, factor):
    fast = compressed(plan, factor)

    for before, after in zip(plan.steps, fast.steps, strict=True):
        assert after.weight_percent == before.weight_percent
        assert after.dwell_seconds == pytest.approx(before.dwell_seconds / factor)
        assert (after.min_requests > 0) == (before.min_requests > 0)
    assert fast.maximum_seconds >= max(step.dwell_seconds for step in fast.steps)


def test_everything_that_is_wrong_is_said_at_once_with_its_place():
    document = {
        "strategy": "purple",
        "steps": [0, {"weight_percent": 50, "dwell_seconds": -1, "min_request": 3}, True],
        "maximum_seconds": "long",
        "keep_warm_seconds": float("nan"),
        "canary_limits": [],
        "canary/policy": "x",
        "salt": "",
    }

    pointers = [pointer for pointer, _ in plan_violations(document)]

    assert sorted(pointers) == [
        "/canary_limits",
        "/canary~1policy",
        "/keep_warm_seconds",
        "/maximum_seconds",
        "/salt",
        "/steps/0/weight_percent",
        "/steps/1/dwell_seconds",
        "/steps/1/min_request",
        "/steps/2/weight_percent",
        "/strategy",
    ]
    with pytest.raises(ValueError) as refused:
        read_plan(document)
    assert all(pointer in str(refused.value) for pointer in pointers)


@pytest.mark.parametrize(
    ("source", "pointer"),
    [
        ("5,2,100", "/steps/1/weight_percent"),
        ("5,5,100", "/steps/1/weight_percent"),
        ("5,50", "/steps/1/weight_percent"),
        ("100", "/steps"),
        ("", ""),
        ("fats", ""),
        ("5,x,100", "/steps/1/weight_percent"),
        (f"5,{'9' * 5_000},100", "/steps/1/weight_percent"),
        (",".join(map(str, range(1, 101))), "/steps"),
        ({"steps": []}, "/steps"),
        ({"steps": [5, {"weight_percent": 100, "dwell_seconds": 60}]}, "/steps/1"),
        ({"steps": [5, 100], "strategy": "blue_green"}, "/steps"),
        ({"maximum_seconds": 7_199}, "/maximum_seconds"),
        ({"freezes": "18:00 - 08:00"}, "/freezes"),
        ({"freezes": ["18:00 - 08:00", "weekends"]}, "/freezes/1"),
        ({"freezes": [7]}, "/freezes/0"),
        ({"freezes": ["18:00 - 08:00", "07:00 - 19:00"]}, "/freezes"),
        ({"freezes": ["18:00 - 08:00"] * 21}, "/freezes"),
        ({"expect_different_scores": "yes"}, "/expect_different_scores"),
        ({"expect_different_scores": 1}, "/expect_different_scores"),
    ],
)
def test_a_plan_that_skips_goes_back_or_never_ends_is_refused_at_that_place(source, pointer):
    assert [violation.pointer for violation in plan_violations(source)] == [pointer]


def test_a_name_that_is_no_plans_is_told_which_there_are_and_which_was_meant():
    (violation,) = plan_violations("fats")

    assert violation.detail == (
        "expected default, fast, rolling, blue_green, or weights such as 2,10,50,100; did you mean fast?"
    )


@given(st.dictionaries(field_names, json_values, max_size=6) | st.text(max_size=30))
def test_whatever_is_written_is_a_plan_that_keeps_the_rules_or_is_refused(source):
    if plan_violations(source):
        with pytest.raises(ValueError):
            read_plan(source)
        return

    plan = read_plan(source)

    weights = [step.weight_percent for step in plan.steps]
    assert weights == sorted(set(weights))
    assert weights[-1] == 100
    assert plan.maximum_seconds >= max(step.dwell_seconds for step in plan.steps)


def test_at_ample_traffic_a_plan_takes_its_dwell_times():
    expected = forecast(NAMED_PLANS["default"], Traffic(requests_per_second=200))

    assert expected.seconds == 1_800 + 1_800 + 3_600 + 3_600 + 7_200
    assert expected.sentence.startswith("About 5 h until the challenger is champion at 200 requests/s")


def test_at_little_traffic_a_step_takes_until_its_requests_came_and_says_so():
    expected = forecast(NAMED_PLANS["default"], Traffic(requests_per_second=1), Needs(requests=1_000))

    first = expected.steps[0]
    assert first.seconds == 1_000 / (1 * 0.02)
    assert first.words == "waits 13 h 53 m for 1,000 requests"


def test_the_first_step_waits_for_what_metrics_take_and_a_plan_that_has_no_time_for_it_is_told():
    metric = MetricLimit("basket", 'a{v="$version"}', "shop")
    policy = CanaryPolicy(min_entities=1, detectable_ratio=50.0, metrics=(metric,))
    plan = replace(NAMED_PLANS["default"], steps=(Step(10, 600, 0), Step(50, 600, 0), Step(100, 0, 0)))

    expected = forecast(plan, Traffic(5_000), Needs(policy=policy))
    short = forecast(replace(plan, maximum_seconds=1_200), Traffic(5_000), Needs(policy=policy))

    assert [step.seconds for step in expected.steps] == [1_800, 600]
    assert expected.steps[0].words == "waits 30 m for 30 minutes of each metric"
    assert "at least, and 2 h where shop lacks the champion's last two hours" in " ".join(expected.warnings)
    assert (
        "this ladder cannot end at today's traffic: 10 % waits 30 m for 30 minutes of each metric" in short.warnings[0]
    )


def test_a_step_over_the_plans_maximum_is_named_before_the_rollout_starts():
    expected = forecast(NAMED_PLANS["default"], Traffic(requests_per_second=0.1))

    assert expected.steps[0].words.endswith("longer than the plan's maximum of 1 d a step")
    assert "It would ask for a person at 2 %, 5 %" in expected.sentence


@pytest.mark.parametrize("rate", [0.0, float("nan")])
def test_without_traffic_nothing_is_promised(rate):
    expected = forecast(NAMED_PLANS["default"], Traffic(requests_per_second=rate))

    assert expected.seconds is None
    assert expected.sentence == "Never at today's traffic: 2 % gets no traffic."


def test_too_few_entities_for_the_analysis_are_said_to_be_too_few():
    entities = EntityCalls({100: 2_000})

    expected = forecast(NAMED_PLANS["default"], Traffic(100, entities), Needs(entities=100))

    assert expected.seconds is None
    assert expected.sentence.endswith("2 % meets about 40 of 2,000 entities, and the analysis asks for 100.")


def test_what_needs_no_proof_needs_no_traffic():
    assert forecast(NAMED_PLANS["rolling"], Traffic(0)).seconds == 120
    assert forecast(NAMED_PLANS["blue_green"], Traffic(0)).sentence.startswith("At once after the warm-up; the old")


@given(plans, st.floats(0.01, 1_000), st.floats(1, 100))
def test_more_traffic_never_takes_longer_and_no_step_is_shorter_than_its_dwell_time(plan, rate, more):
    slow, fast = (forecast(plan, Traffic(requests_per_second)) for requests_per_second in (rate, rate * more))

    assert fast.seconds is not None
    assert slow.seconds is not None
    assert fast.seconds <= slow.seconds
    for step, expected in zip(plan.steps, fast.steps, strict=False):
        assert expected.seconds is not None
        assert expected.seconds >= step.dwell_seconds


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.5, "0.5 s"),
        (59, "59 s"),
        (60, "1 m"),
        (90, "1 m 30 s"),
        (4_320, "1 h 12 m"),
        (86_400, "1 d"),
        (273_600, "3 d 4 h"),
        (86_399, "24 h"),
    ],
)
def test_times_are_said_in_their_two_largest_units(seconds, words):
    assert duration_words(seconds) == words
