"""Parser callbacks: what the HTTP parser tells of a request, which is held for the fast path or handed to uvicorn."""

from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from understudy.entrypoints.proxy.messages.headers import RawHeaders
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH, FastPath, model_of
from understudy.entrypoints.proxy.server.backpressure import is_free
from understudy.entrypoints.proxy.server.head_rules import HEAD_PROBLEM, HeadRules, absolute_target_problem
from understudy.entrypoints.proxy.server.request_state import State
from understudy.entrypoints.proxy.server.response_writer import (
    IS_INCOMPLETE,
    IS_LOST,
    WRITE_WHOLE,
    LastResponse,
    is_lost,
    write_whole,
)
from understudy.entrypoints.proxy.server.timeouts import KeepAliveTimeout

_IDLE, _HEAD, _HOLDING, _HELD, _BODY, _UPGRADE = State


class ParserCallbacks(HttpToolsProtocol):
    """The half of a connection that the HTTP parser calls: it follows each request from its head to its last byte.

    A request that may take the fast path is held until all of it is there, and offered then. Every other one is handed
    to uvicorn's ASGI cycle as soon as its head is complete. The other half, which feeds the parser, is a subclass
    (:class:`.Connection`) and no second object: both share uvicorn's attributes, and a step between two objects would
    cost each call some time.

    Args:
        head_rules: A request whose head breaks one is answered in its turn with that error, as the last one.
        arguments: As uvicorn gives them to its own class.
    """

    _keep_alive: KeepAliveTimeout
    """Made with the connection."""

    def __init__(self, *, head_rules: HeadRules, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._head_rules = head_rules
        self._state = _IDLE
        self._held: list[bytes] = []
        """Pieces of the body, in the states ``HOLDING`` and ``HELD``."""
        self._requests_read = 0
        self._stagnant_bytes = 0
        """What has come since a request or its head began or ended, or some of its body came: of a head or trailers."""
        self._last = LastResponse()
        self._fast_path: FastPath | None = self.app_state.get(FAST_PATH)

    def on_message_begin(self) -> None:
        """Make nothing yet that only ASGI needs."""
        state, self._state = self._state, _HEAD
        self._stagnant_bytes = 0
        if state is _HELD:
            self._let_go(is_whole=True, is_last=False)
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a field behind a chunked body (trailer) is dropped."""
        if self._state is _HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hold what may take the fast path until all of it is there."""
        self._stagnant_bytes = 0
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if self.parser.should_upgrade() and method != b"CONNECT":
            self._state = _UPGRADE
            return
        problem = self._head_rules.problem(method, self.url, version, self.headers)
        if problem is None and self._may_take(method, version):
            self._state = _HOLDING
            return
        problem = problem or absolute_target_problem(self.url, self.headers)  # the fast path takes none of them
        self._state = _BODY
        self._hand_over()
        if problem is not None:
            self.scope[HEAD_PROBLEM] = problem  # type: ignore[literal-required]  # an addition
            self.cycle.keep_alive = False
        if not self.cycle.keep_alive:
            self.scope[IS_INCOMPLETE] = partial(getattr, self.cycle, "more_body")  # type: ignore[literal-required]  # one more

    def _may_take(self, method: bytes, version: str) -> bool:
        """Whether the request whose head is complete is a plain predict call, and the next one to be answered."""
        return (
            self._fast_path is not None
            and method == b"POST"
            and model_of(self.url) is not None
            and version == "1.1"
            and self.parser.should_keep_alive()
            and not self.expect_100_continue
            and is_free(self)
        )

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._stagnant_bytes = 0
        if self._state is _HOLDING:
            self._held.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Go on holding what may take the fast path: what follows it in the same read may be no request."""
        self._stagnant_bytes = 0
        self._requests_read += 1
        if self._state is _HOLDING:
            self._state = _HELD
        elif self._state is _BODY:
            self._state = _IDLE
            super().on_message_complete()

    def _let_go(self, *, is_whole: bool, is_last: bool = True) -> None:
        """Offer a held request to the fast path, if it has come whole, or hand over what there is of it."""
        body, self._held = b"".join(self._held), []
        self._keep_alive.pause()  # an earlier answer in the same read may have begun it
        may_answer = is_whole and not self.transport.is_closing()
        if may_answer and self._offer(self.url, self.headers, body, is_last=is_last):
            return
        self._hand_over()
        if body:
            super().on_body(body)
        if is_whole:
            super().on_message_complete()

    def _offer(self, target: bytes, headers: RawHeaders | dict[bytes, bytes], body: bytes, *, is_last: bool) -> bool:
        """Offer the fast path a request that it may take; return whether it is taken."""
        raise NotImplementedError

    def _hand_over(self) -> None:
        """Let uvicorn have the request whose head is complete, and give the application a short way to answer."""
        self._keep_alive.pause()  # as above
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers  # the list that the scope has
        super().on_headers_complete()
        self.scope[WRITE_WHOLE] = partial(write_whole, self.cycle)  # type: ignore[literal-required]  # an addition
        self.scope[IS_LOST] = partial(is_lost, self.cycle)  # type: ignore[literal-required]  # another one
        self.cycle.message_event.set()
