"""A call whose row the disk does not take: answered without a row, or refused with E508, by each way of calling."""

import re
from collections.abc import Callable

import httpx2
import pytest
from builders import KeptRows, a_version_row, policy_rows
from integration.entrypoints.test_fast_path import port_of, serving
from worlds.proxy import Running

from understudy.core.prediction_log.row import PredictionRow
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH

BODY = {"entity_id": "a", "inputs": {"age": 41, "income": 2}}


# Without a look-up in the cache a call takes the callbacks to its end, where the fast path takes it.
UNCACHED = {"visits": policy_rows(versions=[a_version_row("1", deterministic=False, timeout_ms=10_000)])}


class FullSpool(KeptRows):
    """A spool whose disk is full while the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = True

    def append(self, row: PredictionRow) -> bool:
        return not self.is_full and super().append(row)


class LateSpool(KeptRows):
    """A spool whose disk hangs in each sync."""

    def sync(self, _on_synced: Callable[[bool], None]) -> None:
        pass


def counted(proxy: Running) -> dict[str, float]:
    """Return the champion's calls by outcome."""
    page = proxy.telemetry.exposition()[0].decode()
    found = re.findall(r'^predict_requests_total\{.*outcome="(\w+)",role="champion".*\} (\S+)$', page, re.MULTILINE)
    return {outcome: float(calls) for outcome, calls in found}


@pytest.mark.parametrize("way", ["fast", "asgi"])
@pytest.mark.parametrize(("when_full", "status"), [("drop", 200), ("refuse", 503)])
async def test_a_call_whose_row_is_dropped_is_answered_or_refused_with_a_receipt_and_the_next_one_is_logged(
    start, way, when_full, status
):
    spool = FullSpool()
    proxy = await start(spool=spool, spool_full=when_full, models=UNCACHED)
    state = {FAST_PATH: proxy.state[FAST_PATH]} if way == "fast" else {}

    async with serving(proxy.app, state) as server, httpx2.AsyncClient(timeout=10) as client:
        url = f"http://127.0.0.1:{port_of(server)}/v1/models/visits/predict"
        full = await client.post(url, json=BODY)
        spool.is_full = False
        logged = await client.post(url, json=BODY)

    assert (full.status_code, logged.status_code) == (status, 200)
    assert full.headers["x-prediction-id"]
    assert len(spool.rows) == 1
    assert counted(proxy) == ({"ok": 1, "unavailable": 1} if when_full == "refuse" else {"ok": 2})
    if status == 503:
        assert full.json()["code"] == "E508"
        assert full.headers["retry-after"] == "1"
        assert "prediction" not in full.json()


@pytest.mark.parametrize("way", ["fast", "asgi"])
@pytest.mark.parametrize(("when_full", "outcomes"), [("drop", {"ok": 1}), ("refuse", {"unavailable": 1})])
async def test_a_call_whose_sync_is_late_is_counted_as_it_was_answered(start, way, when_full, outcomes):
    late = {"spool_sync": "answer", "spool_sync_seconds": 0.02}
    proxy = await start(spool=LateSpool(), spool_full=when_full, models=UNCACHED, **late)
    state = {FAST_PATH: proxy.state[FAST_PATH]} if way == "fast" else {}

    async with serving(proxy.app, state) as server, httpx2.AsyncClient(timeout=10) as client:
        answer = await client.post(f"http://127.0.0.1:{port_of(server)}/v1/models/visits/predict", json=BODY)

    assert answer.status_code == (200 if when_full == "drop" else 503)
    assert counted(proxy) == outcomes


async def test_each_member_of_a_batch_is_refused_by_itself(start):
    spool = FullSpool()
    proxy = await start(spool=spool, spool_full="refuse")

    async with serving(proxy.app, {}) as server, httpx2.AsyncClient(timeout=10) as client:
        url = f"http://127.0.0.1:{port_of(server)}/v1/models/visits/predict:batch"
        answer = await client.post(url, json={"entities": [BODY, {**BODY, "entity_id": "b"}]})

    assert answer.status_code == 200
    assert answer.json()["failed"] == 2
    assert [member["error"]["code"] for member in answer.json()["predictions"]] == ["E508", "E508"]


async def test_a_call_that_fails_anyway_keeps_its_own_error(start):
    proxy = await start(spool=FullSpool(), spool_full="refuse")
    proxy.backends["1"].error = ConnectionError("gone")

    async with serving(proxy.app, {}) as server, httpx2.AsyncClient(timeout=10) as client:
        answer = await client.post(f"http://127.0.0.1:{port_of(server)}/v1/models/visits/predict", json=BODY)

    assert answer.json()["code"] != "E508"
