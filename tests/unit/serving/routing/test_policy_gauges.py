"""Gauges of policies, one model at each step."""

from builders import a_policy, a_version

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.routing.policy import PolicySnapshot
from understudy.serving.routing.policy_gauges import PolicyGauges


def test_each_model_is_a_step_that_changes_its_gauges_only():
    telemetry = MemoryTelemetry()
    gauges = PolicyGauges(telemetry)
    names = ("churn", "visits")
    after = PolicySnapshot({name: a_policy(model_name=name, champion=a_version("1", name)) for name in names})

    steps = gauges.publish(PolicySnapshot(), after, names)
    next(steps)
    before_any = dict(telemetry.gauges)
    next(steps)
    after_one = {labels[1] for labels in telemetry.gauges}
    list(steps)

    assert before_any == {}
    assert after_one == {"churn"}
    assert {labels[1] for labels in telemetry.gauges} == {"churn", "visits"}


def test_a_model_that_is_gone_leaves_no_gauge_and_others_stay():
    telemetry = MemoryTelemetry()
    gauges = PolicyGauges(telemetry)
    names = ("churn", "visits")
    snapshot = PolicySnapshot({name: a_policy(model_name=name, champion=a_version("1", name)) for name in names})
    list(gauges.publish(PolicySnapshot(), snapshot, names))

    list(gauges.forget(["churn"]))

    assert {labels[1] for labels in telemetry.gauges} == {"visits"}
