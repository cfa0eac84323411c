"""Reads the inputs and outputs of an ONNX file by the fields of its protobuf message that say them.

Neither the ``onnx`` package nor protobuf is needed, and weights are passed over in the file: of a model of any size
some kilobytes are read. Source of the field numbers: ``onnx.proto`` of ONNX 1.17 (Apache-2.0).
"""

from collections.abc import Iterator
from os import SEEK_CUR, SEEK_END
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.regular_file import open_regular
from understudy.core.schema.described import FREE, MAX_DESCRIBED, DescribedModel, DescribedTensor

MAX_FIELDS: Final = 1_000_000
"""Of the file that are looked at or passed over, in three seconds: each node of the graph is one, each weight some."""
MAX_TEXT: Final = 1_024
"""Bytes of a name."""
MAX_DIMENSIONS: Final = 32
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODEL_GRAPH: Final = 7
_GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 5, 11, 12
_TENSOR_NAME: Final = 8
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TYPE_TENSOR: Final = 1
_TENSOR_ELEMENT, _TENSOR_SHAPE = 1, 2
_DIMENSION_SIZE: Final = 1
_ELEMENTS: Final = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "BYTES", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 14: "COMPLEX64", 15: "COMPLEX128", 16: "BF16",
}  # fmt: skip
_OTHER_TYPES: Final = {4: "a sequence", 5: "a map", 8: "a sparse tensor", 9: "an optional value"}
_NEXT_STEP: Final = "Name an ONNX file; skl2onnx, torch.onnx.export and tf2onnx write one."


class _Message(NamedTuple):
    """A message within the file."""

    start: int
    end: int


class _Field(NamedTuple):
    number: int
    value: int
    """Of a number; of everything else 0."""
    content: _Message | None
    """Where bytes lie: a message, a text or weights."""


def read_onnx(path: Path) -> DescribedModel:
    """Return the inputs and outputs of an ONNX file.

    Raises:
        FileRefused: It cannot be read, or is no ONNX model.
    """
    try:
        with open_regular(path) as file:
            size = file.seek(0, SEEK_END)
            return _Reader(file, str(path)).model(_Message(0, size))
    except OSError as problem:
        raise FileRefused(f"{path} cannot be read: {problem.strerror or problem}", _NEXT_STEP) from None
    except _NotRead as problem:
        raise FileRefused(f"{path} is no ONNX model that can be read: {problem}", _NEXT_STEP) from None


class _NotRead(Exception):
    pass


class _Reader:
    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._left = MAX_FIELDS

    def model(self, whole: _Message) -> DescribedModel:
        graphs = [field.content for field in self._fields(whole) if field.number == _MODEL_GRAPH and field.content]
        if len(graphs) != 1:
            raise _NotRead("it holds no graph" if not graphs else "it holds several graphs")
        weights: set[str] = set()
        inputs: list[DescribedTensor] = []
        outputs: list[DescribedTensor] = []
        for field in self._fields(graphs[0]):
            if field.content is None:
                continue
            if field.number == _GRAPH_INITIALIZER:
                weights.add(self._weight(field.content))
            elif field.number in (_GRAPH_INPUT, _GRAPH_OUTPUT):
                (inputs if field.number == _GRAPH_INPUT else outputs).append(self._value(field.content))
                if max(len(inputs), len(outputs)) > MAX_DESCRIBED:
                    raise _NotRead(f"it has more than {MAX_DESCRIBED:,} inputs or outputs")
        # Up to IR version 3 a weight is listed among the inputs too; in later ones it is an input with a default.
        asked = tuple(one for one in inputs if one.name not in weights)
        return DescribedModel(self._name, asked, tuple(outputs), "onnx")

    def _weight(self, message: _Message) -> str:
        names = [field.content for field in self._fields(message) if field.number == _TENSOR_NAME and field.content]
        return self._text(names[-1]) if names else ""

    def _value(self, message: _Message) -> DescribedTensor:
        name, datatype, shape = "", "of no datatype", None
        for field in self._fields(message):
            if field.number == _VALUE_NAME and field.content:
                name = self._text(field.content)
            elif field.number == _VALUE_TYPE and field.content:
                datatype, shape = self._type(field.content)
        return DescribedTensor(name, datatype, shape)

    def _type(self, message: _Message) -> tuple[str, tuple[int, ...] | None]:
        for field in self._fields(message):
            if field.number in _OTHER_TYPES:
                return _OTHER_TYPES[field.number], None
            if field.number == _TYPE_TENSOR and field.content:
                return self._tensor(field.content)
        return "of no datatype", None

    def _tensor(self, message: _Message) -> tuple[str, tuple[int, ...] | None]:
        element, shape = 0, None
        for field in self._fields(message):
            if field.number == _TENSOR_ELEMENT:
                element = field.value
            elif field.number == _TENSOR_SHAPE and field.content:
                sizes = [self._size(one.content) for one in self._fields(field.content) if one.content]
                if len(sizes) > MAX_DIMENSIONS:
                    raise _NotRead(f"a tensor has more than {MAX_DIMENSIONS} dimensions")
                shape = tuple(sizes)
        return _ELEMENTS.get(element, f"element type {element}"), shape

    def _size(self, message: _Message) -> int:
        """Return a dimension; one with a name, or with nothing, is free."""
        sizes = [field.value for field in self._fields(message) if field.number == _DIMENSION_SIZE]
        return sizes[-1] if sizes and 0 < sizes[-1] < 2**31 else FREE

    def _fields(self, message: _Message) -> Iterator[_Field]:
        place = message.start
        while place < message.end:
            self._left -= 1
            if self._left < 0:
                raise _NotRead(f"it has more than {MAX_FIELDS:,} fields")
            self._file.seek(place)
            tag = self._varint(message.end)
            number, kind = tag >> 3, tag & 7
            value, content = 0, None
            if kind == _VARINT:
                value = self._varint(message.end)
            elif kind == _BYTES:
                length = self._varint(message.end)
                start = self._file.tell()
                if length > message.end - start:
                    raise _NotRead("it ends within a field")
                content = _Message(start, start + length)
                self._file.seek(length, SEEK_CUR)
            elif kind in (_FIXED32, _FIXED64):
                self._file.seek(4 if kind == _FIXED32 else 8, SEEK_CUR)
            else:
                raise _NotRead("it is no protobuf message")
            place = self._file.tell()
            if place > message.end or not number:
                raise _NotRead("it ends within a field")
            yield _Field(number, value, content)

    def _varint(self, end: int) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._file.read(1)
            if not byte or self._file.tell() > end:
                raise _NotRead("it ends within a field")
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:  # noqa: PLR2004 - the bit that says that another byte follows
                return value
        raise _NotRead("it is no protobuf message")

    def _text(self, message: _Message) -> str:
        if message.end - message.start > MAX_TEXT:
            raise _NotRead(f"a name has more than {MAX_TEXT:,} bytes")
        self._file.seek(message.start)
        try:
            return self._file.read(message.end - message.start).decode()
        except UnicodeDecodeError:
            raise _NotRead("a name is no UTF-8") from None
