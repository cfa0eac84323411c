"""Asks the gates of rollouts beside the ticks: a service that hangs holds up no rollout, and no rollback.

One attempt at a time of each question; a question that nothing came of is asked again, later and later, with the same
key and the same body. What a service has decided is kept until the rollout has taken it: no later answer replaces it.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import orjson
import structlog

from understudy.background.tasks import end_tasks
from understudy.core.rollout.actions import AskGate
from understudy.core.rollout.gates import answer_of, next_ask_seconds, question_key, question_to_json, questions
from understudy.core.rollout.plan import GatePlace
from understudy.core.rollout.state import GateAnswer, RolloutState
from understudy.ports.rollout.gates import Gates
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

MAX_UNDER_WAY = 50
"""Attempts at the same time; each has its deadline, and the next tick begins others."""
_COUNTED = "gate_answers_total"
_WORDS = {True: "passes", False: "refuses", None: "none"}
_UNKNOWN = "unknown"
"""In the metric for every name that no setting has: plans choose names, and series are for ever."""


@dataclass(slots=True)
class _Question:
    """One question, and what came of it so far."""

    rollout_id: int
    attempts: int = 0
    not_before: float = 0.0
    answer: GateAnswer | None = None
    task: asyncio.Task[None] | None = None


class GateAsks:
    """Asks what ticks want asked, and keeps the answers for them.

    Args:
        gates: Where questions go.
        telemetry: Gets answers by gate.
        environment: This installation's name, which gates are told.
        now: The wall clock, in seconds since the epoch.
    """

    def __init__(
        self, gates: Gates, telemetry: Telemetry, environment: str, *, now: Callable[[], float] = time.time
    ) -> None:
        self._gates = gates
        self._telemetry = telemetry
        self._environment = environment
        self._now = now
        self._questions: dict[str, _Question] = {}
        for name in (*gates.names, _UNKNOWN) if gates.names else ():
            for word in _WORDS.values():
                # A counter that first appears with 1 has not increased, for Prometheus.
                telemetry.count(_COUNTED, name, word, by=0)

    def answers(self, state: RolloutState) -> Mapping[GatePlace, GateAnswer]:
        """Return what the gates before a rollout's next step have answered."""
        found = {}
        for ask in questions(state):
            question = self._questions.get(question_key(state, ask.place, self._environment))
            if question is not None and question.answer is not None:
                found[ask.place] = question.answer
        return found

    def ask(self, state: RolloutState, asks: Collection[AskGate]) -> None:
        """Begin an attempt of each question that is due and has no answer; wait for none."""
        for ask in asks:
            key = question_key(state, ask.place, self._environment)
            question = self._questions.setdefault(key, _Question(state.rollout_id))
            is_decided = question.answer is not None and question.answer.passes is not None
            if is_decided or question.task is not None or self._now() < question.not_before:
                continue
            if sum(one.task is not None for one in self._questions.values()) < MAX_UNDER_WAY:
                body = orjson.dumps(question_to_json(state, ask.place, self._environment))
                question.task = asyncio.create_task(self._attempt(ask.name, key, question, body))

    def forget_others(self, rollout_ids: Collection[int]) -> None:
        """Break off and forget the questions of all rollouts but these."""
        gone = [key for key, question in self._questions.items() if question.rollout_id not in rollout_ids]
        for key in gone:
            task = self._questions.pop(key).task
            if task is not None:
                task.cancel()

    async def settle(self) -> None:
        """Wait for every attempt that is under way."""
        await asyncio.gather(*self._tasks())

    async def stop(self) -> None:
        """Break off what is under way, and forget all answers: the next leader asks with the same keys."""
        await end_tasks(self._tasks())
        self._questions.clear()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [question.task for question in self._questions.values() if question.task is not None]

    async def _attempt(self, name: str, key: str, question: _Question, body: bytes) -> None:
        try:
            delivery = await self._gates.ask(name, key, body)
            question.attempts += 1
            question.answer = answer_of(delivery)
            question.not_before = self._now() + next_ask_seconds(question.attempts, delivery)
            word = _WORDS[question.answer.passes]
            self._telemetry.count(_COUNTED, name if name in self._gates.names else _UNKNOWN, word)
            _log.info(
                "rollout.gate_asked",
                rollout_id=question.rollout_id,
                gate=name,
                key=key,
                attempts=question.attempts,
                answer=word,
                detail=question.answer.detail,
            )
        finally:
            question.task = None
