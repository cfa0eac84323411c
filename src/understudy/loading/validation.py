"""Asks a version that a model server has loaded, as proxies would: its author's cases, hard calls, load."""

from collections.abc import AsyncIterator, Sequence
from functools import partial

import structlog

from understudy.core.loading.cases import CaseRows
from understudy.core.routing.policy import ModelVersion
from understudy.errors import NotValidated
from understudy.loading.case_calls import CaseCall, ask_cases, ask_together, case_calls
from understudy.loading.hard_calls import ask_hard_calls
from understudy.loading.load_trial import measure_load
from understudy.loading.step_calls import rows_at_once
from understudy.loading.steps import StepResult, Steps
from understudy.ports.upstream.model_backend import ConnectBackend, ModelBackend

_log = structlog.get_logger(__name__)


async def ask_version(connect: ConnectBackend, version: ModelVersion, rows: CaseRows | None, steps: Steps) -> str:
    """Have a version asked, and return in words what it passed; raises as the port ``Validation`` does.

    Each case is a call of its own first, so that the one that fails is known by name.
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
        BackendUnavailable: The server does not answer, which is no failure of the version.
    """
    calls: list[CaseCall] = []

    async def cases(given: CaseRows) -> str:
        calls.extend(case_calls(version, given))
        return await ask_cases(version, backend, calls)

    asked = {
        "cases": None if rows is None else partial(cases, rows),
        "robustness": partial(ask_hard_calls, version, backend, steps.most_rows) if steps.hard_calls else None,
        # After the hard calls, which blame the version for a server that ends: a case may meet one that is restarted.
        "batches": None if rows is None else partial(_ask_batches, version, backend, calls, steps.most_rows),
        "load": partial(_measure, version, backend, calls, steps.load_seconds) if steps.load_seconds else None,
    }
    for step, ask in asked.items():
        if ask is None:
            continue
        try:
            result = StepResult(step, passed=True, words=await ask())
        except NotValidated as problem:
            result = StepResult(step, passed=False, words=problem.detail)
        if result.words:
            yield result
        if not result.passed:
            return


async def _ask_batches(version: ModelVersion, backend: ModelBackend, calls: Sequence[CaseCall], most_rows: int) -> str:
    """Ask the cases together, where proxies would; empty: they would not.

    Of a version that may answer the same inputs otherwise, another answer says nothing.
    """
    rows = rows_at_once(backend, most_rows) if version.input_schema.batch else 1
    return await ask_together(version, backend, calls, rows) if rows > 1 and version.deterministic else ""


async def _measure(version: ModelVersion, backend: ModelBackend, calls: Sequence[CaseCall], seconds: float) -> str:
    return await measure_load(version, backend, seconds, calls if version.deterministic else ())
