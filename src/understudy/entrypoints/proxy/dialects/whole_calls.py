"""Calls in other protocols that came whole: the fast path's, read and asked in the turn that brought them.

Each goes the way of :class:`.DialectHandler`, without ASGI and without a task that waits: the last of its rows to end
words the answer. A body that belongs into a thread is read there by a task, and an answer that takes long is worded in
one. What is compressed is declined, and goes through ASGI.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar

import structlog

from understudy.core.requests.caller_entity import EntityFrom, only_entity
from understudy.core.requests.predict import only_row
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import Prediction
from understudy.core.value import Slotted
from understudy.entrypoints.proxy.access.caller_access import Admitted
from understudy.entrypoints.proxy.dialects.compression import coding_for
from understudy.entrypoints.proxy.dialects.dialect import (
    INLINE_OUTPUT_BYTES,
    Outcome,
    Plain,
    PlainDialect,
    Reading,
    Target,
)
from understudy.entrypoints.proxy.dialects.handler import Choice, DialectHandler, Wording, reply, reply_now
from understudy.entrypoints.proxy.messages.answers import Receipt, identify, identity_lines
from understudy.entrypoints.proxy.messages.headers import (
    ACCEPTED_CODINGS_HEADER,
    CATEGORY_HEADER,
    ENTITY_HEADER,
    HeaderFields,
    RequestOptions,
    header_lines,
    wishes_of,
)
from understudy.entrypoints.proxy.messages.reply import JSON_ALONE, JSON_LINES, Reply
from understudy.entrypoints.proxy.predict.fast_path import FastTarget, ResponseWriter
from understudy.errors import InternalFault, UnderstudyError
from understudy.serving.call import UNREAD, Asked, Call
from understudy.serving.turn import Predictor
from understudy.serving.turn_group import TurnGroup

INLINE_CODED_BYTES = 16_384
"""Of an answer's tensors that is worded and compressed on the event loop, in a millisecond."""
MAX_TURN_ROWS = 512
"""Rows after which further calls are left for the next turn of the event loop: so many take it some ten milliseconds,
and what else has come is served between."""
_log = structlog.get_logger(__name__)


class _PlainBody(Slotted, gc=False):
    """The body of a call of one row that was read in one pass; what few calls need of it is made when asked for."""

    dialect: PlainDialect[Any]
    plain: Plain
    body: bytes
    fields: HeaderFields
    version: ModelVersion
    """Whose inputs it names."""
    _reading: Reading | None = None

    @property
    def reading(self) -> Reading:
        """What it says, in the form that calls of several rows have."""
        if self._reading is None:
            self._reading = self.dialect.reading_of(self.plain, self.body, self.fields, self.version)
        return self._reading

    def __getitem__(self, place: int) -> Mapping[str, Any]:
        """Return a row's features."""
        return self.reading.request.rows[place]


class _Whole(Asked):
    """A call of which all has come: it asks for its only row, or gathers its rows, and answers by its writer."""

    keeps_output: ClassVar[bool] = True
    dialect: PlainDialect[Any]
    path: str
    fields: HeaderFields
    body: bytes
    writer: ResponseWriter
    calls: "WholeCalls"
    choice: Choice | None = None
    plain: _PlainBody | None = None
    """Of a call of one row that nothing else is asked of; any other one has a ``reading``."""
    reading: Reading | None = None
    found: "list[Call | Exception | None] | None" = None
    """What came of each of several rows."""
    left: int = 0
    """Rows that have not ended."""

    def on_result(self, found: Call | Exception) -> None:
        """End with the only row."""
        self.calls.end_row(self, found)

    def take(self, row: int, found: Call | Exception) -> None:
        """Take a row that has ended."""
        assert self.found is not None
        self.found[row] = found
        self.left -= 1
        if not self.left:
            ended, self.found = self.found, None  # a row leads here: a reference cycle
            self.calls.end(self, ended)


class _Row(Asked):
    """A row of a call that has several, as a call of its own."""

    keeps_output: ClassVar[bool] = True
    _of: _Whole
    _row: int

    def on_result(self, found: Call | Exception) -> None:
        """Tell the call."""
        self._of.take(self._row, found)


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

    def add(self, call: _Whole, found: EntityFrom) -> None:
        """Count a call that was read."""
        place = call.model_name, call.dialect.name, found
        self.counts[place] = self.counts.get(place, 0) + 1


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
        dialects: Mapping[str, PlainDialect[Any]],
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
        name, path = target.model_name, target.path
        self._turn.add(_Whole(name, UNREAD, None, None, None, dialect, path, fields, body, writer, self))
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
        version = choice.schema_of
        plain = dialect.read_plain(body, fields, version)
        if plain is not None:
            if self._takes_only_row(call, plain, version):
                call.forced_version = choice.forced
                if options.timeout_seconds is not None:
                    call.timeout_seconds = self._handler.handler.time_left(options, turn.arrived)
                turn.add(call, EntityFrom.CALL)
                return (call,)
            return self._asked(call, dialect.reading_of(plain, body, fields, version), options, turn)
        if not dialect.is_short(body, fields):
            self._start(self._read_late(call, options, turn.arrived))
            return ()
        return self._asked(call, dialect.read_other(body, fields, version), options, turn)

    @staticmethod
    def _takes_only_row(call: _Whole, plain: Plain, version: ModelVersion) -> bool:
        """Whether a body asks for one row, of an entity and of no category: then the call itself asks for it."""
        fields, rows = call.fields, plain.rows
        header = fields.get(ENTITY_HEADER)
        if len(rows) != 1 or CATEGORY_HEADER in fields or not (header is None or header.isascii()):
            return False
        entity_id = only_entity(plain.whose, None if header is None else header.decode())
        decoder = version.input_schema.decoder
        if entity_id is None or decoder is None:
            return False
        call.plain = body = _PlainBody(call.dialect, plain, call.body, fields, version)
        call.request = only_row(entity_id, None, rows[0], decoder, body)
        return True

    def _choice(self, call: _Whole, options: RequestOptions, turn: _Turn) -> Choice:
        """Admit a caller to a model, once in a turn, charge the call, and return whose answer it asks for.

        Raises what speaks against it.
        """
        handler = self._handler.handler
        place = options.authorization, call.model_name
        known = turn.known.get(place)
        if known is None:
            known = turn.known[place] = _Known(handler.access.admitted(options, call.model_name))
        if known.caller.is_limited:
            handler.access.charge(known.caller, call.fields, turn.arrived)
        choice = known.choice
        if choice is None:
            choice = known.choice = self._handler.chosen(Target(call.model_name), call.fields)
        return choice

    def _asked(self, call: _Whole, reading: Reading, options: RequestOptions, turn: _Turn) -> Sequence[Asked]:
        """Return the rows of a call that was read."""
        choice = call.choice
        assert choice is not None
        rows = self._handler.asked(reading, choice, options, call.fields, turn.arrived)
        call.reading = reading
        turn.add(call, rows.found)
        seconds, forced, count = rows.timeout_seconds, rows.forced, len(rows.requests)
        if count == 1:
            call.request, call.timeout_seconds, call.forced_version = rows.requests[0], seconds, forced
            return (call,)
        call.left, call.found, name = count, [None] * count, call.model_name
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

    def end_row(self, call: _Whole, found: Call | Exception) -> None:
        """Answer a call whose only row has ended; raises nothing."""
        try:
            answer = None if call.plain is None or isinstance(found, Exception) else self._row_answer(call, found)
        except Exception as defect:  # noqa: BLE001 - it is answered E500, and logged
            self._answer(call, defect)
            return
        if answer is None:
            self.end(call, (found,))
        else:
            self._handler.handler.in_flight -= 1
            call.writer.answer(200, *answer)

    def _row_answer(self, call: _Whole, found: Call) -> tuple[bytes, bytes] | None:
        """Return header lines and body of an answer as most are; ``None`` of an error, or of one that is unusual."""
        prediction, body = found.prediction, call.plain
        output = prediction.output if isinstance(prediction, Prediction) else None
        if found.error is not None or body is None or output is None or output.beside:
            return None
        accepted, names_version = call.fields.get(ACCEPTED_CODINGS_HEADER), self._handler.handler.version_headers
        if len(output.content) > (INLINE_OUTPUT_BYTES if accepted is None else INLINE_CODED_BYTES):
            return None
        words = body.dialect.word_row(body.plain, found, output, names_version=names_version)
        if words is None or (accepted is not None and coding_for(accepted, len(words[1])) is not None):
            return None
        lines, text = words
        receipt = Receipt(found, found.version.version, found.role, names_version)
        return lines + receipt.lines + identity_lines(call.fields, self._new_id), text

    def end(self, call: _Whole, found: Sequence[Call | Exception | None]) -> None:
        """Answer a call whose rows have ended; raises nothing."""
        try:
            for one in found:
                if isinstance(one, Exception):  # it left a row without a route
                    self._answer(call, one)
                    return
            reading = call.reading if call.plain is None else call.plain.reading
            assert reading is not None
            assert call.choice is not None
            rows: Sequence[Call] = found  # type: ignore[assignment]  # each has ended, and none as a problem
            ended = self._handler.ended(reading, rows, Target(call.model_name), call.choice)
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
        call.writer.answer(200, lines + receipt.lines + identity_lines(call.fields, self._new_id), worded.body)

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
