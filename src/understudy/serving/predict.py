"""THE request: from a parsed predict or rank call to a logged answer, top to bottom.

1. policy snapshot   2. route   3. features   4. validate and assemble   5. cache, then the version's model servers
6. a failing challenger's call goes to the champion   7. log row, before the answer   8. shadow, after it
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from understudy.core.prediction_log.prediction_id import prediction_id
from understudy.core.prediction_log.row import PredictionRow
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, Role, ServingPolicy, serving_policy_of
from understudy.core.routing.route import Route, choose_route, falls_back
from understudy.core.schema.typed_decoder import TypedDecoder
from understudy.errors import RequestError, UnknownVersion
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.telemetry.tracing import CURRENT, within
from understudy.ports.upstream.feature_store import FeatureStore
from understudy.serving.call import Call, Outcome, Request, Served, Stages
from understudy.serving.call_record import CallRecorder, describe_call, failure_attributes
from understudy.serving.feature_fetch import FeatureFetch, names_for
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.shadow_calls import ShadowCalls
from understudy.serving.shadow_pool import ShadowPool
from understudy.serving.upstream.cached_inference import CachedInference
from understudy.serving.version_calls import MAX_LARGE_SHADOWS, VersionCalls

_log = structlog.get_logger(__name__)


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
    random_bits: Callable[[], int]
    """74 fresh random bits."""


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
        self._limits = limits
        self._clocks = clocks
        self._log = log
        self._features = FeatureFetch(features, telemetry, limits.feature_timeout_seconds, clocks.monotonic)
        self._versions = VersionCalls(inference, self._features)
        self._recorder = CallRecorder(telemetry, clocks.unix)
        self._shadows = ShadowCalls(
            pool=shadows,
            features=self._features,
            versions=VersionCalls(inference, self._features, MAX_LARGE_SHADOWS),
            recorder=self._recorder,
            log=log,
            timeout_seconds=limits.shadow_timeout_seconds,
            now=clocks.monotonic,
        )

    async def predict(
        self,
        model_name: str,
        request: Request,
        *,
        timeout_seconds: float | None = None,
        forced_version: str | None = None,
    ) -> Outcome:
        """Answer one call; whatever goes wrong once a route is known is in the outcome, with its receipt.

        Args:
            model_name: Its policy decides.
            request: The parsed body: it knows what to ask of a version. All else is the same for both kinds.
            timeout_seconds: The caller's own limit; the version's limit holds if it is shorter.
            forced_version: The label of a version that answers instead of the route's; the handler checks the
                caller's scope.

        Raises:
            PolicyNotLoaded, UnknownModel, UnknownVersion: There is no route.
        """
        return await self.finish(self.begin(model_name, request, timeout_seconds, forced_version))

    async def finish(self, call: Call) -> Outcome:
        """Do all that is left of a call that was begun."""
        call = await self._features.fetch(call, names_for(call.policy, call.route))
        fetched = self._clocks.monotonic()
        served, failed = await self._serve(call)
        outcome, row = self.end(call, fetched, served, failed)
        if row is not None and self._log.decides:
            outcome = await self._log.logged(row, outcome)
        elif row is not None:
            self._log.append(row)
        self.report(call, outcome, failed)
        return outcome

    def decoder_of(self, model_name: str) -> TypedDecoder | None:
        """Return what reads most bodies of a model's calls in one pass, if there is such a thing."""
        snapshot = self._snapshot()
        policy = snapshot.policies.get(model_name) if snapshot is not None else None
        return policy.champion.input_schema.decoder if policy is not None else None

    def begin(
        self,
        model_name: str,
        request: Request,
        timeout_seconds: float | None = None,
        forced_version: str | None = None,
    ) -> Call:
        """Choose the route and the deadline; raises as :meth:`predict`."""
        started = self._clocks.monotonic()
        policy = serving_policy_of(self._snapshot(), model_name)
        route = choose_route(policy, request.entity_id, request.category, _version_named(policy, forced_version))
        budget = _budget_seconds(policy, route, timeout_seconds)
        routed = self._clocks.monotonic()
        call_id, span = self._new_id(), CURRENT.get()
        ends = started + budget
        # By their places: names would cost every call a tenth of a microsecond.
        return Call(call_id, policy, route, request, started, routed, ends, budget, None, None, span, timeout_seconds)

    def end(
        self, call: Call, fetched: float, served: Served, failed: Served | None
    ) -> tuple[Outcome, PredictionRow | None]:
        """Return what the call's handler answers, and its row.

        The caller of this method has the row written before it gives the answer, and passes the outcome to
        :meth:`report` once the row is pending.

        Args:
            call: As it was begun.
            fetched: When the features were there.
            served: The answer.
            failed: What a challenger made of the call before the champion answered for it.

        Returns:
            No row for a call that its caller must correct: it is counted, but is no exposure.
        """
        ended = self._clocks.monotonic()
        role = call.route.role if failed is None else Role.CHAMPION
        fallback_from = failed.error if failed is not None else None
        row: PredictionRow | None = None
        if not isinstance(served.error, RequestError):
            row = self._recorder.row(call, role, served, fallback_from, ended - call.started)
        seconds = Stages(call.routed - call.started, fetched - call.routed, ended - fetched)
        generation = call.policy.generation
        return Outcome(call.prediction_id, call.route, served, role, generation, fallback_from, seconds), row

    def report(self, call: Call, outcome: Outcome, failed: Served | None) -> None:
        """Count a call that has ended, describe it in its span, and show it to the shadow; raises nothing.

        It comes after the row: a defect in here is logged, and costs neither the row nor the answer.
        """
        served, stages = outcome.served, outcome.seconds
        try:
            seconds = stages.route + stages.features + stages.upstream
            self._recorder.count(call, outcome.role, served, failed, seconds)
            if call.span is not None and call.span.is_recorded:
                describe_call(call.span, call, outcome.role, served)
            if self._shadows.wants(call, served):
                self._shadows.start(call)
        except Exception:  # noqa: BLE001 - whatever the defect is, the answer is good and its row is written
            _log.exception("call.not_reported", model=call.policy.model_name)

    def _new_id(self) -> str:
        return prediction_id(int(self._clocks.unix() * 1000), self._clocks.random_bits())

    async def _serve(self, call: Call) -> tuple[Served, Served | None]:
        """Let the route's version answer; if it fails and may, the champion does, and the failure comes second."""
        if not falls_back(call.policy, call.route):
            return await self._versions.serve(call, call.route.version, call.deadline), None
        now = self._clocks.monotonic()
        first = await self._versions.serve(call, call.route.version, self.challengers_deadline(call, now))
        return (first, None) if first.error is None else await self.fall_back(call, first, now)

    async def fall_back(self, call: Call, first: Served, since: float) -> tuple[Served, Served]:
        """Let the champion answer for a challenger that was asked ``since`` and failed; what failed comes second."""
        failed = first.but(seconds=self._clocks.monotonic() - since)
        if call.span is not None:
            call.span.note("understudy.fallback", failure_attributes(first))
        with within(call.span):  # the challenger's answer may have come in another call's batch
            return await self._versions.serve(call, call.policy.champion, call.deadline), failed

    def challengers_deadline(self, call: Call, now: float) -> float:
        """Return until when a challenger may try that the champion can still stand in for."""
        return now + (call.deadline - now) * self._limits.challenger_budget_ratio


def _version_named(policy: ServingPolicy, label: str | None) -> ModelVersion | None:
    if label is None:
        return None
    version = policy.versions.get(label)
    if version is None:
        raise UnknownVersion
    return version


def _budget_seconds(policy: ServingPolicy, route: Route, timeout_seconds: float | None) -> float:
    """The caller's limit, but no more than the version's; a challenger that may fall back lives in the champion's."""
    own = (policy.champion if falls_back(policy, route) else route.version).timeout_seconds
    return own if timeout_seconds is None else min(own, timeout_seconds)
