"""Handler of predict calls: raw headers and body in, status, headers and body out.

It knows HTTP but no web framework, so that the fast path, the predict route and FastAPI's documented routes answer the
same.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import orjson

from understudy.background.thread_bulkhead import ThreadBulkhead
from understudy.core.requests.predict import PredictRequest, parse_predict, parse_predict_batch, read_predict
from understudy.core.requests.rank import RankRequest, parse_rank
from understudy.core.requests.strict_json import Suspect, parse_clean
from understudy.core.routing.access import Scope
from understudy.core.schema.typed_decoder import TypedDecoder
from understudy.entrypoints.proxy.access.caller_access import Admitted, CallerAccess
from understudy.entrypoints.proxy.messages.answers import answer_of
from understudy.entrypoints.proxy.messages.headers import (
    HeaderFields,
    RequestOptions,
    headers_of_lines,
    read_headers,
    wishes_of,
)
from understudy.entrypoints.proxy.messages.problems import (
    Places,
    problem_body,
    problem_headers,
    problem_lines,
    problem_of,
    status_of,
)
from understudy.entrypoints.proxy.messages.reply import JSON, HttpCall, Reply
from understudy.errors import DeadlineExceeded, UnderstudyError
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.telemetry.tracing import CURRENT, Tracer, step
from understudy.serving.call import Asked, Call
from understudy.serving.turn import Predictor

INLINE_BYTES = 32_768
"""A longer body that is suspect is parsed in a thread: a hostile one may take half a second, and would block the event
loop for all other callers (head-of-line blocking)."""
CLEAN_INLINE_BYTES = 262_144
"""A clean body is parsed in the event loop up to this, in a millisecond or two: orjson would hold the GIL in a
thread too, and handing the body over costs more (measured: 0.2 ms)."""
MAX_PARSING = 2
"""Bodies that are parsed in threads at once."""
WAIT_SECONDS = 1.0
"""Longest wait for a place. A hostile body of 1 MiB takes a tenth of a second."""
Parse = Callable[..., PredictRequest | RankRequest]
"""Parses a body; a second argument replaces its JSON parser."""


class WholeCall(Asked):
    """A predict call of which all has come."""

    fields: HeaderFields
    body: bytes


class PredictHandler:
    """Answers predict calls over HTTP.

    Args:
        predictor: Serves calls.
        access: Admits callers, and charges their calls.
        telemetry: Counts calls that are refused before their route is known.
        now: The clock of deadlines, in seconds.
        version_headers: Whether a reply's headers name version and role.
        tracer: Makes the spans of calls; the transport begins a request's span. ``None``: nothing is traced.
    """

    def __init__(
        self,
        predictor: Predictor,
        access: CallerAccess,
        *,
        telemetry: Telemetry,
        now: Callable[[], float],
        version_headers: bool = True,
        tracer: Tracer | None = None,
    ) -> None:
        self._predictor = predictor
        self.access = access
        self._telemetry = telemetry
        self._now = now
        self.version_headers = version_headers
        self.tracer = tracer
        self.body_pool = ThreadBulkhead(
            MAX_PARSING, wait_seconds=WAIT_SECONDS, when_full="too many long bodies wait to be parsed"
        )
        """Body parser pool: parses long bodies in threads; over its wait a body is refused with E507."""
        self.in_flight = 0

    async def predict(
        self,
        call: HttpCall,
        model_name: str,
        forced_version: str | None = None,
        parse: Parse = parse_predict,
    ) -> Reply:
        """Answer ``POST /v1/models/{model}/predict``, or ``…/versions/{version}/predict`` with a forced version.

        The authorization middleware decides whether a caller may force a version.
        """
        arrived = self._now()
        self.in_flight += 1
        try:
            options = read_headers(dict(call.headers))
            if forced_version is None:
                self.access.admit(options, Scope.PREDICT, model_name)
            body = await call.read_body()
            request = parse(body) if len(body) <= INLINE_BYTES else await self._parse_long(parse, body)
            answered = await self._predictor.predict(
                model_name, request, timeout_seconds=self.time_left(options, arrived), forced_version=forced_version
            )
        except UnderstudyError as problem:
            return self.refuse(self.access.explained(problem, dict(call.headers), model_name), call.path)
        finally:
            self.in_flight -= 1
        status, lines, content = self.answer(answered, call.path)
        return Reply(status, headers_of_lines(lines), content)

    def begin(self, calls: Iterable[WholeCall]) -> None:
        """Do what :meth:`predict` does with calls that came as a whole, all in one turn of the event loop.

        Raises nothing; each call's ``on_result`` is called once, also with what :meth:`predict` would refuse. Fills in
        what is asked.
        """
        arrived = self._now()
        # Callers that may call a model in this turn, with the model's decoder.
        known: dict[tuple[str | None, str], tuple[Admitted, TypedDecoder | None]] = {}
        asked = []
        for call in calls:
            try:
                fields, model_name = call.fields, call.model_name
                options = wishes_of(fields)
                caller = known.get((options.authorization, model_name))
                if caller is None:
                    caller = self.access.admitted(options, model_name), self._predictor.decoder_of(model_name)
                    known[options.authorization, model_name] = caller
                admitted, decoder = caller
                if admitted.is_limited:
                    self.access.charge(admitted, fields, arrived)
                call.request = read_predict(call.body, decoder)
                if options.timeout_seconds is not None:
                    call.timeout_seconds = self.time_left(options, arrived)
                asked.append(call)
            except Exception as problem:  # noqa: BLE001 - it is answered E500, and logged
                call.on_result(problem)
        self._predictor.begin(asked)

    def answer(self, call: Call, path: str) -> tuple[int, bytes, bytes]:
        """Return the status, the header lines and the body that such a call is answered with."""
        lines, body = answer_of(call, name_version=self.version_headers)
        error = call.error
        if error is None:
            return 200, lines, body
        return status_of(error), problem_lines(error) + lines, problem_body(error, path)

    async def rank(self, call: HttpCall, model_name: str, forced_version: str | None = None) -> Reply:
        """Answer ``POST /v1/models/{model}/rank``, or ``…/versions/{version}/rank`` with a forced version."""
        return await self.predict(call, model_name, forced_version, parse_rank)

    async def predict_batch(self, call: HttpCall, model_name: str) -> Reply:
        """Answer ``POST /v1/models/{model}/predict:batch``: each entity has its own version and its own error."""
        arrived = self._now()
        self.in_flight += 1
        try:
            options = read_headers(dict(call.headers))
            self.access.admit(options, Scope.PREDICT, model_name)
            members = await self.body_pool.run(parse_predict_batch, await call.read_body())
            self.access.charge_members(options, len(members) - 1)
            left = self.time_left(options, arrived)
            describe = partial(problem_of, path=call.path, places=Places())
            answers = await asyncio.gather(*(self._member(model_name, member, left, describe) for member in members))
        except UnderstudyError as problem:
            return self.refuse(self.access.explained(problem, dict(call.headers), model_name), call.path)
        finally:
            self.in_flight -= 1
        failed = sum(not good for good, _ in answers)
        content = b'{"model":%s,"predictions":[%s],"failed":%d}' % (
            orjson.dumps(model_name),
            b",".join(text for _, text in answers),
            failed,
        )
        return Reply(200, [JSON], content)

    def refuse(self, problem: UnderstudyError, path: str) -> Reply:
        """Answer with a problem before there is a route, so without a receipt."""
        self.count_refusal(problem)
        return Reply(status_of(problem), problem_headers(problem), problem_body(problem, path))

    def count_refusal(self, problem: UnderstudyError) -> None:
        """Count a request that is answered with a problem before there is a route, and tell its span."""
        self._telemetry.count("http_requests_refused_total", problem.code)
        span = CURRENT.get()
        if span is not None and status_of(problem) >= HTTPStatus.INTERNAL_SERVER_ERROR:
            span.fail(problem.code)
        elif span is not None:
            span.tell({"error.type": problem.code})

    async def _parse_long(self, parse: Parse, body: bytes) -> PredictRequest | RankRequest:
        if len(body) <= CLEAN_INLINE_BYTES:
            with suppress(Suspect):
                return parse(body, parse_clean)
        return await self.body_pool.run(parse, body)

    def time_left(self, options: RequestOptions, arrived: float) -> float | None:
        """Return what is left of the caller's own deadline, in seconds; its clock started when the request arrived.

        Raises:
            DeadlineExceeded: Nothing is left.
        """
        if options.timeout_seconds is None:
            return None
        left = options.timeout_seconds - (self._now() - arrived)
        if left <= 0:
            raise DeadlineExceeded("body", options.timeout_seconds)
        return left

    async def _member(
        self,
        model_name: str,
        member: PredictRequest | UnderstudyError,
        timeout_seconds: float | None,
        describe: Callable[[UnderstudyError], dict[str, Any]],
    ) -> tuple[bool, bytes]:
        if isinstance(member, UnderstudyError):
            return False, orjson.dumps({"error": describe(member)})
        with step("understudy.predict"):
            call = await self._predictor.predict(model_name, member, timeout_seconds=timeout_seconds)
        if call.error is None:
            return True, answer_of(call, name_version=self.version_headers, entity_id=member.entity_id)[1]
        receipt = {
            "error": describe(call.error),
            "version": call.version.version,
            "role": call.role,
            "prediction_id": call.prediction_id,
            "entity_id": member.entity_id,
        }
        return False, orjson.dumps(receipt)
