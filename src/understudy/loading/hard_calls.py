"""Robustness: calls at the ends of what a version's schema permits. An error is an answer; a dead server is none."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from understudy.core.first_names import first_names
from understudy.core.requests.example import example_inputs
from understudy.core.requests.hard_inputs import CALLS, hard_calls
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import NOT_FINITE, Prediction, predictions_of
from understudy.core.schema.tensors import Row
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, InputInvalid, NotValidated
from understudy.loading.step_calls import MAX_CALL_BYTES, READY_SECONDS, call_seconds, refusal_words, rows_at_once
from understudy.ports.upstream.model_backend import ModelBackend

READY_EACH: Final = 10
"""Calls after which the server is asked whether it is ready."""
ALL_SECONDS: Final = 300.0
_SHOWN: Final = 3
"""Inputs of a row that are named, and each in at most so many characters as below."""
_SHOWN_CHARACTERS: Final = 30


class _Call(NamedTuple):
    name: str
    inputs: Sequence[Mapping[str, Any]]
    rows: Sequence[Row]


async def ask_hard_calls(version: ModelVersion, backend: ModelBackend, most_rows: int) -> str:
    """Make the calls, one after the other, and say in words what became of them.

    Raises:
        NotValidated: The server is dead or wedged after one, a valid input got NaN, an answer does not fit its rows,
            or every call was refused.
        BackendUnavailable: The server does not serve the version to begin with.
    """
    if not await backend.ready(READY_SECONDS):
        raise BackendUnavailable("no model server of the version says that it is ready")
    try:
        async with asyncio.timeout(ALL_SECONDS):
            return await _ask_all(version, backend, rows_at_once(backend, most_rows))
    except TimeoutError:
        raise NotValidated(f"its {CALLS} hard calls were not answered within {ALL_SECONDS:g} s") from None


async def _ask_all(version: ModelVersion, backend: ModelBackend, most_rows: int) -> str:
    refused, first = 0, ""
    for number, inputs in enumerate(hard_calls(version, most_rows), 1):
        call = _assembled(version, inputs, number)
        problem = await _refusal(version, backend, call) if call.rows else "no row of it fits the schema"
        if problem:
            refused, first = refused + 1, first or f"{call.name}: {problem}"
        if (problem or number % READY_EACH == 0) and not await backend.ready(READY_SECONDS):
            said = f"after {call.name} the model server does not say that it is ready"
            raise NotValidated(said + _only_row(version, call))
    if refused == CALLS:
        raise NotValidated(f"each of its {CALLS} hard calls was refused; {first}")
    return f"{CALLS} hard calls, {refused} of them refused" + (f"; {first}" if first else "")


def _assembled(version: ModelVersion, inputs: Sequence[Mapping[str, Any]], number: int) -> _Call:
    """Return a call with as many of its rows as it may have bytes of, and at least one."""
    kept: list[Mapping[str, Any]] = []
    rows: list[Row] = []
    size = 0
    for values in inputs:
        try:
            row = version.input_schema.assemble(values).row
        except InputInvalid:  # a number that no tensor of the version can hold: callers are refused it as well
            continue
        size += sum(map(len, row))
        if rows and size > MAX_CALL_BYTES:
            break
        kept.append(values)
        rows.append(row)
    return _Call(f"hard call {number} ({len(rows)} row{'' if len(rows) == 1 else 's'})", kept, rows)


async def _refusal(version: ModelVersion, backend: ModelBackend, call: _Call) -> str:
    """Return why the server refused a call; empty: it answered.

    Raises:
        NotValidated: It did not answer in time, or with what no caller may get.
    """
    seconds = call_seconds(version)
    try:
        tensor = await backend.infer(call.rows, seconds)
    except DeadlineExceeded:
        raise NotValidated(f"{call.name}: no answer within {seconds:g} s{_only_row(version, call)}") from None
    except (BackendUnavailable, BadAnswer) as problem:
        return refusal_words(problem)
    try:
        answers = predictions_of(version.output_schema, tensor, len(call.rows), batch=version.input_schema.batch)
    except BadAnswer as problem:
        raise NotValidated(f"{call.name}: {problem}") from None
    for inputs, answer in zip(call.inputs, answers, strict=True):
        if not isinstance(answer, Prediction) and str(answer) == NOT_FINITE:
            raise NotValidated(f"{call.name}: {answer}, for {_words(version, inputs)}")
    return next((str(answer) for answer in answers if not isinstance(answer, Prediction)), "")


def _only_row(version: ModelVersion, call: _Call) -> str:
    """Return what a call of one row has; of several it is not known which one it was."""
    return f", for {_words(version, call.inputs[0])}" if len(call.inputs) == 1 else ""


def _words(version: ModelVersion, inputs: Mapping[str, Any]) -> str:
    """Return the first inputs that differ from an example; where none does, the example's."""
    usual = example_inputs(version)
    unlike = [name for name, value in inputs.items() if repr(value) != repr(usual[name])]
    told, unlike = ("", unlike) if unlike else ("an example: ", [*inputs])
    return told + first_names((f"{name}={inputs[name]!r:.{_SHOWN_CHARACTERS}}" for name in unlike), _SHOWN)
