"""THE request: from a parsed predict or rank call to a logged answer, top to bottom.

1. policy snapshot   2. route   3. features   4. validate and assemble   5. cache, then the version's model servers
6. a failing challenger's call goes to the champion   7. log row, before the answer   8. shadow, after it
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from understudy.core.prediction_log.input_sampling import encode_sample, is_sampled
from understudy.core.prediction_log.prediction_id import prediction_id
from understudy.core.prediction_log.row import PredictionRow, Status
from understudy.core.requests.predict import PredictRequest, TypedRequest
from understudy.core.requests.rank import AssembledTreatments, Ranking, RankRequest
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, Role, ServingPolicy
from understudy.core.routing.route import Reason, Route, choose_route, falls_back, is_shadowed, policy_of
from understudy.core.schema.outputs import Prediction
from understudy.core.schema.schema import Assembled
from understudy.core.schema.stored_features import assemble_without_unfit
from understudy.core.schema.typed_decoder import TypedDecoder
from understudy.errors import (
    BackendUnavailable,
    BadAnswer,
    DeadlineExceeded,
    FeaturesUnavailable,
    InputInvalid,
    Overloaded,
    RequestError,
    ServingError,
    UnderstudyError,
    UnknownVersion,
)
from understudy.ports.feature_store import FeatureStore
from understudy.ports.telemetry import Telemetry
from understudy.ports.tracing import CURRENT, Attributes, Span, aside, step, within
from understudy.serving.cached_inference import CachedInference, CacheResult
from understudy.serving.group_commit import GroupCommit
from understudy.serving.shadow_pool import ShadowPool

Request: TypeAlias = PredictRequest | TypedRequest | RankRequest


class Served(NamedTuple):
    """What one version made of a call: a prediction, or why there is none.

    ``seconds`` is what the attempt took, known of a challenger that failed.
    """

    version: ModelVersion
    assembled: Assembled | AssembledTreatments | None
    prediction: Prediction | Ranking | None
    error: UnderstudyError | None
    cache: CacheResult = CacheResult.BYPASS
    seconds: float = 0.0


class Stages(NamedTuple):
    """How long the stages of a call took, in seconds."""

    route: float
    features: float
    upstream: float


class Outcome(NamedTuple):
    """Everything a door needs to answer: the receipt is there for errors too.

    ``fallback_from`` is the challenger's failure when the champion answered for it.
    """

    prediction_id: str
    route: Route
    served: Served
    role: Role
    generation: int
    fallback_from: UnderstudyError | None
    seconds: Stages


class Call(NamedTuple):
    """One call under way: when it began, when its route was known and when it ends, in monotonic seconds.

    ``stored`` is what the feature store had, ``None`` if it was not asked or failed. ``span`` is the call's own, while
    tracing is on.
    """

    prediction_id: str
    policy: ServingPolicy
    route: Route
    request: Request
    started: float
    routed: float
    deadline: float
    budget_seconds: float
    stored: Mapping[str, Any] | None = None
    feature_error: FeaturesUnavailable | None = None
    span: Span | None = None


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
        self._inference = inference
        self._features = features
        self._log = log
        self._shadows = shadows
        self._telemetry = telemetry
        self._limits = limits
        self._clocks = clocks

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
            model_name: Whose policy decides.
            request: The parsed body: it knows what to ask of a version. All else is the same for both kinds.
            timeout_seconds: The caller's own limit; the version's limit holds if it is shorter.
            forced_version: The label of a version that answers instead of the route's; the caller's scope is checked
                by the door.

        Raises:
            PolicyNotLoaded, UnknownModel, UnknownVersion: There is no route.
        """
        return await self.finish(self.begin(model_name, request, timeout_seconds, forced_version))

    async def finish(self, call: Call) -> Outcome:
        """Do all that is left of a call that was begun."""
        call = await self._with_features(call, names_for(call.policy, call.route))
        fetched = self._clocks.monotonic()
        served, failed = await self._serve(call)
        return self.end(call, fetched, served, failed)

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
        """Decide who answers, and until when; raises as :meth:`predict`."""
        started = self._clocks.monotonic()
        policy = policy_of(self._snapshot(), model_name)
        route = choose_route(policy, request.entity_id, request.category, _version_named(policy, forced_version))
        budget = _budget_seconds(policy, route, timeout_seconds)
        routed = self._clocks.monotonic()
        call_id, span = self._new_id(), CURRENT.get()
        return Call(call_id, policy, route, request, started, routed, started + budget, budget, span=span)

    def end(self, call: Call, fetched: float, served: Served, failed: Served | None) -> Outcome:
        """Count the call, log its row, show it to the shadow, and return what a door needs to answer.

        Args:
            call: As it was begun.
            fetched: When the features were there.
            served: The answer.
            failed: What a challenger made of the call before the champion answered for it.
        """
        ended = self._clocks.monotonic()
        role = call.route.role if failed is None else Role.CHAMPION
        fallback_from = failed.error if failed is not None else None
        self._count(call, role, served, failed, ended - call.started)
        if not isinstance(served.error, RequestError):
            # What its caller must correct is counted, but is no exposure.
            self._log.append(self._row(call, role, served, fallback_from, ended - call.started))
        if call.span is not None and call.span.is_recorded:
            _tell(call.span, call, role, served)
        if self._wants_shadow(call, served):
            self._shadows.offer(call.policy.model_name, lambda: self._shadow(call))
        seconds = Stages(call.routed - call.started, fetched - call.routed, ended - fetched)
        return Outcome(call.prediction_id, call.route, served, role, call.policy.generation, fallback_from, seconds)

    def _new_id(self) -> str:
        return prediction_id(int(self._clocks.unix() * 1000), self._clocks.random_bits())

    # -- features ------------------------------------------------------------------------------------------------------

    async def _with_features(self, call: Call, wanted: Sequence[str]) -> Call:
        """Return the call with what the store has of those features that the request leaves out."""
        if not wanted:
            return call
        inputs = call.request.inputs
        names = [name for name in wanted if name not in inputs]
        if not names:
            return call
        if self._features is None:
            return call._replace(feature_error=FeaturesUnavailable("no feature store is set up"))
        budget = min(self._limits.feature_timeout_seconds, call.deadline - self._clocks.monotonic())
        try:
            with step("features"):
                async with asyncio.timeout(budget):
                    found = await self._features.fetch(call.policy.model_name, call.request.entity_id, names, budget)
        except TimeoutError:
            error = FeaturesUnavailable(f"the feature store did not answer within {budget * 1000:.0f} ms")
        except FeaturesUnavailable as problem:
            error = problem
        else:
            self._telemetry.count("feature_fetch_total", "ok")
            for name in names:
                if name not in found:
                    self._telemetry.count("feature_missing_total", call.policy.model_name, name)
            return call._replace(stored=found)
        self._telemetry.count("feature_fetch_total", "error")
        return call._replace(feature_error=error)

    # -- serving -------------------------------------------------------------------------------------------------------

    async def _serve(self, call: Call) -> tuple[Served, Served | None]:
        """Let the route's version answer; if it fails and may, the champion does, and the failure comes second."""
        if not falls_back(call.policy, call.route):
            return await self._serve_version(call, call.route.version, call.deadline), None
        now = self._clocks.monotonic()
        first = await self._serve_version(call, call.route.version, self.challengers_deadline(call, now))
        return (first, None) if first.error is None else await self.fall_back(call, first, now)

    async def fall_back(self, call: Call, first: Served, since: float) -> tuple[Served, Served]:
        """Let the champion answer for a challenger that was asked ``since`` and failed; what failed comes second."""
        failed = first._replace(seconds=self._clocks.monotonic() - since)
        if call.span is not None:
            call.span.note("understudy.fallback", _failure_told(first))
        with within(call.span):  # the challenger's answer may have come in another call's batch
            return await self._serve_version(call, call.policy.champion, call.deadline), failed

    def challengers_deadline(self, call: Call, now: float) -> float:
        """Return until when a challenger may try that the champion can still stand in for."""
        return now + (call.deadline - now) * self._limits.challenger_budget_ratio

    async def _serve_version(self, call: Call, version: ModelVersion, deadline: float) -> Served:
        is_large = call.request.is_large(version)
        assembled = await asyncio.to_thread(assembled_for, call, version) if is_large else assembled_for(call, version)
        if isinstance(assembled, Served):
            return assembled
        if call.stored and assembled.defaulted:
            self._count_unfit(call.policy.model_name, call.stored, assembled.defaulted)
        try:
            prediction, cache = await self._inference.infer(version, assembled, deadline)
        except ServingError as problem:
            return failure_of(call, version, assembled, problem)
        return Served(version, assembled, prediction, None, cache)

    def _count_unfit(self, model_name: str, stored: Mapping[str, Any], defaulted: Sequence[str]) -> None:
        """Count the features that the store has, and whose default was taken because its value does not fit."""
        for name in defaulted:
            if name in stored:
                self._telemetry.count("feature_missing_total", model_name, name)

    # -- after the answer is known -------------------------------------------------------------------------------------

    def _count(self, call: Call, role: Role, served: Served, failed: Served | None, seconds: float) -> None:
        """Count the call under who answered, and a challenger that failed under itself, each with its own time."""
        if failed is None:
            self._count_one(served, role, seconds, _outcome_word(served.error))
            return
        self._count_one(failed, Role.CHALLENGER, failed.seconds, _outcome_word(failed.error))
        word = "fallback" if served.error is None else _outcome_word(served.error)
        self._count_one(served, role, seconds - failed.seconds, word)
        if failed.error is not None:
            self._telemetry.count("fallbacks_total", call.policy.model_name, failed.error.code)

    def _count_one(self, served: Served, role: Role, seconds: float, word: str) -> None:
        score = served.prediction.score if served.prediction is not None else None
        self._telemetry.predicted(served.version, role, word, seconds, score)

    def _row(
        self, call: Call, role: Role, served: Served, fallback_from: UnderstudyError | None, seconds: float
    ) -> PredictionRow:
        prediction, assembled = served.prediction, served.assembled
        error = served.error or fallback_from
        return PredictionRow(
            prediction_id=call.prediction_id,
            predicted_at=self._clocks.unix(),
            model_version_id=served.version.id,
            assigned_version_id=served.version.id if role is Role.SHADOW else call.route.version.id,
            entity_id=call.request.entity_id,
            input_hash=assembled.digest if assembled is not None else "",
            prediction=prediction.logged if prediction is not None else b"null",
            score=prediction.score if prediction is not None else None,
            latency_us=int(seconds * 1_000_000),
            role=role,
            reason=call.route.reason,
            bucket=call.route.bucket,
            policy_generation=call.policy.generation,
            rollout_id=call.policy.rollout_id,
            cache_hit=served.cache is CacheResult.HIT,
            status=_status(served.error, fallback_from),
            error_code=error.code if error is not None else None,
            defaulted=assembled.defaulted if assembled is not None else (),
            inputs=self._logged_inputs(call, role, served) if call.policy.input_sample_percent else None,
        )

    def _logged_inputs(self, call: Call, role: Role, served: Served) -> bytes | None:
        """Return what is logged of the inputs; ``None`` when the entity is not sampled, or nothing was assembled.

        A shadow's inputs are copies, and a forced call is nobody's traffic.
        """
        policy, request = call.policy, call.request
        if (
            role is Role.SHADOW
            or call.route.reason is Reason.FORCED
            or served.assembled is None
            or not is_sampled(policy.model_name, request.entity_id, policy.input_sample_percent)
        ):
            return None
        stored = call.stored
        if stored and served.assembled.defaulted:
            stored = {name: value for name, value in stored.items() if name not in served.assembled.defaulted}
        text, outcome = encode_sample(request.logged_values(served.version, stored))
        self._telemetry.count("input_samples_total", policy.model_name, outcome)
        return text

    def _wants_shadow(self, call: Call, served: Served) -> bool:
        """A forced call is nobody's traffic, and a request that its caller must correct has nothing to compare."""
        if call.route.reason is Reason.FORCED or isinstance(served.error, RequestError):
            return False
        return is_shadowed(call.policy, call.request.entity_id)

    async def _shadow(self, call: Call) -> None:
        """Ask the shadow what it would have answered, and log that under its own version; its trace is its own."""
        version = call.policy.shadow
        if version is None:
            return
        if call.span is None:
            await self._show(call, version)
            return
        with aside(call.span, "understudy.shadow") as span:
            await self._show(call._replace(span=span), version)

    async def _show(self, call: Call, version: ModelVersion) -> None:
        started = self._clocks.monotonic()
        budget = min(version.timeout_seconds, self._limits.shadow_timeout_seconds)
        shadow_call = call._replace(deadline=started + budget, budget_seconds=budget)
        own_names = version.input_schema.stored_names
        if own_names and own_names != names_for(call.policy, call.route):
            # Fetched here and not with the caller's: a feature that only the shadow wants must delay nobody.
            shadow_call = await self._with_features(shadow_call._replace(stored=None, feature_error=None), own_names)
        served = await self._serve_version(shadow_call, version, shadow_call.deadline)
        seconds = self._clocks.monotonic() - started
        self._count_one(served, Role.SHADOW, seconds, _outcome_word(served.error))
        self._log.append(self._row(shadow_call, Role.SHADOW, served, None, seconds))
        if call.span is not None:
            _tell(call.span, call, Role.SHADOW, served)


def assembled_for(call: Call, version: ModelVersion) -> Assembled | AssembledTreatments | Served:
    """Return the version's inputs, or what it makes of a call without them."""
    try:
        return call.request.assemble(version, call.stored)
    except InputInvalid as problem:
        if call.stored:
            return _without_unfit(call, version, call.stored, problem)
        return Served(version, None, None, _blame(problem, version, call.feature_error).as_value())


def _without_unfit(
    call: Call, version: ModelVersion, stored: Mapping[str, Any], problem: InputInvalid
) -> Assembled | AssembledTreatments | Served:
    """Return what is assembled without the stored values that do not fit, which are not the caller's to correct."""
    request = call.request
    assemble: Callable[[Mapping[str, Any]], Assembled | AssembledTreatments] = partial(request.assemble, version)
    try:
        return assemble_without_unfit(assemble, request.inputs, stored, problem)
    except (InputInvalid, FeaturesUnavailable) as refused:
        return Served(version, None, None, refused.as_value())


def failure_of(
    call: Call, version: ModelVersion, assembled: Assembled | AssembledTreatments, problem: ServingError
) -> Served:
    """Return what a version made of a call when asking it ended in ``problem``."""
    error = problem.as_value()
    if isinstance(error, DeadlineExceeded):
        error = DeadlineExceeded(error.stage, call.budget_seconds)
    return Served(version, assembled, None, error)


def names_for(policy: ServingPolicy, route: Route) -> Sequence[str]:
    """Return the stored features that the call may need: its version's, and the champion's if that may stand in."""
    names = route.version.input_schema.stored_names
    if not falls_back(policy, route):
        return names
    return tuple(dict.fromkeys(names + policy.champion.input_schema.stored_names))


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


def _blame(problem: InputInvalid, version: ModelVersion, feature_error: FeaturesUnavailable | None) -> UnderstudyError:
    """Inputs that are incomplete only because the feature store failed are not the caller's fault."""
    if feature_error is None:
        return problem
    stored = {f"/inputs/{name}" for name in version.input_schema.stored_names}
    if all(violation.pointer in stored and violation.detail.startswith("missing") for violation in problem.violations):
        return feature_error
    return problem


_STATUS: Mapping[type[UnderstudyError], Status] = {
    DeadlineExceeded: Status.TIMEOUT,
    BadAnswer: Status.BAD_ANSWER,
    BackendUnavailable: Status.UNAVAILABLE,
    FeaturesUnavailable: Status.UNAVAILABLE,
    Overloaded: Status.UNAVAILABLE,
}


def _status(error: UnderstudyError | None, fallback_from: UnderstudyError | None) -> Status:
    if error is None:
        return Status.OK if fallback_from is None else Status.FALLBACK
    return _STATUS.get(type(error), Status.ERROR)


def _tell(span: Span, call: Call, role: Role, served: Served) -> None:
    """Tell a span who answered and why, by what the registry and the policy have; nothing that a caller has sent."""
    span.tell(
        {
            "understudy.model": call.policy.model_name,
            "understudy.version": served.version.version,
            "understudy.assigned_version": call.route.version.version,
            "understudy.role": role.value,
            "understudy.reason": call.route.reason.value,
            "understudy.bucket": call.route.bucket,
            "understudy.cache": served.cache.value,
            "understudy.policy_generation": call.policy.generation,
            "understudy.prediction_id": call.prediction_id,
        }
    )
    if served.cache is CacheResult.HIT:
        span.note("understudy.cache_hit")
    if isinstance(served.error, RequestError):
        span.tell({"error.type": served.error.code})
    elif served.error is not None:
        span.fail(served.error.code)


def _failure_told(failed: Served) -> Attributes:
    code = failed.error.code if failed.error is not None else ""
    return {"understudy.version": failed.version.version, "error.type": code}


def _outcome_word(error: UnderstudyError | None) -> str:
    return "invalid_input" if isinstance(error, RequestError) else _status(error, None)
