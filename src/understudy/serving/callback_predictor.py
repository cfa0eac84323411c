"""The predictor's steps by callback, for the fast path.

A call that waits for nothing but its model servers needs no task and no futures, which cost more processor time than
the steps; any other call gets a task.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from understudy.core.requests.predict import PredictRequest, TypedRequest, read_predict
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.route import falls_back
from understudy.core.schema.outputs import Prediction
from understudy.core.schema.schema import Assembled
from understudy.core.value import Slotted
from understudy.errors import ServingError
from understudy.serving.call import Call, Outcome, Served
from understudy.serving.feature_fetch import names_for
from understudy.serving.predict import Predictor
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.upstream.cached_inference import CachedInference, CacheResult
from understudy.serving.version_calls import assembled_for, failure_of

OnResult: TypeAlias = Callable[[Outcome | Exception], None]
"""Takes a call's outcome, or the defect that left it without one. Called once; must not raise."""


class CallbackPredictor:
    """Answers predict calls by callback.

    Args:
        predictor: Has the steps.
        inference: The same as the predictor's.
        log: Where the predictor's rows go: ``on_result`` is called when the row is written.
    """

    def __init__(self, predictor: Predictor, inference: CachedInference, log: GroupCommit) -> None:
        self._predictor = predictor
        self.inference = inference
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, model_name: str, body: bytes) -> PredictRequest | TypedRequest:
        """Read the body of a model's call; raises as :func:`understudy.core.requests.predict.parse_predict`."""
        return read_predict(body, self._predictor.decoder_of(model_name))

    def predict(
        self,
        model_name: str,
        request: PredictRequest | TypedRequest,
        timeout_seconds: float | None,
        on_result: OnResult,
    ) -> None:
        """Do what ``Predictor.predict`` does, and call ``on_result`` with the outcome.

        Raises:
            PolicyNotLoaded, UnknownModel: There is no route; ``on_result`` is not called then.
        """
        call = self._predictor.begin(model_name, request, timeout_seconds)
        version = call.route.version
        if names_for(call.policy, call.route):
            self._start(self._finish(call, on_result))
            return
        may_fall_back = falls_back(call.policy, call.route)
        run = _Run(self, call, on_result, may_fall_back)
        if self.inference.looks_up(version):
            if not run.hit(version):
                self._start(self._finish(call, on_result))
            return
        deadline = self._predictor.challengers_deadline(call, call.routed) if may_fall_back else call.deadline
        run.start(version, deadline)

    def end(self, run: "_Run", served: Served, failed: Served | None) -> None:
        """Answer a run when its row is written."""
        try:
            outcome, row = self._predictor.end(run.call, run.call.routed, served, failed)
        except Exception as defect:  # noqa: BLE001 - ``on_result`` answers E500 and logs it
            self._log.commit(None, run.on_result, defect)
        else:
            self._log.commit(row, run.on_result, outcome)
            self._predictor.report(run.call, outcome, failed)

    def fall_back(self, run: "_Run", first: Served) -> None:
        """Let the champion answer for a run, which is rare enough for a task."""
        self._start(self._fall_back(run, first))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, call: Call, on_result: OnResult) -> None:
        try:
            outcome = await self._predictor.finish(call)
        except Exception as defect:  # noqa: BLE001 - as above
            on_result(defect)
        else:
            on_result(outcome)

    async def _fall_back(self, run: "_Run", first: Served) -> None:
        try:
            served, failed = await self._predictor.fall_back(run.call, first, run.call.routed)
        except Exception as defect:  # noqa: BLE001 - as above
            run.on_result(defect)
        else:
            self.end(run, served, failed)


class LogDecidedPredictor(CallbackPredictor):
    """Answers predict calls whose outcome depends on their row: each is reported with what its caller gets."""

    def end(self, run: "_Run", served: Served, failed: Served | None) -> None:
        """Answer a run when its row is written, or refuse it."""
        try:
            outcome, row = self._predictor.end(run.call, run.call.routed, served, failed)
        except Exception as defect:  # noqa: BLE001 - ``on_result`` answers E500 and logs it
            self._log.commit(None, run.on_result, defect)
        else:
            self._log.commit(row, partial(self._report_and_answer, run, failed), outcome)

    def _report_and_answer(self, run: "_Run", failed: Served | None, found: Outcome | Exception) -> None:
        if isinstance(found, Outcome):
            self._predictor.report(run.call, found, failed)
        run.on_result(found)


def open_callback_predictor(predictor: Predictor, inference: CachedInference, log: GroupCommit) -> CallbackPredictor:
    """Return what answers calls by callback over this log; chosen once, so that no call asks what the log decides."""
    made = LogDecidedPredictor if log.decides else CallbackPredictor
    return made(predictor, inference, log)


class _Run(Slotted):
    """One call under way, and what to do when its version has answered."""

    _predictor: CallbackPredictor
    call: Call
    on_result: OnResult
    _may_fall_back: bool
    _assembled: Assembled | None = None

    def start(self, version: ModelVersion, deadline: float) -> None:
        """Ask the route's version, until ``deadline``."""
        assembled = self._assemble(version)
        if assembled is None:
            return
        self._assembled = assembled
        try:
            self._predictor.inference.submit(version, assembled, deadline, self.take)
        except ServingError as problem:
            self.take(problem)

    def hit(self, version: ModelVersion) -> bool:
        """Answer from this process's cache, or with what is wrong with the inputs; ``False``: nothing has happened."""
        assembled = self._assemble(version)
        if assembled is None:
            return True
        found = self._predictor.inference.hit(version, assembled)
        if found is None:
            return False
        self._decide(Served(version, assembled, found, None, CacheResult.HIT))
        return True

    def take(self, found: Prediction | ServingError) -> None:
        """Take the version's answer, or its error."""
        version = self.call.route.version
        if isinstance(found, ServingError):
            self._decide(failure_of(self.call, version, self._assembled, found))
        else:
            self._predictor.end(self, Served(version, self._assembled, found, None), None)

    def _assemble(self, version: ModelVersion) -> Assembled | None:
        """Return the version's inputs, or ``None``: then what is wrong with them has been decided on."""
        assembled = assembled_for(self.call, version)
        if isinstance(assembled, Served):
            self._decide(assembled)
            return None
        assert isinstance(assembled, Assembled)  # what a predict request is assembled to
        return assembled

    def _decide(self, served: Served) -> None:
        if served.error is None or not self._may_fall_back:
            self._predictor.end(self, served, None)
        else:
            self._predictor.fall_back(self, served)
