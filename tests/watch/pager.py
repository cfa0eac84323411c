"""A receiver that takes what PagerDuty's Events API v2 takes, refuses what that refuses, and keeps its incidents."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, NamedTuple

SEVERITIES = {"critical", "error", "warning", "info"}


class Told(NamedTuple):
    """One event; ``at`` is of the monotonic clock."""

    at: float
    action: str
    key: str
    event: dict[str, Any]

    @property
    def alert(self) -> str:
        """The alert's name, which is the incident's class."""
        return str(self.event.get("payload", {}).get("class", ""))


@dataclass
class Pager:
    """What was told, by road: ``events`` are PagerDuty's, ``channel`` is what a chat gets."""

    routing_key: str
    url: str = ""
    events: list[Told] = field(default_factory=list)
    channel: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def opened(self) -> list[Told]:
        """Return the event that opened each incident."""
        first: dict[str, Told] = {}
        for told in self.events:
            if told.action == "trigger":
                first.setdefault(told.key, told)
        return list(first.values())

    def resolved(self, key: str) -> Told | None:
        """Return the event that ended an incident."""
        return next((told for told in self.events if told.key == key and told.action == "resolve"), None)

    def take(self, path: str, body: bytes) -> int:
        """Take a request and return the status of the answer."""
        with self.lock:
            event = json.loads(body)
            if path == "/channel":
                self.channel.append(event)
                return 200
            problem = self._problem_of(path, event)
            if problem:
                self.refused.append(problem)
                return 400
            self.events.append(Told(time.monotonic(), event["event_action"], event["dedup_key"], event))
            return 202

    def _problem_of(self, path: str, event: dict[str, Any]) -> str:
        if path != "/v2/enqueue":
            return f"no such path {path}"
        if event.get("routing_key") != self.routing_key:
            return "routing_key"
        if event.get("event_action") not in {"trigger", "acknowledge", "resolve"} or not event.get("dedup_key"):
            return "event_action or dedup_key"
        payload = event.get("payload") or {}
        if event["event_action"] == "trigger" and not (
            0 < len(payload.get("summary", "")) <= 1_024
            and payload.get("source")
            and payload.get("severity") in SEVERITIES
        ):
            return f"payload {payload}"
        return ""


@contextmanager
def a_pager(routing_key: str) -> Iterator[Pager]:
    """Listen on a free port."""
    pager = Pager(routing_key)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status = pager.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            body = b'{"status":"success","message":"Event processed","dedup_key":"x"}'
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        pager.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield pager
        finally:
            server.shutdown()
