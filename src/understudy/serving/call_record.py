"""What a call leaves behind: its counts, its row of the prediction log, and the attributes of its span."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import structlog

from understudy.core.prediction_log.call_slices import call_slices
from understudy.core.prediction_log.input_sampling import encode_sample, is_sampled
from understudy.core.prediction_log.row import Status, row_of
from understudy.core.routing.policy import ModelVersion, Role
from understudy.core.routing.route import Reason
from understudy.core.schema.outputs import MAX_LOGGED_BYTES, Prediction
from understudy.errors import (
    BackendUnavailable,
    BadAnswer,
    DeadlineExceeded,
    FeaturesUnavailable,
    NotLogged,
    Overloaded,
    RequestError,
    UnderstudyError,
    VersionUnloaded,
)
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.telemetry.tracing import Attributes, Span
from understudy.serving.call import Call
from understudy.serving.call_statistics import CallStatistics
from understudy.serving.upstream.cached_inference import CacheResult

_log = structlog.get_logger(__name__)

_Counts: TypeAlias = defaultdict[tuple[ModelVersion, Role, str], tuple[list[float], list[float]]]
"""Seconds and scores by version, role and how the calls ended."""

_STATUS: Mapping[type[UnderstudyError], Status] = {
    DeadlineExceeded: Status.TIMEOUT,
    BadAnswer: Status.BAD_ANSWER,
    BackendUnavailable: Status.UNAVAILABLE,
    VersionUnloaded: Status.UNAVAILABLE,
    FeaturesUnavailable: Status.UNAVAILABLE,
    Overloaded: Status.UNAVAILABLE,
    NotLogged: Status.UNAVAILABLE,
}

_GOOD_WORDS = frozenset({Status.OK.value, Status.FALLBACK.value})

_AS_LONG_RATIO = 0.99
"""Of the champion's time-out. Reading a request takes some of its deadline: one that is as long as the time-out, which
many callers set, is no shorter one."""


class CallRecorder:
    """Counts calls, and makes their rows.

    Args:
        telemetry: Gets the counts.
        statistics: Gets them, too.
    """

    def __init__(self, telemetry: Telemetry, statistics: CallStatistics) -> None:
        self._telemetry = telemetry
        self._statistics = statistics

    def report(self, ended: Iterable[Call]) -> None:
        """Count calls that have ended, and describe them in their spans; raises nothing.

        It comes after the rows: a defect in here is logged, and costs neither the rows nor the answers.
        """
        counts: _Counts = defaultdict(_no_counts)
        good, known = Status.OK, None
        seconds, scores = _no_counts()
        for call in ended:
            try:
                if call.span is not None and call.span.is_recorded:
                    describe_call(call.span, call)
                if call.failed is not None:
                    self._add_both(counts, call, call.failed)
                    continue
                prediction, error = call.prediction, call.error
                kind = call.version, call.role, good if error is None else _outcome_word(error)
                if kind != known:  # calls that end together mostly end alike
                    known, (seconds, scores) = kind, counts[kind]
                seconds.append(call.ended - call.started)
                if prediction is not None and prediction.score is not None:
                    scores.append(prediction.score)
            except Exception:  # noqa: BLE001 - whatever the defect is, the answer is good and its row is written
                _log.exception("call.not_reported", model=call.policy.model_name)
        for (version, role, word), (seconds, scores) in counts.items():
            try:
                self._telemetry.predicted(version, role, word, seconds, scores)
                self._statistics.add(version, is_good=word in _GOOD_WORDS, seconds=seconds)
            except Exception:  # noqa: BLE001 - as above
                _log.exception("call.not_reported", model=version.model_name)

    def _add_both(self, counts: "_Counts", call: Call, failed: Call) -> None:
        """Add a call under the champion that answered, and under the challenger that failed, each with its own time."""
        failed_seconds = failed.ended - failed.ready
        _add_answer(counts, failed, _outcome_word(failed.error), failed_seconds)
        word = "fallback" if call.error is None else _outcome_word(call.error)
        _add_answer(counts, call, word, call.ended - call.started - failed_seconds)
        if failed.error is not None:
            self._telemetry.count("fallbacks_total", call.policy.model_name, failed.error.code)

    def with_rows(self, ended: Iterable[Call], unix: float) -> list[Call]:
        """Make the rows of calls, and return the calls; a defect is told the caller of the one that it concerns.

        Args:
            ended: Calls that have ended, in one turn of the event loop.
            unix: When, in seconds since the epoch.
        """
        done = []
        shadow, hit, good = Role.SHADOW, CacheResult.HIT, Status.OK
        for call in ended:
            try:
                prediction, assembled, error = call.prediction, call.assembled, call.error
                role, route, policy, request = call.role, call.route, call.policy, call.request
                fallback_from = None if call.failed is None else call.failed.error
                text = b"null"
                if prediction is not None:
                    is_whole = isinstance(prediction, Prediction) and len(prediction.json) <= MAX_LOGGED_BYTES
                    text = prediction.json if is_whole else prediction.logged  # most are: a property costs a call
                told = error or fallback_from
                call.log_row = row_of((  # by places: columns by their names take three times as long
                    call.prediction_id, unix, call.version.id,
                    call.version.id if role is shadow else route.version.id,
                    request.entity_id,
                    "" if assembled is None else assembled.digest, text,
                    None if prediction is None else prediction.score,
                    int((call.ended - call.started - call.waited) * 1_000_000),
                    role, route.reason, route.bucket, policy.generation, policy.rollout_id,
                    call.cache is hit,
                    good if told is None else _status(error, fallback_from),
                    None if told is None else told.code,
                    () if assembled is None else assembled.defaulted,
                    None if call.caller_seconds is None else _deadline_us(call, call.caller_seconds),
                    None if request.category is None and not policy.slices else _slices(call),
                    self._logged_inputs(call) if policy.input_sample_percent else None,
                    request.is_drawn,
                ))  # fmt: skip
                done.append(call)
            except Exception as defect:  # noqa: BLE001 - a defect of ours: it must not cost the others their answers
                call.asked.on_result(defect)
        return done

    def _logged_inputs(self, call: Call) -> bytes | None:
        """Return what is logged of the inputs; ``None`` when the entity is not sampled, or nothing was assembled.

        A shadow's inputs are copies, and a forced call is a test, not traffic.
        """
        policy, request, assembled = call.policy, call.request, call.assembled
        if (
            call.role is Role.SHADOW
            or call.route.reason is Reason.FORCED
            or assembled is None
            or not is_sampled(policy.model_name, request.entity_id, policy.input_sample_percent)
        ):
            return None
        stored = call.stored
        if stored and assembled.defaulted:
            stored = {name: value for name, value in stored.items() if name not in assembled.defaulted}
        text, outcome = encode_sample(request.logged_values(call.version, stored))
        self._telemetry.count("input_samples_total", policy.model_name, outcome)
        return text


def describe_call(span: Span, call: Call) -> None:
    """Set a span's attributes: which version answered, and why; nothing that a caller sent."""
    span.tell(
        {
            "understudy.model": call.policy.model_name,
            "understudy.version": call.version.version,
            "understudy.assigned_version": call.route.version.version,
            "understudy.role": call.role.value,
            "understudy.reason": call.route.reason.value,
            "understudy.bucket": call.route.bucket,
            "understudy.cache": call.cache.value,
            "understudy.policy_generation": call.policy.generation,
            "understudy.prediction_id": call.prediction_id,
        }
    )
    if call.cache is CacheResult.HIT:
        span.note("understudy.cache_hit")
    if isinstance(call.error, RequestError):
        span.tell({"error.type": call.error.code})
    elif call.error is not None:
        span.fail(call.error.code)


def failure_attributes(failed: Call) -> Attributes:
    """Return what a span says of a challenger that failed."""
    code = failed.error.code if failed.error is not None else ""
    return {"understudy.version": failed.version.version, "error.type": code}


def _slices(call: Call) -> bytes | None:
    """Return what versions are compared by beside the whole; a shadow's calls are copies, and a forced one a test."""
    if call.role is Role.SHADOW or call.route.reason is Reason.FORCED:
        return None
    request, features = call.request, call.policy.slices
    return call_slices(request.entity_id, request.category, features, request.inputs if features else {}, call.stored)


def _status(error: UnderstudyError | None, fallback_from: UnderstudyError | None) -> Status:
    if error is None:
        return Status.OK if fallback_from is None else Status.FALLBACK
    return _STATUS.get(type(error), Status.ERROR)


def _deadline_us(call: Call, caller_seconds: float) -> int | None:
    """Return the caller's own deadline where it is shorter than the champion's time-out, whichever version is asked.

    The version that a call happens to get must not decide whether its deadline counts (ADR 75). A shadow has its own.
    ``caller_seconds`` is what is left when the request has been read and long inputs are assembled, so that neither a
    slow body nor a long one is a way around this.
    """
    if call.role is Role.SHADOW or caller_seconds >= _AS_LONG_RATIO * call.policy.champion.timeout_seconds:
        return None
    # A limit of some nanoseconds, which gRPC can write, is one too: 0 would be none.
    return max(1, int(caller_seconds * 1_000_000))


def _add_answer(counts: _Counts, call: Call, word: str, seconds: float) -> None:
    """Add what one version made of a call."""
    all_seconds, scores = counts[call.version, call.role, word]
    all_seconds.append(seconds)
    if call.prediction is not None and call.prediction.score is not None:
        scores.append(call.prediction.score)


def _no_counts() -> tuple[list[float], list[float]]:
    return [], []


def _outcome_word(error: UnderstudyError | None) -> str:
    return "invalid_input" if isinstance(error, RequestError) else _status(error, None)
