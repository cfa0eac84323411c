"""A receiver of notifications that misbehaves as told: a real HTTP server, which keeps what it took by its id."""

import asyncio
import contextlib
import os
import signal
import ssl
from typing import Any, Self

import orjson

HANG, KILL = "hang", "kill"
Answer = tuple[int, str, bytes]
"""Status, further headers, body; of a body that is shorter than its content-length the rest never comes."""


class ReceiverServer:
    """Answers as told, in order, and then 202; over TLS where it has a context for that."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.script: list[Any] = []
        """``HANG``, ``KILL``, or an :data:`Answer`."""
        self.by_path: dict[str, Answer] = {}
        """What a path answers, whatever the script says."""
        self.victim: int | None = None
        """Which process dies on ``KILL``: after the event was taken, and before the process hears of it."""
        self.requests: list[tuple[dict[str, str], bytes]] = []
        """Headers and body of every request, in order."""
        self.taken: list[str] = []
        """Ids of the events that were answered with 2xx, or taken before a kill."""
        self.arrived = asyncio.Event()
        self.url = ""
        self.connections = 0
        """How many were made."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The bodies, each once, in the order in which they first came."""
        return list({body["id"]: body for body in map(orjson.loads, self._bodies)}.values())

    @property
    def _bodies(self) -> list[bytes]:
        return [body for _, body in self.requests]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    await self._exchange(reader, writer)
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        self.requests.append((headers, await reader.readexactly(int(headers["content-length"]))))
        self.arrived.set()
        known = self.by_path.get(first.split()[1])
        status, more, said = known or await self._answer(headers.get("idempotency-key"))
        length = "" if "content-length" in more else f"content-length: {len(said)}\r\n"
        writer.write(f"HTTP/1.1 {status} -\r\n{more}{length}\r\n".encode() + said)
        await writer.drain()

    async def _answer(self, event_id: str | None) -> Answer:
        told = self.script.pop(0) if self.script else None
        if told == HANG:
            await asyncio.sleep(60)
            raise ConnectionError
        if isinstance(told, tuple):
            return told
        if event_id is not None:
            self.taken.append(event_id)
        if told == KILL:
            assert self.victim is not None
            os.kill(self.victim, signal.SIGKILL)
        return 202, "", b""
