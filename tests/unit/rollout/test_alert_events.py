"""What people on call are told of a rollout."""

from dataclasses import replace

import pytest

from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind, event_from_json, event_to_json
from understudy.core.rollout.actions import Alert, PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import new_rollout_state
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, NONE_STALE, StaleProxies, StaleProxy
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView
from understudy.rollout.alert_events import alert_events

POLICY = PolicySeen("6", "7", 10, 4, 1)
STATE = replace(
    new_rollout_state(1, "churn", NAMED_PLANS["default"], POLICY._replace(weight_percent=0), 0.0), policy=POLICY
)
FROZEN = StaleProxies(1, (StaleProxy("web-7:4711", 120.0),))


def told(
    kind: AlertKind,
    action: AlertAction,
    proxies: int = 6,
    stale: StaleProxies = FROZEN,
    *,
    proxies_hidden: bool = False,
    guard_id: int | None = None,
) -> AlertEvent:
    record = RolloutRecord(1, STATE, 3, 1, 2, "salt", 9_000, None, "dana", None, None, guard_id)
    # The frozen one had confirmed the weight that is taken back: it acts on just that.
    view = RolloutView(record, POLICY, {}, proxies, proxies, {}, 200.0, NONE_STALE, stale)._replace(
        proxies_hidden=proxies_hidden
    )
    (event,) = alert_events([Alert(kind, action, "churn: version 7 rolled back")], view, "test")
    return event


@pytest.mark.parametrize("kind", [AlertKind.CANARY_ROLLED_BACK, AlertKind.CHAMPION_REGRESSED])
def test_the_alert_of_a_rollback_names_who_may_not_hear_of_it(kind):
    event = told(kind, AlertAction.TRIGGER)

    assert event.summary == (
        "churn: version 7 rolled back; "
        "1 stale proxy may still send traffic by the old policy: web-7:4711, no report for 2 m"
    )
    silent = {"count": 1, "first": [{"instance": "web-7:4711", "seconds": 120.0}]}
    assert event.details["proxies"] == {"live": 6, "silent": silent}


def test_a_rollback_of_which_no_live_proxy_hears_is_told_as_that():
    event = told(AlertKind.CANARY_ROLLED_BACK, AlertAction.TRIGGER, proxies=0, stale=NONE_STALE)

    assert event.summary == "churn: version 7 rolled back; no live proxy hears of it"


def test_a_rollback_of_which_it_is_unknown_what_hears_of_it_is_told_as_that():
    event = told(AlertKind.CANARY_ROLLED_BACK, AlertAction.TRIGGER, proxies=0, stale=NONE_STALE, proxies_hidden=True)

    assert event.summary == f"churn: version 7 rolled back; {HIDDEN_WORDS}"


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (AlertKind.ROLLOUT_STALLED, AlertAction.TRIGGER),
        (AlertKind.CANARY_ROLLED_BACK, AlertAction.RESOLVE),
        (AlertKind.ROLLOUT_MOVED, AlertAction.CHANGE),
    ],
)
def test_other_alerts_say_nothing_of_proxies(kind, action):
    assert told(kind, action).summary == "churn: version 7 rolled back"


def test_beside_further_arms_what_waits_is_a_versions_own_incident_and_a_rollback_its_models():
    failed = told(AlertKind.GUARD_FAILED, AlertAction.TRIGGER, guard_id=1)
    rolled_back = told(AlertKind.CANARY_ROLLED_BACK, AlertAction.TRIGGER, guard_id=1)
    alone = told(AlertKind.GUARD_FAILED, AlertAction.TRIGGER)

    assert failed.dedup_key == "understudy/test/churn/7/guard_failed"
    assert event_from_json(event_to_json(failed)) == failed
    assert rolled_back.dedup_key == "understudy/test/churn/canary_rolled_back"
    assert alone.dedup_key == "understudy/test/churn/guard_failed"
