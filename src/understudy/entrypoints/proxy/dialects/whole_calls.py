"""Calls in other protocols that came whole: the fast path's, read and asked in the turn that brought them.

Each goes the way of :class:`.DialectHandler`, without ASGI and without a task that waits: the last of its rows to end
words the answer. A body that belongs into a thread is read there by a task, and an answer that takes long is worded in
one. What is compressed is declined, and goes through ASGI.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar

import structlog

from understudy.core.requests.caller_entity import EntityFrom
from understudy.core.value import Slotted
from understudy.entrypoints.proxy.access.caller_access import Admitted
from understudy.entrypoints.proxy.dialects.dialect import Outcome, PlainDialect, Reading, Target
from understudy.entrypoints.proxy.dialects.handler import Choice, DialectHandler, Wording, reply, reply_now
from understudy.entrypoints.proxy.messages.answers import identify
from understudy.entrypoints.proxy.messages.headers import (
    ACCEPTED_CODINGS_HEADER,
    HeaderFields,
    RequestOptions,
    header_lines,
    wishes_of,
)
from understudy.entrypoints.proxy.messages.reply import JSON_ALONE, JSON_LINES, Reply
from understudy.entrypoints.proxy.predict.fast_path import FastTarget, ResponseWriter
from understudy.errors import InternalFault, UnderstudyError
from understudy.serving.call import Asked, Call
from understudy.serving.turn import Predictor
from understudy.serving.turn_group import TurnGroup

INLINE_CODED_BYTES = 16_384
"""Of an answer's tensors that is worded and compressed on the event loop, in a millisecond."""
MAX_TURN_ROWS = 512
"""Rows after which further calls are left for the next turn of the event loop: so many take it some ten milliseconds,
and what else has come is served between."""
_log = structlog.get_logger(__name__)


class _Whole(Slotted):
    """A call of which all has come: it gathers its rows, and gives its answer to its writer."""

    dialect: PlainDialect
    target: Target
    path: str
    fields: HeaderFields
    body: bytes
    writer: ResponseWriter
    calls: "WholeCalls"
    found: "list[Call | Exception | None]"
    """What came of each row; empty for a call of one row, which ends by itself."""
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
    """A row of a call that has several, as a call of its own."""

    keeps_output: ClassVar[bool] = True
    _of: _Whole
    _row: int

    def on_result(self, found: Call | Exception) -> None:
        """Tell the call."""
        self._of.take(self._row, found)


class _OnlyRow(Asked):
    """The row of a call that has no other."""

    keeps_output: ClassVar[bool] = True
    _of: _Whole

    def on_result(self, found: Call | Exception) -> None:
        """End the call."""
        self._of.calls.end(self._of, (found,))


class _Known(Slotted):
    """What a turn's calls of one caller and one model have in common."""

    caller: Admitted
    choice: Choice | None = None


class _Turn(Slotted):
    """What a turn of the event loop brought."""

    arrived: float
    known: dict[tuple[str | None, str], _Known]
    counts: dict[tuple[str, str, EntityFrom], int]
    """Calls by their model, by the name of their protocol, and where their entities were found."""


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
        dialects: Mapping[str, PlainDialect],
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
        self._tasks: set[asyncio.Task[None]] = set()

    def offer(self, target: FastTarget, fields: HeaderFields, body: bytes, writer: ResponseWriter) -> bool:
        """Answer a call, or return ``False``; see :class:`.DialectCalls`.

        Compressed bodies and traced calls are declined.
        """
        handler = self._handler.handler
        if handler.tracer is not None or b"content-encoding" in fields:
            return False
        handler.in_flight += 1
        dialect = self._dialects[target.verb]
        self._turn.add(_Whole(dialect, Target(target.model_name), target.path, fields, body, writer, self, []))
        return True

    def _begin(self, calls: list[_Whole]) -> None:
        turn = _Turn(self._now(), {}, {})
        asked: list[Asked] = []
        for place, call in enumerate(calls):
            if len(asked) >= MAX_TURN_ROWS:
                self._turn.extend(calls[place:])
                break
            try:
                asked += self._rows_of(call, turn)
            except Exception as problem:  # noqa: BLE001 - it is answered E500, and logged
                self._answer(call, problem)
        self._count(turn)
        self._predictor.begin(asked)

    def _rows_of(self, call: _Whole, turn: _Turn) -> Sequence[Asked]:
        """Return the rows that a call asks for, once it is read; raises what is wrong with it."""
        fields, dialect, body = call.fields, call.dialect, call.body
        options = wishes_of(fields)
        call.choice = choice = self._choice(call, options, turn)
        reading = dialect.read_plain(body, fields, choice.schema_of)
        if reading is None:
            if not dialect.is_short(body, fields):
                self._start(self._read_late(call, options, turn.arrived))
                return ()
            reading = dialect.read_other(body, fields, choice.schema_of)
        return self._asked(call, reading, options, turn)

    def _choice(self, call: _Whole, options: RequestOptions, turn: _Turn) -> Choice:
        """Admit a caller to a model, once in a turn, charge the call, and return whose answer it asks for.

        Raises what speaks against it.
        """
        handler, target = self._handler.handler, call.target
        place = options.authorization, target.model_name
        known = turn.known.get(place)
        if known is None:
            known = turn.known[place] = _Known(handler.access.admitted(options, target.model_name))
        if known.caller.is_limited:
            handler.access.charge(known.caller, call.fields, turn.arrived)
        choice = known.choice
        if choice is None:
            choice = known.choice = self._handler.chosen(target, call.fields)
        return choice

    def _asked(self, call: _Whole, reading: Reading, options: RequestOptions, turn: _Turn) -> Sequence[Asked]:
        """Return the rows of a call that was read."""
        target, choice = call.target, call.choice
        assert choice is not None
        rows = self._handler.asked(reading, choice, options, call.fields, turn.arrived)
        call.reading = reading
        place = target.model_name, call.dialect.name, rows.found
        turn.counts[place] = turn.counts.get(place, 0) + 1
        name, seconds, forced = target.model_name, rows.timeout_seconds, rows.forced
        count = len(rows.requests)
        if count == 1:
            return (_OnlyRow(name, rows.requests[0], seconds, forced, None, call),)
        call.left, call.found = count, [None] * count
        return [_Row(name, request, seconds, forced, None, call, row) for row, request in enumerate(rows.requests)]

    async def _read_late(self, call: _Whole, options: RequestOptions, arrived: float) -> None:
        """Read a body in a thread, and go on as in the turn that brought it."""
        turn = _Turn(arrived, {}, {})
        try:
            assert call.choice is not None
            pool, schema_of = self._handler.handler.body_pool, call.choice.schema_of
            reading = await pool.run(call.dialect.read, call.body, call.fields, schema_of)
            asked = self._asked(call, reading, options, turn)
        except Exception as problem:  # noqa: BLE001 - it is answered E500, and logged
            self._answer(call, problem)
            return
        self._count(turn)
        self._predictor.begin(asked)

    def _count(self, turn: _Turn) -> None:
        for place, calls in turn.counts.items():
            self._handler.count(*place, calls)

    def end(self, call: _Whole, found: Sequence[Call | Exception | None]) -> None:
        """Answer a call whose rows have ended; raises nothing."""
        try:
            for one in found:
                if isinstance(one, Exception):  # it left a row without a route
                    self._answer(call, one)
                    return
            assert call.reading is not None
            assert call.choice is not None
            rows: Sequence[Call] = found  # type: ignore[assignment]  # each has ended, and none as a problem
            ended = self._handler.ended(call.reading, rows, call.target, call.choice)
            accepted = call.fields.get(ACCEPTED_CODINGS_HEADER)
            if isinstance(ended, Wording) and _is_long(ended, accepted):
                self._start(self._answer_late(call, ended, accepted))
            else:
                self._answer_now(call, self._handler.worded_now(ended), accepted)
        except Exception as defect:  # noqa: BLE001 - it is answered E500, and logged
            self._answer(call, defect)

    def _answer_now(self, call: _Whole, outcome: Outcome, accepted: bytes | None) -> None:
        worded, receipt = outcome.worded, outcome.receipt
        if worded is None or accepted is not None or receipt is None:
            self._answer(call, reply_now(outcome, call.path, accepted))
            return
        lines = JSON_LINES if worded.headers is JSON_ALONE else header_lines(worded.headers)
        self._handler.handler.in_flight -= 1
        call.writer.answer(200, lines + receipt.lines + identify(call.fields, self._new_id)[1], worded.body)

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

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what has to wait."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_long(ended: Wording, accepted: bytes | None) -> bool:
    """Whether an answer is worded, or perhaps compressed, in a thread."""
    return ended.is_long or (accepted is not None and ended.answered.size > INLINE_CODED_BYTES)
