"""Handler of calls in other protocols: admits, reads, asks for each row as for any call, and words the answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar, TypeVarTuple

from understudy.core.requests.caller_entity import CATEGORY, ENTITY_ID, EntityFrom, Named, owners_of
from understudy.core.requests.predict import PredictRequest, TypedRequest
from understudy.core.routing.access import Scope
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, ServingPolicy, serving_policy_of
from understudy.core.value import Value
from understudy.entrypoints.proxy.dialects.catalogue import named_by, named_version
from understudy.entrypoints.proxy.dialects.compression import coding_for, deflated, inflated_beside
from understudy.entrypoints.proxy.dialects.dialect import (
    INLINE_OUTPUT_BYTES,
    Answered,
    Dialect,
    Outcome,
    Reading,
    Target,
    answered_of,
    who_answered,
)
from understudy.entrypoints.proxy.dialects.refusals import refusal
from understudy.entrypoints.proxy.messages.answers import Receipt
from understudy.entrypoints.proxy.messages.headers import (
    ACCEPTED_CODINGS_HEADER,
    CATEGORY_HEADER,
    ENTITY_HEADER,
    HeaderFields,
    RequestOptions,
    read_headers,
)
from understudy.entrypoints.proxy.messages.reply import HttpCall, Reply
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.errors import HeaderInvalid, UnderstudyError, UnknownModel
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.telemetry.tracing import CURRENT, step
from understudy.serving.call import Call
from understudy.serving.call_statistics import CallStatistics
from understudy.serving.turn import Predictor

_ENTITY_PLACE, _CATEGORY_PLACE = ENTITY_HEADER.decode(), CATEGORY_HEADER.decode()
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Rules(NamedTuple):
    """What an operator decides for calls in other protocols."""

    draws_entity: bool
    """Whether a call without an entity gets one of its own; else it is refused."""
    forces_version: bool
    """Whether a version in the path answers; else it must exist, and the route decides."""
    body_limit_bytes: int
    """Of a body that was compressed, too."""


class Choice(Value, frozen=True, gc=False):
    """What a target means under a policy."""

    schema_of: ModelVersion
    """The version whose inputs callers name."""
    forced: str | None


class Rows(Value, frozen=True, gc=False):
    """What is asked of a model: each row of a call, as a call of its own."""

    requests: Sequence[PredictRequest | TypedRequest]
    timeout_seconds: float | None
    forced: str | None
    found: EntityFrom
    """Where their entities were found."""


class Wording(Value, frozen=True, gc=False):
    """A call all of whose rows are answered, before that is worded."""

    reading: Reading
    answered: Answered
    receipt: Receipt

    @property
    def is_long(self) -> bool:
        """Whether it belongs into a thread."""
        return self.answered.size > self.reading.inline_output_bytes


class DialectHandler:
    """Answers calls of any dialect.

    Args:
        handler: Admits callers, charges keys, and parses long bodies.
        predictor: Serves calls.
        snapshot: Returns the policy snapshot.
        telemetry: Counts calls by dialect.
        rules: What the operator decided.
        now: The clock of deadlines, in seconds.
        new_id: Makes an id of 32 hex digits.
    """

    def __init__(
        self,
        handler: PredictHandler,
        predictor: Predictor,
        *,
        snapshot: Callable[[], PolicySnapshot | None],
        telemetry: Telemetry,
        rules: Rules,
        now: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self.handler = handler
        self._predictor = predictor
        self._snapshot = snapshot
        self._telemetry = telemetry
        self._rules = rules
        self._now = now
        self._new_id = new_id

    async def predict(self, dialect: Dialect, call: HttpCall, target: Target) -> Reply:
        """Answer one call over HTTP: all of its rows, or why there is no answer."""
        outcome = await self.answer(dialect, call, target)
        return await reply(outcome, call.path, dict(call.headers).get(ACCEPTED_CODINGS_HEADER))

    async def answer(self, dialect: Dialect, call: HttpCall, target: Target) -> Outcome:
        """Return what comes of one call, over whatever transport it came."""
        arrived = self._now()
        self.handler.in_flight += 1
        try:
            fields = dict(call.headers)
            coding = fields.pop(b"content-encoding", None)
            options = read_headers(fields)
            admitted = self._needed(target, options)
            self.handler.access.admit(options, admitted, target.model_name)
            body = await self._body_of(call, coding, options)
            needed = self._needed(target, options)
            if needed is not admitted:  # the policy changed while the body came
                self.handler.access.admit(options, needed, target.model_name, charges=False)
            choice = self.chosen(target, fields)
            reading = await self._read(dialect, body, fields, choice.schema_of)
            rows = self.asked(reading, choice, options, fields, arrived)
            self.count(target.model_name, dialect.name, rows.found)
            calls = await self._calls(target.model_name, rows)
            return await self.worded(self.ended(reading, calls, target, choice))
        except UnderstudyError as problem:
            self.handler.count_refusal(problem)
            return Outcome(error=problem)
        finally:
            self.handler.in_flight -= 1

    def refuse(self, problem: UnderstudyError, path: str) -> Reply:
        """Answer with an error before there is a route."""
        self.handler.count_refusal(problem)
        return refusal(problem, path)

    @property
    def statistics(self) -> CallStatistics:
        """Of this process's calls of each version."""
        return self._predictor.statistics

    def policy_of(self, model_name: str, fields: HeaderFields) -> ServingPolicy:
        """Return a model's policy.

        Args:
            model_name: The model's.
            fields: The call's headers: by them a caller who names no model is told which ones it may read.

        Raises:
            PolicyNotLoaded, UnknownModel: There is none.
        """
        try:
            return serving_policy_of(self._snapshot(), model_name)
        except UnknownModel as problem:
            raise self.handler.access.explained(problem, fields, model_name) from None

    def _needed(self, target: Target, options: RequestOptions) -> Scope:
        """Return the scope that a call needs: ``operate`` for a version that routing might not give its caller.

        As on our own paths ``operate`` is enough for any version that is named.

        Raises:
            Unauthenticated: As :func:`understudy.core.routing.access.admit`.
        """
        snapshot = self._snapshot()
        if snapshot is None or not target.names_version or not self._rules.forces_version:
            return Scope.PREDICT
        policy = snapshot.policies.get(target.model_name)
        if policy is not None and named_by(policy, target) not in (None, policy.champion):
            return Scope.OPERATE
        operable = self.handler.access.permitted_models(options, Scope.OPERATE)
        return Scope.OPERATE if operable is None or target.model_name in operable else Scope.PREDICT

    def chosen(self, target: Target, fields: HeaderFields) -> Choice:
        """Return whose answer is asked for.

        Raises:
            PolicyNotLoaded, UnknownModel: There is no policy.
            UnknownVersion: The model has no such version, or no such label.
        """
        policy = self.policy_of(target.model_name, fields)
        named = named_version(policy, target)
        if target.names_version and self._rules.forces_version:
            return Choice(named, named.version)
        return Choice(policy.champion, None)

    async def _body_of(self, call: HttpCall, coding: bytes | None, options: RequestOptions) -> bytes:
        """Return the whole body, inflated; it is held, and charged to its key, as one that came in this length."""
        body = await call.read_body()
        if coding is None or coding.strip().lower() == b"identity":
            return body
        came, limit = len(body), self._rules.body_limit_bytes
        body = await inflated_beside(self.handler.body_pool, body, coding, limit)
        call.hold(len(body))
        self.handler.access.charge_bytes(options, len(body) - came)
        return body

    async def _read(self, dialect: Dialect, body: bytes, fields: HeaderFields, version: ModelVersion) -> Reading:
        if dialect.is_short(body, fields):
            return dialect.read(body, fields, version)
        return await self.handler.body_pool.run(dialect.read, body, fields, version)

    def asked(
        self, reading: Reading, choice: Choice, options: RequestOptions, fields: HeaderFields, arrived: float
    ) -> Rows:
        """Return what is asked by a call that was read, and charge its key the rows behind the first one.

        Args:
            reading: What it says.
            choice: Whose answer it asks for.
            options: What its headers ask for.
            fields: Its headers.
            arrived: When it came.

        Raises:
            EntityIdInvalid, InputInvalid, HeaderInvalid: It says unclearly whose it is.
            QuotaExceeded: The key is at its rate limit.
            DeadlineExceeded: Nothing is left of its time.
        """
        rows = len(reading.request.rows)
        owners = owners_of(
            reading.request.whose,
            rows,
            entity=_named(fields, ENTITY_HEADER, _ENTITY_PLACE, ENTITY_ID),
            category=_named(fields, CATEGORY_HEADER, _CATEGORY_PLACE, CATEGORY),
            draw=self._new_id if self._rules.draws_entity else None,
        )
        if rows > 1:
            self.handler.access.charge_members(options, rows - 1)
        left = None
        if options.timeout_seconds is not None or reading.timeout_seconds is not None:
            seconds = [one for one in (options.timeout_seconds, reading.timeout_seconds) if one is not None]
            left = self.handler.time_left(options.but(timeout_seconds=min(seconds)), arrived)
        return Rows(reading.request.requests(owners), left, choice.forced, owners.found)

    def count(self, model_name: str, dialect: str, found: EntityFrom, calls: int = 1) -> None:
        """Count calls of a model by the name of their protocol, and where their entities were found."""
        self._telemetry.count("dialect_calls_total", model_name, dialect, found, by=calls)

    async def _calls(self, model_name: str, rows: Rows) -> Sequence[Call]:
        """Ask for all rows together."""
        ask = partial(
            self._predictor.predict,
            model_name,
            timeout_seconds=rows.timeout_seconds,
            forced_version=rows.forced,
            keeps_output=True,
        )
        if len(rows.requests) == 1:
            return [await ask(rows.requests[0])]
        if CURRENT.get() is not None:
            return await asyncio.gather(*(_traced(ask, one) for one in rows.requests))
        return await self._predictor.predict_all(
            model_name,
            rows.requests,
            timeout_seconds=rows.timeout_seconds,
            forced_version=rows.forced,
            keeps_output=True,
        )

    def ended(self, reading: Reading, calls: Sequence[Call], target: Target, choice: Choice) -> Outcome | Wording:
        """Return what is to be worded of rows that have ended; the first one that failed fails the call."""
        names_version, who = self.handler.version_headers, who_answered(calls)
        for row, call in enumerate(calls):
            if call.error is not None:
                error = reading.request.located(row, call.error)
                return Outcome(None, error, row if len(calls) > 1 else None, Receipt(call, *who, names_version))
        receipt = Receipt(calls[0], *who, names_version)
        try:
            # The dimension of the rows is that of the inputs as the caller wrote them, and of no answering version.
            batch = choice.schema_of.input_schema.batch
            answered = answered_of(target, calls, who, batch=batch, names_version=names_version)
        except UnderstudyError as problem:
            return self._unworded(problem, receipt)
        return Wording(reading, answered, receipt)

    async def worded(self, ended: Outcome | Wording) -> Outcome:
        """Word what :meth:`ended` returned, in a thread where that takes long."""
        is_long = isinstance(ended, Wording) and ended.is_long
        return await off_loop_if(is_long, self.worded_now, ended)

    def worded_now(self, ended: Outcome | Wording) -> Outcome:
        """Word what :meth:`ended` returned."""
        if isinstance(ended, Outcome):
            return ended
        try:
            return Outcome(ended.reading.word(ended.answered), None, None, ended.receipt)
        except UnderstudyError as problem:
            return self._unworded(problem, ended.receipt)

    def _unworded(self, problem: UnderstudyError, receipt: Receipt) -> Outcome:
        """Return what comes of rows that are answered and logged; that the call is not is counted here."""
        self.handler.count_refusal(problem)
        return Outcome(error=problem, receipt=receipt)


async def _traced(
    ask: Callable[[PredictRequest | TypedRequest], Awaitable[Call]], request: PredictRequest | TypedRequest
) -> Call:
    """Ask for one row of several, with a span of its own."""
    with step("understudy.predict"):
        return await ask(request)


async def off_loop_if(is_long: bool, work: Callable[[*Ts], T], *args: *Ts) -> T:  # noqa: FBT001 - it is the condition
    """Return what a piece of work returns; where it is long it is done in a thread."""
    return await asyncio.to_thread(work, *args) if is_long else work(*args)


async def reply(outcome: Outcome, path: str, accepted: bytes | None) -> Reply:
    """Return an outcome as an answer over HTTP, compressed in a thread where that takes long; as :func:`reply_now`."""
    size = 0 if outcome.worded is None else len(outcome.worded.body)
    is_long = size > INLINE_OUTPUT_BYTES and coding_for(accepted, size) is not None
    return await off_loop_if(is_long, reply_now, outcome, path, accepted)


def reply_now(outcome: Outcome, path: str, accepted: bytes | None) -> Reply:
    """Return an outcome as an answer over HTTP.

    Args:
        outcome: What came of the call.
        path: The request's.
        accepted: The codings that the caller accepts, as it wrote them.
    """
    if outcome.worded is None:
        assert outcome.error is not None
        return refusal(outcome.error, path, row=outcome.row, receipt=outcome.receipt_headers)
    headers, body = list(outcome.worded.headers), outcome.worded.body
    coding = coding_for(accepted, len(body))
    if coding is not None:
        body = deflated(body, coding)
        headers += (b"content-encoding", coding), (b"vary", b"accept-encoding")
    return Reply(200, [*headers, *outcome.receipt_headers], body)


def _named(fields: HeaderFields, header: bytes, place: str, what: str) -> Named | None:
    value = fields.get(header)
    if value is None:
        return None
    try:
        return Named(value.decode(), place)
    except UnicodeDecodeError:
        raise HeaderInvalid(f"{place}: the {what} is not UTF-8") from None
