"""Shadow calls: a copy of live traffic for the shadow version, asked after the answer and logged under its own."""

from collections.abc import Callable, Iterable

import structlog

from understudy.core.routing.policy import ModelVersion, Role
from understudy.core.routing.route import Reason, is_shadowed
from understudy.errors import RequestError
from understudy.serving.call import Asked, Call
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

    def of(self, ended: Iterable[Call]) -> list[Call]:
        """Return the shadows' calls after some that are answered; of those that find the pool full there are none."""
        found = []
        for call in ended:
            shadow = call.policy.shadow
            if shadow is None:
                continue
            try:
                if self._sees(call) and self._pool.enter(call.policy.model_name):
                    found.append(self._shadow_of(call, shadow))
            except Exception:  # noqa: BLE001 - whatever the defect is, the answer is good and its row is written
                _log.exception("call.not_shadowed", model=call.policy.model_name)
        return found

    def _sees(self, call: Call) -> bool:
        """Whether the shadow gets the call: a forced call is a test, and a call refused with 422 compares nothing."""
        if call.role is Role.SHADOW or call.route.reason is Reason.FORCED:
            return False
        return not isinstance(call.error, RequestError) and is_shadowed(call.policy, call.request.entity_id)

    def _shadow_of(self, call: Call, version: ModelVersion) -> Call:
        """Return a call that asks what the shadow would have answered; its trace, if there is one, is its own."""
        span = None if call.span is None else call.span.aside("understudy.shadow")
        asked = _ShadowAsked(call.policy.model_name, call.request, None, None, span, self._pool)
        started = self._now()
        budget = min(version.timeout_seconds, self._timeout_seconds)
        own_names = version.input_schema.stored_names
        # Fetched for itself and not with the caller's: a feature that only the shadow wants must delay no caller.
        fetches = bool(own_names) and own_names != names_for(call.policy, call.route)
        shadow = Call(
            call.prediction_id, call.policy, call.route, call.request, asked, version, Role.SHADOW, budget,
            call.caller_seconds, False, own_names if fetches else (), started, started + budget,
        )  # fmt: skip
        shadow.span = span
        if not fetches:
            shadow.stored, shadow.feature_error = call.stored, call.feature_error
        return shadow


class _ShadowAsked(Asked):
    """What a shadow is asked, and no caller waits for."""

    _pool: ShadowPool

    def on_result(self, found: Call | Exception) -> None:
        """Leave the pool."""
        self._pool.leave()
        if self.span is not None:
            if isinstance(found, Exception):
                self.span.fail(type(found).__name__)
            self.span.end()
