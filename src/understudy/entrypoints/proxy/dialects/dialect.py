"""What a dialect is: how a protocol's call is read, and how its answer is worded."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.core.requests.caller_entity import Whose
from understudy.core.requests.caller_request import CallerRequest
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import split_bytes_elements
from understudy.core.schema.row_output import RowOutput
from understudy.core.schema.schema import OutputSchema
from understudy.core.schema.tensors import Datatype
from understudy.core.value import Value
from understudy.entrypoints.proxy.messages.answers import Receipt
from understudy.entrypoints.proxy.messages.reply import Header
from understudy.entrypoints.proxy.predict.handler import INLINE_BYTES
from understudy.errors import BadAnswer, UnderstudyError
from understudy.serving.call import Call

INLINE_ELEMENTS = 512
"""Of a body that is read on the event loop, in about a millisecond; 3,600 take up to ten (measured)."""
INLINE_TENSOR_BYTES = 2_048
"""Of a body with tensors as bytes that is read there."""
INLINE_OUTPUT_BYTES = 262_144
"""Of an answer that is worded there, in a millisecond or two."""
INLINE_LISTED_BYTES = 8_192
"""The same where each value is worded by itself, in up to a microsecond."""
_BYTES = Datatype.BYTES
"""Each look-up in an enumeration takes a tenth of a microsecond, as of Python 3.11."""
FLAT = (-1,)
"""The shape of elements that follow each other."""
MIXED = "mixed"
UNNAMED_OUTPUT = "output"
"""Of an output that neither the server nor the version's schema names."""


class Target(Value, frozen=True, gc=False):
    """Whose answer a path asks for: a model's, and perhaps that of one version, by its name or by a label."""

    model_name: str
    version: str | None = None
    label: str | None = None

    @property
    def names_version(self) -> bool:
        """Whether a version is asked for."""
        return self.version is not None or self.label is not None


class Output(Value, frozen=True, gc=False):
    """The answers of all rows of a call: the server's own values."""

    name: str
    datatype: Datatype
    row_shape: tuple[int, ...]
    contents: Sequence[bytes]
    """Of each row."""

    @property
    def content(self) -> bytes:
        """All elements, as in ``raw_output_contents``."""
        contents = self.contents
        return contents[0] if len(contents) == 1 else b"".join(contents)

    def array(self, shape: tuple[int, ...]) -> "NDArray[np.generic]":
        """Return the elements in a shape; strings are text.

        Raises:
            BadAnswer: They are bytes that are no text.
        """
        if self.datatype is _BYTES:
            try:
                texts = [one.decode() for one in split_bytes_elements(self.content)]
            except UnicodeDecodeError:
                raise BadAnswer(f"the output {self.name!r} is no text: ask for it as bytes") from None
            return np.fromiter(texts, object, count=len(texts)).reshape(shape)
        flat = np.frombuffer(self.content, self.datatype.numpy_dtype)
        return flat if shape is FLAT else flat.reshape(shape)


class Answered(Value, frozen=True, gc=False):
    """A call all of whose rows are answered."""

    target: Target
    calls: Sequence[Call]
    rows: Sequence[RowOutput]
    """What the server answered to each."""
    output: Output
    """The judged one."""
    batch: bool
    """Whether the output has a dimension of the rows."""
    names_version: bool
    """Whether the receipt says who answered."""
    version: str
    """Who answered: the version's label, or ``mixed``."""
    role: str
    """Its role, or ``mixed``."""

    @property
    def beside(self) -> "list[Output]":
        """Return the outputs that the version's schema asks for beside the judged one.

        Raises:
            BadAnswer: As :func:`output_of`.
        """
        if not self.has_more:
            return []
        rows = [row.beside for row in self.rows]
        kinds = {tuple((one.name, one.datatype, one.shape) for one in row) for row in rows}
        if len(kinds) > 1:
            raise _differ(self.calls)
        return [
            Output(column[0].name, column[0].datatype, column[0].shape, [row.content for row in column])
            for column in zip(*rows, strict=True)
        ]

    @property
    def outputs(self) -> "list[Output]":
        """Return all outputs, the judged one first; raises as :attr:`beside`."""
        return [self.output, *self.beside]

    @property
    def size(self) -> int:
        """How many bytes all outputs have."""
        rows = self.rows
        if len(rows) == 1 and not rows[0].beside:
            return len(rows[0].content)
        return sum(len(row.content) + sum(len(more.content) for more in row.beside) for row in rows)

    @property
    def has_more(self) -> bool:
        """Whether there are outputs beside the judged one."""
        rows = self.rows
        return bool(rows[0].beside) if len(rows) == 1 else any(row.beside for row in rows)

    def shape_of(self, output: Output) -> tuple[int, ...]:
        """Return an output's shape."""
        return (len(self.calls), *output.row_shape) if self.batch else output.row_shape

    @property
    def shape(self) -> tuple[int, ...]:
        """The judged output's shape."""
        return self.shape_of(self.output)


class Worded(Value, frozen=True, gc=False):
    """An answer in the words of a protocol."""

    headers: Sequence[Header]
    """Beside the receipt's, with the content type."""
    body: bytes


class Outcome(Value, frozen=True, gc=False):
    """What comes of a call: an answer, or an error of the first row that failed or of the call itself."""

    worded: Worded | None = None
    error: UnderstudyError | None = None
    row: int | None = None
    """The row that failed, of several."""
    receipt: Receipt | None = None
    """There is none without a route."""

    @property
    def receipt_headers(self) -> tuple[Header, ...]:
        """The receipt as headers; none without a route."""
        return () if self.receipt is None else self.receipt.headers


class Reading(Value, frozen=True, gc=False):
    """A call that was read."""

    request: CallerRequest
    word: Callable[[Answered], Worded]
    timeout_seconds: float | None = None
    """What the body says of its deadline."""
    inline_output_bytes: int = INLINE_OUTPUT_BYTES
    """Of an answer that is worded on the event loop."""


class Dialect(Protocol):
    """One protocol."""

    @property
    def name(self) -> str:
        """Its name in metrics."""

    def is_short(self, body: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """Whether a body that is not plain is read on the event loop, in about a millisecond."""

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """Read a call.

        Args:
            body: The whole of it, uncompressed.
            fields: Its headers.
            version: Its inputs are what the caller names: the champion, or the version that is asked for.

        Raises:
            RequestError: It cannot be read.
        """


class Plain(Protocol):
    """What a plain body says, which was read in one pass."""

    @property
    def rows(self) -> Sequence[bytes]:
        """Its rows, packed as the typed decoder of the version's inputs packs them."""

    @property
    def whose(self) -> Whose:
        """What it says of that."""


P = TypeVar("P", bound=Plain)
RowWords: TypeAlias = tuple[bytes, bytes]
"""The answer to a call of one row: header lines beside the receipt's, and the body."""


class PlainDialect(Dialect, Protocol[P]):
    """A protocol whose plain bodies are read in one pass."""

    def read_plain(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> P | None:
        """Read a body that is plain, on the event loop; ``None`` of one that is not. Raises as :meth:`read`.

        Args:
            body: At most :data:`INLINE_BYTES`.
            fields: As of :meth:`read`.
            version: As of :meth:`read`.
        """

    def reading_of(self, plain: P, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """Return the call of a body that is plain; the arguments are those of :meth:`read_plain`, and what it found."""

    def word_row(self, plain: P, call: Call, output: RowOutput, *, names_version: bool) -> RowWords | None:
        """Word the answer to a plain body of one row, as :attr:`Reading.word` does; ``None``: that has to.

        Args:
            plain: The body.
            call: It has a prediction.
            output: What the server answered; there is no other output beside it.
            names_version: Whether callers are told who answered.
        """

    def read_other(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """Read a call that :meth:`read_plain` does not take; as :meth:`read`."""


def is_short_json(body: bytes) -> bool:
    """Whether JSON is read on the event loop; its commas tell how many elements it has at most."""
    return len(body) <= INLINE_BYTES and body.count(b",") < INLINE_ELEMENTS


def who_answered(calls: Sequence[Call]) -> tuple[str, str]:
    """Return the version's label and the role that all rows have in common, or ``mixed``."""
    first = calls[0]
    version, role = first.version.version, first.role
    if len(calls) == 1:
        return version, role
    versions, roles = {call.version.version for call in calls}, {call.role for call in calls}
    return version if len(versions) == 1 else MIXED, role if len(roles) == 1 else MIXED


def answered_of(
    target: Target, calls: Sequence[Call], who: tuple[str, str], *, batch: bool, names_version: bool
) -> Answered:
    """Return a call all of whose rows are answered.

    Args:
        target: As of :class:`Answered`.
        calls: As of :class:`Answered`.
        who: What :func:`who_answered` says of them.
        batch: As of :class:`Answered`.
        names_version: As of :class:`Answered`.

    Raises:
        BadAnswer: As :func:`_output_of`.
    """
    rows: list[RowOutput] = [call.prediction.output for call in calls]  # type: ignore[union-attr,misc]  # each has one
    return Answered(target, calls, rows, _output_of(calls, rows), batch, names_version, *who)


def _output_of(calls: Sequence[Call], rows: Sequence[RowOutput]) -> Output:
    """Return the output of calls that are all answered, in these rows.

    Raises:
        BadAnswer: The versions that answered have outputs of different names, datatypes or shapes.
    """
    first = rows[0]
    name, datatype, shape = _name_of(calls[0], first), first.datatype, first.shape
    if len(rows) == 1:
        return Output(name, datatype, shape, (first.content,))
    for call, row in zip(calls, rows, strict=True):
        # Rows of one answer of a server have the very same name and shape.
        is_same = row.datatype is datatype and (row.shape is shape or row.shape == shape)
        if not is_same or ((row.name is not first.name or not first.name) and _name_of(call, row) != name):
            raise _differ(calls)
    return Output(name, datatype, shape, [row.content for row in rows])


def _differ(calls: Sequence[Call]) -> BadAnswer:
    labels = " and ".join(sorted({call.version.version for call in calls}))
    return BadAnswer(
        f"rows were answered by {labels}, whose outputs differ in name, datatype or shape",
        hint="Send one entity a call, so that one version answers all of its rows.",
    )


def output_names(schema: OutputSchema) -> tuple[str, ...]:
    """Return the outputs that a version's schema names; none where it takes the server's first one."""
    return () if schema.tensor is None else (schema.tensor, *schema.also)


def _name_of(call: Call, row: RowOutput) -> str:
    return row.name or call.version.output_schema.tensor or UNNAMED_OUTPUT
