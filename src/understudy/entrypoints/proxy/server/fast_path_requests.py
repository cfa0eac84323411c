"""The fast path's side of a connection: which requests may take it, and how they are offered to it."""

from dataclasses import dataclass

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from understudy.entrypoints.proxy.messages.headers import RawHeaders
from understudy.entrypoints.proxy.predict.fast_path import FastPath, model_of
from understudy.entrypoints.proxy.server.backpressure import is_free
from understudy.entrypoints.proxy.server.head_reader import read_whole
from understudy.entrypoints.proxy.server.head_rules import HeadRules
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

    def offer(
        self,
        connection: HttpToolsProtocol,
        target: bytes,
        headers: RawHeaders | dict[bytes, bytes],
        body: bytes,
        *,
        is_last: bool,
    ) -> bool:
        """Offer such a request; return whether it is taken.

        Args:
            connection: Is free for its answer.
            target: As it was sent.
            headers: Lower-case names and values.
            body: All of it.
            is_last: Whether nothing has come behind it.
        """
        assert self.fast_path is not None
        before, cycle = connection.cycle, FastPathCycle(connection)
        if self.last.is_draining and is_last:
            self.last.mark(cycle)  # before it is offered: it may be answered at once
        connection.cycle = cycle  # type: ignore[assignment]  # it has what uvicorn uses of one
        if self.fast_path.offer(target, headers, body, cycle):
            return True
        connection.cycle = before
        return False

    def offer_whole(self, connection: HttpToolsProtocol, data: bytes, head_rules: HeadRules) -> bool:
        """Offer the bytes of one read if they are a plain predict call; then the HTTP parser never sees them."""
        cycle = connection.cycle
        if cycle is not None and not cycle.response_complete:  # type: ignore[redundant-expr]  # there is none at first
            return False
        if self.fast_path is None or connection.flow.write_paused or connection.transport.is_closing():
            return False
        request = read_whole(data)
        if request is None or b"host" not in request.fields:
            return False
        if head_rules.problem_of_plain(b"POST", request.fields) is not None:
            return False  # the parser's way says so
        return self.offer(connection, request.target, request.fields, request.body, is_last=True)
