"""The predict door: raw headers and body in, status, headers and body out.

It knows HTTP's words but no web framework, so that every way in (the ASGI lane, FastAPI's documented routes) answers
the same.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import orjson

from understudy.core.access import Scope, require, scopes_of
from understudy.core.policy import PolicySnapshot
from understudy.core.request import PredictRequest, parse_batch, parse_predict
from understudy.entrypoints.proxy.headers import Honoured, RawHeaders, read_headers, receipt_headers
from understudy.entrypoints.proxy.problems import problem_body, problem_headers, problem_of, status_of
from understudy.errors import UnderstudyError
from understudy.ports import Telemetry
from understudy.serving.predict import Outcome, Predictor

INLINE_BYTES = 32_768
"""A longer body is parsed in a thread: a hostile one may take half a second, and other callers must not wait for it."""
JSON = (b"content-type", b"application/json")


class Reply(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class PredictDoor:
    """Answers predict calls over HTTP.

    Args:
        predictor: The request's story.
        snapshot: Where the keys are.
        telemetry: Counts what was refused before a route was known.
        needs_key: Whether callers must show a key.
        new_id: Makes a request id for a caller who sent none; 32 hex digits.
        version_headers: Whether the headers name version and role.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        snapshot: Callable[[], PolicySnapshot | None],
        telemetry: Telemetry,
        needs_key: bool,
        new_id: Callable[[], str],
        version_headers: bool = True,
    ) -> None:
        self._predictor = predictor
        self._snapshot = snapshot
        self._telemetry = telemetry
        self._needs_key = needs_key
        self._new_id = new_id
        self._version_headers = version_headers
        self.in_flight = 0

    async def predict(
        self, model_name: str, raw_headers: RawHeaders, body: bytes, path: str, forced_version: str | None = None
    ) -> Reply:
        """Answer ``POST /v1/models/{model}/predict``, or ``…/versions/{version}/predict`` with a forced version."""
        self.in_flight += 1
        asked = Honoured()
        try:
            asked = read_headers(raw_headers)
            self._admit(asked, model_name, forced_version)
            request = parse_predict(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(parse_predict, body)
            outcome = await self._predictor.predict(
                model_name, request, timeout_seconds=asked.timeout_seconds, forced_version=forced_version
            )
        except UnderstudyError as problem:
            return self.refuse(problem, path, asked)
        finally:
            self.in_flight -= 1
        return self._reply(outcome, asked, path)

    async def predict_batch(self, model_name: str, raw_headers: RawHeaders, body: bytes, path: str) -> Reply:
        """Answer ``POST /v1/models/{model}/predict:batch``: each entity has its own version and its own error."""
        self.in_flight += 1
        asked = Honoured()
        try:
            asked = read_headers(raw_headers)
            self._admit(asked, model_name, None)
            members = await asyncio.to_thread(parse_batch, body)
            answers = await asyncio.gather(*(self._member(model_name, member, asked, path) for member in members))
        except UnderstudyError as problem:
            return self.refuse(problem, path, asked)
        finally:
            self.in_flight -= 1
        failed = sum(not good for good, _ in answers)
        content = b'{"model":%s,"predictions":[%s],"failed":%d}' % (
            orjson.dumps(model_name),
            b",".join(text for _, text in answers),
            failed,
        )
        return Reply(200, [JSON, *self._common(asked)], content)

    def refuse(self, problem: UnderstudyError, path: str, asked: Honoured | None = None) -> Reply:
        """Answer with a problem for which there is no receipt."""
        self._telemetry.count("http_requests_refused_total", problem.code)
        headers = [*problem_headers(problem), *self._common(asked or Honoured())]
        return Reply(status_of(problem), headers, problem_body(problem, path))

    def _admit(self, asked: Honoured, model_name: str, forced_version: str | None) -> None:
        snapshot = self._snapshot()
        keys = snapshot.keys if snapshot is not None else {}
        scopes = scopes_of(keys, asked.authorization, needs_key=self._needs_key)
        if forced_version is not None:
            require(scopes, Scope.OPERATE)
        else:
            require(scopes, Scope.PREDICT, model_name)

    async def _member(
        self, model_name: str, member: PredictRequest | UnderstudyError, asked: Honoured, path: str
    ) -> tuple[bool, bytes]:
        if isinstance(member, UnderstudyError):
            return False, orjson.dumps({"error": problem_of(member, path)})
        outcome = await self._predictor.predict(model_name, member, timeout_seconds=asked.timeout_seconds)
        error = outcome.served.error
        if error is None:
            return True, _answer_body(outcome, member.entity_id)
        receipt = {
            "error": problem_of(error, path),
            "version": outcome.served.version.version,
            "role": outcome.role,
            "prediction_id": outcome.prediction_id,
            "entity_id": member.entity_id,
        }
        return False, orjson.dumps(receipt)

    def _reply(self, outcome: Outcome, asked: Honoured, path: str) -> Reply:
        headers = [*receipt_headers(outcome, name_version=self._version_headers), *self._common(asked)]
        error = outcome.served.error
        if error is not None:
            return Reply(status_of(error), [*problem_headers(error), *headers], problem_body(error, path))
        return Reply(200, [JSON, *headers], _answer_body(outcome))

    def _common(self, asked: Honoured) -> list[tuple[bytes, bytes]]:
        request_id = asked.request_id or self._new_id().encode()
        headers = [(b"x-request-id", request_id)]
        if asked.trace_id is not None:
            span_id = self._new_id()[:16].encode()
            headers.append((b"traceresponse", b"00-%s-%s-00" % (asked.trace_id, span_id)))
        return headers


def _answer_body(outcome: Outcome, entity_id: str | None = None) -> bytes:
    served = outcome.served
    prediction = served.prediction.json if served.prediction is not None else b"null"
    body = b'{"prediction":%s,"model":%s,"version":%s,"role":"%s","prediction_id":"%s","generation":%d' % (
        prediction,
        orjson.dumps(served.version.model_name),
        orjson.dumps(served.version.version),
        outcome.role.value.encode(),
        outcome.prediction_id.encode(),
        outcome.generation,
    )
    extra: dict[str, object] = {}
    if entity_id is not None:
        extra["entity_id"] = entity_id
    if outcome.fallback_from is not None:
        extra["fallback"] = {"from_version": outcome.route.version.version, "code": outcome.fallback_from.code}
    if served.assembled is not None and served.assembled.defaulted:
        extra["defaulted"] = served.assembled.defaulted
    if extra:
        return body + b"," + orjson.dumps(extra)[1:]
    return body + b"}"
