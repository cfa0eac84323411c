"""An HTTP server of a test on 127.0.0.1: a function answers each request, and what was asked is kept."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case names."""


class Answering:
    """What a handler answers with: a whole answer, or one that goes wrong."""

    def __init__(self, handler: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        self._handler = handler
        self._closing = closing
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.asked = Asked(handler.command, handler.path, headers)

    def send(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, *, cut: int = 0) -> None:
        """Answer; without the last ``cut`` bytes that its length promises, and then the connection ends."""
        self._handler.send_response(status)
        for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()
        if self.asked.method != "HEAD":
            self._handler.wfile.write(body[: len(body) - cut])
        self._handler.close_connection = self._handler.close_connection or cut > 0

    def pour(self, status: int, block: bytes, headers: Mapping[str, str] | None = None) -> int:
        """Answer without a length and without an end, until the caller hangs up; return how many bytes were sent."""
        self._handler.send_response(status)
        for name, value in (headers or {}).items():
            self._handler.send_header(name, value)
        self._handler.send_header("connection", "close")
        self._handler.end_headers()
        self._handler.close_connection = True
        sent = 0
        try:
            while not self._closing.is_set():
                self._handler.wfile.write(block)
                sent += len(block)
        except OSError:
            pass
        return sent

    def hang(self) -> None:
        """Answer nothing until the test is over."""
        self._closing.wait()
        self._handler.close_connection = True


class ScriptedServer:
    """The server, and what it was asked."""

    def __init__(self, answer: Callable[[Answering], None]) -> None:
        self.requests: list[Asked] = []
        self.answer = answer
        closing = self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                answering = Answering(self, closing)
                outer.requests.append(answering.asked)
                try:
                    outer.answer(answering)
                except OSError:  # the caller has hung up
                    self.close_connection = True

            def do_HEAD(self) -> None:
                self.do_GET()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@contextmanager
def a_scripted_server(answer: Callable[[Answering], None]) -> Iterator[ScriptedServer]:
    server = ScriptedServer(answer)
    try:
        yield server
    finally:
        server.close()
