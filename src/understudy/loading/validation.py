"""Asks a version that a model server has loaded the cases of its author, as a proxy would call it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from understudy.core.loading.cases import Case, cases_of, difference
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.errors import BadAnswer, InputInvalid, NotValidated
from understudy.ports.upstream.model_backend import ConnectBackend, ModelBackend

CALL_SECONDS: Final = 5.0
ALL_SECONDS: Final = 300.0
MAX_VIOLATIONS: Final = 3
"""Inputs of a case that are named."""
ReadVersion = Callable[[str, str], Awaitable[ModelVersion]]
"""Reads a version by its model and label, with the one server that is asked as its endpoint."""
ReadRows = Callable[[Path], Awaitable[Sequence[Mapping[str, Any]] | None]]
"""Reads the rows of the case file in an artifact's folder; ``None``: there is none. Raises ``NotValidated``."""


class CaseValidation:
    """A :class:`understudy.ports.loading.validation.Validation` by cases.

    Each case is a call of its own, so that the one that fails is known by name.
    """

    def __init__(self, read_version: ReadVersion, connect: ConnectBackend, read_rows: ReadRows) -> None:
        self._read_version = read_version
        self._connect = connect
        self._read_rows = read_rows

    async def check(self, model_name: str, version: str, folder: Path) -> int:
        """Ask a version the cases of its artifact, one after the other."""
        rows = await self._read_rows(folder)
        if rows is None:
            return 0
        try:
            cases = cases_of(rows)
        except ValueError as problem:
            raise NotValidated(str(problem)) from None
        asked = await self._read_version(model_name, version)
        backend = self._connect(asked)
        try:
            async with asyncio.timeout(ALL_SECONDS):
                for number, case in enumerate(cases, 1):
                    await _ask(asked, backend, case, f"case {case.name} ({number} of {len(cases)})")
        except TimeoutError:
            raise NotValidated(f"its {len(cases):,} cases were not answered within {ALL_SECONDS:g} s") from None
        finally:
            await backend.close()
        return len(cases)


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
