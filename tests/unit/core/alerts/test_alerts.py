"""Alert events: their keys, what is sent within which limits, and when it is sent again."""

import re
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.alerts.alerts import (
    MAX_ASKED_WAIT_SECONDS,
    MAX_KEY_CHARACTERS,
    MAX_WAIT_SECONDS,
    AlertAction,
    AlertEvent,
    AlertKind,
    Delivery,
    Link,
    Outcome,
    Severity,
    dedup_key,
    event_from_json,
    event_to_json,
    next_attempt_seconds,
    with_runbook,
)
from understudy.core.alerts.payloads import (
    ALERT_PATH,
    CHANGE_PATH,
    MAX_BODY_BYTES,
    MAX_LINKS,
    MAX_SUMMARY_CHARACTERS,
    pagerduty_request,
    webhook_body,
)

RUNBOOKS = Path(__file__).resolve().parents[4] / "docs" / "runbooks"
ROUTING_KEY = "0123456789abcdef0123456789abcdef"
ROLLED_BACK = AlertEvent(
    AlertAction.TRIGGER,
    AlertKind.CANARY_ROLLED_BACK,
    "prod",
    "visits",
    "visits: version 2 rolled back at 10 %: error rate 3.1x",
    1_763_720_000.25,
    {"error_rate": {"champion": 0.0021, "challenger": 0.0065}},
    (Link("https://example.org/runbooks/RolledBack", "runbook"),),
)

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
names = st.text(characters, min_size=1, max_size=255)
texts = st.text(characters, max_size=2_000)
links = st.lists(st.builds(Link, texts, texts), max_size=15).map(tuple)
sizes = st.sampled_from([0, 1, 1_000, 200_000, 600_000])
details = st.dictionaries(st.text("abc", max_size=3), st.builds(lambda size: "é" * size, sizes), max_size=6)
events = st.builds(
    AlertEvent,
    st.sampled_from(AlertAction),
    st.sampled_from(AlertKind),
    names,
    st.none() | names,
    texts,
    st.floats(0, 4e9),
    details,
    links,
)
statuses = st.none() | st.integers(200, 599)
waits = st.none() | st.floats(0, 1e9)


def test_the_key_names_the_installation_the_model_and_what_happened():
    assert ROLLED_BACK.dedup_key == "understudy/prod/visits/canary_rolled_back"
    assert dedup_key("prod", None, AlertKind.DRIFT) == "understudy/prod/-/drift"
    assert dedup_key("prod", "visits", AlertKind.GUARD_FAILED, "v/3") == "understudy/prod/visits/v%2F3/guard_failed"


@given(st.lists(st.tuples(names, names, st.sampled_from(AlertKind)), min_size=2, max_size=2, unique=True))
def test_different_things_have_different_keys_of_at_most_255_characters(both):
    one, other = (dedup_key(environment, model_name, kind) for environment, model_name, kind in both)

    assert one != other
    assert max(len(one), len(other)) <= MAX_KEY_CHARACTERS


def test_names_that_only_differ_in_where_a_slash_stands_or_at_their_end_have_different_keys():
    drift = AlertKind.DRIFT

    assert dedup_key("a/b", "c", drift) != dedup_key("a", "b/c", drift)
    assert dedup_key("a%2Fb", "c", drift) != dedup_key("a/b", "c", drift)
    assert dedup_key("prod", "m" * 254 + "1", drift) != dedup_key("prod", "m" * 254 + "2", drift)
    assert dedup_key("prod", "m" * 254, drift, "1") != dedup_key("prod", "m" * 254, drift, "2")
    assert dedup_key("prod", "m", drift) != dedup_key("prod", "m", drift, "-")


def test_a_key_that_just_fits_is_written_out():
    model_name = "m" * (MAX_KEY_CHARACTERS - len("understudy/prod//drift"))

    assert dedup_key("prod", model_name, AlertKind.DRIFT) == f"understudy/prod/{model_name}/drift"


@given(events)
def test_an_event_that_lay_in_the_outbox_is_the_same_event(event):
    assert event_from_json(orjson.loads(orjson.dumps(event_to_json(event)))) == event


def test_characters_that_the_database_cannot_hold_are_left_out_and_nothing_else():
    hostile = "a\0b\ud800c"
    event = AlertEvent(AlertAction.TRIGGER, AlertKind.DRIFT, "prod", "visits", hostile, 0.0, {hostile: [hostile, 1.5]})

    stored = event_to_json(event)

    assert (stored["summary"], stored["details"]) == ("abc", {"abc": ["abc", 1.5]})


def test_a_trigger_has_the_fields_that_pagerduty_documents():
    path, body = pagerduty_request(ROLLED_BACK, ROUTING_KEY)

    assert path == ALERT_PATH
    assert orjson.loads(body) == {
        "routing_key": ROUTING_KEY,
        "event_action": "trigger",
        "dedup_key": "understudy/prod/visits/canary_rolled_back",
        "client": "Understudy",
        "payload": {
            "summary": "visits: version 2 rolled back at 10 %: error rate 3.1x",
            "source": "understudy/prod",
            "timestamp": "2025-11-21T10:13:20.250Z",
            "severity": "error",
            "component": "visits",
            "group": "prod",
            "class": "canary_rolled_back",
            "custom_details": {"error_rate": {"champion": 0.0021, "challenger": 0.0065}},
        },
        "links": [{"href": "https://example.org/runbooks/RolledBack", "text": "runbook"}],
    }


@pytest.mark.parametrize("action", [AlertAction.ACKNOWLEDGE, AlertAction.RESOLVE])
def test_what_follows_a_trigger_only_names_its_incident(action):
    path, body = pagerduty_request(_with_action(action), ROUTING_KEY)

    assert path == ALERT_PATH
    assert orjson.loads(body) == {
        "routing_key": ROUTING_KEY,
        "event_action": action.value,
        "dedup_key": "understudy/prod/visits/canary_rolled_back",
    }


def test_a_change_goes_to_its_own_address_and_opens_no_incident():
    path, body = pagerduty_request(_with_action(AlertAction.CHANGE), ROUTING_KEY)

    document = orjson.loads(body)
    assert path == CHANGE_PATH
    assert set(document) == {"routing_key", "payload", "links"}
    assert set(document["payload"]) == {"summary", "source", "timestamp", "custom_details"}


def test_any_other_receiver_gets_the_same_facts_and_a_line_for_people():
    document = orjson.loads(webhook_body(ROLLED_BACK))

    assert document["text"] == "Error: visits: version 2 rolled back at 10 %: error rate 3.1x"
    assert document["alert"]["dedup_key"] == ROLLED_BACK.dedup_key
    assert document["alert"]["details"] == ROLLED_BACK.details
    assert orjson.loads(webhook_body(_with_action(AlertAction.RESOLVE)))["text"].startswith("Over: ")


@given(events)
def test_nothing_that_is_sent_is_over_the_documented_limits(event):
    for body in (pagerduty_request(event, ROUTING_KEY).body, webhook_body(event)):
        document = orjson.loads(body)

        assert len(body) <= MAX_BODY_BYTES
        assert len(document.get("links", [])) <= MAX_LINKS
        told = document.get("payload") or document.get("alert") or {}
        assert len(told.get("summary", "")) <= MAX_SUMMARY_CHARACTERS


def test_a_summary_of_exactly_the_limit_is_whole_and_one_over_it_is_cut_visibly():
    whole, cut = (
        orjson.loads(pagerduty_request(_with_summary("s" * length), ROUTING_KEY).body)["payload"]["summary"]
        for length in (MAX_SUMMARY_CHARACTERS, MAX_SUMMARY_CHARACTERS + 1)
    )

    assert whole == "s" * MAX_SUMMARY_CHARACTERS
    assert cut == "s" * (MAX_SUMMARY_CHARACTERS - 1) + "…"


def test_details_that_do_not_fit_are_left_out_and_counted_and_the_others_stay():
    huge = "x" * MAX_BODY_BYTES
    event = AlertEvent(
        AlertAction.TRIGGER, AlertKind.DRIFT, "prod", "visits", "s", 0.0, {"small": 1, "huge": huge, "also": 2}
    )

    told = orjson.loads(pagerduty_request(event, ROUTING_KEY).body)["payload"]["custom_details"]

    assert (told["small"], told["also"]) == (1, 2)
    assert told["left_out"] == "1 of 3 entries did not fit into this message"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (202, Outcome.DELIVERED),
        (200, Outcome.DELIVERED),
        (400, Outcome.REFUSED),
        (413, Outcome.REFUSED),
        (301, Outcome.TRY_AGAIN),
        (401, Outcome.TRY_AGAIN),
        (404, Outcome.TRY_AGAIN),
        (429, Outcome.TRY_AGAIN),
        (500, Outcome.TRY_AGAIN),
        (503, Outcome.TRY_AGAIN),
        (None, Outcome.TRY_AGAIN),
    ],
)
def test_what_an_answer_means(status, outcome):
    assert Delivery(status).outcome is outcome


@given(st.integers(1, 10_000), statuses, waits)
def test_only_a_refused_event_is_given_up_and_no_wait_is_shorter_than_a_second_or_without_bound(
    attempts, status, retry_after_seconds
):
    delivery = Delivery(status, retry_after_seconds=retry_after_seconds)

    wait_seconds = next_attempt_seconds(attempts, delivery)

    assert (wait_seconds is None) == (delivery.outcome is not Outcome.TRY_AGAIN)
    if wait_seconds is not None:
        longest = MAX_WAIT_SECONDS if retry_after_seconds is None else MAX_ASKED_WAIT_SECONDS
        assert 1 <= wait_seconds <= longest


def test_waits_double_from_a_second_or_from_a_minute_when_there_were_too_many_calls():
    after_time_outs = [next_attempt_seconds(attempts, Delivery(None)) for attempts in range(1, 11)]
    after_too_many = [next_attempt_seconds(attempts, Delivery(429)) for attempts in range(1, 5)]

    assert after_time_outs == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert after_too_many == [60, 120, 240, 300]


def test_a_receiver_that_says_when_to_come_back_is_believed():
    assert next_attempt_seconds(9, Delivery(429, retry_after_seconds=7)) == 7
    assert next_attempt_seconds(1, Delivery(503, retry_after_seconds=120)) == 120


@pytest.mark.parametrize("kind", AlertKind)
def test_every_kind_has_a_severity_and_only_a_change_is_none_to_worry_about(kind):
    event = AlertEvent(AlertAction.TRIGGER, kind, "prod", "visits", "s", 0.0)

    assert (event.severity is Severity.INFO) == (kind is AlertKind.ROLLOUT_MOVED)


@pytest.mark.parametrize("base", ["https://docs.shop.example/runbooks", "https://docs.shop.example/runbooks/"])
def test_every_kind_that_somebody_has_to_look_at_links_a_page_with_its_words(base):
    for kind in set(AlertKind) - {AlertKind.ROLLOUT_MOVED}:
        event = AlertEvent(
            AlertAction.TRIGGER, kind, "prod", "visits", "s", 0.0, links=(Link("https://x.example", "x"),)
        )

        first, *others = with_runbook(event, base).links

        page, _, anchor = first.href.removeprefix("https://docs.shop.example/runbooks/").partition("#")
        text = (RUNBOOKS / page).read_text(encoding="utf-8")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert anchor in {"", *(re.sub(r"[^a-z -]", "", heading.lower()).replace(" ", "-") for heading in headings)}
        assert others == list(event.links)
        assert f"| `{kind}` | {event.severity} |" in (RUNBOOKS / "README.md").read_text(encoding="utf-8")


def test_without_a_place_of_the_pages_and_for_a_note_that_nothing_is_wrong_there_is_no_link():
    moved = AlertEvent(AlertAction.CHANGE, AlertKind.ROLLOUT_MOVED, "prod", "visits", "s", 0.0)

    assert with_runbook(moved, "https://docs.shop.example").links == ()
    assert with_runbook(ROLLED_BACK, None) is ROLLED_BACK


def _with_action(action: AlertAction) -> AlertEvent:
    return AlertEvent(action, ROLLED_BACK.kind, "prod", "visits", ROLLED_BACK.summary, ROLLED_BACK.occurred_at)


def _with_summary(summary: str) -> AlertEvent:
    return AlertEvent(AlertAction.TRIGGER, AlertKind.DRIFT, "prod", "visits", summary, 0.0)
