"""Cases as calls: each by itself, and all of them together, as proxies put rows of several callers into one call."""

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

import orjson

from understudy.core.loading.case_causes import likely_cause, order_cause
from understudy.core.loading.cases import Case, CaseRows, Difference, cases_of, difference, typed_rows
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.core.schema.tensors import Datatype, Row
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, InputInvalid, NotValidated
from understudy.loading.exchanged_inputs import exchanged_inputs
from understudy.loading.step_calls import MAX_CALL_BYTES, READY_SECONDS, call_seconds, refusal_words
from understudy.ports.upstream.model_backend import ModelBackend

ALL_SECONDS: Final = 300.0
MAX_VIOLATIONS: Final = 3
"""Inputs of a case that are named."""
MAX_FAILED: Final = 100
"""Cases that differ after which no further one is asked: the figures of so many say enough."""

_MIN_CASES: Final = 3
"""Cases, most of which differ, that say something of the model."""


class CaseCall(NamedTuple):
    """A case, and its row of tensors."""

    case: Case
    row: Row
    name: str
    """As people read it: ``case 17 (17 of 1,200)``."""


class Asked(NamedTuple):
    """A case with its answer, and how that differs."""

    call: CaseCall
    answer: Mapping[str, Any] | None
    """As callers get it; ``None``: callers would get an error."""
    difference: Difference | None


def case_calls(version: ModelVersion, rows: CaseRows) -> list[CaseCall]:
    """Return the calls that rows of a file are.

    Raises:
        NotValidated: One is no case, or does not fit the version's ``input_schema``; the message names it.
    """
    try:
        cases = cases_of(_typed(version, rows) if rows.is_text else rows.rows)
    except ValueError as problem:
        raise NotValidated(str(problem)) from None
    names = [f"case {case.name} ({number:,} of {len(cases):,})" for number, case in enumerate(cases, 1)]
    return [CaseCall(case, _row_of(version, case, name), name) for case, name in zip(cases, names, strict=True)]


async def ask_cases(version: ModelVersion, backend: ModelBackend, calls: Sequence[CaseCall]) -> str:
    """Ask each case by itself, and say in words that all were answered as expected.

    Raises:
        NotValidated: Some were not; the message names the worst one, and what may have made them differ.
        BackendUnavailable: The server is away, which is no failure of the version; the message names the case.
    """
    asked: list[Asked] = []
    try:
        async with asyncio.timeout(ALL_SECONDS):
            for call in calls:
                asked.append((await _ask(version, backend, [call], call.name))[0])
                if sum(one.difference is not None for one in asked) >= MAX_FAILED:
                    break
            if any(one.difference is not None for one in asked):
                raise NotValidated(await _words(version, backend, asked))
    except TimeoutError:
        raise NotValidated(f"its {len(calls):,} cases were not answered within {ALL_SECONDS:g} s") from None
    return f"{len(calls):,} cases answered as expected"


async def ask_together(version: ModelVersion, backend: ModelBackend, calls: Sequence[CaseCall], most_rows: int) -> str:
    """Ask cases in calls of ``most_rows``, and say in words what became of them; all of them are answered alone.

    The last call is filled with further ones of the first cases. A server may refuse so many rows: proxies then ask in
    parts.

    Raises:
        NotValidated: A case has another answer than by itself, or none in time.
        BackendUnavailable: The server is away.
    """
    largest = max(sum(map(len, one.row)) for one in calls)
    rows = max(min(most_rows, MAX_CALL_BYTES // max(largest, 1)), 1)
    try:
        async with asyncio.timeout(ALL_SECONDS):
            for start in range(0, len(calls), rows):
                together = [calls[(start + place) % len(calls)] for place in range(rows)]
                refused = await _ask_block(version, backend, together)
                if refused:
                    return f"{rows:,} cases in one call are refused, and asked in parts: {refused}"
    except TimeoutError:
        raise NotValidated(f"its cases were not answered within {ALL_SECONDS:g} s, {rows:,} in one call") from None
    return f"as expected in calls of {rows:,} too"


def judge(version: ModelVersion, call: CaseCall, answer: Prediction | BadAnswer) -> Asked:
    """Return a case with what a caller would get, and how that differs."""
    if not isinstance(answer, Prediction):
        return Asked(call, None, Difference(str(answer), inf))
    document = orjson.loads(answer.json)
    return Asked(call, document, difference(call.case, document, version.output_schema.labels))


async def _ask(version: ModelVersion, backend: ModelBackend, calls: Sequence[CaseCall], name: str) -> list[Asked]:
    """Ask cases in one call.

    Raises:
        NotValidated: There is no answer in time, and the server says that it is ready.
        BackendUnavailable: The server is away.
    """
    seconds = call_seconds(version)
    try:
        tensor = await backend.infer([call.row for call in calls], seconds)
        answers = predictions_of(version.output_schema, tensor, len(calls), batch=version.input_schema.batch)
    except BadAnswer as problem:
        said = refusal_words(problem)
        return [Asked(call, None, Difference(said, inf)) for call in calls]
    except DeadlineExceeded:
        if not await backend.ready(READY_SECONDS):
            raise BackendUnavailable(
                f"{name}: no answer within {seconds:g} s, and the model server is not ready"
            ) from None
        raise NotValidated(f"{name}: no answer within {seconds:g} s of a model server that says it is ready") from None
    except BackendUnavailable as problem:
        raise BackendUnavailable(f"{name}: {problem.detail}") from problem
    return [judge(version, call, answer) for call, answer in zip(calls, answers, strict=True)]


async def _ask_block(version: ModelVersion, backend: ModelBackend, calls: Sequence[CaseCall]) -> str:
    """Ask cases in one call; return why the server refuses so many, empty: it does not."""
    block = f"{len(calls):,} cases in one call"
    asked = await _ask(version, backend, calls, block)
    failed = [one for one in asked if one.difference is not None]
    if not failed:
        return ""
    if all(one.answer is None for one in asked):
        return _worst(failed).words
    worst = max(failed, key=_times)
    order = order_cause(len(asked), lambda place, row: _is_met(version, asked[place], calls[row]))
    cause = f"; {order}" if order else f"; {len(failed):,} of the {len(asked):,} rows differ"
    raise NotValidated(f"{worst.call.name}, among {block}: {_worst(failed).words}, and right by itself{cause}")


def _is_met(version: ModelVersion, asked: Asked, call: CaseCall) -> bool:
    return asked.answer is not None and difference(call.case, asked.answer, version.output_schema.labels) is None


async def _words(version: ModelVersion, backend: ModelBackend, asked: Sequence[Asked]) -> str:
    """Return what is wrong with cases of which some differ: the worst, how many, and what may be the cause."""
    failed = [one for one in asked if one.difference is not None]
    worst = max(failed, key=_times)
    said = f"{worst.call.name}: {_worst(failed).words}"
    if len(asked) > 1:
        differ = "have no answer" if all(one.answer is None for one in failed) else "differ"
        said = f"{said}; {len(failed):,} of {len(asked):,} cases {differ}"
    answered = [(one.call.case, one.answer) for one in asked if one.answer is not None]
    if worst.answer is None or len(answered) < len(asked):
        return said
    cause = (
        await _is_unsteady(version, backend, worst)
        or likely_cause(answered, version.output_schema.labels)
        or await exchanged_inputs(version, backend, [(one.call.case, one.answer or {}) for one in failed])
    )
    if not cause and len(answered) >= _MIN_CASES and len(failed) > len(asked) / 2:
        cause = "no order, unit or activation explains it: another model's file, or inputs that mean something else"
    return f"{said}: {cause}" if cause else said


async def _is_unsteady(version: ModelVersion, backend: ModelBackend, worst: Asked) -> str:
    """Say whether a case has another answer when it is asked again."""
    again = (await _ask(version, backend, [worst.call], worst.call.name))[0].answer
    if again is None or again == worst.answer:
        return ""
    return f"asked again the same case has another answer ({_shown(worst.answer)}, then {_shown(again)})"


def _shown(answer: Mapping[str, Any] | None) -> str:
    value = next(iter((answer or {}).values()), None)
    return f"{value:.6g}" if isinstance(value, float) else f"{value!r:.60}"


def _worst(failed: Sequence[Asked]) -> Difference:
    found = max(failed, key=_times).difference
    assert found is not None
    return found


def _times(one: Asked) -> float:
    return one.difference.times if one.difference is not None else 0.0


def _row_of(version: ModelVersion, case: Case, name: str) -> Row:
    try:
        return version.input_schema.assemble(case.inputs).row
    except InputInvalid as problem:
        said = "; ".join(f"{pointer} {detail}" for pointer, detail in problem.violations[:MAX_VIOLATIONS])
        raise NotValidated(f"{name}: its inputs do not fit the version's input_schema: {said}") from None


def _typed(version: ModelVersion, rows: CaseRows) -> Sequence[Mapping[str, Any]]:
    texts = [one.name for one in version.input_schema.features if one.datatype is Datatype.BYTES and not one.shape]
    return typed_rows(rows.rows, texts, version.output_schema.labels)
