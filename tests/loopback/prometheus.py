"""A server that speaks the part of Prometheus' HTTP API that metrics of plans need, and misbehaves as told."""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import orjson

from loopback.receiver import HANG, Answer, ReceiverServer

Value = Callable[[int], float | str | None]
"""Of a series at a moment; ``None`` leaves the moment out."""


class PrometheusServer(ReceiverServer):
    """Answers range queries: each with the series that it has, none at first."""

    def __init__(self) -> None:
        super().__init__()
        self.series: dict[str, list[Value]] = {}
        """By query."""
        self.instead: Answer | str | None = None
        """What it answers in the place of any series: an answer, or ``HANG``."""

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append((headers, body))
        if self.instead == HANG:
            await asyncio.sleep(60)
        status, more, said = self.instead if isinstance(self.instead, tuple) else self._range(first, body)
        writer.write(f"HTTP/1.1 {status} -\r\n{more}content-length: {len(said)}\r\n\r\n".encode() + said)
        await writer.drain()

    def _range(self, first: str, body: bytes) -> Answer:
        if first.split()[:2] != ["POST", "/api/v1/query_range"]:
            return 404, "", b"404 page not found\n"
        form = dict(parse_qsl(body.decode()))
        query, start, end, step = form["query"], int(form["start"]), int(form["end"]), int(form["step"])
        if query.count("(") != query.count(")"):
            return (
                400,
                "",
                _said(status="error", errorType="bad_data", error="1:8: parse error: unclosed left parenthesis"),
            )
        result = []
        for number, value in enumerate(self.series.get(query, ())):
            found = [[at, str(value(at))] for at in range(start, end + 1, step) if value(at) is not None]
            result += [{"metric": {"pod": f"p{number}"}, "values": found}] if found else []
        return 200, "", _said(status="success", data={"resultType": "matrix", "result": result})


def _said(**document: Any) -> bytes:
    return orjson.dumps(document)
