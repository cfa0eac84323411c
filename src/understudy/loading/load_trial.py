"""Load: some seconds of calls, several at a time, and how long they take."""

import asyncio
from math import ceil, inf
from typing import Final

from understudy.core.durations import short_duration
from understudy.core.requests.example import example_inputs
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.tensors import Row
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, InputInvalid, NotValidated
from understudy.ports.upstream.model_backend import ModelBackend

AT_ONCE: Final = 4
CALL_SECONDS: Final = 5.0
"""Of one call; longer where the version's own time-out is."""
READY_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.01
"""After a call that failed: a server that refuses at once would be asked thousands of times a second."""


class _Trial:
    def __init__(self, backend: ModelBackend, row: Row, seconds: float, call_seconds: float) -> None:
        self._backend = backend
        self._row = row
        self._call_seconds = call_seconds
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + seconds
        self.took: list[float] = []
        self.problems: list[str] = []

    async def ask(self) -> None:
        """Make one call after the other until the time is over."""
        while (began := self._clock()) < self._until:
            try:
                await self._backend.infer([self._row], self._call_seconds)
            except (DeadlineExceeded, BackendUnavailable, BadAnswer) as problem:
                self.problems.append(str(problem))
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self.took.append(self._clock() - began)
                await asyncio.sleep(0)  # a backend that answers without waiting must not keep the others from asking


async def measure_load(version: ModelVersion, backend: ModelBackend, seconds: float) -> str:
    """Make example calls for so long, and say in words how long they took.

    Raises:
        NotValidated: Of a hundred calls more than one fails or takes longer than the version's time-out, or the server
            is dead afterwards.
    """
    try:
        row = version.input_schema.assemble(example_inputs(version)).row
    except InputInvalid as problem:
        return f"not measured: no example can be made ({problem})"
    trial = _Trial(backend, row, seconds, max(CALL_SECONDS, version.timeout_seconds))
    await asyncio.gather(*(trial.ask() for _ in range(AT_ONCE)))
    if not await backend.ready(READY_SECONDS):
        raise NotValidated(f"after {seconds:g} s of calls the model server does not say that it is ready")
    if not trial.took:
        raise NotValidated(f"no call of {seconds:g} s was answered: {trial.problems[0] if trial.problems else 'none'}")
    p50, p99 = (_percentile(sorted(trial.took), share) for share in (0.5, 0.99))
    made = len(trial.took) + len(trial.problems)
    words = f"{made:,} calls in {seconds:g} s, {AT_ONCE} at a time: "
    words += f"p50 {short_duration(p50)}, p99 {short_duration(p99)}"
    if trial.problems:
        words += f", and {len(trial.problems):,} failed ({trial.problems[0]})"
    # A call that failed took longer than any time-out: quick answers of a server that refuses the others are no pass.
    if _percentile([*sorted(trial.took), *(inf for _ in trial.problems)], 0.99) > version.timeout_seconds:
        raise NotValidated(f"{words}; a call may take {short_duration(version.timeout_seconds)}, its timeout_ms")
    return words


def _percentile(ordered: list[float], share: float) -> float:
    """Return the nearest rank."""
    return ordered[max(ceil(len(ordered) * share) - 1, 0)]
