"""THE request: from a parsed predict or rank call to a logged answer, top to bottom, for all calls of a turn together.

1. policy snapshot   2. route   3. features   4. validate and assemble   5. cache, then the version's model servers
6. a failing challenger's call goes to the champion   7. log row, before the answer   8. shadow, after it

What a turn of the event loop brings goes through these steps as one list, and leaves as one batch for each version;
what ends in a turn is one write to the log. A call that waits for something else (stored features, a thread, a shared
cache, a call of its own) does that in a task, and comes back to the next step. A lone call is a turn of one.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar

import structlog

from understudy.core.prediction_log.prediction_id import RANDOM_BYTES, prediction_ids
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, Role, ServingPolicy, serving_policy_of
from understudy.core.routing.route import Route, choose_route, falls_back
from understudy.core.schema.typed_decoder import TypedDecoder
from understudy.errors import DeadlineExceeded, RequestError, UnderstudyError, UnknownVersion
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.telemetry.tracing import CURRENT
from understudy.ports.upstream.feature_store import FeatureStore
from understudy.serving.call import Asked, Call, Request
from understudy.serving.call_record import CallRecorder, failure_attributes
from understudy.serving.call_statistics import CallStatistics
from understudy.serving.feature_fetch import FeatureFetch, names_for
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.shadow_calls import ShadowCalls
from understudy.serving.shadow_pool import ShadowPool
from understudy.serving.turn_group import TurnGroup
from understudy.serving.upstream.cached_inference import CachedInference
from understudy.serving.version_calls import VersionCalls

_log = structlog.get_logger(__name__)
_CHALLENGER = Role.CHALLENGER
"""Each look-up in an enumeration takes a tenth of a microsecond, as of Python 3.11."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a request, in seconds where not said otherwise."""

    feature_timeout_seconds: float
    challenger_budget_ratio: float
    shadow_timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Clocks:
    """Time and randomness as values that are passed in."""

    monotonic: Callable[[], float]
    unix: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    """Returns so many fresh random bytes."""


class Predictor:
    """Answers predict calls from the parts it is given; owns none of them."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], PolicySnapshot | None],
        inference: CachedInference,
        features: FeatureStore | None,
        log: GroupCommit,
        shadows: ShadowPool,
        telemetry: Telemetry,
        limits: Limits,
        clocks: Clocks,
    ) -> None:
        self._snapshot = snapshot
        self._clocks = clocks
        self._log = log
        fetch = FeatureFetch(features, telemetry, limits.feature_timeout_seconds, clocks.monotonic)
        self._ended = TurnGroup[Call](self._end_turn)
        challenger_ratio, on_end = limits.challenger_budget_ratio, self._ended.extend
        self._versions = VersionCalls(inference, fetch, challenger_ratio, clocks.monotonic, on_end)
        self.statistics = CallStatistics(clocks.unix)
        """Of the calls that have ended."""
        self._recorder = CallRecorder(telemetry, self.statistics)
        self._shadows = ShadowCalls(shadows, limits.shadow_timeout_seconds, clocks.monotonic)
        self._asked = TurnGroup[Asked](self.begin)
        """Calls whose callers wait in a task."""
        self._shadowed = TurnGroup[Call](self._versions.serve)
        """Shadows' calls: in the turn in which answers are given none is sent, or they would leave behind it."""

    async def predict(
        self,
        model_name: str,
        request: Request,
        *,
        timeout_seconds: float | None = None,
        forced_version: str | None = None,
        keeps_output: bool = False,
    ) -> Call:
        """Answer one call; whatever goes wrong once a route is known is in the call, with its receipt.

        Args:
            model_name: Its policy decides.
            request: The parsed body: it knows what to ask of a version. All else is the same for both kinds.
            timeout_seconds: As of :class:`Asked`.
            forced_version: As of :class:`Asked`.
            keeps_output: As of :class:`Asked`.

        Raises:
            PolicyNotLoaded, UnknownModel, UnknownVersion: There is no route.
        """
        answer: asyncio.Future[Call] = asyncio.get_running_loop().create_future()
        kind = _AwaitedWithOutput if keeps_output else _Awaited
        self._asked.add(kind(model_name, request, timeout_seconds, forced_version, CURRENT.get(), answer))
        try:
            return await answer
        finally:
            del answer  # an error that is raised would lead to itself by this frame

    async def predict_all(
        self,
        model_name: str,
        requests: Iterable[Request],
        *,
        timeout_seconds: float | None = None,
        forced_version: str | None = None,
        keeps_output: bool = False,
    ) -> list[Call]:
        """Answer calls for which one caller waits, each as :meth:`predict` does, without a task for each of them."""
        create_answer = asyncio.get_running_loop().create_future
        kind, span = _AwaitedWithOutput if keeps_output else _Awaited, CURRENT.get()
        answers: list[asyncio.Future[Call]] = []
        for request in requests:
            answers.append(create_answer())
            self._asked.add(kind(model_name, request, timeout_seconds, forced_version, span, answers[-1]))
        try:
            return await asyncio.gather(*answers)
        finally:
            answers.clear()  # as above

    def decoder_of(self, model_name: str) -> TypedDecoder | None:
        """Return what reads most bodies of a model's calls in one pass, if there is such a thing."""
        snapshot = self._snapshot()
        policy = snapshot.policies.get(model_name) if snapshot is not None else None
        return policy.champion.input_schema.decoder if policy is not None else None

    # -- from the route to the model servers ---------------------------------------------------------------------------

    def begin(self, asked: Sequence[Asked]) -> None:
        """Take the calls that a turn of the event loop brought from their routes to their versions."""
        snapshot, clocks, calls = self._snapshot(), self._clocks, []
        known = {} if snapshot is None else snapshot.policies
        policy: ServingPolicy | None = None
        whose: tuple[str, str | None, str | None] | None = None
        try:
            started = clocks.monotonic()
            ids = prediction_ids(int(clocks.unix() * 1000), clocks.random_bytes(RANDOM_BYTES * len(asked)))
        except Exception as defect:  # noqa: BLE001 - a defect of ours, of all calls: their callers are told
            for one in asked:
                one.on_result(defect)
            return
        for one, prediction_id in zip(asked, ids, strict=True):
            try:
                request, caller_seconds = one.request, one.timeout_seconds
                found = known.get(one.model_name) or serving_policy_of(snapshot, one.model_name)
                asks = request.entity_id, request.category, one.forced_version
                if found is not policy or asks != whose:  # rows of one call go one way
                    route, may_fall_back, seconds, wanted = _way_of(found, *asks)
                    policy, whose = found, asks
                budget = seconds if caller_seconds is None or caller_seconds >= seconds else caller_seconds
                # By their places: names would cost every call a tenth of a microsecond.
                call = Call(
                    prediction_id, policy, route, request, one, route.version, route.role,
                    budget, caller_seconds, may_fall_back, wanted, started, started + budget,
                )  # fmt: skip
                if one.span is not None:
                    call.span = one.span
                if one.keeps_output:
                    call.keeps_output = True
                calls.append(call)
            except Exception as problem:  # noqa: BLE001 - there is no route, or a defect of ours: its caller is told
                one.on_result(problem)
        self._versions.serve(calls)

    def flush(self) -> None:
        """End now what would end with this turn: the process ends."""
        while self._ended:
            self._ended.end()

    # -- from the model servers to the answer --------------------------------------------------------------------------

    def _end_turn(self, turn: Iterable[Call]) -> None:
        """Write the rows of the calls that ended, and then answer them; the champion answers for failed challengers."""
        ended, without_row, again = [], [], []
        for call in turn:
            try:
                found = call.found
                if not isinstance(found, UnderstudyError):
                    call.prediction = found
                else:
                    call.error = _error_of(call, found)
                    if call.may_fall_back:
                        again.append(_fallback_of(call))
                        continue
                    if call.role is not Role.SHADOW and isinstance(call.error, RequestError):
                        # A call that its caller must correct is counted, but it is no exposure.
                        without_row.append(call)
                        continue
                ended.append(call)
            except Exception as defect:  # noqa: BLE001 - a defect of ours: it must not cost the others their answers
                call.asked.on_result(defect)
        if again:
            self._versions.ask(again)
        self._log.commit(self._recorder.with_rows(ended, self._clocks.unix()) + without_row, self._settle)

    def _settle(self, ended: Sequence[Call]) -> None:
        """Count calls whose rows are written, and describe them in their spans; answer them; show them to shadows."""
        self._recorder.report(ended)
        for call in ended:
            try:
                call.asked.on_result(call if call.defect is None else call.defect)
            except Exception:  # noqa: BLE001 - a defect of ours: it must not cost the others their answers
                _log.exception("answer.failed")
        for shadow in self._shadows.of(ended):
            self._shadowed.add(shadow)


class _Awaited(Asked):
    """What a caller asks that waits in a task."""

    _answer: "asyncio.Future[Call] | None"

    def on_result(self, found: Call | Exception) -> None:
        """End the wait."""
        answer, self._answer = self._answer, None  # the answer leads here: a reference cycle
        if answer is None or answer.done():  # its caller is gone
            return
        if isinstance(found, Exception):
            answer.set_exception(found.as_value() if isinstance(found, UnderstudyError) else found)
        else:
            answer.set_result(found)


class _AwaitedWithOutput(_Awaited):
    """The same, of a caller who wants the model server's own output."""

    keeps_output: ClassVar[bool] = True


def _way_of(
    policy: ServingPolicy, entity_id: str, category: str | None, label: str | None
) -> tuple[Route, bool, float, Sequence[str]]:
    """Return a call's route, whether the champion may answer in its place, its time, and the stored features for it.

    A challenger that may fall back lives in the champion's time, and needs what the champion needs.
    """
    route = choose_route(policy, entity_id, category, None if label is None else _version_named(policy, label))
    if route.role is _CHALLENGER and falls_back(policy, route):
        return route, True, policy.champion.timeout_seconds, names_for(policy, route)
    version = route.version
    return route, False, version.timeout_seconds, version.input_schema.stored_names


def _version_named(policy: ServingPolicy, label: str) -> ModelVersion:
    version = policy.versions.get(label)
    if version is None:
        raise UnknownVersion
    return version


def _error_of(call: Call, found: UnderstudyError) -> UnderstudyError:
    """Return why a call has no prediction, with the time that it had."""
    error = found.as_value()
    return DeadlineExceeded(error.stage, call.budget_seconds) if isinstance(error, DeadlineExceeded) else error


def _fallback_of(failed: Call) -> Call:
    """Return the call that asks the champion in place of a challenger that failed."""
    if failed.span is not None:
        failed.span.note("understudy.fallback", failure_attributes(failed))
    call = copy(failed)
    call.version, call.role, call.may_fall_back = call.policy.champion, Role.CHAMPION, False
    call.failed, call.assembled, call.error, call.timer = failed, None, None, None
    return call
