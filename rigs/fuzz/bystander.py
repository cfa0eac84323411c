"""A caller that means no harm: asks ``/livez`` and for predictions while others attack, and notes how long it takes.

A process of its own, so that it waits for nothing but the proxy and the machine.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from typing import Any

import orjson

from rigs.fuzz.answers import parse_head

PERIOD_SECONDS = 0.02
PREDICT_EVERY = 5
TIMEOUT_SECONDS = 20.0
READY = b"watching\n"
"""The first line on standard output; what was seen follows at the end."""


async def watch(port: int, echo_port: int, model: str, body: bytes) -> dict[str, Any]:
    """Ask until SIGTERM, or until the process that began it is gone.

    Return the seconds of each answer, and the statuses of predictions.

    With each ``/livez`` a process that does nothing else is asked the same: what it took is the machine's part.
    """
    stopped, parent = asyncio.Event(), os.getppid()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    predict = b"POST /v1/models/%b/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (
        model.encode(),
        len(body),
        body,
    )
    live = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
    caller, prober, twin = _Caller(port), _Caller(port), _Caller(echo_port)
    livez: list[tuple[float, float]] = []
    answers: list[tuple[int, float]] = []
    count = 0
    while not stopped.is_set() and os.getppid() == parent:
        await asyncio.sleep(PERIOD_SECONDS)
        (status, seconds), (_, machine_seconds) = await asyncio.gather(prober.ask(live), twin.ask(live))
        livez.append((machine_seconds, seconds if status == 200 else TIMEOUT_SECONDS))  # noqa: PLR2004 - alive
        count += 1
        if count % PREDICT_EVERY == 0:
            answers.append(await caller.ask(predict))
    return {"livez": livez, "predict": answers}


class _Caller:
    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, float]:
        """Return the status (0 for none) and the seconds until the answer was there."""
        began = time.monotonic()
        status = 0
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status = await self._ask(request)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            self._streams = None
        return status, time.monotonic() - began

    async def _ask(self, request: bytes) -> int:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        status, headers = parse_head((await reader.readuntil(b"\r\n\r\n"))[:-4])
        await reader.readexactly(int(headers["content-length"]))
        return status


def main() -> None:
    """Watch until SIGTERM, and write what was seen to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("echo_port", type=int)
    parser.add_argument("model")
    parser.add_argument("body")
    asked = parser.parse_args()
    seen = asyncio.run(watch(asked.port, asked.echo_port, asked.model, asked.body.encode()))
    sys.stdout.buffer.write(orjson.dumps(seen))


if __name__ == "__main__":
    main()
