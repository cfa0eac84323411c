"""The fast path's side of a connection: which requests may take it, and how they are offered to it."""

from dataclasses import dataclass

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from understudy.entrypoints.proxy.predict.fast_path import FastPath, model_of
from understudy.entrypoints.proxy.server.backpressure import is_free
from understudy.entrypoints.proxy.server.response_writer import FastPathCycle, LastResponse


@dataclass(frozen=True, slots=True)
class FastPathRequests:
    """Offers a connection's requests to the fast path: one that is taken is the connection's current cycle."""

    fast_path: FastPath | None
    last: LastResponse
    """Marks the connection's last response while the process drains."""

    def may_take(self, connection: HttpToolsProtocol, method: bytes, version: str) -> bool:
        """Whether the request whose head is complete is a plain predict call, and the next one to be answered."""
        return (
            self.fast_path is not None
            and method == b"POST"
            and model_of(connection.url) is not None
            and version == "1.1"
            and connection.parser.should_keep_alive()
            and not connection.expect_100_continue
            and is_free(connection)
        )

    def offer(self, connection: HttpToolsProtocol, body: bytes, read: bytes, *, is_last: bool) -> bool:
        """Offer such a request; return whether it is taken.

        Args:
            connection: Has its head.
            body: All of it.
            read: All of the request as it was read, when it came in one read and nothing else did.
            is_last: Whether nothing has come behind it.
        """
        assert self.fast_path is not None
        before, cycle = connection.cycle, FastPathCycle(connection)
        if self.last.is_draining and is_last:
            self.last.mark(cycle)  # before it is offered: it may be answered at once
        connection.cycle = cycle  # type: ignore[assignment]  # it has what uvicorn uses of one
        if self.fast_path.offer(connection.url, connection.headers, body, cycle, read):
            return True
        connection.cycle = before
        return False

    def answer_cached(self, connection: HttpToolsProtocol, read: bytes) -> bool:
        """Answer a request that came whole and whose head is cached, if it is one; the parser never sees it."""
        fast_path = self.fast_path
        if fast_path is None or not is_free(connection) or connection.transport.is_closing():
            return False
        found = fast_path.find_cached(read)
        if found is None:
            return False
        cycle = FastPathCycle(connection)
        connection.cycle = cycle  # type: ignore[assignment]  # as above
        if self.last.is_draining:
            self.last.mark(cycle)
        fast_path.answer_cached(*found, cycle)
        return True
