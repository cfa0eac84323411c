"""Calls of one turn of the event loop: each is admitted, charged, read and answered as if it were alone."""

import asyncio
from collections import Counter
from typing import Any

import orjson
import pytest
from proxy_world import Running

from understudy.core.routing.rate_limits import BURST_SECONDS
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH

TARGET = b"/v1/models/visits/predict"
OPS, UNKNOWN = b"Bearer ops.secret", b"Bearer nobody.secret"
VISITOR = b"Bearer visitor.secret"
BODY = orjson.dumps({"entity_id": "u", "inputs": {"age": 30, "income": 1.5}})


class Answers:
    """What calls were answered, by their names."""

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.bodies: dict[str, bytes] = {}
        self.come = asyncio.Event()

    def offer(self, proxy: Running, name: str, key: bytes | None, body: bytes = BODY, target: bytes = TARGET) -> None:
        headers = {b"content-length": b"%d" % len(body), **({} if key is None else {b"authorization": key})}
        assert proxy.state[FAST_PATH].offer(target, headers.items(), body, _Writer(self, name))

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.statuses) < count:
                self.come.clear()
                await self.come.wait()


class _Writer:
    def __init__(self, answers: Answers, name: str) -> None:
        self._answers, self._name = answers, name

    def answer(self, status: int, _lines: bytes, body: bytes) -> None:
        assert self._name not in self._answers.statuses
        self._answers.statuses[self._name], self._answers.bodies[self._name] = status, body
        self._answers.come.set()


async def test_each_call_of_a_turn_has_its_own_answer(start: Any):
    proxy, answers = await start(auth=True), Answers()

    answers.offer(proxy, "good", OPS)
    answers.offer(proxy, "unknown key", UNKNOWN)
    answers.offer(proxy, "good again", OPS)
    answers.offer(proxy, "no key", None)
    answers.offer(proxy, "no JSON", OPS, b"{")
    answers.offer(proxy, "no such model", OPS, target=b"/v1/models/none/predict")
    answers.offer(proxy, "other model", VISITOR, target=b"/v1/models/split/predict")
    answers.offer(proxy, "other scope", VISITOR)
    answers.offer(proxy, "good at last", OPS)
    before = dict(answers.statuses)
    await answers.until(9)

    assert before == {}
    assert answers.statuses == {
        "good": 200,
        "unknown key": 401,
        "good again": 200,
        "no key": 401,
        "no JSON": 400,
        "no such model": 404,
        "other model": 403,
        "other scope": 200,
        "good at last": 200,
    }
    assert len(proxy.spool.rows) == 4


async def test_each_call_of_a_turn_is_charged(start: Any):
    proxy, answers = await start(auth=True, key_calls_per_second=2), Answers()

    for number in range(30):
        answers.offer(proxy, f"{number}", OPS)
    answers.offer(proxy, "another key", VISITOR)
    await answers.until(31)

    of_the_key = Counter(status for name, status in answers.statuses.items() if name.isdigit())
    assert of_the_key == {200: 2 * BURST_SECONDS, 429: 30 - 2 * BURST_SECONDS}
    assert answers.statuses["another key"] == 200


@pytest.mark.deep
async def test_each_call_of_a_turn_is_answered_with_its_own_score(start: Any):
    proxy, answers = await start(auth=True), Answers()
    bodies = [orjson.dumps({"entity_id": "u", "inputs": {"age": number, "income": 1.5}}) for number in range(12)]
    proxy.backends["1"].delay_seconds = 0.01
    for number, body in enumerate(bodies):
        answers.offer(proxy, f"{number}", OPS, body)
    await answers.until(12)

    scores = [orjson.loads(answers.bodies[f"{number}"])["prediction"]["score"] for number in range(12)]
    assert scores == [(number + 1.5) / 2 for number in range(12)]
