"""Load: some seconds of calls, several at a time, and how long they take."""

import asyncio
from collections.abc import Sequence
from itertools import cycle
from math import ceil, inf
from typing import Final

from understudy.core.durations import short_duration
from understudy.core.requests.example import example_inputs
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import predictions_of
from understudy.core.schema.tensors import Row
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, InputInvalid, NotValidated
from understudy.loading.case_calls import CaseCall, judge
from understudy.loading.step_calls import READY_SECONDS, call_seconds
from understudy.ports.upstream.model_backend import ModelBackend

AT_ONCE: Final = 4
PAUSE_SECONDS: Final = 0.01
"""After a call that failed: a server that refuses at once would be asked thousands of times a second."""


class _Trial:
    def __init__(
        self,
        version: ModelVersion,
        backend: ModelBackend,
        asked: Sequence[tuple[Row, CaseCall | None]],
        seconds: float,
    ) -> None:
        self._version = version
        self._backend = backend
        self._asked = cycle(asked)
        self._call_seconds = call_seconds(version)
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + seconds
        self.took: list[float] = []
        self.problems: list[str] = []
        self.differs = ""
        """How the answer to a case differs that was right when it was asked by itself; ends the trial."""

    async def ask(self) -> None:
        """Make one call after the other until the time is over: one at least, on a machine that stood still, too."""
        while not self.differs:
            await self._ask_once(*next(self._asked))
            if self._clock() >= self._until:
                return

    async def _ask_once(self, row: Row, call: CaseCall | None) -> None:
        began = self._clock()
        try:
            tensor = await self._backend.infer([row], self._call_seconds)
            ended = self._clock()
            schema = self._version.output_schema
            (answer,) = predictions_of(schema, tensor, 1, batch=self._version.input_schema.batch)
        except (DeadlineExceeded, BackendUnavailable, BadAnswer) as problem:
            self.problems.append(str(problem))
            await asyncio.sleep(PAUSE_SECONDS)
            return
        if isinstance(answer, BadAnswer):
            self.problems.append(str(answer))
        else:
            self.took.append(ended - began)
            judged = None if call is None else judge(self._version, call, answer)
            if judged is not None and judged.difference is not None:
                self.differs = f"{judged.call.name}: {judged.difference.words}"
        await asyncio.sleep(0)  # a backend that answers without waiting must not keep the others from asking


async def measure_load(
    version: ModelVersion, backend: ModelBackend, seconds: float, calls: Sequence[CaseCall] = ()
) -> str:
    """Make calls for so long, and say in words how long they took.

    Args:
        version: What is asked.
        backend: Its servers.
        seconds: How long.
        calls: Cases that were answered as expected, which are asked in turn; without any an example is.

    Raises:
        NotValidated: Of a hundred calls more than one fails or takes longer than the version's time-out, the server
            is dead afterwards, or the answer of a case is another one than when nothing else was asked.
    """
    try:
        example = version.input_schema.assemble(example_inputs(version)).row if not calls else None
    except InputInvalid as problem:
        return f"not measured: no example can be made ({problem})"
    asked = [(example, None)] if example is not None else [(call.row, call) for call in calls]
    trial = _Trial(version, backend, asked, seconds)
    await asyncio.gather(*(trial.ask() for _ in range(AT_ONCE)))
    if trial.differs:
        raise NotValidated(f"with {AT_ONCE} calls at a time {trial.differs}; it was right by itself")
    if not await backend.ready(READY_SECONDS):
        raise NotValidated(f"after {seconds:g} s of calls the model server does not say that it is ready")
    if not trial.took:
        raise NotValidated(f"no call of {seconds:g} s was answered: {trial.problems[0] if trial.problems else 'none'}")
    return _judged(version, trial, seconds)


def _judged(version: ModelVersion, trial: _Trial, seconds: float) -> str:
    """Return how long the calls of a trial took.

    Raises:
        NotValidated: Too many failed, or took too long.
    """
    p50, p99 = (_percentile(sorted(trial.took), share) for share in (0.5, 0.99))
    made = len(trial.took) + len(trial.problems)
    words = f"{made:,} calls in {seconds:g} s, {AT_ONCE} at a time: "
    words += f"p50 {short_duration(p50)}, p99 {short_duration(p99)}"
    if trial.problems:
        words += f", and {len(trial.problems):,} failed ({trial.problems[0]})"
    # A call that failed took longer than any time-out: quick answers of a server that refuses the others are no pass.
    slow = _percentile([*sorted(trial.took), *(inf for _ in trial.problems)], 0.99)
    if slow == inf:
        raise NotValidated(f"{words}; of a hundred calls one may")
    if slow > version.timeout_seconds:
        raise NotValidated(f"{words}; a call may take {short_duration(version.timeout_seconds)}, its timeout_ms")
    return words


def _percentile(ordered: list[float], share: float) -> float:
    """Return the nearest rank."""
    return ordered[max(ceil(len(ordered) * share) - 1, 0)]
