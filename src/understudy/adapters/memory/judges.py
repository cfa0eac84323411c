"""The in-memory twin of judges."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from understudy.core.canary.judgement_records import JudgeOutcome
from understudy.ports.rollout.judges import JudgeAnswer

Opinion = Callable[[Mapping[str, Any]], float | JudgeOutcome | None]
"""Of a question: by how much the first answer is better, a problem, or ``None`` for no answer ever."""


class MemoryJudges:
    """Has an opinion on each question.

    Args:
        opinions: By judge.
    """

    def __init__(self, opinions: Mapping[str, Opinion]) -> None:
        self.opinions = dict(opinions)
        self.asked: list[Mapping[str, Any]] = []

    @property
    def names(self) -> frozenset[str]:
        """The judges that it knows."""
        return frozenset(self.opinions)

    async def ask(self, judge: str, question_id: str, body: bytes) -> JudgeAnswer:
        """Return what it was told."""
        question = orjson.loads(body)
        assert question["id"] == question_id
        self.asked.append(question)
        if judge not in self.opinions:
            return JudgeAnswer(JudgeOutcome.UNKNOWN_JUDGE, detail=f"there is no judge {judge}")
        found = self.opinions[judge](question)
        if found is None:
            await asyncio.Event().wait()
            raise AssertionError
        return JudgeAnswer(found) if isinstance(found, JudgeOutcome) else JudgeAnswer(JudgeOutcome.ANSWERED, found)

    async def close(self) -> None:
        """Do nothing: it has no connections."""
