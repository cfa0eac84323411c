"""Calls in other protocols that came whole: the fast path's, read and asked in the turn that brought them.

Each goes the way of :class:`.DialectHandler`, without ASGI and without a task that waits: the last of its rows to end
words the answer. What belongs into a thread is declined, and goes through ASGI; an answer that takes long is worded in
a task.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import structlog

from understudy.core.routing.access import Scope
from understudy.core.value import Slotted
from understudy.entrypoints.proxy.dialects.dialect import Dialect, Reading, Target
from understudy.entrypoints.proxy.dialects.handler import Choice, DialectHandler, Wording, reply, reply_now
from understudy.entrypoints.proxy.messages.answers import identify
from understudy.entrypoints.proxy.messages.headers import (
    ACCEPTED_CODINGS_HEADER,
    HeaderFields,
    header_lines,
    read_headers,
)
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.entrypoints.proxy.predict.fast_path import FastTarget, ResponseWriter
from understudy.errors import InternalFault, UnderstudyError
from understudy.serving.call import Asked, Call
from understudy.serving.turn import Predictor
from understudy.serving.turn_group import TurnGroup

INLINE_CODED_BYTES = 16_384
"""Of an answer's tensors that is worded and compressed on the event loop, in a millisecond."""
_log = structlog.get_logger(__name__)


class _Whole(Slotted):
    """A call of which all has come: it gathers its rows, and gives its answer to its writer."""

    dialect: Dialect
    target: Target
    path: str
    fields: HeaderFields
    body: bytes
    writer: ResponseWriter
    calls: "WholeCalls"
    found: "list[Call | Exception | None]"
    """What came of each row."""
    left: int = 0
    """Rows that have not ended."""
    reading: Reading | None = None
    choice: Choice | None = None

    def take(self, row: int, found: Call | Exception) -> None:
        """Take a row that has ended."""
        self.found[row] = found
        self.left -= 1
        if not self.left:
            ended, self.found = self.found, []  # a row leads here: a reference cycle
            self.calls.end(self, ended)


class _Row(Asked):
    """A row of a call, as a call of its own."""

    keeps_output: ClassVar[bool] = True
    _of: _Whole
    _row: int

    def on_result(self, found: Call | Exception) -> None:
        """Tell the call."""
        self._of.take(self._row, found)


class WholeCalls:
    """Takes whole calls of the dialects that it is given, and answers by callback.

    Args:
        handler: Knows what a dialect's call asks for, and what comes of it.
        predictor: Serves rows.
        dialects: By the verb of their paths.
        now: The clock of deadlines, in seconds.
        new_id: Makes an id of 32 hex digits.
    """

    def __init__(
        self,
        handler: DialectHandler,
        predictor: Predictor,
        dialects: Mapping[str, Dialect],
        *,
        now: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._handler = handler
        self._predictor = predictor
        self._dialects = dialects
        self._now = now
        self._new_id = new_id
        self._turn = TurnGroup[_Whole](self._begin)
        self._late: set[asyncio.Task[None]] = set()

    def offer(self, target: FastTarget, fields: HeaderFields, body: bytes, writer: ResponseWriter) -> bool:
        """Answer a call, or return ``False``; see :class:`.DialectCalls`.

        Compressed bodies, those that are read in a thread, and traced calls are declined.
        """
        dialect, handler = self._dialects[target.verb], self._handler.handler
        if handler.tracer is not None or b"content-encoding" in fields or not dialect.is_short(body, fields):
            return False
        handler.in_flight += 1
        self._turn.add(_Whole(dialect, Target(target.model_name), target.path, fields, body, writer, self, []))
        return True

    def _begin(self, calls: Iterable[_Whole]) -> None:
        arrived = self._now()
        asked: list[Asked] = []
        for call in calls:
            try:
                asked += self._rows_of(call, arrived)
            except Exception as problem:  # noqa: BLE001 - it is answered E500, and logged
                self._answer(call, problem)
        self._predictor.begin(asked)

    def _rows_of(self, call: _Whole, arrived: float) -> Sequence[Asked]:
        """Return the rows that a call asks for; raises what is wrong with it."""
        handler, fields, target = self._handler, call.fields, call.target
        options = read_headers(fields)
        handler.handler.access.admit(options, Scope.PREDICT, target.model_name)
        call.choice = choice = handler.chosen(target, fields)
        call.reading = reading = call.dialect.read(call.body, fields, choice.schema_of)
        rows = handler.asked(call.dialect, reading, choice, (target, options, fields, arrived))
        call.left = len(rows.requests)
        call.found = [None] * call.left
        return [
            _Row(target.model_name, request, rows.timeout_seconds, rows.forced, None, call, row)
            for row, request in enumerate(rows.requests)
        ]

    def end(self, call: _Whole, found: Sequence[Call | Exception | None]) -> None:
        """Answer a call whose rows have ended; raises nothing."""
        try:
            made = self._made(call, found)
        except Exception as defect:  # noqa: BLE001 - it is answered E500, and logged
            self._answer(call, defect)
            return
        if made is not None:
            self._answer(call, made)

    def _made(self, call: _Whole, found: Sequence[Call | Exception | None]) -> Reply | Exception | None:
        """Return the answer, or what left a row without a route; ``None`` where a task makes the answer."""
        problem = next((one for one in found if isinstance(one, Exception)), None)
        if problem is not None:
            return problem
        assert call.reading is not None
        assert call.choice is not None
        rows = [one for one in found if isinstance(one, Call)]
        ended = self._handler.ended(call.reading, rows, call.target, call.choice)
        accepted = call.fields.get(ACCEPTED_CODINGS_HEADER)
        if isinstance(ended, Wording) and _is_long(ended, accepted):
            task = asyncio.get_running_loop().create_task(self._answer_late(call, ended, accepted))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return None
        return reply_now(self._handler.worded_now(ended), call.path, accepted)

    async def _answer_late(self, call: _Whole, ended: Wording, accepted: bytes | None) -> None:
        try:
            made = await reply(await self._handler.worded(ended), call.path, accepted)
        except Exception as defect:  # noqa: BLE001 - as above
            self._answer(call, defect)
        else:
            self._answer(call, made)

    def _answer(self, call: _Whole, made: Reply | Exception) -> None:
        """Write an answer, or the one that says what is wrong, also with ourselves."""
        handler = self._handler
        handler.handler.in_flight -= 1
        request_id, identity = identify(call.fields, self._new_id)
        if isinstance(made, UnderstudyError):
            made = handler.refuse(made, call.path)
        elif isinstance(made, Exception):
            _log.error("request.failed", request_id=request_id, path=call.path, exc_info=made)
            made = handler.refuse(InternalFault(), call.path)
        call.writer.answer(made.status, header_lines(made.headers) + identity, made.body)


def _is_long(ended: Wording, accepted: bytes | None) -> bool:
    """Whether an answer is worded, or perhaps compressed, in a thread."""
    return ended.is_long or (accepted is not None and ended.answered.size > INLINE_CODED_BYTES)
