"""What experiments find, as JSON."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from understudy.experiments.ab_report import AbReport
from understudy.experiments.shadow_report import ShadowFinding

Label: TypeAlias = Callable[[int], str]
"""Returns a version's text by its id."""
_MOMENTS = frozenset({"since", "until", "at", "started_at", "predicted_at"})
"""Fields that are times, in seconds since the epoch."""


def document_of(value: Any) -> Any:
    """Return a value as JSON has it: named tuples as objects, their times in ISO 8601."""
    if hasattr(value, "_asdict"):
        return {name: _member_of(name, member) for name, member in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): document_of(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [document_of(member) for member in value]
    return value


def ab_document(report: AbReport, model_name: str, metric: str, label: Label) -> dict[str, Any]:
    """Return a report on two versions, what it is of, and its test."""
    test = report.found.test
    about = {
        "model": model_name,
        "metric": metric,
        "champion": label(report.found.champion_id),
        "challenger": label(report.found.challenger_id),
        "test": None
        if test is None
        else {
            "id": test.record.id,
            "declared_by": test.record.created_by,
            "started_at": datetime.fromtimestamp(test.record.started_at, UTC),
            "is_open": test.is_open,
            "plan": test.plan.to_json(),
            "looks": document_of(test.looks),
        },
    }
    figures = {name: value for name, value in document_of(report).items() if name != "found"}
    return {"report": {**about, **figures}}


def shadow_document(found: ShadowFinding, model_name: str, label: Label) -> dict[str, Any]:
    """Return a report on a shadow."""
    champion, shadow = label(found.champion_id), label(found.shadow_id)
    return {"report": {"model": model_name, "champion": champion, "shadow": shadow, **document_of(found)}}


def _member_of(name: str, member: Any) -> Any:
    if name in _MOMENTS and isinstance(member, float):
        return datetime.fromtimestamp(member, UTC)
    return document_of(member)
