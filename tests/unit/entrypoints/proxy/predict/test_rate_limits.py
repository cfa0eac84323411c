import asyncio
import time

import orjson
import pytest
from worlds.proxy import KEY, VISITOR

from understudy.core.routing.rate_limits import BURST_SECONDS

A, B = ([(b"authorization", f"Bearer {key['id']}.secret".encode())] for key in (KEY, VISITOR))
BODY = orjson.dumps({"entity_id": "u", "inputs": {"age": 30, "income": 1.5}})
LARGE = orjson.dumps({"entity_id": "u", "inputs": {"age": 30, "income": 1.5}, "context": "x" * 1_000_000})
PATH = "/v1/models/visits/predict"


def sized(headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
    return [*headers, (b"content-length", b"%d" % len(body))]


async def test_a_key_that_calls_too_often_is_told_when_to_come_again_and_others_go_on(start):
    proxy = await start(auth=True, key_calls_per_second=2)

    statuses = [(await proxy.ask(PATH, BODY, headers=A)).status for _ in range(60)]
    refused = await proxy.ask(PATH, BODY, headers=A)
    others = [(await proxy.ask(PATH, BODY, headers=B)).status for _ in range(10)]

    assert statuses[: int(2 * BURST_SECONDS)] == [200] * int(2 * BURST_SECONDS)
    assert statuses[-1] == refused.status == 429
    assert refused.headers[b"retry-after"].isdigit()
    assert orjson.loads(refused.body)["code"] == "E429"
    assert others == [200] * 10


async def test_a_tenant_that_sends_megabytes_is_refused_and_the_other_one_is_as_fast_as_before(start):
    proxy = await start(auth=True, key_bytes_per_second=20_000)

    async def answered_by_b() -> tuple[list[int], float]:
        began = time.perf_counter()
        answers = [await proxy.ask(PATH, BODY, headers=sized(B, BODY)) for _ in range(50)]
        return [answer.status for answer in answers], time.perf_counter() - began

    first = await proxy.ask(PATH, LARGE, headers=sized(A, LARGE))
    flood = await asyncio.gather(*(proxy.ask(PATH, LARGE, headers=sized(A, LARGE)) for _ in range(50)))
    statuses, _ = await answered_by_b()

    assert first.status != 429
    assert [answer.status for answer in flood] == [429] * 50
    assert statuses == [200] * 50


@pytest.mark.parametrize("said", [b"0" * 18 + b"%d", b"%d "])
async def test_a_length_is_charged_in_full_however_it_is_written(start, said):
    proxy = await start(auth=True, key_bytes_per_second=20_000)
    headers = [*A, (b"content-length", said % len(LARGE))]

    first = await proxy.ask(PATH, LARGE, headers=headers)
    second = await proxy.ask(PATH, LARGE, headers=headers)

    assert first.status != 429
    assert second.status == 429
    assert 40 <= int(second.headers[b"retry-after"]) <= 51  # a million bytes, at 20,000 a second


@pytest.mark.parametrize("verb", ["predict:batch", "versions/1/predict"])
async def test_every_way_to_predict_is_charged_once(start, verb):
    proxy = await start(auth=True, key_calls_per_second=0.3)
    body = orjson.dumps({"entities": [orjson.loads(BODY)]}) if verb == "predict:batch" else BODY

    statuses = [(await proxy.ask(f"/v1/models/visits/{verb}", body, headers=A)).status for _ in range(6)]

    assert statuses == [200, 200, 200, 429, 429, 429]


async def test_a_batch_is_charged_as_so_many_calls(start):
    proxy = await start(auth=True, key_calls_per_second=2)
    batch = orjson.dumps({"entities": [orjson.loads(BODY)] * 100})

    first = await proxy.ask("/v1/models/visits/predict:batch", batch, headers=A)
    second = await proxy.ask("/v1/models/visits/predict:batch", batch, headers=A)
    single = await proxy.ask(PATH, BODY, headers=A)
    others = await proxy.ask("/v1/models/visits/predict:batch", batch, headers=B)

    assert (first.status, second.status, single.status, others.status) == (200, 429, 429, 200)
    assert orjson.loads(first.body)["failed"] == 0
    assert 30 <= int(second.headers[b"retry-after"]) <= 41  # 100 of 20, at 2 a second


async def test_a_batch_that_cannot_be_read_is_charged_as_one_call(start):
    proxy = await start(auth=True, key_calls_per_second=0.3)

    statuses = [(await proxy.ask("/v1/models/visits/predict:batch", b"[]", headers=A)).status for _ in range(4)]

    assert statuses[:3] == [422, 422, 422]
    assert statuses[3] == 429


async def test_a_key_that_is_not_good_uses_up_nothing(start):
    proxy = await start(auth=True, key_calls_per_second=0.1)
    forged = [(b"authorization", f"Bearer {KEY['id']}.guess".encode())]

    refused = [(await proxy.ask(PATH, BODY, headers=forged)).status for _ in range(20)]

    assert refused == [401] * 20
    assert (await proxy.ask(PATH, BODY, headers=A)).status == 200
