"""The judge of a rollout's plan or of a guard, asked beside the ticks: one that hangs holds up no rollback.

Each question is stored with its cost before it is asked, so that a budget holds whichever monitor leads: what a leader
took with it is paid for and lost. Which of the two answers stands first is drawn by lot for each question.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from secrets import randbelow
from typing import Final

import structlog

from understudy.background.tasks import end_tasks
from understudy.core.canary.judge_limits import MICROS, BudgetStop, JudgeLimit
from understudy.core.canary.judge_question import question_to_json
from understudy.core.canary.judgement_records import (
    BOTH_WAYS_RATIO,
    FAILING_QUESTIONS,
    NO_JUDGEMENTS,
    Judgements,
    JudgeOutcome,
    JudgeQuestion,
    JudgeRecord,
    judgements_of,
)
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.rollout.state import Kind, RolloutState
from understudy.errors import LeadershipLost
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.judges import JudgeAnswer, Judges
from understudy.ports.rollout.rollout_store import NewQuestion, RecordSeen, RolloutRecord, RolloutStore
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.rollout.analysis import policy_in
from understudy.rollout.checks.answer_pairs import AnswerPair, AnswerPairs, Drawn
from understudy.rollout.checks.each_by_itself import EachByItself

_log = structlog.get_logger(__name__)

MAX_UNDER_WAY = 4
"""Questions of one rollout at the same time."""
MAX_ROUNDS = 10
"""Rollouts whose judges are asked at the same time; the next tick begins others."""
MAX_PAIRS = 40
"""Pairs of one round, whose inputs are sent to the challenger."""
IDLE_SECONDS = 60.0
"""How long until pairs are looked for again where there were none, or money; and a judge that fails is tried again."""
_MINUTE_SECONDS = 60.0
_COUNTED: Final = "judge_questions_total"
_UNKNOWN = "unknown"
"""In the metric for every judge that no setting has: plans choose names, and series are for ever."""
_STOPS = {BudgetStop.DAY: JudgeOutcome.MONEY_SPENT, BudgetStop.FULL: JudgeOutcome.FULL}
Draw = Callable[[], float]


def _by_lot() -> float:
    return randbelow(2**53) / 2**53


@dataclass(slots=True)
class _Known:
    """What is known of a rollout's judge."""

    questions: dict[int, JudgeQuestion]
    pairs: set[str]
    idle: JudgeOutcome | None
    judgements: Judgements = NO_JUDGEMENTS
    judged_from: tuple[int, int, JudgeOutcome | None] | None = None
    """What ``judgements`` were made of, as :meth:`standing` says; ``None`` while the time may change them as well."""
    unsettled: list[tuple[int, JudgeOutcome, float | None]] = field(default_factory=list)
    """Answers that Postgres did not take yet."""
    looked_at: float = 0.0
    """When pairs were looked for, or a judge that fails was tried, for the last time."""
    task: asyncio.Task[None] | None = None

    def standing(self) -> tuple[int, int, JudgeOutcome | None]:
        """Return how many questions there are, how many of them came to something, and why none is asked."""
        ended = sum(one.outcome is not None for one in self.questions.values())
        return len(self.questions), ended, self.idle

    def record(self) -> JudgeRecord:
        return JudgeRecord(list(self.questions.values()), self.idle)


@dataclass(frozen=True, slots=True)
class _Round:
    """A rollout's questions of a short time."""

    record: RolloutRecord
    limit: JudgeLimit
    known: _Known
    epoch: Epoch
    pairs: Iterator[AnswerPair]


class JudgeCheck:
    """Asks the judges of open rollouts, and keeps what they say.

    Args:
        store: The rollouts, and where questions are kept.
        judges: Who is asked.
        pairs: Where answers come from.
        telemetry: Gets questions by judge, what they cost, and how much the place counts.
        draw: Returns a number from 0 to below 1, which no judge can know before.
    """

    def __init__(
        self,
        store: RolloutStore,
        judges: Judges,
        pairs: AnswerPairs,
        telemetry: Telemetry,
        *,
        draw: Draw = _by_lot,
    ) -> None:
        self._store = store
        self._judges = judges
        self._pairs = pairs
        self._telemetry = telemetry
        self._draw = draw
        self._known: dict[int, _Known] = {}
        self._shown: dict[int, str] = {}
        """Models whose gauge is set, by rollout."""
        self._without: set[int] = set()
        """Open rollouts and guards that no judge looks at, and none ever will."""
        for name in (*judges.names, _UNKNOWN) if judges.names else ():
            telemetry.count("judge_cost_total", name, by=0)
            for outcome in JudgeOutcome:
                # A counter that first appears with 1 has not increased, for Prometheus.
                telemetry.count(_COUNTED, name, outcome.value, by=0)

    def latest(self, rollout_id: int) -> Judgements:
        """Return what a rollout's judge has said; nothing before the first tick."""
        known = self._known.get(rollout_id)
        return NO_JUDGEMENTS if known is None else known.judgements

    async def tick(self, epoch: Epoch) -> None:
        """Take what has come, and begin the rounds that are due; wait for none.

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
        """Wait for every round that is under way."""
        await asyncio.gather(*self._tasks())

    async def stop(self) -> None:
        """Break off what is under way, and forget all: the next leader reads what is stored, and goes on."""
        await end_tasks(self._tasks())
        self._forget_others(())

    def _tasks(self) -> Sequence[asyncio.Task[None]]:
        return [known.task for known in self._known.values() if known.task is not None]

    def _forget_others(self, open_ids: Collection[int]) -> None:
        self._without &= set(open_ids)
        for rollout_id in self._known.keys() - set(open_ids):
            task = self._known.pop(rollout_id).task
            if task is not None:
                task.cancel()
            if rollout_id in self._shown:
                self._telemetry.forget("judge_first_points_ratio", self._shown.pop(rollout_id))

    async def _look(self, rollout_id: int, epoch: Epoch) -> None:
        seen = await self._store.record(rollout_id)
        state = seen.record.state
        if not has_judge(state):
            if state.kind is Kind.ROLLOUT or state.step_starts:  # a guard gets its judge as it begins
                self._without.add(rollout_id)
            return
        limit = judge_wanted(state)
        if limit is None:
            return
        known = self._known.get(rollout_id)
        if known is None:
            stored = await self._store.judge_record(seen.record)
            pairs = {one.pair for one in stored.questions}
            known = self._known[rollout_id] = _Known({one.id: one for one in stored.questions}, pairs, stored.idle)
        standing = known.standing()
        if standing != known.judged_from:
            known.judgements = await asyncio.to_thread(judgements_of, known.record(), seen.read_at)
            known.judged_from = standing if standing[0] == standing[1] else None
        self._show(rollout_id, state.model_name, known.judgements)
        if known.task is None and len(self._tasks()) < MAX_ROUNDS and (room := _room(known, limit, seen.read_at)):
            self._begin(seen, limit, known, room, epoch)

    def _begin(self, seen: RecordSeen, limit: JudgeLimit, known: _Known, room: int, epoch: Epoch) -> None:
        known.looked_at = seen.read_at
        known.task = asyncio.create_task(self._round(seen, limit, known, room, epoch))

        def has_ended(_: asyncio.Task[None]) -> None:
            known.task = None

        known.task.add_done_callback(has_ended)

    async def _round(self, seen: RecordSeen, limit: JudgeLimit, known: _Known, room: int, epoch: Epoch) -> None:
        """Draw pairs and ask about them; whatever goes wrong, the next round tries again."""
        try:
            async with self._store.shared_session():
                await self._settle_late(known, epoch)
                drawn = await self._drawn(seen, limit, known, room)
                round_ = _Round(seen.record, limit, known, epoch, iter(drawn.pairs[:room]))
                await self._note(round_, drawn)
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(room, MAX_UNDER_WAY)):
                        workers.create_task(self._work(round_))
        except* LeadershipLost:
            pass  # the next tick says so
        except* Exception as problems:  # noqa: BLE001 - a round is beside the ticks, which go on
            said = "; ".join(f"{type(one).__name__}: {one}" for one in problems.exceptions)
            _log.warning("rollout.judge_not_asked", rollout_id=seen.record.id, judge=limit.name, problem=said)

    async def _drawn(self, seen: RecordSeen, limit: JudgeLimit, known: _Known, room: int) -> Drawn:
        """Return pairs to ask about; the challenger is sent nothing that no question could follow."""
        if limit.name not in self._judges.names:
            return Drawn(idle=JudgeOutcome.UNKNOWN_JUDGE)
        stop = await self._store.judge_budget(seen.record, limit)
        if stop is not None:
            return Drawn(idle=_STOPS.get(stop, known.idle))
        return await self._pairs.draw(seen.record, limit, known.pairs, room, seen.read_at)

    async def _note(self, round_: _Round, drawn: Drawn) -> None:
        """Store why there is nothing to ask, where that has changed."""
        if drawn.idle is not round_.known.idle:
            await self._store.set_judge_idle(round_.record, round_.limit, drawn.idle, epoch=round_.epoch)
            round_.known.idle = drawn.idle

    async def _work(self, round_: _Round) -> None:
        for pair in round_.pairs:
            if pair.champion == pair.challenger:
                await self._tie(round_, pair)
                continue
            is_challenger_first = self._draw() < 1 / 2
            orders = [is_challenger_first]
            if self._draw() < BOTH_WAYS_RATIO:
                orders.append(not is_challenger_first)
            # All are stored before one is asked: no look may see a pair of which a half is still to come.
            reserved = [await self._reserve(round_, pair, is_challenger_first=order) for order in orders]
            questions = [one for one in reserved if isinstance(one, JudgeQuestion)]
            for question in questions:
                await self._ask(round_, pair, question)
            if _is_over(reserved) or _failing(round_.known) >= FAILING_QUESTIONS:
                return

    async def _tie(self, round_: _Round, pair: AnswerPair) -> None:
        new = NewQuestion(pair.pair, False, pair.entity_bucket, pair.prediction_id)
        added = await self._store.add_tie(round_.record, round_.limit, new, epoch=round_.epoch)
        round_.known.pairs.add(pair.pair)
        if added is not None:
            round_.known.questions[added.id] = added
            self._count(round_.limit, JudgeOutcome.EQUAL)

    async def _reserve(
        self, round_: _Round, pair: AnswerPair, *, is_challenger_first: bool
    ) -> JudgeQuestion | BudgetStop:
        known, limit = round_.known, round_.limit
        new = NewQuestion(pair.pair, is_challenger_first, pair.entity_bucket, pair.prediction_id)
        reserved = await self._store.reserve_question(round_.record, limit, new, epoch=round_.epoch)
        known.pairs.add(pair.pair)
        if isinstance(reserved, BudgetStop):
            if reserved in _STOPS:
                await self._note(round_, Drawn(idle=_STOPS[reserved]))
            return reserved
        known.questions[reserved.id] = reserved
        self._telemetry.count("judge_cost_total", self._label(limit), by=reserved.cost_micros / MICROS)
        return reserved

    async def _ask(self, round_: _Round, pair: AnswerPair, question: JudgeQuestion) -> None:
        answer = await self._said(round_, pair, question)
        difference = answer.difference
        if difference is not None and not question.is_challenger_first:
            difference = -difference
        round_.known.unsettled.append((question.id, answer.outcome, difference))
        await self._settle_late(round_.known, round_.epoch)

    async def _said(self, round_: _Round, pair: AnswerPair, question: JudgeQuestion) -> JudgeAnswer:
        record, limit = round_.record, round_.limit
        first, second = pair.champion, pair.challenger
        if question.is_challenger_first:
            first, second = second, first
        question_id = f"judge_{question.id}"
        body = question_to_json(question_id, record.state.model_name, pair.inputs, first, second)
        answer = await self._judges.ask(limit.name, question_id, body)
        self._count(limit, answer.outcome)
        if answer.detail:
            said = {"problem": answer.outcome.value, "detail": answer.detail}
            _log.warning("rollout.judge_unanswered", rollout_id=record.id, judge=limit.name, **said)
        return answer

    async def _settle_late(self, known: _Known, epoch: Epoch) -> None:
        """Store the answers that are not stored yet; they count from then on."""
        while known.unsettled:
            question_id, outcome, difference = known.unsettled.pop()
            try:
                at = await self._store.settle_question(question_id, outcome, difference, epoch=epoch)
            except BaseException:
                known.unsettled.append((question_id, outcome, difference))
                raise
            if at is not None and question_id in known.questions:
                question = known.questions[question_id]
                known.questions[question_id] = question._replace(outcome=outcome, difference=difference, answered_at=at)

    def _count(self, limit: JudgeLimit, outcome: JudgeOutcome) -> None:
        self._telemetry.count(_COUNTED, self._label(limit), outcome.value)

    def _label(self, limit: JudgeLimit) -> str:
        return limit.name if limit.name in self._judges.names else _UNKNOWN

    def _show(self, rollout_id: int, model_name: str, seen: Judgements) -> None:
        if seen.answered:
            self._shown[rollout_id] = model_name
            self._telemetry.set("judge_first_points_ratio", seen.first_points / seen.answered, model_name)


def _is_over(reserved: Sequence[JudgeQuestion | BudgetStop]) -> bool:
    return any(isinstance(one, BudgetStop) and one is not BudgetStop.KNOWN for one in reserved)


def _failing(known: _Known) -> int:
    """Return how many of the newest questions came to nothing."""
    count = 0
    for question in reversed(known.questions.values()):
        if question.outcome is JudgeOutcome.ANSWERED:
            break
        count += question.outcome is not None and not question.outcome.is_settled
    return count


def _room(known: _Known, limit: JudgeLimit, now: float) -> int:
    """Return how many pairs the next round may have: 0 where none is due. The store has the last word."""
    is_failing = known.judgements.failing >= FAILING_QUESTIONS
    if (known.idle is not None or is_failing) and now - known.looked_at < IDLE_SECONDS:
        return 0
    asked = [one for one in known.questions.values() if one.outcome is not JudgeOutcome.EQUAL]
    lately = sum(now - one.asked_at < _MINUTE_SECONDS for one in asked)
    room = min(limit.calls_per_minute - lately, MAX_PAIRS)
    return min(room, 1) if is_failing else max(room, 0)


def has_judge(state: RolloutState) -> bool:
    """Whether a rollout's plan names a judge that its analysis listens to."""
    return bool(state.plan.canary_limits.get("judge")) and state.plan.canary_policy != SEED


def judge_wanted(state: RolloutState) -> JudgeLimit | None:
    """Return the judge that a rollout is to be judged by now."""
    is_judged = bool(state.step_starts) and state.promoted_at is None and not state.phase.is_final
    return judge_of(state) if is_judged else None


def judge_of(state: RolloutState) -> JudgeLimit | None:
    """Return the judge that a rollout's plan names; ``None`` where it names none."""
    return policy_in(state).judge if has_judge(state) else None


async def judgements_stored(store: RolloutStore, record: RolloutRecord, now: float) -> Judgements:
    """Return what a monitor has stored of a rollout's judge; nothing where its plan names none.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    if judge_wanted(record.state) is None:
        return NO_JUDGEMENTS
    return judgements_of(await store.judge_record(record), now)
