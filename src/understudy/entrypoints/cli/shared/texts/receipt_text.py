"""Why a call got its answer, in words."""

from collections.abc import Mapping
from datetime import UTC, datetime
from shlex import quote

from understudy.core.amounts import amount_words
from understudy.core.durations import duration_words
from understudy.core.routing.route import Reason
from understudy.entrypoints.cli.shared.texts.change_text import change_text
from understudy.ports.prediction_log.receipts import Receipt
from understudy.ports.registry.registry import AuditEntry
from understudy.registry.receipts import EntityCalls, Explained

_OK, _FALLBACK, _SHADOW, _CHALLENGER = "ok", "fallback", "shadow", "challenger"
_OF_SERVERS, _UNLOADED = ("E502", "E503", "E504"), "E509"
_HEAD = 120
"""Characters of a change of the policy that are told."""


def receipt_sentence(found: Receipt) -> str:
    """Return who answered a call, and what."""
    role, who, when = found.role or "a version", found.entity_id, f"at {exact_moment(found.predicted_at)}"
    if found.role == _SHADOW:
        asked = f"{found.version}, the shadow, was asked beside a call of {who} {when} UTC"
        return f"What {who} got is not in the log; {asked}: {answer_of(found)}{_code(found)}."
    if found.status == _FALLBACK:
        failed = f"{found.assigned or 'another version'} ({route_role(found)}), which failed{_code(found)}"
        return f"{found.version} answered {who} {when} UTC in the place of {failed}: {answer_of(found)}."
    if found.status != _OK:
        return f"{found.version} ({role}) failed {who} {when} UTC{_code(found)}: no version answered."
    by = "from the cache of" if found.is_cache_hit else "from"
    return f"{who} got {answer_of(found)} {by} {found.version} ({role}) {when} UTC."


def receipt_facts(found: Explained, labels: Mapping[int, str]) -> list[tuple[str, str]]:
    """Return what decided a call, each by its name; ``labels`` are the versions' by their ids."""
    answer = found.answer
    facts = [
        ("model", answer.model_name),
        ("decided by", decision_words(answer)),
        ("policy then", _policy_words(answer, found.policy, labels)),
        ("rollout", "none" if answer.rollout_id is None else str(answer.rollout_id)),
        ("cache", "answered from it" if answer.is_cache_hit else "not answered from it"),
        ("fallback", _fallback_words(answer)),
        ("latency", latency_words(answer)),
        ("defaults used", ", ".join(answer.defaulted) or "none"),
    ]
    shadows = [f"{one.version} gave {answer_of(one)}{_code(one)}, {latency_words(one)}" for one in found.shadows]
    facts.append(("shadow beside it", "; ".join(shadows) or "none is logged"))
    return facts


def decision_words(found: Receipt) -> str:
    """Return why a call went to the version of its route."""
    bucket = "its bucket is not logged" if found.bucket is None else f"bucket {found.bucket} of 100"
    version = found.assigned or found.version
    if found.reason == Reason.FORCED:
        return f"its caller, who named version {version} ({bucket})"
    if found.reason == Reason.CATEGORY:
        return f"its category, which routes to {version} as {route_role(found)} ({bucket})"
    return f"{bucket}, which is {version}'s as {route_role(found)}"


def route_role(found: Receipt) -> str:
    """Return what the version of a call's route was to it: a row has the role of the version that answered."""
    return _CHALLENGER if found.status == _FALLBACK else found.role or "a version"


def checked_by(found: Receipt) -> str:
    """Return the command that says why a call failed, where a model server is why, or that there is none; else nothing.

    The log has a code and no words, which may quote inputs.
    """
    model, version = quote(found.model_name), quote(found.assigned or found.version)
    if found.error_code == _UNLOADED:
        return f"understudy version show {model} {version}"
    return f"understudy version check {model} {version}" if found.error_code in _OF_SERVERS else ""


def answer_of(found: Receipt) -> str:
    """Return what a version answered, in a few words."""
    parts = [found.label] if found.label is not None else []
    parts += [f"score {amount_words(found.score, 4)}"] if found.score is not None else []
    return ", ".join(parts) or ("an answer without a score" if found.status in (_OK, _FALLBACK) else "nothing")


def latency_words(found: Receipt) -> str:
    """Return how long a call took in the proxy."""
    return "not logged" if found.latency_us is None else f"{found.latency_us / 1_000:.1f} ms in the proxy"


def status_words(found: Receipt) -> str:
    """Return how a call ended: ``ok``, ``ok, cached``, an error code, or one that a fallback answered."""
    if found.error_code is not None:
        return f"{found.error_code} {found.status}" if found.status == _FALLBACK else found.error_code
    return "ok, cached" if found.is_cache_hit else found.status


def searched_words(found: EntityCalls) -> str:
    """Return how far back calls of an entity were looked for."""
    if found.is_out_of_time and found.since >= found.until:
        return "The log was not searched: Postgres was too slow for even the newest calls."
    looked, count = duration_words(max(1.0, round(found.until - found.since))), len(found.calls)
    if count:
        many = f"{count} call{'s' * (count > 1)} found, looked back {looked}"
    else:
        many = f"0 calls found in the {looked} up to {datetime.fromtimestamp(found.until, UTC):%d %b %H:%M:%S} UTC"
    if found.is_out_of_time:
        return f"{many}; the search ended by its time: older ones may be there."
    return f"{many}; older ones were not looked for."


def exact_moment(seconds: float) -> str:
    """Return a moment in UTC to the millisecond: ``20 Nov 13:00:07.112``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%d %b %H:%M:%S.%f}"[:-3]


def _code(found: Receipt) -> str:
    return "" if found.error_code is None else f" ({found.error_code})"


def _fallback_words(found: Receipt) -> str:
    if found.status != _FALLBACK:
        return "not used"
    return f"{found.version} answered, since {found.assigned or 'the version of the route'} failed{_code(found)}"


def _policy_words(found: Receipt, entry: AuditEntry | None, labels: Mapping[int, str]) -> str:
    if found.generation is None:
        return "its generation is not logged"
    if entry is None:
        return f"generation {found.generation}; the audit has that change no more"
    why = f"“{entry.reason}”" if entry.reason else "(no reason was given)"
    when = f"{entry.changed_at.astimezone(UTC):%d %b %H:%M:%S}"
    change = change_text(entry, labels)[:_HEAD] or "nothing that is shown"
    return f"generation {found.generation}, made by {entry.actor} ({entry.via}) {when} UTC: {change} {why}"
