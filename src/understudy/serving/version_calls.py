"""Versions' part in calls: fetch stored features, assemble, ask, and say what came of it, for a turn's calls together.

What a call waits for beside its model servers (the feature store, a thread, a shared cache, a call of its own) it waits
for in a task; then it goes on with the next step.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from understudy.core.requests.rank import AssembledTreatments
from understudy.core.routing.policy import ModelVersion, Role
from understudy.core.schema.outputs import Prediction
from understudy.core.schema.schema import Assembled
from understudy.errors import DeadlineExceeded, ServingError
from understudy.ports.telemetry.tracing import within
from understudy.serving.call import Call, Served
from understudy.serving.feature_fetch import FeatureFetch
from understudy.serving.thread_bulkhead import ThreadBulkhead
from understudy.serving.turn_group import TurnGroup
from understudy.serving.upstream.cached_inference import CachedInference, CacheResult
from understudy.serving.upstream.row_deadlines import WaitingRow
from understudy.serving.version_inputs import assembled_for, failure_of

MAX_LARGE = 2
"""Large inputs of callers that are assembled at once: more threads would only take the interpreter from the event loop.
"""
MAX_LARGE_SHADOWS = 1
"""Those of shadows, which have a place of their own: no caller waits behind one."""


class VersionCalls:
    """Asks versions for what they make of calls.

    Args:
        inference: Answers from a cache, or from the version's model servers.
        features: Fetches stored features, and counts those that did not fit.
        challenger_budget_ratio: A challenger's share of the time of a call that the champion can still answer.
        now: The monotonic clock, in seconds.
        on_served: Called once for each call, with what its version made of it; raises nothing.
    """

    def __init__(
        self,
        inference: CachedInference,
        features: FeatureFetch,
        challenger_budget_ratio: float,
        now: Callable[[], float],
        on_served: Callable[[Call, Served], None],
    ) -> None:
        self._inference = inference
        self._features = features
        self._challenger_budget_ratio = challenger_budget_ratio
        self._now = now
        self._on_served = on_served
        self._large, self._large_shadows = ThreadBulkhead(MAX_LARGE), ThreadBulkhead(MAX_LARGE_SHADOWS)
        self._with_features = TurnGroup[Call](self._ask_first)
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, calls: Iterable[Call]) -> None:
        """Have the versions of calls answer, once the stored features are there of those that need some."""
        ready = []
        for call in calls:
            if call.wanted:
                self._start(call, self._fetch(call))
            else:
                ready.append(call)
        self._ask_first(ready)

    def ask(self, calls: Iterable[Call]) -> None:
        """Assemble the inputs of calls, and send each version what is for it."""
        groups: dict[ModelVersion, list[Call]] = {}
        for call in calls:
            version = call.version
            try:
                if call.request.is_large(version):
                    self._start(call, self._ask_with_large(call))
                elif self._takes(call, assembled_for(call)):
                    groups.setdefault(version, []).append(call)
            except Exception as defect:  # noqa: BLE001 - a defect of ours: it must not cost the others their answers
                call.on_result(defect)
        for version, group in groups.items():
            self._send(version, group)

    async def _fetch(self, call: Call) -> None:
        await self._features.fetch(call)
        call.asked = self._now()
        self._with_features.add(call)

    def _ask_first(self, calls: Sequence[Call]) -> None:
        """Ask the versions of the calls' routes: a challenger may try while the champion can still stand in for it."""
        for call in calls:
            if call.may_fall_back:
                call.until = call.asked + (call.deadline - call.asked) * self._challenger_budget_ratio
        self.ask(calls)

    async def _ask_with_large(self, call: Call) -> None:
        """Ask for a call whose inputs are assembled in a thread, until the version's time is over."""
        places = self._large_shadows if call.role is Role.SHADOW else self._large
        try:
            async with asyncio.timeout_at(call.until):
                assembled = await places.run(assembled_for, call)
        except TimeoutError:
            assembled = Served(call.version, None, None, DeadlineExceeded("queue", call.budget_seconds))
        if self._takes(call, assembled):
            self._send(call.version, [call])

    def _takes(self, call: Call, assembled: Assembled | AssembledTreatments | Served) -> bool:
        """Note a call's assembled inputs, or end it with what is wrong with them."""
        if isinstance(assembled, Served):
            self._on_served(call, assembled)
            return False
        call.assembled = assembled
        if call.stored and assembled.defaulted:
            self._features.count_unfit(call.policy.model_name, call.stored, assembled.defaulted)
        return True

    def _send(self, version: ModelVersion, calls: Iterable[Call]) -> None:
        """Ask a version for the answers to calls whose inputs are assembled: all of them are one batch."""
        now, looks_up = self._now(), self._inference.looks_up(version)
        rows: list[WaitingRow] = []
        for call in calls:
            assembled = call.assembled
            assert assembled is not None
            if looks_up or not isinstance(assembled, Assembled):
                self._send_alone(call, assembled)
            else:
                rows.append(WaitingRow(assembled.row, call.until, now, partial(self._answered, call), call.span))
        if not rows:
            return
        try:
            self._inference.submit(version, rows)
        except ServingError as problem:
            for row in rows:
                row.end(problem)

    def _send_alone(self, call: Call, assembled: Assembled | AssembledTreatments) -> None:
        """Answer a call from this process's cache; one that has to wait for more, or is no row of a batch, does so."""
        try:
            found = self._inference.hit(call.version, assembled) if isinstance(assembled, Assembled) else None
        except Exception as defect:  # noqa: BLE001 - as above
            call.on_result(defect)
            return
        if found is None:
            self._start(call, self._infer(call, assembled))
        else:
            self._on_served(call, Served(call.version, assembled, found, None, CacheResult.HIT))

    async def _infer(self, call: Call, assembled: Assembled | AssembledTreatments) -> None:
        try:
            prediction, cache = await self._inference.infer(call.version, assembled, call.until)
        except ServingError as problem:
            self._on_served(call, failure_of(call, problem))
        else:
            self._on_served(call, Served(call.version, assembled, prediction, None, cache))

    def _answered(self, call: Call, found: Prediction | ServingError) -> None:
        """Take a version's answer to a row of a batch, or its error."""
        if isinstance(found, ServingError):
            self._on_served(call, failure_of(call, found))
        else:
            self._on_served(call, Served(call.version, call.assembled, found, None))

    def _start(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        """Do for a call what has to wait."""
        with within(call.span):
            task = asyncio.get_running_loop().create_task(_guarded(call, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _guarded(call: Call, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as defect:  # noqa: BLE001 - its caller is answered E500, and that logs it
        call.on_result(defect)
