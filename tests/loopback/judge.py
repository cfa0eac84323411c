"""A judge over HTTP that has opinions, and misbehaves as told."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from loopback.receiver import HANG, Answer, ReceiverServer

Opinion = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From a question to the answer, whose id is added unless it has one."""


class JudgeServer(ReceiverServer):
    """Answers each question with its opinion: a tie at first."""

    def __init__(self) -> None:
        super().__init__()
        self.opinion: Opinion = lambda _: {"winner": "tie"}
        self.instead: Answer | str | None = None
        """What it answers in the place of any opinion: an answer, or ``HANG``."""

    @property
    def questions(self) -> list[dict[str, Any]]:
        """What it was asked, in order."""
        return [orjson.loads(body) for _, body in self.requests]

    async def _answer(self, event_id: str | None) -> Answer:
        if self.instead == HANG:
            await asyncio.sleep(60)
        if isinstance(self.instead, tuple):
            return self.instead
        question = orjson.loads(self.requests[-1][1])
        assert question["id"] == event_id
        return 200, "", orjson.dumps({"id": event_id, **self.opinion(question)})
