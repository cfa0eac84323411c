"""The port that takes webhooks: what wakes the looks, what does not, and that no sender holds it up."""

import asyncio
import time

import pytest
from unit.core.rollout.sources.test_source_webhook import BODY, MLFLOW, OCI, SECRET, signed

from understudy.entrypoints.cli.source.webhooks import MAX_BODY, MAX_OPEN, webhook_port

SOON = 0.2
"""How long a request may take here."""


def request(body: bytes, headers: dict[str, str], *, method: str = "POST", length: str | None = None) -> bytes:
    named = {"content-length": str(len(body)) if length is None else length, **headers}
    lines = [f"{method} / HTTP/1.1", "host: hooks", *(f"{name}: {value}" for name, value in named.items() if value)]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


async def answered(port: int, sent: bytes) -> int:
    """Return the status of an answer; 0: the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        line = await reader.readline()
        return int(line.split()[1]) if line else 0
    except ConnectionResetError:
        return 0
    finally:
        writer.close()


def now_signed(body: bytes = BODY) -> dict[str, str]:
    return signed(body, at=time.time())


async def test_each_kind_of_registry_wakes_the_looks_by_its_own_proof_and_one_sent_again_only_wakes_them_again():
    woken: list[None] = []
    async with webhook_port("127.0.0.1", 0, [MLFLOW, OCI], lambda: woken.append(None)) as port:
        from_mlflow = request(BODY, now_signed())
        statuses = [await answered(port, from_mlflow), await answered(port, from_mlflow)]
        statuses.append(await answered(port, request(b"{}", {"authorization": f"Bearer {SECRET}"})))

    assert statuses == [204] * 3
    assert len(woken) == 3


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(BODY, {}), 401),
        (request(BODY, {"authorization": "Bearer another"}), 401),
        (request(BODY, signed(BODY, at=time.time() - 3_600)), 401),
        (request(BODY, signed(BODY, at=time.time() + 3_600)), 401),
        (request(BODY + b" ", now_signed()), 401),
        (request(BODY, now_signed(), method="GET"), 405),
        (request(BODY, now_signed(), length=""), 411),
        (request(BODY, {**now_signed(), "transfer-encoding": "chunked"}, length=""), 411),
        (request(BODY, now_signed(), length="-1"), 413),
        (request(BODY, now_signed(), length=str(MAX_BODY + 1)), 413),
        (request(BODY, now_signed(), length="9" * 5_000), 413),
        (request(BODY, now_signed(), length="\xb2"), 413),
        (request(BODY, {**now_signed(), "x-long": "x" * 40_000}), 503),
        (request(BODY, now_signed(), length="60000"), 503),
        (b"POST / HTTP/1.1\r\n", 503),
        (b"\x16\x03\x01\x02\x00", 503),
        (b"", 503),
    ],
)
async def test_anything_else_wakes_nothing_and_is_answered_in_time(sent: bytes, status: int):
    woken: list[None] = []
    async with webhook_port("127.0.0.1", 0, [MLFLOW, OCI], lambda: woken.append(None), request_seconds=SOON) as port:
        found = await answered(port, sent)

    assert found in (status, 0)  # what is closed with unread bytes may be reset before its answer is read
    assert woken == []


async def test_senders_that_send_nothing_do_not_keep_others_out_for_longer_than_a_request_may_take():
    woken: list[None] = []
    async with webhook_port("127.0.0.1", 0, [MLFLOW], lambda: woken.append(None), request_seconds=SOON) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_OPEN)]
        give_up = time.monotonic() + 30
        while await answered(port, request(BODY, now_signed())) != 204:
            assert time.monotonic() < give_up
        for _, writer in idle:
            writer.close()

    assert len(woken) == 1
