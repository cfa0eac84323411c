"""Events as receivers read them: CloudEvents and a chat's line, each within its limits."""

from pathlib import Path

import orjson
import pytest

from understudy.adapters import migrations
from understudy.core.alerts.alerts import AlertKind, Delivery, Severity
from understudy.core.alerts.events import (
    FAMILIES,
    KINDS,
    MAX_AGE_SECONDS,
    MAX_EVENT_BYTES,
    MAX_TEXT_CHARACTERS,
    TEST_KIND,
    EventFormat,
    ModelEvent,
    event_body,
    next_notification_seconds,
)

ID = "00000000-0000-4000-8000-000000000001"
SQL = (Path(migrations.__file__).parent / "sql" / "0031_notifications.sql").read_text()


def an_event(kind: str = "drift.found", severity: Severity = Severity.WARNING, **data: object) -> ModelEvent:
    return ModelEvent(ID, kind, severity, "churn", 1_763_720_000.25, data)


def cloud(event: ModelEvent) -> dict[str, object]:
    found: dict[str, object] = orjson.loads(event_body(event, EventFormat.CLOUDEVENTS, "prod"))
    return found


def text(event: ModelEvent) -> str:
    said: str = orjson.loads(event_body(event, EventFormat.SLACK, "prod"))["text"]
    return said


def test_a_cloud_event_has_the_attributes_of_the_standard():
    assert cloud(an_event(summary="churn v7 drifts", details={"psi": 0.3})) == {
        "specversion": "1.0",
        "id": ID,
        "source": "/understudy/prod",
        "type": "understudy.drift.found",
        "time": "2025-11-21T10:13:20.250Z",
        "datacontenttype": "application/json",
        "severity": "warning",
        "environment": "prod",
        "subject": "churn",
        "data": {"summary": "churn v7 drifts", "details": {"psi": 0.3}},
    }


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (an_event(summary="churn v7 drifts"), "Warning: churn v7 drifts [prod, drift.found]"),
        (an_event(summary="churn: none drifts", action="resolve"), "Over: churn: none drifts [prod, drift.found]"),
        (
            an_event("rollout.rolled_back", Severity.ERROR, summary="<!channel> & <b>"),
            "Error: &lt;!channel&gt; &amp; &lt;b&gt; [prod, rollout.rolled_back]",
        ),
        (
            an_event(
                "policy.changed", Severity.INFO, action="update", actor="dana", via="cli", reason="incident 7",
                changed={"challenger_version": {"before": None, "after": 9}}, versions={"9": "7"},
            ),
            "Info: churn: policy changed: challenger none → 7, by dana via cli (incident 7) [prod, policy.changed]",
        ),
        (
            an_event("policy.changed", Severity.INFO, action="delete", actor="dana", via="sql", versions=None),
            "Info: churn: policy deleted, by dana via sql [prod, policy.changed]",
        ),
        (
            an_event(
                "rollout.waiting", Severity.INFO, champion="6", challenger="7", waiting_for="person", reason="held"
            ),
            "Info: churn: rollout waiting, champion 6, challenger 7, waiting for person (held) [prod, rollout.waiting]",
        ),
        (
            an_event("lifecycle.version_changed", Severity.INFO, version="7", columns=["labels"]),
            "Info: churn: lifecycle version changed, version 7, columns labels [prod, lifecycle.version_changed]",
        ),
        (
            an_event("policy.changed", Severity.INFO, action="update", actor="bo", via="sql", changed={}),
            "Info: churn: policy changed, by bo via sql [prod, policy.changed]",
        ),
        (
            an_event("policy.changed", Severity.INFO, action="insert", actor="bo", via="sql", left_out="too long"),
            "Info: churn: policy made, by bo via sql [prod, policy.changed]",
        ),
        (
            an_event("policy.changed", Severity.INFO, left_out="too long"),
            "Info: churn: policy changed [prod, policy.changed]",
        ),
        (
            an_event(summary="@channel @all @here [a](https://elsewhere.example)"),
            "Warning: @\u200bchannel @\u200ball @\u200bhere [a]\u200b(https://elsewhere.example) [prod, drift.found]",
        ),
        (
            ModelEvent(ID, TEST_KIND, Severity.INFO, None, 0.0, {"actor": "dana"}),
            "Info: a test of this subscription, sent by dana; nothing happened [prod, test.sent]",
        ),
    ],
)  # fmt: skip
def test_a_chat_reads_one_line_in_which_no_name_can_mention_others(event, said):
    assert text(event) == said


def test_an_event_that_is_too_long_keeps_its_sentence_and_leaves_its_details_out():
    event = an_event(summary="s" * 10_000, actor="dana", action="trigger", details={"rows": ["x" * 100] * 1_000})

    body = event_body(event, EventFormat.CLOUDEVENTS, "prod")

    assert len(body) <= MAX_EVENT_BYTES
    data = orjson.loads(body)["data"]
    assert data.items() >= {
        "left_out": "the details were too long", "actor": "dana", "action": "trigger",
    }.items()  # fmt: skip
    assert len(data["summary"]) == MAX_TEXT_CHARACTERS
    assert len(text(event)) == MAX_TEXT_CHARACTERS


def test_a_line_is_cut_after_it_was_escaped_and_between_two_signs():
    found = text(an_event(summary="&" * 10_000))

    assert len(found) <= MAX_TEXT_CHARACTERS
    assert found.endswith("&amp;…")


def test_details_that_are_nested_too_deep_are_left_out():
    details: object = 1
    for _ in range(300):
        details = [details]

    assert cloud(an_event(summary="churn v7 drifts", details=details))["data"] == {
        "summary": "churn v7 drifts",
        "left_out": "the details were too long",
    }


def test_a_row_that_a_person_wrote_by_hand_is_told_as_it_is():
    event = an_event("policy.changed", changed="all of it")

    assert cloud(event)["data"] == {"changed": "all of it", "summary": "churn: policy changed"}


def test_a_notification_is_given_up_once_it_is_a_day_old_or_refused():
    assert next_notification_seconds(1, Delivery(503), 0.0) == 1.0
    assert next_notification_seconds(10_000, Delivery(None), MAX_AGE_SECONDS - 1) == 300.0
    assert next_notification_seconds(1, Delivery(None), MAX_AGE_SECONDS) is None
    assert next_notification_seconds(1, Delivery(400), 0.0) is None


def test_what_a_receiver_asks_for_only_lengthens_the_wait():
    assert next_notification_seconds(1, Delivery(429, retry_after_seconds=40.0), 0.0) == 40.0
    assert next_notification_seconds(1, Delivery(429, retry_after_seconds=2.0), 0.0) == 2.0
    assert next_notification_seconds(5, Delivery(503, retry_after_seconds=1.0), 0.0) == 16.0
    assert next_notification_seconds(300, Delivery(503, retry_after_seconds=1.0), 0.0) == 300.0
    assert next_notification_seconds(300, Delivery(503, retry_after_seconds=9_000.0), 0.0) == 3_600.0


def test_the_database_knows_the_kinds_that_a_subscription_may_ask_for():
    _, _, rest = SQL.partition("CHECK (kinds <@ ARRAY[")
    listed = {part.strip().strip("'") for part in rest.partition("]::TEXT[]")[0].split(",")}

    assert listed == set(KINDS)


@pytest.mark.parametrize("kind", AlertKind)
def test_every_alert_is_an_event_of_a_family_by_a_row_of_the_trigger_or_by_its_own_name(kind):
    mapped = SQL.partition("kind   TEXT := CASE alert")[2].partition("END;")[0]
    own = any(kind.value in kinds for kinds in FAMILIES.values())

    assert own or f"WHEN '{kind.value}' THEN" in mapped
