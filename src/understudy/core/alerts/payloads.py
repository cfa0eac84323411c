"""Payloads of alert events: for PagerDuty and for webhooks, within the limits that receivers state."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import orjson

from understudy.core.alerts.alerts import AlertAction, AlertEvent, Severity

ALERT_PATH = "/v2/enqueue"
CHANGE_PATH = "/v2/change/enqueue"
MAX_SUMMARY_CHARACTERS = 1_024
"""Source: PagerDuty, "Send an Alert Event", ``payload.summary``."""
MAX_BODY_BYTES = 512_000
"""Source: PagerDuty, "Events API v2 Overview", "Size Limits": 512 KB, here in the smaller sense of the word."""
MAX_LINKS = 10
MAX_LINK_CHARACTERS = 2_048

_MAX_NAME_CHARACTERS = 255
_NOTE_BYTES = 100


class PagerDutyRequest(NamedTuple):
    """Where to send what."""

    path: str
    body: bytes


def pagerduty_request(event: AlertEvent, routing_key: str) -> PagerDutyRequest:
    """Return the request of PagerDuty's Events API v2 for an event; never too long.

    Details that do not fit are left out, and counted.

    Source:
        PagerDuty, "Send an Alert Event" and "Send a Change Event": a change has an endpoint of its own and no severity;
        to acknowledge or resolve, only the key is needed.
    """
    if event.action is AlertAction.CHANGE:
        change = {"routing_key": routing_key, "payload": _payload(event), "links": _links(event)}
        return PagerDutyRequest(CHANGE_PATH, _encoded(change, "payload", "custom_details", event.details))
    body = {"routing_key": routing_key, "event_action": event.action, "dedup_key": event.dedup_key}
    if event.action is not AlertAction.TRIGGER:
        return PagerDutyRequest(ALERT_PATH, orjson.dumps(body))
    payload = {
        **_payload(event),
        "severity": event.severity,
        "component": _cut(event.model_name or "understudy", _MAX_NAME_CHARACTERS),
        "group": _cut(event.environment, _MAX_NAME_CHARACTERS),
        "class": event.kind,
    }
    trigger = {**body, "client": "Understudy", "payload": payload, "links": _links(event)}
    return PagerDutyRequest(ALERT_PATH, _encoded(trigger, "payload", "custom_details", event.details))


def webhook_body(event: AlertEvent) -> bytes:
    """Return an event for any other receiver, in the same limits; ``text`` is what chat programs show."""
    summary = _cut(event.summary, MAX_SUMMARY_CHARACTERS)
    document = {
        "schema": "understudy/v1",
        "text": f"{_ACTION_WORDS.get(event.action) or _WORDS[event.severity]}: {summary}",
        "alert": {
            "action": event.action,
            "kind": event.kind,
            "dedup_key": event.dedup_key,
            "severity": event.severity,
            "environment": _cut(event.environment, _MAX_NAME_CHARACTERS),
            "model": None if event.model_name is None else _cut(event.model_name, _MAX_NAME_CHARACTERS),
            "summary": summary,
            "occurred_at": _timestamp(event.occurred_at),
            "links": _links(event),
        },
    }
    return _encoded(document, "alert", "details", event.details)


def _timestamp(seconds: float) -> str:
    """Return a time of the epoch as ISO 8601 in UTC, to the millisecond."""
    return f"{np.datetime64(round(seconds * 1000), 'ms')}Z"


_ACTION_WORDS = {AlertAction.RESOLVE: "Over", AlertAction.ACKNOWLEDGE: "Acknowledged"}
_WORDS = {
    Severity.CRITICAL: "Critical",
    Severity.ERROR: "Error",
    Severity.WARNING: "Warning",
    Severity.INFO: "Note",
}


def _payload(event: AlertEvent) -> dict[str, Any]:
    return {
        "summary": _cut(event.summary, MAX_SUMMARY_CHARACTERS),
        "source": _cut(f"understudy/{event.environment}", _MAX_NAME_CHARACTERS),
        "timestamp": _timestamp(event.occurred_at),
    }


def _links(event: AlertEvent) -> list[dict[str, str]]:
    usable = [link for link in event.links if len(link.href) <= MAX_LINK_CHARACTERS]
    return [{"href": link.href, "text": _cut(link.text, _MAX_NAME_CHARACTERS)} for link in usable[:MAX_LINKS]]


def _encoded(document: dict[str, Any], part: str, name: str, details: Mapping[str, Any]) -> bytes:
    """Return the document with as many of the details as fit, under ``name`` in its ``part``."""
    whole = orjson.dumps({**document, part: {**document[part], name: details}})
    if len(whole) <= MAX_BODY_BYTES:
        return whole
    room = MAX_BODY_BYTES - len(orjson.dumps({**document, part: {**document[part], name: {}}})) - _NOTE_BYTES
    kept = {}
    for key, value in details.items():
        size = len(orjson.dumps({key: value}))
        if size <= room:
            kept[key] = value
            room -= size
    kept["left_out"] = f"{len(details) - len(kept)} of {len(details)} entries did not fit into this message"
    return orjson.dumps({**document, part: {**document[part], name: kept}})


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
