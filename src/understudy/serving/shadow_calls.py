"""Shadow calls: a copy of live traffic for the shadow version, answered after the caller and logged under its own."""

from collections.abc import Callable

from understudy.core.routing.policy import ModelVersion, Role
from understudy.core.routing.route import Reason, is_shadowed
from understudy.errors import RequestError
from understudy.ports.telemetry.tracing import aside
from understudy.serving.call import Call, Served
from understudy.serving.call_record import CallRecorder, describe_call
from understudy.serving.feature_fetch import FeatureFetch, names_for
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.shadow_pool import ShadowPool
from understudy.serving.version_calls import VersionCalls


class ShadowCalls:
    """Shows calls to the shadow of their policy.

    Args:
        pool: Bounds the calls in flight.
        features: Fetches what only the shadow wants.
        versions: Asks the shadow.
        recorder: Counts the shadow's call and makes its row.
        log: Where the row goes.
        timeout_seconds: Longest time of a shadow call.
        now: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        *,
        pool: ShadowPool,
        features: FeatureFetch,
        versions: VersionCalls,
        recorder: CallRecorder,
        log: GroupCommit,
        timeout_seconds: float,
        now: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._features = features
        self._versions = versions
        self._recorder = recorder
        self._log = log
        self._timeout_seconds = timeout_seconds
        self._now = now

    def wants(self, call: Call, served: Served) -> bool:
        """Whether the shadow gets the call: a forced call is a test, and a call refused with 422 compares nothing."""
        if call.route.reason is Reason.FORCED or isinstance(served.error, RequestError):
            return False
        return is_shadowed(call.policy, call.request.entity_id)

    def start(self, call: Call) -> None:
        """Start the shadow's call as a task of its own, unless the pool is full."""
        self._pool.offer(call.policy.model_name, lambda: self._shadow(call))

    async def _shadow(self, call: Call) -> None:
        """Ask the shadow what it would have answered, and log that under its own version; its trace is its own."""
        version = call.policy.shadow
        if version is None:
            return
        if call.span is None:
            await self._ask(call, version)
            return
        with aside(call.span, "understudy.shadow") as span:
            await self._ask(call.but(span=span), version)

    async def _ask(self, call: Call, version: ModelVersion) -> None:
        started = self._now()
        budget = min(version.timeout_seconds, self._timeout_seconds)
        shadow_call = call.but(deadline=started + budget, budget_seconds=budget)
        own_names = version.input_schema.stored_names
        if own_names and own_names != names_for(call.policy, call.route):
            # Fetched here and not with the caller's: a feature that only the shadow wants must delay no caller.
            without_stored = shadow_call.but(stored=None, feature_error=None)
            shadow_call = await self._features.fetch(without_stored, own_names)
        served = await self._versions.serve(shadow_call, version, shadow_call.deadline)
        seconds = self._now() - started
        self._recorder.count_shadow(served, seconds)
        self._log.append(self._recorder.row(shadow_call, Role.SHADOW, served, None, seconds))
        if call.span is not None:
            describe_call(call.span, call, Role.SHADOW, served)
