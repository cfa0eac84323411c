"""Events that subscriptions ask for: their kinds, each as one sentence, and their bodies as CloudEvents and for Slack.

Triggers of the database write them in the transaction of the change that they report (migration 0031).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import orjson

from understudy.core.alerts.alerts import MAX_WAIT_SECONDS, Delivery, Severity, next_attempt_seconds
from understudy.core.alerts.recent_changes import policy_change

MAX_AGE_SECONDS = 86_400.0
"""Of a notification: one that fails when it is older is given up. It is sent at least once, however old it is."""
MAX_WAITING = 10_000
"""Notifications of one subscription that wait; older ones are given up."""
MAX_EVENT_BYTES = 64 * 1024
"""Source: CloudEvents 1.0, "Size Limits": what every receiver takes at least."""
MAX_TEXT_CHARACTERS = 3_000
"""Of a message to a chat. Source: Slack, "Truncating content": 4,000 characters are shown well."""

_ROLLOUT = (
    "started", "moved", "progressing", "waiting", "promoting", "succeeded", "failed", "rolled_back", "needs_human",
    "stalled", "champion_regressed", "sample_ratio_mismatch",
)  # fmt: skip
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "policy": ("changed",),
    "rollout": _ROLLOUT,
    "guard": (*_ROLLOUT, "failing"),
    "drift": ("found",),
    "experiment": ("started", "ended"),
    "lifecycle": (
        "version_added", "version_changed", "version_removed", "endpoint_added", "endpoint_changed", "endpoint_removed",
        "loaded", "load_failed", "unloaded",
    ),
}  # fmt: skip
"""Kinds of events by family; ``test.sent`` is sent by a person, to one subscription."""
KINDS = tuple(name for family, kinds in FAMILIES.items() for name in (family, *(f"{family}.{kind}" for kind in kinds)))
"""What a subscription may ask for: whole families, and single kinds."""
TEST_KIND = "test.sent"
MAX_KEPT_CHARACTERS = 1_000
_PLAIN = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b", "](": "]\u200b("}
_KEPT = ("action", "actor", "via", "reason", "dedup_key")
"""Of an event whose details are left out."""
_SHOWN = ("version", "server", "code", "experiment", "metric", "champion", "challenger", "waiting_for", "columns")
_CONTENT_TYPES = {"cloudevents": "application/cloudevents+json; charset=utf-8", "slack": "application/json"}


class EventFormat(StrEnum):
    """What a receiver reads."""

    CLOUDEVENTS = "cloudevents"
    SLACK = "slack"

    @property
    def content_type(self) -> str:
        """The header of a request with such a body."""
        return _CONTENT_TYPES[self.value]


@dataclass(frozen=True, slots=True)
class ModelEvent:
    """Something that happened, as every subscription is told of it."""

    id: str
    """The same at each receiver and each attempt, so that a receiver knows what it has had."""
    kind: str
    severity: Severity
    model_name: str | None
    occurred_at: float
    """Seconds since the epoch."""
    data: Mapping[str, Any]
    """JSON values, by kind: ``docs/reference/events.md`` lists them."""

    @property
    def summary(self) -> str:
        """What happened, as one sentence that stands alone."""
        said = self.data.get("summary")
        if isinstance(said, str):
            return said
        family, _, kind = self.kind.partition(".")
        describe = {"policy": _policy_words, "test": _test_words}.get(family, _plain_words)
        try:
            what = describe(family, kind, self.data)
        except (AttributeError, TypeError, ValueError):  # a row that another program than our triggers wrote
            what = _plain_words(family, kind, {})
        reason = self.data.get("reason")
        about = f"{self.model_name}: {what}" if self.model_name else what
        return f"{about} ({reason})" if isinstance(reason, str) and reason else about


def event_body(event: ModelEvent, event_format: EventFormat, environment: str) -> bytes:
    """Return an event as a receiver of this format reads it, within the limits that such receivers state."""
    if event_format is EventFormat.SLACK:
        return orjson.dumps({"text": _slack_text(event, environment)})
    return _cloud_event(event, environment)


def next_notification_seconds(attempts: int, delivery: Delivery, age_seconds: float) -> float | None:
    """Return how long to wait before a notification is sent again; ``None``: it is given up.

    As alerts are, but for two things: it is given up with :data:`MAX_AGE_SECONDS`, and a receiver's Retry-After only
    lengthens the wait that doubles from a second, so that a short one does not have the receiver asked all day.
    """
    wait_seconds = next_attempt_seconds(attempts, delivery)
    if wait_seconds is None or age_seconds >= MAX_AGE_SECONDS:
        return None
    if delivery.retry_after_seconds is None:
        return wait_seconds
    return max(wait_seconds, min(2.0 ** min(max(attempts, 1) - 1, 32), MAX_WAIT_SECONDS))


def _cloud_event(event: ModelEvent, environment: str) -> bytes:
    """Return the event in CloudEvents' JSON format, structured mode.

    Source:
        CloudEvents 1.0.2: names of extension attributes are lower-case letters and digits; ``source`` with ``id`` is
        unique for each distinct event.
    """
    document: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.id,
        "source": f"/understudy/{environment}",
        "type": f"understudy.{event.kind}",
        "time": f"{np.datetime64(round(event.occurred_at * 1000), 'ms')}Z",
        "datacontenttype": "application/json",
        "severity": event.severity,
        "environment": environment,
        **({} if event.model_name is None else {"subject": event.model_name}),
    }
    words = _cut(event.summary, MAX_TEXT_CHARACTERS)
    with suppress(TypeError):  # nested too deep to be written
        whole = orjson.dumps({**document, "data": {**event.data, "summary": words}})
        if len(whole) <= MAX_EVENT_BYTES:
            return whole
    kept = {name: _cut(value, MAX_KEPT_CHARACTERS) for name, value in event.data.items() if _is_kept(name, value)}
    return orjson.dumps({**document, "data": {**kept, "summary": words, "left_out": "the details were too long"}})


def _slack_text(event: ModelEvent, environment: str) -> str:
    """Return the event as Slack's markup.

    Source:
        Slack, "Formatting text for app surfaces": ``&``, ``<`` and ``>`` are escaped; without that a name could
        mention everyone of a channel. Mattermost, "Mention people in messages" and "Format messages": ``@`` before a
        name mentions it, also in what a webhook posts, and ``[text](address)`` is a link; a space of no width behind
        the first sign ends both.
    """
    over = "Over" if event.data.get("action") == "resolve" else event.severity.capitalize()
    text = f"{over}: {event.summary} [{environment}, {event.kind}]"
    for sign, plain in _PLAIN.items():
        text = text.replace(sign, plain)
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    whole, ampersand, rest = text[: MAX_TEXT_CHARACTERS - 1].rpartition("&")
    return f"{whole if ampersand and ';' not in rest else text[: MAX_TEXT_CHARACTERS - 1]}…"


def _policy_words(_family: str, _kind: str, data: Mapping[str, Any]) -> str:
    changed: Mapping[str, Mapping[str, Any]] = data.get("changed") or {}
    before, after = ({name: values.get(side) for name, values in changed.items()} for side in ("before", "after"))
    labels = {int(version_id): label for version_id, label in (data.get("versions") or {}).items()}
    action = data.get("action")
    if action == "insert" and not changed:  # too long to be told
        words = "policy made"
    else:
        words = policy_change(None if action == "insert" else before, None if action == "delete" else after, labels)
    actor = data.get("actor")
    return f"{words}, by {actor} via {data.get('via')}" if actor else words


def _test_words(_family: str, _kind: str, data: Mapping[str, Any]) -> str:
    return f"a test of this subscription, sent by {data.get('actor')}; nothing happened"


def _plain_words(family: str, kind: str, data: Mapping[str, Any]) -> str:
    known = [f"{name.replace('_', ' ')} {_value_words(data[name])}" for name in _SHOWN if data.get(name)]
    return ", ".join([f"{family} {kind.replace('_', ' ')}", *known])


def _value_words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _is_kept(name: str, value: Any) -> bool:
    return name in _KEPT and isinstance(value, str)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
