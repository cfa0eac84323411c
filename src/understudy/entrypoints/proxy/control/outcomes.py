"""``POST /v1/outcomes``: callers report what happened after the answers (ground truth)."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection

import orjson
import structlog

from understudy.background.thread_bulkhead import ThreadBulkhead
from understudy.bootstrap.session import Session
from understudy.core.experiments.outcome_events import OutcomeEvent, read_outcome_batch
from understudy.core.requests.strict_json import parse
from understudy.entrypoints.proxy.control.bodies import OutcomeQuestion
from understudy.entrypoints.proxy.control.handler import READ_SECONDS, Bulkhead, ControlCall, answer
from understudy.entrypoints.proxy.messages.reply import JSON, HttpCall, Reply
from understudy.errors import RegistryError, RegistryUnavailable, ScopeMissing, UnderstudyError
from understudy.experiments.outcome_intake import add_outcomes
from understudy.ports.experiments.outcome_store import OutcomeResult, OutcomeStore

_log = structlog.get_logger(__name__)
_NOT_STORED = "the outcomes cannot be stored now"
_AGAIN = "Send the same batch again after Retry-After: each event counts once."
NAMES_SECONDS = 1.0
"""Longest time of the question whether names of outcomes are new; events are stored without its answer."""
MAX_NAMES = 10_000
"""Names that a process keeps; then it asks again."""

Metric = tuple[str, str]
"""A model, and the name of its outcomes."""
AskNames = Callable[[Collection[Metric]], Awaitable[frozenset[Metric]]]


class KnownNames:
    """Names of outcomes that this process has stored events of: Postgres is asked about each once."""

    def __init__(self) -> None:
        self._known: set[Metric] = set()

    async def new(self, metrics: Collection[Metric], ask: AskNames) -> frozenset[Metric] | None:
        """Return which of them had no event before; ``None`` where that is not known in time."""
        asked = frozenset(metrics) - self._known
        try:
            return await ask(asked) if asked else asked
        except UnderstudyError as problem:
            _log.info("outcomes.names_not_asked", code=problem.code, why=problem.detail)
            return None

    def stored(self, metrics: Collection[Metric]) -> None:
        """Say that these have events from now on."""
        if len(self._known) > MAX_NAMES:
            self._known.clear()
        self._known.update(metrics)


def ask_names(call: ControlCall) -> AskNames:
    """Return what asks under the control plane's login: a proxy's own may store events, and not read their names."""

    async def ask(metrics: Collection[Metric]) -> frozenset[Metric]:
        return await call.run(Bulkhead.READ, lambda parts: parts.outcomes.new_metrics(metrics), NAMES_SECONDS)

    return ask


async def receive_outcomes(
    call: HttpCall,
    store: OutcomeStore,
    bodies: ThreadBulkhead,
    permitted: frozenset[str] | None,
    *,
    names: KnownNames,
    ask: AskNames,
) -> Reply:
    """Return 202 once every event of the body is stored; without a 202 the caller repeats the body (idempotent).

    A name of which a model had no outcome before is named in the answer: it may be misspelt. ``permitted`` are the
    models of which the caller may report outcomes; ``None``: all.

    Raises:
        MalformedBody, BodyTooLarge, RequestTimedOut: The body cannot be read.
        Overloaded: Too many long bodies wait for the body parser pool.
        ScopeMissing: An event is of another model; nothing was stored.
        BatchInvalid: Names the unusable places of the body, the first 1,000, also models that are not registered and
            times in the future; nothing was stored.
        RegistryUnavailable: Postgres is unavailable or unfit; the cause is in the log, not in the answer.
    """
    outcomes = await bodies.run(_read, await call.read_body())
    metrics = {(outcome.model_name, outcome.name) for outcome in outcomes}
    may_ask = permitted is None or permitted >= {model for model, _ in metrics}
    new = await names.new(metrics, ask) if may_ask else None
    try:
        added = await add_outcomes(store, outcomes, permitted, now=time.time())
    except RegistryError as problem:
        _log.warning("outcomes.not_stored", code=problem.code, why=problem.detail)
        raise RegistryUnavailable(_NOT_STORED, hint=_AGAIN) from problem
    names.stored(metrics)
    counts = Counter(result for _, result in added)
    content = {
        "results": [{"event_id": event_id, "result": result.value} for event_id, result in added],
        **{result.value: counts[result] for result in OutcomeResult},
        **({} if new is None else _told(new)),
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
        return answer({"unknown_models": sorted(unknown), **_told(news)})

    return await call.run(Bulkhead.READ, look, READ_SECONDS)


def _told(new: Collection[Metric]) -> dict[str, list[dict[str, str]]]:
    return {"new_metrics": [{"model": model, "name": name} for model, name in sorted(new)]}


def _read(body: bytes) -> list[OutcomeEvent]:
    return read_outcome_batch(parse(body))
