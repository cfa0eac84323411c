"""Alerts as values: severity, runbook link, dedup key, their JSON; and whether a receiver's answer asks for a retry."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

MAX_KEY_CHARACTERS = 255
"""Source: PagerDuty, "Send an Alert Event", ``dedup_key``; the outbox' column is as wide."""
MAX_WAIT_SECONDS = 300.0
MAX_ASKED_WAIT_SECONDS = 3_600.0
"""Of a receiver's Retry-After; one that asks for more is asked again after an hour."""

_FIRST_WAIT_SECONDS = 1.0
_FIRST_THROTTLED_WAIT_SECONDS = 60.0
"""Source: PagerDuty, "Events API v2 Overview": on a 429 "a backoff of a few minutes"."""
_DIGEST_CHARACTERS = 16
_REFUSED = (400, 413, 422)


class AlertAction(StrEnum):
    """What an event does to the incident with its key; a change event has none."""

    TRIGGER = "trigger"
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"
    CHANGE = "change"


class Severity(StrEnum):
    """Source: PagerDuty's common event format."""

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class AlertKind(StrEnum):
    """What happened; one incident at a time for each kind of each model, or of a version of several watched."""

    CANARY_ROLLED_BACK = "canary_rolled_back"
    GUARD_FAILED = "guard_failed"
    ROLLOUT_NEEDS_HUMAN = "rollout_needs_human"
    ROLLOUT_STALLED = "rollout_stalled"
    CHAMPION_REGRESSED = "champion_regressed"
    DRIFT = "drift"
    SAMPLE_RATIO_MISMATCH = "sample_ratio_mismatch"
    ROLLOUT_MOVED = "rollout_moved"
    """Nothing is wrong: a rollout changed who answers."""


FEATURES = "features"
"""The topic of a drift that is a skew: features are served otherwise than the feature store has them."""

SEVERITIES = {
    AlertKind.CANARY_ROLLED_BACK: Severity.ERROR,
    AlertKind.GUARD_FAILED: Severity.ERROR,
    AlertKind.ROLLOUT_NEEDS_HUMAN: Severity.WARNING,
    AlertKind.ROLLOUT_STALLED: Severity.WARNING,
    AlertKind.CHAMPION_REGRESSED: Severity.CRITICAL,
    AlertKind.DRIFT: Severity.WARNING,
    AlertKind.SAMPLE_RATIO_MISMATCH: Severity.WARNING,
    AlertKind.ROLLOUT_MOVED: Severity.INFO,
}


_INCIDENTS = "README.md#the-monitors-own-incidents"
RUNBOOKS = {
    AlertKind.CANARY_ROLLED_BACK: "RolledBack.md",
    AlertKind.GUARD_FAILED: "GuardFailed.md",
    AlertKind.ROLLOUT_NEEDS_HUMAN: _INCIDENTS,
    AlertKind.ROLLOUT_STALLED: _INCIDENTS,
    AlertKind.CHAMPION_REGRESSED: "RolledBack.md",
    AlertKind.DRIFT: _INCIDENTS,
    AlertKind.SAMPLE_RATIO_MISMATCH: "SampleRatioMismatch.md",
}
"""Where in ``docs/runbooks`` it says what to do; a note that nothing is wrong has no page."""
_TOPIC_RUNBOOKS = {FEATURES: "FeatureSkew.md"}


class Link(NamedTuple):
    """Where to read on."""

    href: str
    text: str


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """One thing to tell."""

    action: AlertAction
    kind: AlertKind
    environment: str
    model_name: str | None
    """``None`` when it is about no model."""
    summary: str
    """One sentence that stands alone."""
    occurred_at: float
    """Seconds since the epoch."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """JSON values: the checks with their figures."""
    links: tuple[Link, ...] = ()
    version: str | None = None
    """Where each of several versions of the model may have such an incident, the one that it is about."""
    topic: str | None = None
    """Where the model may have several incidents of the kind, what it is about."""

    @property
    def severity(self) -> Severity:
        """How bad it is, by its kind."""
        return SEVERITIES[self.kind]

    @property
    def dedup_key(self) -> str:
        """Which incident it is about."""
        return dedup_key(self.environment, self.model_name, self.kind, self.version, self.topic)


def with_runbook(event: AlertEvent, runbooks_url: str | None) -> AlertEvent:
    """Return the event with a link to its page first, if the settings say where the pages are."""
    page = _TOPIC_RUNBOOKS.get(event.topic or "", RUNBOOKS.get(event.kind))
    if page is None or runbooks_url is None:
        return event
    return replace(event, links=(Link(f"{runbooks_url.rstrip('/')}/{page}", "Runbook"), *event.links))


def dedup_key(
    environment: str, model_name: str | None, kind: AlertKind, version: str | None = None, topic: str | None = None
) -> str:
    """Return ``understudy/{environment}/{model}/{kind}``, ``-`` for no model; different for different arguments.

    The key of a version's own incident is ``understudy/{environment}/{model}/{version}/{kind}``, that of a topic's
    ends in ``{kind}.{topic}``.

    A slash inside a name is written ``%2F``. A key that would be over 255 characters has a digest at the end of the
    model's name, which is cut.
    """
    subject = _escaped(model_name or "-") + ("" if version is None else f"/{_escaped(version)}")
    named_kind = kind.value if topic is None else f"{kind.value}.{topic}"
    key = _key(environment, subject, named_kind)
    if len(key) <= MAX_KEY_CHARACTERS:
        return key
    digest = sha256(key.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    room = MAX_KEY_CHARACTERS - len(_key("", "", named_kind)) - len(digest) - len("~")
    named = _escaped(environment)[: room // 2]
    model = subject[: room - len(named)]
    return f"understudy/{named}/{model}~{digest}/{named_kind}"


def _key(environment: str, escaped_model: str, kind: str) -> str:
    return f"understudy/{_escaped(environment)}/{escaped_model}/{kind}"


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def event_to_json(event: AlertEvent) -> dict[str, Any]:
    """Return the event as it lies in the outbox.

    Characters that JSONB cannot hold (U+0000, lone surrogates) are left out: a model server's words must not keep an
    alert from being stored.
    """
    document = {
        "action": event.action.value,
        "kind": event.kind.value,
        "environment": event.environment,
        "model_name": event.model_name,
        "summary": event.summary,
        "occurred_at": event.occurred_at,
        "details": event.details,
        "links": [link._asdict() for link in event.links],
        **({} if event.version is None else {"version": event.version}),
        **({} if event.topic is None else {"topic": event.topic}),
    }
    return {name: _storable(value) for name, value in document.items()}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="ignore").decode().replace("\0", "")
    if isinstance(value, Mapping):
        return {_storable(key): _storable(member) for key, member in value.items()}
    return [_storable(member) for member in value] if isinstance(value, list | tuple) else value


def event_from_json(document: Mapping[str, Any]) -> AlertEvent:
    """Return the event that :func:`event_to_json` wrote."""
    return AlertEvent(
        action=AlertAction(document["action"]),
        kind=AlertKind(document["kind"]),
        environment=document["environment"],
        model_name=document["model_name"],
        summary=document["summary"],
        occurred_at=float(document["occurred_at"]),
        details=document["details"],
        links=tuple(Link(**link) for link in document["links"]),
        version=document.get("version"),
        topic=document.get("topic"),
    )


class Outcome(StrEnum):
    """What became of an event at one receiver."""

    DELIVERED = "delivered"
    TRY_AGAIN = "try_again"
    REFUSED = "refused"
    """The receiver does not want this event, however often it is sent."""


class Delivery(NamedTuple):
    """A receiver's answer."""

    status: int | None
    """HTTP status; ``None`` when there was no answer in time."""
    detail: str = ""
    """What it said, without secrets."""
    retry_after_seconds: float | None = None

    @property
    def outcome(self) -> Outcome:
        """What the status means: 2xx took it; 400, 413 and 422 never will; anything else may pass.

        Wrong addresses and keys (401, 403, 404) may pass, too: once an operator has mended them, the event is sent.

        Source:
            PagerDuty, "Events API v2 Overview", "Response Codes & Retry Logic": 202 and 400 are final, 429, 5xx and
            network errors are to be sent again.
        """
        if self.status is not None and self.status // 100 == 2:  # noqa: PLR2004  # the class of success
            return Outcome.DELIVERED
        return Outcome.REFUSED if self.status in _REFUSED else Outcome.TRY_AGAIN


def next_attempt_seconds(attempts: int, delivery: Delivery) -> float | None:
    """Return how long to wait before sending again, or ``None`` to give up: only a refused event is given up.

    Args:
        attempts: Times that it was sent, this one included.
        delivery: The answer. Its Retry-After is kept to (1 s to an hour); otherwise the wait doubles from a second, or
            from a minute when the receiver said that it is we who do something wrong (4xx), up to five minutes.
    """
    if delivery.outcome is not Outcome.TRY_AGAIN:
        return None
    if delivery.retry_after_seconds is not None:
        return min(max(delivery.retry_after_seconds, _FIRST_WAIT_SECONDS), MAX_ASKED_WAIT_SECONDS)
    ours = delivery.status is not None and delivery.status // 100 == 4  # noqa: PLR2004  # the class of our mistakes
    first_seconds = _FIRST_THROTTLED_WAIT_SECONDS if ours else _FIRST_WAIT_SECONDS
    return min(first_seconds * 2.0 ** min(max(attempts, 1) - 1, 32), MAX_WAIT_SECONDS)
