"""Shadow calls: a copy of live traffic for the shadow version, asked after the answer and logged under its own."""

from collections.abc import Callable, Iterable
from functools import partial

import structlog

from understudy.core.routing.policy import ModelVersion, Role
from understudy.core.routing.route import Reason, is_shadowed
from understudy.errors import RequestError
from understudy.ports.telemetry.tracing import Span
from understudy.serving.call import Call, Ended, Outcome
from understudy.serving.feature_fetch import names_for
from understudy.serving.shadow_pool import ShadowPool

_log = structlog.get_logger(__name__)


class ShadowCalls:
    """Makes the calls that the shadow of their policy sees.

    Args:
        pool: Bounds the calls in flight.
        timeout_seconds: Longest time of a shadow call.
        now: The monotonic clock, in seconds.
    """

    def __init__(self, pool: ShadowPool, timeout_seconds: float, now: Callable[[], float]) -> None:
        self._pool = pool
        self._timeout_seconds = timeout_seconds
        self._now = now

    def of(self, ended: Iterable[Ended]) -> list[Call]:
        """Return the shadows' calls after some that are answered; of those that find the pool full there are none."""
        found = []
        for one in ended:
            shadow = one.call.policy.shadow
            if shadow is None:
                continue
            try:
                if self._sees(one.call, one.outcome) and self._pool.enter(one.call.policy.model_name):
                    found.append(self._shadow_of(one.call, shadow))
            except Exception:  # noqa: BLE001 - whatever the defect is, the answer is good and its row is written
                _log.exception("call.not_shadowed", model=one.call.policy.model_name)
        return found

    def _sees(self, call: Call, outcome: Outcome) -> bool:
        """Whether the shadow gets the call: a forced call is a test, and a call refused with 422 compares nothing."""
        if call.role is Role.SHADOW or call.route.reason is Reason.FORCED:
            return False
        return not isinstance(outcome.served.error, RequestError) and is_shadowed(call.policy, call.request.entity_id)

    def _shadow_of(self, call: Call, version: ModelVersion) -> Call:
        """Return a call that asks what the shadow would have answered; its trace, if there is one, is its own."""
        span = None if call.span is None else call.span.aside("understudy.shadow")
        started = self._now()
        budget = min(version.timeout_seconds, self._timeout_seconds)
        ends = started + budget
        own_names = version.input_schema.stored_names
        # Fetched for itself and not with the caller's: a feature that only the shadow wants must delay no caller.
        fetches = bool(own_names) and own_names != names_for(call.policy, call.route)
        return Call(
            call.prediction_id, call.policy, call.route, call.request, partial(self._over, span), started, started,
            ends, budget, call.caller_seconds, span, version, ends, started, Role.SHADOW, False,
            own_names if fetches else (),
            None if fetches else call.stored,
            None if fetches else call.feature_error,
        )  # fmt: skip

    def _over(self, span: Span | None, found: Outcome | Exception) -> None:
        self._pool.leave()
        if span is not None:
            if isinstance(found, Exception):
                span.fail(type(found).__name__)
            span.end()
