"""Declared tests as rows: one for each look that was taken."""

from collections.abc import Mapping
from typing import Any

from understudy.entrypoints.documents.json_text import moment_of
from understudy.entrypoints.documents.policies import version_label
from understudy.errors import MigrationNeeded
from understudy.experiments.declared_rows import declared_test
from understudy.experiments.declared_tests import Figures, InterimAnalysis
from understudy.ports.experiments.experiment_store import ExperimentRecord

EXPERIMENT_COLUMNS = (
    *("experiment_id", "model", "metric", "champion_version", "challenger_version", "started_at", "ended_at"),
    *("declared_by", "entities_per_arm", "looks_planned", "difference", "alpha"),
    *("look", "at", "fraction", "state", "sentence"),
    *("champion", "challenger", "change", "change_low", "change_high", "p_value"),
    *("champion_entities", "challenger_entities"),
)
EXPERIMENT_NUMBERS = (
    *("entities_per_arm", "looks_planned", "difference", "alpha", "look", "fraction", "champion", "challenger"),
    *("change", "change_low", "change_high", "p_value", "champion_entities", "challenger_entities"),
)
EXPERIMENT_TIMES = ("started_at", "ended_at", "at")
_NO_FIGURES = (None,) * 8


def experiment_rows(record: ExperimentRecord, labels: Mapping[int, str]) -> list[tuple[Any, ...]]:
    """Return a row for each look of a test, or one without a look.

    Args:
        record: The test; one whose plan or result cannot be read has one row that says so.
        labels: The versions' texts by their ids.
    """
    about = (
        *(record.id, record.model_name, record.metric),
        *(version_label(record.champion_id, labels), version_label(record.challenger_id, labels)),
        *(moment_of(record.started_at), moment_of(record.ended_at), record.created_by),
    )
    try:
        test = declared_test(record)
    except MigrationNeeded as problem:
        looked = (None, None, "damaged", problem.detail, *_NO_FIGURES)
        return [(*about, None, None, None, None, None, *looked)]
    plan = test.plan
    planned = (plan.entities_per_arm, plan.looks, plan.difference, plan.alpha)
    looks: list[tuple[int | None, InterimAnalysis | None]] = [*enumerate(test.looks, 1)] or [(None, None)]
    return [(*about, *planned, number, *_look(look)) for number, look in looks]


def _look(look: InterimAnalysis | None) -> tuple[Any, ...]:
    if look is None:
        return (None,) * 4 + _NO_FIGURES
    return (moment_of(look.at), look.fraction, str(look.state), look.sentence, *_figures(look.figures))


def _figures(found: Figures | None) -> tuple[Any, ...]:
    """Return the figures by the names that evidence has for them: A is the champion."""
    if found is None:
        return _NO_FIGURES
    values = (found.value_a, found.value_b, found.difference, found.low, found.high, found.p_value)
    return (*values, found.entities_a, found.entities_b)
