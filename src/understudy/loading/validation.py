"""Asks a version that a model server has loaded, as proxies would: its author's cases, hard calls, load."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
import structlog

from understudy.core.loading.cases import Case, CaseRows, cases_of, difference, typed_rows
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.core.schema.tensors import Datatype
from understudy.errors import BadAnswer, InputInvalid, NotValidated
from understudy.loading.hard_calls import ask_hard_calls
from understudy.loading.load_trial import measure_load
from understudy.loading.steps import StepResult, Steps
from understudy.ports.upstream.model_backend import ConnectBackend, ModelBackend

_log = structlog.get_logger(__name__)

CALL_SECONDS: Final = 5.0
ALL_SECONDS: Final = 300.0
MAX_VIOLATIONS: Final = 3
"""Inputs of a case that are named."""


async def ask_version(connect: ConnectBackend, version: ModelVersion, rows: CaseRows | None, steps: Steps) -> str:
    """Have a version asked, and return in words what it passed; raises as the port ``Validation`` does.

    Each case is a call of its own, so that the one that fails is known by name.
    """
    said = []
    backend = connect(version)
    try:
        async for result in validate(version, backend, rows, steps):
            if not result.passed:
                raise NotValidated(result.words)
            model, label = version.model_name, version.version
            _log.info("version.validated", model=model, version=label, step=result.step, what=result.words)
            said.append(result.words)
    finally:
        await backend.close()
    return "; ".join(said)


async def validate(
    version: ModelVersion, backend: ModelBackend, rows: CaseRows | None, steps: Steps
) -> AsyncIterator[StepResult]:
    """Yield each step's result; the first that fails is the last.

    Raises:
        BackendUnavailable, DeadlineExceeded: The server does not answer, which is no failure of the version.
    """
    asked = {
        "cases": None if rows is None else partial(_ask_cases, version, backend, rows),
        "robustness": partial(ask_hard_calls, version, backend, steps.most_rows) if steps.hard_calls else None,
        "load": partial(measure_load, version, backend, steps.load_seconds) if steps.load_seconds else None,
    }
    for step, ask in asked.items():
        if ask is None:
            continue
        try:
            result = StepResult(step, passed=True, words=await ask())
        except NotValidated as problem:
            result = StepResult(step, passed=False, words=problem.detail)
        yield result
        if not result.passed:
            return


async def _ask_cases(version: ModelVersion, backend: ModelBackend, rows: CaseRows) -> str:
    try:
        cases = cases_of(_typed(version, rows) if rows.is_text else rows.rows)
    except ValueError as problem:
        raise NotValidated(str(problem)) from None
    try:
        async with asyncio.timeout(ALL_SECONDS):
            for number, case in enumerate(cases, 1):
                await _ask(version, backend, case, f"case {case.name} ({number} of {len(cases)})")
    except TimeoutError:
        raise NotValidated(f"its {len(cases):,} cases were not answered within {ALL_SECONDS:g} s") from None
    return f"{len(cases):,} cases answered as expected"


def _typed(version: ModelVersion, rows: CaseRows) -> Sequence[Mapping[str, Any]]:
    texts = [one.name for one in version.input_schema.features if one.datatype is Datatype.BYTES and not one.shape]
    return typed_rows(rows.rows, texts, version.output_schema.labels)


async def _ask(version: ModelVersion, backend: ModelBackend, case: Case, name: str) -> None:
    try:
        row = version.input_schema.assemble(case.inputs).row
    except InputInvalid as problem:
        said = "; ".join(f"{pointer} {detail}" for pointer, detail in problem.violations[:MAX_VIOLATIONS])
        raise NotValidated(f"{name}: its inputs do not fit the version's input_schema: {said}") from None
    try:
        tensor = await backend.infer([row], CALL_SECONDS)
        (answer,) = predictions_of(version.output_schema, tensor, 1, batch=version.input_schema.batch)
    except BadAnswer as problem:
        said = f'; the server says: "{problem.said}"' if problem.said else ""
        raise NotValidated(f"{name}: {problem}{said}") from None
    if not isinstance(answer, Prediction):
        raise NotValidated(f"{name}: {answer}")
    differs = difference(case, orjson.loads(answer.json))
    if differs is not None:
        raise NotValidated(f"{name}: {differs}")
