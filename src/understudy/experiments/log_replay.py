"""Logged inputs, sent to another version: what it answers to calls that are over. Nothing of it is written anywhere."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from shlex import quote
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from understudy.core.experiments.logged_calls import AdaptedInputs, Answer, adapt_inputs, answer_of
from understudy.core.experiments.replay_comparison import ReplayedCall, ReplayReport, compare_replay
from understudy.core.first_names import first_names
from understudy.core.requests.predict import PredictRequest
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.policy_document import version_from_row
from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.outputs import predictions_of
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.tensors import Row
from understudy.core.upstream.same_call import SameCall, same_call
from understudy.errors import (
    BackendUnavailable,
    BadAnswer,
    InputInvalid,
    SchemaInvalid,
    ServingError,
    UnderstudyError,
    Violation,
)
from understudy.ports.prediction_log.prediction_history import CallHistory, LoggedCall
from understudy.ports.registry.registry import Registry
from understudy.ports.upstream.model_backend import ConnectBackend, ModelBackend

READY_SECONDS = 2.0
_MAX_NAMED = 5
"""Inputs that one reason names."""


class ReplayWanted(NamedTuple):
    """What a caller asks for. Times are seconds since the epoch."""

    model_name: str
    version: str
    from_version: str | None
    """Only calls that this version answered; ``None``: that any other did."""
    since: float
    until: float
    at_most: int
    concurrency: int
    timeout_seconds: float | None
    """Of one call; ``None``: as long as the version may take."""
    within_seconds: float
    """For all of it, reading the log included."""


class ReplayQuestion(NamedTuple):
    """What is asked, with what the registry knows of it."""

    wanted: ReplayWanted
    version: ModelVersion
    labels: Mapping[int, str]
    """The model's versions by their ids."""
    input_schemas: Mapping[int, Mapping[str, Any]]
    """Of the versions whose calls are sent again, by their ids."""
    sample_percent: int
    """Of the entities, whose inputs are logged at present."""
    same_calls: Mapping[int, SameCall] = MappingProxyType({})
    """Of the versions whose calls are sent again, those that a model server may not tell from this one; by id."""

    @property
    def timeout_seconds(self) -> float:
        """How long one call may take."""
        return self.wanted.timeout_seconds or self.version.timeout_seconds


class ReplayFinding(NamedTuple):
    """The comparison and what it is of."""

    question: ReplayQuestion
    answered_by: Mapping[int, int]
    """Calls by the id of the version that answered them, the most first."""
    left_out: tuple[str, ...]
    """Logged inputs that the version does not take: it was asked without them."""
    defaulted: tuple[str, ...]
    """Inputs that the version before did not take: the version's defaults stood in."""
    report: ReplayReport


class _Prepared(NamedTuple):
    """A call that can be sent: its tensors, and what is known of it so far."""

    row: Row
    known: ReplayedCall


async def question_of(registry: Registry, wanted: ReplayWanted) -> ReplayQuestion:
    """Return the question.

    Raises:
        NotRegistered: There is no such model, or it has no such version.
        SchemaInvalid: The version's row cannot be used.
        RegistryUnavailable, MigrationNeeded: As the registry.
    """
    model = await registry.show_model(wanted.model_name)
    record = await registry.show_version(wanted.model_name, wanted.version)
    others = await registry.list_versions(wanted.model_name)
    asked = [other for other in others if other.id != record.id]
    if wanted.from_version is not None:
        asked = [await registry.show_version(wanted.model_name, wanted.from_version)]
    return ReplayQuestion(
        wanted,
        version_from_row(wanted.model_name, record._asdict()),
        {other.id: other.version for other in others},
        {other.id: other.input_schema for other in asked},
        model.policy.input_sample_percent if model.policy is not None else 0,
        {other.id: found for other in asked if other.id != record.id and (found := same_call(record, other))},
    )


async def replay_calls(
    question: ReplayQuestion,
    history: CallHistory,
    connect: ConnectBackend,
    now: Callable[[], float],
    on_calls: Callable[[int, int], None],
) -> ReplayFinding:
    """Send the newest logged inputs to the version, and return how its answers compare with those of then.

    ``on_calls`` gets how many calls are over, of how many. The model servers are closed at the end.

    Raises:
        BackendUnavailable: No model server of the version says that it is ready.
        RegistryUnavailable, MigrationNeeded: As the history.
    """
    deadline = now() + question.wanted.within_seconds
    wanted = question.wanted
    calls = await history.calls([*question.input_schemas], wanted.since, wanted.until, wanted.at_most)
    on_calls(0, len(calls))
    preparing = _Preparing(question)
    replayed: list[ReplayedCall] = []
    if calls and now() < deadline:
        backend = connect(question.version)
        try:
            await _see_that_it_is_ready(question, backend, min(READY_SECONDS, deadline - now()))
            asking = _Asking(question, backend, preparing, now)
            replayed = await asking.ask_all(calls, deadline - now(), on_calls)
        finally:
            await backend.close()
    counts = Counter(call.version_id for call in calls)
    report = compare_replay(replayed, len(calls) - len(replayed))
    return ReplayFinding(
        question,
        dict(counts.most_common()),
        tuple(sorted(preparing.left_out)),
        tuple(sorted(preparing.defaulted)),
        report._replace(sentence=report.sentence + _doubts(question, report, [*counts])),
    )


def _doubts(question: ReplayQuestion, report: ReplayReport, answered_by: Sequence[int]) -> str:
    """Return why the answers may be of one model both times, to follow a sentence; empty where nothing says so."""
    label = question.version.version
    doubts = []
    if report.is_identical and question.version.id not in answered_by:
        doubts.append(f"Every answer is the same to the last bit: is version {label} really another model?")
    same = [question.same_calls[version_id] for version_id in answered_by if version_id in question.same_calls]
    doubts += [f"But version {found.words}. {found.advice}" for found in same]
    return "".join(f" {doubt}" for doubt in doubts)


async def _see_that_it_is_ready(question: ReplayQuestion, backend: ModelBackend, timeout_seconds: float) -> None:
    if not await backend.ready(timeout_seconds):
        name, version = question.wanted.model_name, question.version.version
        raise BackendUnavailable(
            f"no model server of {name} {version} says that it is ready; nothing was sent",
            hint=f"understudy version show {quote(name)} {quote(version)} shows where they should be.",
        )


class _Asking:
    """Sends calls to the version, as the proxy would, each by itself, without cache and log."""

    def __init__(
        self, question: ReplayQuestion, backend: ModelBackend, preparing: "_Preparing", now: Callable[[], float]
    ) -> None:
        self._version = question.version
        self._timeout_seconds = question.timeout_seconds
        self._concurrency = question.wanted.concurrency
        self._backend = backend
        self._preparing = preparing
        self._now = now

    async def ask_all(
        self, calls: Sequence[LoggedCall], within_seconds: float, on_calls: Callable[[int, int], None]
    ) -> list[ReplayedCall]:
        """Return what became of each call until the time was over; those in flight then are not among them."""
        replayed: list[ReplayedCall] = []
        waiting = iter(calls)

        async def work() -> None:
            for call in waiting:
                replayed.append(await self._ask(call))
                on_calls(len(replayed), len(calls))

        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds), asyncio.TaskGroup() as workers:
                for _ in range(self._concurrency):
                    workers.create_task(work())
        return replayed

    async def _ask(self, call: LoggedCall) -> ReplayedCall:
        """Return the call with the version's answer, or why there is none."""
        prepared = self._preparing.prepare(call)
        if isinstance(prepared, ReplayedCall):
            return prepared
        version, known, began = self._version, prepared.known, self._now()
        try:
            tensor = await self._backend.infer([prepared.row], self._timeout_seconds)
            (found,) = predictions_of(version.output_schema, tensor, 1, batch=version.input_schema.batch)
        except ServingError as problem:
            return _failed(known, problem)
        if isinstance(found, BadAnswer):
            return _failed(known, found)
        answer = answer_of(found.json, found.score) or Answer(found.score)
        return known._replace(now=answer, seconds=self._now() - began)


class _Preparing:
    """Makes tensors of logged inputs; remembers which inputs the version does not take, and which were missing."""

    def __init__(self, question: ReplayQuestion) -> None:
        self._version = question.version
        self._documents = question.input_schemas
        self._schemas: dict[int, InputSchema | None] = {}
        self.left_out: set[str] = set()
        self.defaulted: set[str] = set()

    def prepare(self, call: LoggedCall) -> _Prepared | ReplayedCall:
        """Return the call as it can be sent, or with the reason why it cannot."""
        known = ReplayedCall(
            call.prediction_id,
            call.predicted_at,
            call.entity_id,
            call.version_id,
            None if call.answer is None else answer_of(call.answer, call.score),
        )
        if call.latency_us is not None:
            known = known._replace(then_seconds=call.latency_us / 1_000_000)
        if known.then is None:
            return known._replace(reason="what was answered then is neither a score nor a class, or is too long")
        adapted = adapt_inputs(self._version.input_schema, self._schema_of(call.version_id), orjson.loads(call.inputs))
        if adapted.unknown:
            return known._replace(reason=f"not in the log: {_named(adapted.unknown)}")
        return self._assembled(known, adapted)

    def _assembled(self, known: ReplayedCall, adapted: AdaptedInputs) -> _Prepared | ReplayedCall:
        self.left_out |= adapted.left_out
        self.defaulted |= adapted.defaulted
        try:
            assembled = PredictRequest(known.entity_id, adapted.values).assemble(self._version, None)
        except InputInvalid as problem:
            return _failed(known, problem, *problem.violations[:1])
        return _Prepared(assembled.row, known)

    def _schema_of(self, version_id: int) -> InputSchema | None:
        if version_id not in self._schemas:
            try:
                self._schemas[version_id] = compile_input_schema(self._documents[version_id])
            except SchemaInvalid:
                self._schemas[version_id] = None
        return self._schemas[version_id]


def _failed(known: ReplayedCall, problem: UnderstudyError, *violations: Violation) -> ReplayedCall:
    """Return a call that ended in an error; of one that says several things, with the first."""
    details = [f"{violation.pointer}: {violation.detail}" for violation in violations]
    return known._replace(code=problem.code, detail=details[0] if details else problem.detail)


def _named(names: Sequence[str]) -> str:
    return first_names(names, _MAX_NAMED)
