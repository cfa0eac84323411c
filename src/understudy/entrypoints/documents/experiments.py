"""Reports on experiments and replays as JSON."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import orjson

from understudy.core.experiments.logged_calls import Answer
from understudy.core.experiments.replay_comparison import ReplayedCall, ReplayReport
from understudy.core.experiments.shadow_comparison import ScoreComparison
from understudy.entrypoints.documents.json_text import document_of, moment_of
from understudy.experiments.ab_arms import Arms
from understudy.experiments.ab_report import AbReport
from understudy.experiments.declared_tests import Plan
from understudy.experiments.listed_tests import ListedTest
from understudy.experiments.log_replay import ReplayFinding
from understudy.experiments.shadow_report import Disagreements, ShadowFinding

_LEFT_OUT = ("found", "is_look_due")
_IDS = ("champion_id", "shadow_id")
Label: TypeAlias = Callable[[int], str]
"""Returns a version's text by its id."""


def ab_document(report: AbReport, model_name: str, metric: str, label: Label) -> dict[str, Any]:
    """Return a report on two versions, with its subject and its declared test."""
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
            "started_at": moment_of(test.record.started_at),
            "is_open": test.is_open,
            "plan": _plan_document(test.plan, label),
            "looks": document_of(test.looks),
        },
    }
    figures = {name: value for name, value in document_of(report).items() if name not in _LEFT_OUT}
    arms = None if report.arms is None else _arms_document(report.arms, label)
    return {"report": {**about, **figures, "arms": arms}}


def test_document(found: ListedTest, label: Label) -> dict[str, Any]:
    """Return a declared test as JSON, without a report on it."""
    record, test = found.record, found.test
    return {
        "id": record.id,
        "model": record.model_name,
        "metric": record.metric,
        "champion": label(record.champion_id),
        "challenger": label(record.challenger_id),
        "started_at": moment_of(record.started_at),
        "ended_at": moment_of(record.ended_at),
        "declared_by": record.created_by,
        "ended_by": record.ended_by,
        "plan": None if test is None else _plan_document(test.plan, label),
        "looks": None if test is None else document_of(test.looks),
        "problem": found.problem or None,
    }


def _plan_document(plan: Plan, label: Label) -> dict[str, Any]:
    beside = {"beside": [label(version_id) for version_id in plan.beside]} if plan.beside else {}
    declared = {} if plan.declared_at is None else {"declared_at": moment_of(plan.declared_at)}
    return {**plan.to_json(), **beside, **declared}


def _arms_document(arms: Arms, label: Label) -> dict[str, Any]:
    ratio = arms.ratio
    counts = zip(arms.version_ids, ratio.entities, ratio.expected, strict=True)
    return {
        "ratio": {
            "p_value": ratio.p_value,
            "is_mismatch": ratio.is_mismatch,
            "chi2_p_values": list(ratio.chi2_p_values),
            "combined_chi2_p_value": ratio.combined_chi2_p_value,
            "arms": [
                {"version": label(version_id), "entities": entities, "expected": expected}
                for version_id, entities, expected in counts
            ],
        },
        "comparisons": arms.comparisons,
        "results": [
            {
                "version": label(result.version_id),
                **result.comparison._asdict(),
                "difference": document_of(result.difference),
            }
            for result in arms.results
        ],
    }


def shadow_document(found: ShadowFinding, model_name: str, label: Label) -> dict[str, Any]:
    """Return a report on a shadow."""
    champion, shadow = label(found.champion_id), label(found.shadow_id)
    return {"report": {"model": model_name, "champion": champion, "shadow": shadow, **found_document(found)}}


def found_document(found: ShadowFinding | Disagreements) -> dict[str, Any]:
    """Return what was found of a shadow as JSON, without the versions' ids: they are named by their labels."""
    return {name: value for name, value in document_of(found).items() if name not in _IDS}


def replay_document(found: ReplayFinding) -> dict[str, Any]:
    """Return what a version answered to logged inputs; ``then`` is the logged answer, ``now`` the version's."""
    question, report = found.question, found.report
    labels = question.labels
    figures = {name: value for name, value in document_of(report).items() if name not in ("scores", "examples")}
    return {
        "replay": {
            "model": question.wanted.model_name,
            "version": question.version.version,
            "since": moment_of(question.wanted.since),
            "until": moment_of(question.wanted.until),
            "answered_by": {labels[version_id]: calls for version_id, calls in found.answered_by.items()},
            "input_sample_percent": question.sample_percent,
            **figures,
            "is_whole": report.is_whole,
            "classes": _classes_document(report),
            "scores": None if report.scores is None else _scores_document(report.scores),
            "left_out": list(found.left_out),
            "defaulted": list(found.defaulted),
            "examples": [_example_document(call, labels) for call in report.examples],
        }
    }


def _classes_document(report: ReplayReport) -> dict[str, Any] | None:
    found = report.classes
    return None if found is None else {**found._asdict(), "changed_percent": found.changed_percent}


def _scores_document(scores: ScoreComparison) -> dict[str, Any]:
    return {
        "pairs": scores.pairs,
        "then_mean": scores.champion_mean,
        "now_mean": scores.shadow_mean,
        "difference_low": scores.difference_low,
        "difference_high": scores.difference_high,
        "spearman": scores.spearman,
        "psi": scores.psi,
        "ks": scores.ks,
    }


def _example_document(call: ReplayedCall, labels: Mapping[int, str]) -> dict[str, Any]:
    return {
        "prediction_id": call.prediction_id,
        "predicted_at": moment_of(call.predicted_at),
        "entity_id": call.entity_id,
        "answered_by": labels[call.version_id],
        "then": _answer_document(call.then),
        "now": _answer_document(call.now),
        "difference": call.difference,
    }


def _answer_document(answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    return {"score": answer.score, "label": None if answer.label is None else orjson.loads(answer.label)}
