"""A drift report as JSON: the same from the command line and over HTTP."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from understudy.core.drift.report import Drift, Reading
from understudy.monitoring.drift_view import DriftView, SubjectView, VersionView


def drift_document(view: DriftView) -> dict[str, Any]:
    """Return the report; times are moments in UTC."""
    return {
        "model": view.model_name,
        "since": _moment(view.until - view.judged_seconds),
        "until": _moment(view.until),
        "verdict": view.verdict.value,
        "sentence": view.sentence,
        "shared": list(view.shared),
        "versions": [_version(one) for one in view.versions],
    }


def _version(view: VersionView) -> dict[str, Any]:
    policy = view.rule.policy
    return {
        "version": view.version,
        "role": None if view.role is None else view.role.value,
        "active": view.is_active,
        "summed_until": _moment(view.summed_until),
        "verdict": view.verdict.value,
        "policy": "seed"
        if view.rule.is_reference
        else {field.name: getattr(policy, field.name) for field in fields(policy)},
        "subjects": [_subject(subject) for subject in view.subjects],
    }


def _subject(view: SubjectView) -> Mapping[str, Any]:
    drift = view.drift
    return {
        "subject": drift.subject,
        "state": drift.state.value,
        "words": drift.words,
        "rows": drift.rows,
        "since": _moment(drift.since_seconds),
        "baseline": drift.baseline,
        "now": drift.now,
        "direction": drift.direction,
        "shown": None if drift.shown is None else _reading(drift.shown),
        "readings": [_reading(reading) for reading in drift.readings],
        "tests": None if drift.tests is None else drift.tests._asdict(),
        "history": _history(drift),
    }


def _reading(reading: Reading) -> dict[str, Any]:
    return {**reading._asdict(), "measure": reading.measure.value}


def _history(drift: Drift) -> list[dict[str, Any]]:
    return [
        {"at": _moment(at), "distance": distance}
        for at, distance in zip(drift.history_seconds, drift.history, strict=True)
    ]


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
