"""Versions' part in calls: fetch stored features, assemble, ask, and note what came of it, for a turn's calls together.

What a call waits for beside its model servers (the feature store, a thread, a call of its own) it waits for in a task;
then it goes on with the next step. For a shared cache a turn's calls of a version wait together.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from itertools import repeat
from typing import Any

import structlog

from understudy.background.thread_bulkhead import ThreadBulkhead
from understudy.core.requests.predict import TypedRequest
from understudy.core.requests.rank import AssembledTreatments
from understudy.core.routing.policy import ModelVersion, Role
from understudy.core.schema.schema import Assembled
from understudy.errors import DeadlineExceeded, InputInvalid, InternalFault, ServingError, UnderstudyError
from understudy.ports.telemetry.tracing import within
from understudy.serving.call import Call
from understudy.serving.feature_fetch import FeatureFetch, inputs_in_spite_of
from understudy.serving.turn_group import TurnGroup
from understudy.serving.upstream.cached_inference import CachedInference, CacheResult
from understudy.serving.upstream.row_deadlines import Found, RowDeadlines, Take, end_rows

_log = structlog.get_logger(__name__)

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
        on_end: Takes calls that have their versions' answers or errors, each once; raises nothing.
    """

    def __init__(
        self,
        inference: CachedInference,
        features: FeatureFetch,
        challenger_budget_ratio: float,
        now: Callable[[], float],
        on_end: Take,
    ) -> None:
        self._inference = inference
        self._features = features
        self._challenger_budget_ratio = challenger_budget_ratio
        self._now = now
        self._on_end = on_end
        self._large, self._large_shadows = ThreadBulkhead(MAX_LARGE), ThreadBulkhead(MAX_LARGE_SHADOWS)
        self._with_features = TurnGroup[Call](self.ask)
        self._look_ups = RowDeadlines(now)
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, calls: Iterable[Call]) -> None:
        """Have the versions of calls answer, once the stored features are there of those that need some."""
        now, ready = self._now(), []
        for call in calls:
            call.routed = call.ready = now
            if call.wanted and not call.request.is_drawn:
                self._start(call, self._fetch(call))
            else:
                ready.append(call)
        self.ask(ready)

    def ask(self, calls: Iterable[Call]) -> None:
        """Assemble the inputs of calls, and send each version what is for it."""
        groups: defaultdict[ModelVersion, list[Call]] = defaultdict(list)
        for call in calls:
            version, request, call.deadline = call.version, call.request, call.ends
            try:
                if call.may_fall_back:
                    self._leave_time(call)
                if isinstance(request, TypedRequest) and request.decoder is version.input_schema.decoder:
                    call.assembled = request.assembled  # as it was read
                elif request.is_large(version):
                    self._start(call, self._ask_with_large(call))
                    continue
                elif not self._takes(call, _assembled(call)):
                    continue
                groups[version].append(call)
            except Exception as defect:  # noqa: BLE001 - a defect of ours: it must not cost the others their answers
                call.asked.on_result(defect)
        for version, group in groups.items():
            self._send(version, group)

    async def _fetch(self, call: Call) -> None:
        await self._features.fetch(call)
        call.ready = self._now()
        self._with_features.add(call)

    def _leave_time(self, call: Call) -> None:
        """Have a challenger try only while the champion can still stand in for it."""
        call.deadline = call.ready + (call.ends - call.ready) * self._challenger_budget_ratio

    async def _ask_with_large(self, call: Call) -> None:
        """Ask for a call whose inputs are assembled in a thread; its version's share of the time begins after that."""
        places = self._large_shadows if call.role is Role.SHADOW else self._large
        assembled: Assembled | AssembledTreatments | UnderstudyError
        began = self._now()
        try:
            async with asyncio.timeout_at(call.ends):
                assembled = await places.run(_assembled, call)
        except TimeoutError:
            assembled = DeadlineExceeded("queue", call.budget_seconds)
        call.has_waited(began, self._now())
        if call.may_fall_back:
            self._leave_time(call)
        if self._takes(call, assembled):
            self._send(call.version, [call])

    def _takes(self, call: Call, assembled: Assembled | AssembledTreatments | UnderstudyError) -> bool:
        """Note a call's assembled inputs, or end it with what is wrong with them."""
        if isinstance(assembled, UnderstudyError):
            self._end(call, assembled)
            return False
        call.assembled = assembled
        if call.stored and assembled.defaulted:
            self._features.count_unfit(call.policy.model_name, call.stored, assembled.defaulted)
        return True

    def _send(self, version: ModelVersion, calls: Sequence[Call]) -> None:
        """Ask a version for the answers to calls whose inputs are assembled: all of them are one batch."""
        if self._inference.looks_up(version):
            self._look_up(version, calls)
            return
        now, on_end = self._now(), self._on_end
        rows: list[Call] = []
        for call in calls:
            assembled = call.assembled
            if isinstance(assembled, Assembled):
                call.row, call.since, call.take = assembled.row, now, on_end
                rows.append(call)
            else:
                self._start(call, self._infer(call))
        if not rows:
            return
        problem: ServingError
        try:
            self._inference.submit(version, rows)
        except ServingError as refused:
            problem = refused
        except Exception:  # noqa: BLE001 - a defect of ours: it must not cost other versions' calls their answers
            _log.exception("model_call.failed", model=version.model_name, version=version.version)
            problem = InternalFault()
        else:
            return
        end_rows(rows, repeat(problem), self._now())

    def _look_up(self, version: ModelVersion, calls: Iterable[Call]) -> None:
        """Answer calls from this process's cache; the others ask the shared one together, or else the version."""
        inference, hits, others = self._inference, list[Call](), list[tuple[Call, Assembled]]()
        for call in calls:
            assembled = call.assembled
            try:
                if not isinstance(assembled, Assembled):
                    self._start(call, self._infer(call))
                elif found := inference.hit(version, assembled, keeps_output=call.keeps_output):
                    call.found = found
                    hits.append(call)
                elif inference.is_shared:
                    call.take = self._on_end
                    others.append((call, assembled))
                else:
                    self._start(call, self._infer(call))
            except Exception as defect:  # noqa: BLE001 - as above
                call.asked.on_result(defect)
        self._end_hits(version, hits)
        if others:
            self._look_ups.watch([call for call, _ in others], self._now())
            self._keep(asyncio.get_running_loop().create_task(self._ask_shared(version, others), context=Context()))

    async def _ask_shared(self, version: ModelVersion, asked: Sequence[tuple[Call, Assembled]]) -> None:
        """Answer calls from the shared cache, but for those whose deadline comes first; the others ask the version."""
        inference, hits = self._inference, list[Call]()
        values: Iterable[bytes | Exception | None]
        try:
            values = await inference.shared_values(version, [(one, call.keeps_output) for call, one in asked])
        except Exception as defect:  # noqa: BLE001 - a defect of ours, of all of them: their callers are told
            values = repeat(defect)
        for (call, assembled), value in zip(asked, values, strict=False):
            if call.take is None:  # its deadline has come
                continue
            call.leave()
            try:
                if isinstance(value, Exception):
                    call.asked.on_result(value)
                elif found := inference.shared_hit(version, assembled, value, keeps_output=call.keeps_output):
                    call.found = found
                    hits.append(call)
                else:
                    self._start(call, self._infer(call))
            except Exception as defect:  # noqa: BLE001 - as above
                call.asked.on_result(defect)
        self._end_hits(version, hits)

    def _end_hits(self, version: ModelVersion, hits: list[Call]) -> None:
        """End calls that a cache answered."""
        if not hits:
            return
        ended = self._now()
        for call in hits:
            call.cache, call.ended = CacheResult.HIT, ended
        self._on_end(hits)
        try:
            self._inference.count_hits(version, len(hits))
        except Exception:  # noqa: BLE001 - as above; the answers are good
            _log.exception("call.not_reported", model=version.model_name)

    async def _infer(self, call: Call) -> None:
        assembled = call.assembled
        assert assembled is not None
        try:
            found = await self._inference.infer(call.version, assembled, call.deadline, keeps_output=call.keeps_output)
            self._end(call, *found)
        except ServingError as problem:
            self._end(call, problem)

    def _end(self, call: Call, found: Found, cache: CacheResult = CacheResult.BYPASS) -> None:
        """Take what a version made of a call that is no row of a batch."""
        call.found, call.cache, call.ended = found, cache, self._now()
        self._on_end([call])

    def _start(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        """Do for a call what has to wait."""
        with within(call.span):
            self._keep(asyncio.get_running_loop().create_task(_guarded(call, work)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _assembled(call: Call) -> Assembled | AssembledTreatments | UnderstudyError:
    """Return the inputs of the version that is asked, or why there are none."""
    try:
        return call.request.assemble(call.version, call.stored)
    except InputInvalid as problem:
        return inputs_in_spite_of(problem, call)


async def _guarded(call: Call, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as defect:  # noqa: BLE001 - its caller is answered E500, and that logs it
        call.asked.on_result(defect)
