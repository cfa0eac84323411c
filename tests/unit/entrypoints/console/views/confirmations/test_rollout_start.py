"""The form that asks for a rollout: what may be started, and where a refusal stands."""

from datetime import UTC, datetime

import pytest

from understudy.entrypoints.console.views.confirmations.rollout_start import AskedStart, asked_start, start_form
from understudy.entrypoints.console.views.policy import PolicySeen
from understudy.errors import PolicyRefused, VersionNotReady
from understudy.ports.registry.registry import PolicyRecord

AT = datetime(2026, 11, 20, 13, 0, tzinfo=UTC)
POLICY = PolicyRecord("churn", "6", None, 0, None, 100, True, None, {}, None, None, 4, AT, "dana", 1, 1)
SEEN = PolicySeen("churn", POLICY, (), None)


def test_an_empty_plan_is_the_one_that_the_risk_asks_for():
    assert asked_start({"version": " 7 ", "plan": ""}) == AskedStart("7", None, (), expects_scores=False)
    full = asked_start({"version": "7", "plan": "fast", "freeze": "18:00 - 08:00", "expects": "yes"})
    assert full == AskedStart("7", "fast", ("18:00 - 08:00",), expects_scores=True)


@pytest.mark.parametrize(
    ("refused", "field"),
    [
        (PolicyRefused("the plan cannot be used: /steps/0: expected a whole number"), "plan"),
        (PolicyRefused("the plan cannot be used: /freezes/0: expected such as Fri 18:00"), "freeze"),
        (VersionNotReady("version 7 is not ready: no server answers"), "version"),
        (PolicyRefused("churn has an open rollout, and one at a time is enough"), None),
    ],
)
def test_a_refusal_stands_at_its_field_or_above_all(refused, field):
    form = start_form(SEEN, {"version": "7", "plan": "nonsense"}, refused)

    wrong = [one.name for one in (form.version, form.plan, form.freeze) if one.problem]
    assert wrong == ([] if field is None else [field])
    assert bool(form.problem) == (field is None)
    assert (form.version.value, form.plan.value) == ("7", "nonsense")


@pytest.mark.parametrize(
    ("seen", "is_possible"),
    [(SEEN, True), (SEEN._replace(open_rollout=8), False), (SEEN._replace(policy=None), False)],
)
def test_a_rollout_is_offered_where_one_can_begin(seen, is_possible):
    assert start_form(seen, {}).is_possible is is_possible
