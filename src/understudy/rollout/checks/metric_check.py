"""Metrics of an operator's own, asked beside the ticks: a source that hangs holds up no rollout, and no rollback.

Every minute each metric of a rollout is asked for both versions. What comes is stored with the rollout before it is
judged by, so that the next leader, the command line and the console judge by the same values. After a minute that could
not be read the next question asks for it again.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from understudy.background.tasks import end_tasks
from understudy.core.canary.evidence.check_input import Metrics
from understudy.core.canary.metric_limits import MetricLimit, query_of
from understudy.core.canary.metric_samples import (
    PAST_SECONDS,
    SAMPLE_SECONDS,
    SETTLE_SECONDS,
    MetricPoint,
    ReadProblem,
    problem_of,
    samples_of,
    segment_start,
)
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.rollout.state import Kind, RolloutState
from understudy.core.routing.policy import Role
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.metric_sources import MetricAnswer, MetricSources
from understudy.ports.rollout.rollout_store import RecordSeen, RolloutRecord, RolloutStore
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.rollout.analysis import policy_in
from understudy.rollout.checks.each_by_itself import EachByItself

_log = structlog.get_logger(__name__)

MAX_UNDER_WAY = 20
"""Questions to one source at the same time, of two queries each, so that one that hangs takes none of another's. Each
has its deadline, and the next tick begins others."""
_COUNTED = "metric_reads_total"
_OK, _EMPTY, _FAILED = "ok", "no_values", "unreadable"
_UNKNOWN = "unknown"
"""In the metric for every source that no setting has: plans choose names, and series are for ever."""


@dataclass(slots=True)
class _Known:
    """What is known of a rollout's metrics."""

    points: list[MetricPoint]
    samples: Metrics = ()
    since: float = -1.0
    """From when on ``samples`` count."""
    asked_until: dict[int, int] = field(default_factory=dict)
    """The end of the last minute that was asked for, by the metric's place in the plan, as those below."""
    read_until: dict[int, int] = field(default_factory=dict)
    """The end of the last one of these that could be read."""
    fresh: list[MetricPoint] = field(default_factory=list)
    """Read, and not stored yet."""
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    """Questions under way, by the metric's place in the plan."""

    def note(self, points: Iterable[MetricPoint]) -> None:
        """Take over what was asked for, and what could be read."""
        for one in points:
            if one.is_problem:
                self.asked_until[one.number] = max(self.asked_until.get(one.number, 0), one.at)
                if not problem_of(one).is_unreadable:
                    self.read_until[one.number] = max(self.read_until.get(one.number, 0), one.at)


class MetricCheck:
    """Asks for the metrics of open rollouts, and keeps what came.

    Args:
        store: The rollouts, and where the values are kept.
        sources: Where questions go.
        telemetry: Gets answers by source.
    """

    def __init__(self, store: RolloutStore, sources: MetricSources, telemetry: Telemetry) -> None:
        self._store = store
        self._sources = sources
        self._telemetry = telemetry
        self._known: dict[int, _Known] = {}
        self._under_way: Counter[str] = Counter()
        """Questions by source."""
        self._without: set[int] = set()
        """Open rollouts and guards that are judged by no metric, and never will be."""
        for name in (*sources.names, _UNKNOWN) if sources.names else ():
            for word in (_OK, _EMPTY, _FAILED):
                # A counter that first appears with 1 has not increased, for Prometheus.
                telemetry.count(_COUNTED, name, word, by=0)

    def latest(self, rollout_id: int) -> Metrics:
        """Return what is stored of a rollout's metrics, in the order of its plan; none before the first tick."""
        known = self._known.get(rollout_id)
        return () if known is None else known.samples

    async def tick(self, epoch: Epoch) -> None:
        """Store what has come, and begin the questions that are due; wait for none.

        Raises:
            LeadershipLost: Another monitor leads, which asks itself.
            Exception: The last failure, once all rollouts were looked at.
        """
        async with self._store.shared_session():
            await self._tick(epoch)

    async def _tick(self, epoch: Epoch) -> None:
        each = EachByItself()
        open_ids = await self._store.open_ids()
        self._forget_others(open_ids)
        for rollout_id in open_ids:
            if rollout_id in self._without:
                continue
            with each.one():
                await self._look(rollout_id, epoch)
        each.end()

    async def settle(self) -> None:
        """Wait for every question that is under way."""
        await asyncio.gather(*self._tasks())

    async def stop(self) -> None:
        """Break off what is under way, and forget all: the next leader reads what is stored, and asks for the rest."""
        await end_tasks(self._tasks())
        self._known.clear()

    def _tasks(self) -> Iterable[asyncio.Task[None]]:
        return [task for known in self._known.values() for task in known.tasks.values()]

    def _forget_others(self, open_ids: Collection[int]) -> None:
        self._without &= set(open_ids)
        for rollout_id in self._known.keys() - set(open_ids):
            for task in self._known.pop(rollout_id).tasks.values():
                task.cancel()

    async def _look(self, rollout_id: int, epoch: Epoch) -> None:
        seen = await self._store.record(rollout_id)
        state = seen.record.state
        if not has_metrics(state):
            if state.kind is Kind.ROLLOUT or state.step_starts:  # a guard gets its metrics as it begins
                self._without.add(rollout_id)
            return
        limits = metrics_wanted(state)
        if not limits:
            return
        since = segment_start(state.step_starts[0], seen.read_at)
        known = self._known.get(rollout_id)
        if known is None:
            points = await self._store.metric_points(seen.record, since - PAST_SECONDS)
            known = self._known[rollout_id] = _Known(list(points))
            known.note(points)
        if known.fresh:
            fresh, known.fresh = known.fresh, []
            try:
                await self._store.add_metric_points(seen.record, fresh, epoch=epoch)
            except BaseException:
                known.fresh = [*fresh, *known.fresh]
                raise
            newest = {(one.number, one.at, one.is_challenger, one.is_problem): one for one in (*known.points, *fresh)}
            known.points = [one for one in newest.values() if one.at >= since - PAST_SECONDS]
            known.since = -1.0
        if known.since != since:  # they change once a minute, and a tick comes every five seconds
            known.samples = samples_together(limits, known.points, since, seen.read_at)
            known.since = since
        for number, limit in enumerate(limits):
            self._begin(seen, number, limit, known, since)

    def _begin(self, seen: RecordSeen, number: int, limit: MetricLimit, known: _Known, since: float) -> None:
        """Begin a question for the minutes that were not read yet, where one has ended and none is under way."""
        end = int((seen.read_at - SETTLE_SECONDS) // SAMPLE_SECONDS * SAMPLE_SECONDS)
        if number in known.tasks or known.asked_until.get(number, 0) >= end:
            return
        if self._under_way[limit.source] >= MAX_UNDER_WAY:
            return
        read_until = known.read_until.get(number, 0)
        past = int((since - PAST_SECONDS) // SAMPLE_SECONDS + 1) * SAMPLE_SECONDS
        start = max(read_until + SAMPLE_SECONDS, past)
        begun = max(start, int(since // SAMPLE_SECONDS + 1) * SAMPLE_SECONDS)
        task = asyncio.create_task(self._ask(seen.record, number, limit, known, (start, min(begun, end), end)))
        known.tasks[number] = task
        self._under_way[limit.source] += 1

        def has_ended(_: asyncio.Task[None]) -> None:
            known.tasks.pop(number, None)
            self._under_way[limit.source] -= 1

        task.add_done_callback(has_ended)  # one that is cancelled before it begins runs no line of its own

    async def _ask(
        self, record: RolloutRecord, number: int, limit: MetricLimit, known: _Known, times: tuple[int, int, int]
    ) -> None:
        """Ask for both versions: for the champion's past as well, where it is not known."""
        start, begun, end = times
        state = record.state
        asked = ((Role.CHAMPION, state.champion, start), (Role.CHALLENGER, state.challenger, begun))
        queries = [
            (query_of(limit, model=state.model_name, version=version, role=role.value), since)
            for role, version, since in asked
        ]
        answers = await asyncio.gather(
            *(self._sources.read(limit.source, query, since, end) for query, since in queries)
        )
        problem = _together(answers)
        if not problem.is_unreadable:
            known.fresh += [
                MetricPoint(number, at, value, is_challenger=is_challenger)
                for is_challenger, answer in zip((False, True), answers, strict=True)
                for at, value in answer.values.items()
            ]
        come = MetricPoint(number, end, float(problem), is_challenger=True, is_problem=True)
        known.fresh.append(come)
        known.note([come])
        self._tell(record, limit, problem, answers)

    def _tell(
        self, record: RolloutRecord, limit: MetricLimit, problem: ReadProblem, answers: Sequence[MetricAnswer]
    ) -> None:
        word = _FAILED if problem.is_unreadable else _EMPTY if problem else _OK
        name = limit.source if limit.source in self._sources.names else _UNKNOWN
        self._telemetry.count(_COUNTED, name, word)
        if problem.is_unreadable:
            details = next((answer.detail for answer in answers if answer.detail), "")
            _log.warning(
                "rollout.metric_unreadable",
                rollout_id=record.id,
                metric=limit.name,
                source=limit.source,
                problem=problem.name.lower(),
                detail=details,
            )


def has_metrics(state: RolloutState) -> bool:
    """Whether a rollout's plan names metrics that its analysis judges."""
    return bool(state.plan.canary_limits.get("metrics")) and state.plan.canary_policy != SEED


def metrics_wanted(state: RolloutState) -> Sequence[MetricLimit]:
    """Return the metrics that a rollout is to be judged by now."""
    is_judged = bool(state.step_starts) and state.promoted_at is None and not state.phase.is_final
    return policy_in(state).metrics if is_judged and has_metrics(state) else ()


def samples_together(
    limits: Sequence[MetricLimit], points: Sequence[MetricPoint], since: float, until: float
) -> Metrics:
    """Return each metric's minutes from ``since`` on."""
    return tuple(samples_of(points, number, since, until) for number in range(len(limits)))


async def metrics_stored(store: RolloutStore, record: RolloutRecord, now: float) -> Metrics:
    """Return what a monitor has stored of a rollout's metrics; nothing where its plan names none.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    limits = metrics_wanted(record.state)
    if not limits:
        return ()
    since = segment_start(record.state.step_starts[0], now)
    return samples_together(limits, await store.metric_points(record, since - PAST_SECONDS), since, now)


def _together(answers: Sequence[MetricAnswer]) -> ReadProblem:
    """Return the problem of a question, given what came of the queries for champion and challenger."""
    for answer in answers:
        if answer.problem.is_unreadable:
            return answer.problem
    champion, challenger = (answer.problem for answer in answers)
    if champion and challenger:
        return ReadProblem.NO_SERIES if ReadProblem.NO_SERIES in {champion, challenger} else ReadProblem.NO_NUMBER
    if champion:
        is_series = champion is ReadProblem.NO_SERIES
        return ReadProblem.NO_SERIES_OF_CHAMPION if is_series else ReadProblem.NO_NUMBER_OF_CHAMPION
    if challenger:
        is_series = challenger is ReadProblem.NO_SERIES
        return ReadProblem.NO_SERIES_OF_CHALLENGER if is_series else ReadProblem.NO_NUMBER_OF_CHALLENGER
    return ReadProblem.NONE
