"""A skew report as JSON: the same from the command line and over HTTP."""

from typing import Any

from understudy.core.drift.report import Drift
from understudy.entrypoints.documents.json_text import moment_of
from understudy.monitoring.skew_view import FeatureView, SkewView, VersionSkew


def skew_document(view: SkewView) -> dict[str, Any]:
    """Return the report; times are moments in UTC."""
    return {
        "model": view.model_name,
        "since": moment_of(view.now - view.judged_seconds),
        "until": moment_of(view.now),
        "input_sample_percent": view.input_sample_percent,
        "verdict": view.verdict.value,
        "sentence": view.sentence,
        "compared_until": moment_of(view.compared_until),
        "versions": [_version(one) for one in view.versions],
    }


def _version(view: VersionSkew) -> dict[str, Any]:
    return {
        "version": view.version,
        "role": None if view.role is None else view.role.value,
        "verdict": view.verdict.value,
        "features": [_feature(one) for one in view.features],
    }


def _feature(view: FeatureView) -> dict[str, Any]:
    skew = view.skew
    return {
        "feature": skew.feature,
        "state": skew.drift.state.value,
        "words": skew.words,
        "since": moment_of(skew.drift.since_seconds),
        "calls": skew.calls,
        "differs": skew.differs,
        "missing": skew.missing,
        "ratio": skew.ratio,
        "training": None if view.training is None else _training(view.training),
    }


def _training(drift: Drift) -> dict[str, Any]:
    shown = None if drift.shown is None else {**drift.shown._asdict(), "measure": drift.shown.measure.value}
    return {"state": drift.state.value, "words": drift.words, "shown": shown}
