"""Chooses what a loaded version is asked: the cases in its artifact, and the steps that its agent is set to.

What asks is not imported here: most artifacts bring no cases, and it takes a fifth of an agent's memory.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from understudy.core.loading.cases import CaseRows
from understudy.loading.steps import NO_MORE_STEPS, Steps

ReadRows = Callable[[Path], Awaitable[CaseRows | None]]
"""Reads the rows of the case file in an artifact's folder; ``None``: there is none. Raises ``NotValidated``."""
AskVersion = Callable[[str, str, CaseRows | None, Steps], Awaitable[str]]
"""Asks a version, by its model and label, cases and further steps, and returns in words what it passed."""


class ArtifactValidation:
    """A :class:`understudy.ports.loading.validation.Validation` by cases, and by further steps."""

    def __init__(self, read_rows: ReadRows, ask: AskVersion, steps: Steps = NO_MORE_STEPS) -> None:
        self._read_rows = read_rows
        self._ask = ask
        self._steps = steps

    async def check(
        self, model_name: str, version: str, folder: Path, *, has_callers: bool, is_required: bool = False
    ) -> str:
        """Ask a version the cases of its artifact, one after the other, and then what the further steps ask.

        A version that proxies call already is asked its cases alone: a hard call may end its server, and load would
        slow its callers. One whose validation is required is asked hard calls whatever the steps are.
        """
        rows = await self._read_rows(folder)
        steps = NO_MORE_STEPS if has_callers else self._steps._replace(hard_calls=self._steps.hard_calls or is_required)
        if rows is None and not steps.hard_calls and not steps.load_seconds:
            return ""
        return await self._ask(model_name, version, rows, steps)
