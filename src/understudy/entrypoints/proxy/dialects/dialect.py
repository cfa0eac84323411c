"""What a dialect is: how a protocol's call is read, and how its answer is worded."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from understudy.core.requests.caller_request import CallerRequest
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import split_bytes_elements
from understudy.core.schema.row_output import RowOutput
from understudy.core.schema.schema import OutputSchema
from understudy.core.schema.tensors import Datatype
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
UNNAMED_OUTPUT = "output"
"""Of an output that neither the server nor the version's schema names."""


class Target(NamedTuple):
    """Whose answer a path asks for: a model's, and perhaps that of one version, by its name or by a label."""

    model_name: str
    version: str | None = None
    label: str | None = None

    @property
    def names_version(self) -> bool:
        """Whether a version is asked for."""
        return self.version is not None or self.label is not None


class Output(NamedTuple):
    """The answers of all rows of a call: the server's own values."""

    name: str
    datatype: Datatype
    row_shape: tuple[int, ...]
    contents: Sequence[bytes]
    """Of each row."""

    @property
    def content(self) -> bytes:
        """All elements, as in ``raw_output_contents``."""
        return b"".join(self.contents)

    def array(self, shape: tuple[int, ...]) -> "NDArray[np.generic]":
        """Return the elements in a shape; strings are text.

        Raises:
            BadAnswer: They are bytes that are no text.
        """
        if self.datatype is Datatype.BYTES:
            try:
                texts = [one.decode() for one in split_bytes_elements(self.content)]
            except UnicodeDecodeError:
                raise BadAnswer(f"the output {self.name!r} is no text: ask for it as bytes") from None
            return np.fromiter(texts, object, count=len(texts)).reshape(shape)
        return np.frombuffer(self.content, self.datatype.numpy_dtype).reshape(shape)


class Answered(NamedTuple):
    """A call all of whose rows are answered."""

    target: Target
    calls: Sequence[Call]
    output: Output
    """The judged one."""
    batch: bool
    """Whether the output has a dimension of the rows."""
    names_version: bool
    """Whether the receipt says who answered."""

    @property
    def beside(self) -> "list[Output]":
        """Return the outputs that the version's schema asks for beside the judged one.

        Raises:
            BadAnswer: As :func:`output_of`.
        """
        rows = [_row_of(call).beside for call in self.calls]
        if not any(rows):
            return []
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
        return sum(len(one.content) + sum(len(more.content) for more in one.beside) for one in map(_row_of, self.calls))

    def shape_of(self, output: Output) -> tuple[int, ...]:
        """Return an output's shape."""
        return (len(self.calls), *output.row_shape) if self.batch else output.row_shape

    @property
    def shape(self) -> tuple[int, ...]:
        """The judged output's shape."""
        return self.shape_of(self.output)

    @property
    def version(self) -> str:
        """Return who answered: the version's label, or ``mixed``."""
        return one_or_mixed([call.version.version for call in self.calls])

    @property
    def role(self) -> str:
        """Return the role of who answered, or ``mixed``."""
        return one_or_mixed([call.role.value for call in self.calls])


class Worded(NamedTuple):
    """An answer in the words of a protocol."""

    headers: list[Header]
    """Beside the receipt's, with the content type."""
    body: bytes


class Outcome(NamedTuple):
    """What comes of a call: an answer, or an error of the first row that failed or of the call itself."""

    worded: Worded | None = None
    error: UnderstudyError | None = None
    row: int | None = None
    """The row that failed, of several."""
    receipt: tuple[Header, ...] = ()
    """Empty without a route."""


class Reading(NamedTuple):
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
        """Whether a body is read on the event loop, in about a millisecond."""

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """Read a call.

        Args:
            body: The whole of it, uncompressed.
            fields: Its headers.
            version: Its inputs are what the caller names: the champion, or the version that is asked for.

        Raises:
            RequestError: It cannot be read.
        """


def is_short_json(body: bytes) -> bool:
    """Whether JSON is read on the event loop; its commas tell how many elements it has at most."""
    return len(body) <= INLINE_BYTES and body.count(b",") < INLINE_ELEMENTS


def one_or_mixed(names: Sequence[str]) -> str:
    """Return what all rows have in common, or ``mixed``."""
    return names[0] if len(names) == 1 or len(set(names)) == 1 else "mixed"


def output_of(calls: Sequence[Call]) -> Output:
    """Return the output of calls that are all answered.

    Raises:
        BadAnswer: The versions that answered have outputs of different names, datatypes or shapes.
    """
    if len(calls) == 1:
        (call,), row = calls, _row_of(calls[0])
        return Output(_name_of(call, row), row.datatype, row.shape, (row.content,))
    rows = [_row_of(call) for call in calls]
    kinds = {(_name_of(call, row), row.datatype, row.shape) for call, row in zip(calls, rows, strict=True)}
    if len(kinds) > 1:
        raise _differ(calls)
    ((name, datatype, shape),) = kinds
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


def _row_of(call: Call) -> RowOutput:
    output = getattr(call.prediction, "output", None)
    assert isinstance(output, RowOutput)
    return output


def _name_of(call: Call, row: RowOutput) -> str:
    return row.name or call.version.output_schema.tensor or UNNAMED_OUTPUT
