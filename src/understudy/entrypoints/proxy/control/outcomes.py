"""``POST /v1/outcomes``: callers report what happened after the answers (ground truth)."""

import time
from collections import Counter

import orjson
import structlog

from understudy.bootstrap.session import Session
from understudy.core.experiments.outcome_events import OutcomeEvent, read_outcome_batch
from understudy.core.requests.strict_json import parse
from understudy.entrypoints.proxy.control.bodies import OutcomeQuestion
from understudy.entrypoints.proxy.control.handler import READ_SECONDS, Bulkhead, ControlCall, answer
from understudy.entrypoints.proxy.messages.reply import JSON, HttpCall, Reply
from understudy.errors import RegistryError, RegistryUnavailable, ScopeMissing
from understudy.experiments.outcome_intake import add_outcomes
from understudy.ports.experiments.outcome_store import OutcomeResult, OutcomeStore
from understudy.serving.thread_bulkhead import ThreadBulkhead

_log = structlog.get_logger(__name__)
_NOT_STORED = "the outcomes cannot be stored now"
_AGAIN = "Send the same batch again after Retry-After: each event counts once."


async def receive_outcomes(
    call: HttpCall, store: OutcomeStore, bodies: ThreadBulkhead, permitted: frozenset[str] | None = None
) -> Reply:
    """Return 202 once every event of the body is stored; without a 202 the caller repeats the body (idempotent).

    ``permitted`` are the models of which the caller may report outcomes; ``None``: all.

    Raises:
        MalformedBody, BodyTooLarge, RequestTimedOut: The body cannot be read.
        Overloaded: Too many long bodies wait for the body parser pool.
        ScopeMissing: An event is of another model; nothing was stored.
        BatchInvalid: Names the unusable places of the body, the first 1,000, also models that are not registered and
            times in the future; nothing was stored.
        RegistryUnavailable: Postgres is unavailable or unfit; the cause is in the log, not in the answer.
    """
    outcomes = await bodies.run(_read, await call.read_body())
    try:
        added = await add_outcomes(store, outcomes, permitted, now=time.time())
    except RegistryError as problem:
        _log.warning("outcomes.not_stored", code=problem.code, why=problem.detail)
        raise RegistryUnavailable(_NOT_STORED, hint=_AGAIN) from problem
    counts = Counter(result for _, result in added)
    content = {
        "results": [{"event_id": event_id, "result": result.value} for event_id, result in added],
        **{result.value: counts[result] for result in OutcomeResult},
    }
    return Reply(202, [JSON], orjson.dumps(content))


async def check_outcomes(call: ControlCall, body: bytes, permitted: frozenset[str] | None) -> Reply:
    """Return which models are unknown, and which names no outcome had before; nothing is stored.

    Raises:
        MalformedBody, BodyInvalid: The body.
        ScopeMissing: It names a model of which the caller may not report outcomes.
        LoginNotAllowed: The proxy's login may not read names of outcomes.
    """
    asked = OutcomeQuestion.read(body)
    named = {*asked.models, *(metric.model for metric in asked.metrics)}
    if permitted is not None and not named <= permitted:
        raise ScopeMissing("the key may not send outcomes of all of these models")
    metrics = {(metric.model, metric.name) for metric in asked.metrics}

    async def look(parts: Session) -> Reply:
        unknown = await parts.outcomes.unknown_models(asked.models) if asked.models else ()
        news = await parts.outcomes.new_metrics(metrics) if metrics else ()
        new_metrics = [{"model": model, "name": name} for model, name in sorted(news)]
        return answer({"unknown_models": sorted(unknown), "new_metrics": new_metrics})

    return await call.run(Bulkhead.READ, look, READ_SECONDS)


def _read(body: bytes) -> list[OutcomeEvent]:
    return read_outcome_batch(parse(body))
