"""Declared tests as rows hold them: read with every value within bounds, or one error that names the place.

A role that may write ``Experiment`` can store any JSON there, and reports compute with it in the proxy.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from understudy.core.durations import MAX_SECONDS
from understudy.core.experiments.ab import AbState
from understudy.core.statistics.sample_size import MIN_ENTITIES, look_fractions
from understudy.errors import MigrationNeeded
from understudy.experiments.declared_tests import (
    DECIDED,
    DeclaredTest,
    Figures,
    InterimAnalysis,
    MetricChoice,
    Plan,
    Wanted,
)
from understudy.ports.experiments.experiment_store import ExperimentRecord

MAX_LOOKS = 20
"""Interim analyses of a test: a report on one computes for less than a second."""
MIN_AMOUNT, MAX_AMOUNT = 1e-9, 1e9
"""Of a wanted change."""
MIN_DIFFERENCE, MAX_DIFFERENCE = 1e-100, 1e100
"""Of the same in the metric's own unit; above and below, its square is no number any more."""
MAX_ENTITIES = 10**12
MIN_ALPHA, MAX_ALPHA = 0.001, 0.5
MAX_BESIDE = 5
"""A policy has a challenger and four further arms."""
MAX_SENTENCE = 2_000
"""Characters: three figures of 1e308 with their digits fit."""
_MAX_ID = 2**63 - 1
_MAX_VALUE = 1e308
_FIRST_MOMENT = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST_MOMENT = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_MOMENTS = _FIRST_MOMENT, _LAST_MOMENT
_MAX_NAME = 40
_NEXT_STEP = (
    "If a newer release declared it, ask one of that release. If it was written by hand, delete it: "
    "DELETE FROM Experiment WHERE id = {}."
)
_STATES = (AbState.UNDECIDED, *DECIDED)


def declared_test(record: ExperimentRecord) -> DeclaredTest:
    """Return what a stored row says.

    Raises:
        MigrationNeeded: A newer release declared it, or it was written by hand and is no test; names row and place.
    """
    try:
        _number(record.started_at, "started_at", _FIRST_MOMENT, _LAST_MOMENT)
        if record.ended_at is not None:
            _number(record.ended_at, "ended_at", _FIRST_MOMENT, _LAST_MOMENT)
        plan = declared_plan_from_json(record.plan)
        if {record.champion_id, record.challenger_id} & set(plan.beside):
            raise ValueError("plan.beside: expected other versions than the two that are compared")  # noqa: TRY301
        return DeclaredTest(record, plan, _looks_of(record.result, plan))
    except ValueError as problem:
        told = f"row {record.id} of Experiment is no test that this release can read: {problem}"
        raise MigrationNeeded(told, hint=_NEXT_STEP.format(record.id), detail_for_callers=told) from None


def result_to_json(test: DeclaredTest) -> dict[str, Any]:
    """Return a declared test's looks as its row holds them; :func:`declared_test` reads them."""
    return {"looks": [look.to_json() for look in test.looks]}


def declared_plan_from_json(document: object) -> Plan:
    """Return the plan of a declared A/B test from the JSON of its row.

    Raises:
        ValueError: It is none, or leaves the bounds of a declaration; names the place, and no value.
    """
    own = _members(document, "plan", Plan._fields, Plan._field_defaults)
    wanted = _members(own["wanted"], "plan.wanted", Wanted._fields, Wanted._field_defaults)
    choice = _members(own["choice"], "plan.choice", MetricChoice._fields, MetricChoice._field_defaults)
    return Plan(
        Wanted(
            _number(wanted["amount"], "plan.wanted.amount", MIN_AMOUNT, MAX_AMOUNT),
            _flag(wanted["is_relative"], "plan.wanted.is_relative"),
        ),
        MetricChoice(
            _number(choice["within_seconds"], "plan.choice.within_seconds", 1e-6, MAX_SECONDS),
            _flag(choice["per_call"], "plan.choice.per_call"),
            _flag(choice["higher_is_better"], "plan.choice.higher_is_better"),
        ),
        _flag(own["is_share"], "plan.is_share"),
        _difference(own["difference"]),
        _whole(own["entities_per_arm"], "plan.entities_per_arm", MIN_ENTITIES, MAX_ENTITIES),
        _whole(own["looks"], "plan.looks", 1, MAX_LOOKS),
        _number(own["alpha"], "plan.alpha", MIN_ALPHA, MAX_ALPHA),
        _beside(own["beside"]),
        None if own["declared_at"] is None else _number(own["declared_at"], "plan.declared_at", *_MOMENTS),
    )


def _looks_of(result: object, plan: Plan) -> tuple[InterimAnalysis, ...]:
    if result is None:
        return ()
    rows = _members(result, "result", ("looks",), {})["looks"]
    if not isinstance(rows, list) or len(rows) > plan.looks:
        raise ValueError("result.looks: expected a list of at most as many as the plan has")
    looks = tuple(_look(row, f"result.looks[{place}]") for place, row in enumerate(rows))
    due, last = look_fractions(plan.looks), 0.0
    for place, look in enumerate(looks):
        if look.fraction < next((fraction for fraction in due if fraction > last), 2.0):
            raise ValueError(f"result.looks[{place}].fraction: expected one at which the plan has an analysis due")
        if look.state in DECIDED and place < len(looks) - 1:
            raise ValueError(f"result.looks[{place}].state: expected nothing after a decision")
        last = look.fraction
    return looks


def _look(row: object, where: str) -> InterimAnalysis:
    own = _members(row, where, InterimAnalysis._fields, InterimAnalysis._field_defaults)
    sentence = own["sentence"]
    if not isinstance(sentence, str) or len(sentence) > MAX_SENTENCE or not sentence.isprintable():
        raise ValueError(f"{where}.sentence: expected at most {MAX_SENTENCE:,} printable characters")
    if own["state"] not in _STATES:
        raise ValueError(f"{where}.state: expected one of {', '.join(_STATES)}")
    return InterimAnalysis(
        _number(own["at"], f"{where}.at", _FIRST_MOMENT, _LAST_MOMENT),
        _number(own["fraction"], f"{where}.fraction", 0.0, 1.0),
        AbState(own["state"]),
        sentence,
        None if own["figures"] is None else _figures(own["figures"], f"{where}.figures"),
    )


def _figures(value: object, where: str) -> Figures:
    own = _members(value, where, Figures._fields, Figures._field_defaults)

    def amount(name: str) -> float:
        return _number(own[name], f"{where}.{name}", -_MAX_VALUE, _MAX_VALUE)

    return Figures(
        _whole(own["entities_a"], f"{where}.entities_a", 0, MAX_ENTITIES),
        _whole(own["entities_b"], f"{where}.entities_b", 0, MAX_ENTITIES),
        *(amount("value_a"), amount("value_b"), amount("difference"), amount("low"), amount("high")),
        p_value=None if own["p_value"] is None else _number(own["p_value"], f"{where}.p_value", 0.0, 1.0),
    )


def _members(value: object, where: str, names: Collection[str], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of an object, those that may be missing with their usual values."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object, of at most 64 KiB with all that is in it")  # noqa: TRY004
    unknown = next((name for name in value if name not in names), None)
    if unknown is not None:
        raise ValueError(f"{where}: this release knows no member {unknown[:_MAX_NAME]!a}")
    missing = next((name for name in names if name not in value and name not in usual), None)
    if missing is not None:
        raise ValueError(f"{where}.{missing} is missing")
    return {**usual, **value}


def _number(value: object, where: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{where}: expected a number from {low:.10g} to {high:.10g}")
    return float(value)


def _difference(value: object) -> float:
    """Return the difference; it is below zero for a relative change of a value below zero."""
    size = -value if isinstance(value, int | float) and not isinstance(value, bool) and value < 0 else value
    found = _number(size, "plan.difference, without its sign", MIN_DIFFERENCE, MAX_DIFFERENCE)
    return found if size is value else -found


def _whole(value: object, where: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{where}: expected a whole number from {low:,} to {high:,}")
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{where}: expected true or false")  # noqa: TRY004
    return value


def _beside(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or len(value) > MAX_BESIDE or len(set(map(repr, value))) < len(value):
        raise ValueError(f"plan.beside: expected at most {MAX_BESIDE} different versions")
    return tuple(_whole(version_id, "plan.beside", 1, _MAX_ID) for version_id in value)
