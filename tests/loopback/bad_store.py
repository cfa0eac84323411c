"""A proxy before an S3 server that is slow, full, refuses or is away, when a test says so."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

STATUS = {"full": 507, "refusing": 403}


class BadStore:
    """How the store is at the moment: ``well``, ``slow``, ``full``, ``refusing`` or ``away``."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.mood = "well"
        self.slow_seconds = 1.0
        self.url = ""


class _Handler(BaseHTTPRequestHandler):
    store: BadStore

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _pass(self) -> None:
        body = self._body()
        del self.headers["Expect"]
        if self.store.mood == "away":
            self.close_connection = True
            return
        if self.store.mood in STATUS:
            self._answer(STATUS[self.store.mood], {}, b"<Error><Code>Bad</Code></Error>")
            return
        if self.store.mood == "slow":
            time.sleep(self.store.slow_seconds)
        connection = http.client.HTTPConnection(self.store.upstream.netloc, timeout=30)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        self._answer(answer.status, dict(answer.getheaders()), answer.read())
        connection.close()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        del self.headers["Transfer-Encoding"]
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815 - as the library names them


@contextmanager
def a_bad_store(upstream: str) -> Iterator[BadStore]:
    """Start the proxy."""
    store = BadStore(upstream)

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    server.daemon_threads = True
    store.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
