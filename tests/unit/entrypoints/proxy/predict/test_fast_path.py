"""Calls of one turn of the event loop: each is admitted, charged, read and answered as if it were alone."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest
from builders import a_version_row, an_input_schema, policy_rows
from worlds.connection import Peer
from worlds.proxy import Running

import understudy
from understudy.adapters.disk.spool import Spool
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

    assert b"There are " in answers.bodies["no such model"]
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


MAX_MODULES = 9
"""Of ours, that each call of a turn enters: all others are entered once for all of them."""
FEATURES = [{"name": "age", "dtype": "float32"}, {"name": "income", "dtype": "float32"}]
HEAD = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


async def functions_entered(peers: Iterable[Peer]) -> Counter[tuple[str, str]]:
    """Count the functions of ours, with their modules, that are entered for calls which arrive in one turn."""
    ours, entered, peers = str(Path(understudy.__file__).parent), Counter[tuple[str, str]](), list(peers)

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ours):
            entered[code.co_filename[len(ours) + 1 :], code.co_qualname] += 1

    sys.setprofile(count)
    try:
        for peer in peers:
            peer.transport.written = b""
            peer.send(HEAD % (TARGET, len(BODY)) + BODY)
        async with asyncio.timeout(10):
            while not all(peer.transport.written for peer in peers):  # noqa: ASYNC110 - a transport has no event
                await asyncio.sleep(0)
    finally:
        sys.setprofile(None)
    assert all(peer.transport.written.startswith(b"HTTP/1.1 200 ") for peer in peers)
    return entered


@pytest.mark.parametrize("cache_seconds", [0, 300], ids=["asked", "hit"])
async def test_a_further_call_of_a_turn_enters_few_modules(start: Any, tmp_path: Path, cache_seconds: int):
    version = a_version_row("1", input_schema=an_input_schema(features=FEATURES), cache_ttl_seconds=cache_seconds)
    spool = Spool(tmp_path / "spool", limit_bytes=1 << 24, segment_bytes=1 << 20, sync_seconds=1_000)
    proxy = await start(spool=spool, models={"visits": policy_rows(versions=[version])})
    peers = [Peer(proxy.state[FAST_PATH]) for _ in range(20)]
    for peer in peers:
        peer.connection.server_state = peers[0].server
    await functions_entered(peers)  # what is made for the first call is there from now on

    ten, twenty = await functions_entered(peers[:10]), await functions_entered(peers)
    spool.close()

    for_each = {module for (module, name), times in twenty.items() if times > ten[module, name]}
    assert "entrypoints/proxy/server/connection.py" in for_each
    assert len(for_each) <= MAX_MODULES, sorted(for_each)
