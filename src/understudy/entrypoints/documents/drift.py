"""A drift report as JSON: the same from the command line and over HTTP."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from understudy.core.drift.report import Drift, Reading
from understudy.entrypoints.documents.json_text import moment_of
from understudy.monitoring.drift_view import DriftView, SubjectView, VersionView


def drift_document(view: DriftView) -> dict[str, Any]:
    """Return the report; times are moments in UTC."""
    return {
        "model": view.model_name,
        "since": moment_of(view.until - view.judged_seconds),
        "until": moment_of(view.until),
        "next_hour_at": moment_of(view.next_hour_at),
        "input_sample_percent": view.input_sample_percent,
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
        "summed_until": moment_of(view.summed_until),
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
        "since": moment_of(drift.since_seconds),
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
        {"at": moment_of(at), "distance": distance}
        for at, distance in zip(drift.history_seconds, drift.history, strict=True)
    ]
