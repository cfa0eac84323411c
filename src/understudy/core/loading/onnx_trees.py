"""How much of an ONNX file is trees: a runtime takes an order of magnitude more memory for those than for weights.

Source:
    The numbers of the fields in onnx.proto, and protobuf's wire format.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

GRAPH: Final = 7
NODE: Final = 1
OP_TYPE: Final = 4
TREES: Final = b"TreeEnsemble"
"""What the operators begin with that have trees."""
MAX_VARINT: Final = 10
"""Bytes of one."""
MORE: Final = 0x80
"""Set in each of its bytes but the last one."""
MAX_FIELDS: Final = 1_000_000
"""Fields of a file that are walked, in about a second. A model has a field for each operator and each weight."""


class _TooManyFields(Exception):
    pass


class _Field(NamedTuple):
    number: int
    start: int
    """Of its content; a number has none."""
    end: int


def tree_bytes(content: bytes | memoryview) -> int:
    """Return how many bytes of an ONNX file are operators with trees.

    Of what is no ONNX file that is 0; of one with more than ``MAX_FIELDS`` fields all of it, which expects too much
    memory rather than too little.
    """
    left = iter(range(MAX_FIELDS))
    try:
        return sum(
            node.end - node.start
            for graph in _fields(content, 0, len(content), left)
            if graph.number == GRAPH
            for node in _fields(content, graph.start, graph.end, left)
            if node.number == NODE and _has_trees(content, node, left)
        )
    except (ValueError, IndexError):
        return 0
    except _TooManyFields:
        return len(content)


def _has_trees(content: bytes | memoryview, node: _Field, left: Iterator[int]) -> bool:
    return any(
        field.number == OP_TYPE and bytes(content[field.start : field.start + len(TREES)]) == TREES
        for field in _fields(content, node.start, node.end, left)
    )


def _fields(content: bytes | memoryview, start: int, end: int, left: Iterator[int]) -> Iterator[_Field]:
    """Walk the fields of one message; only their heads are read. Each takes one of those that may be walked."""
    while start < end:
        if next(left, None) is None:
            raise _TooManyFields
        key, start = _number(content, start)
        field = _Field(key >> 3, *_span(content, key & 7, start))
        if field.end > end:
            raise ValueError("a field ends behind its message")
        yield field
        start = field.end


def _span(content: bytes | memoryview, kind: int, start: int) -> tuple[int, int]:
    """Return where a field's content begins and ends."""
    match kind:
        case 0:
            _, end = _number(content, start)
            return end, end
        case 1:
            return start, start + 8
        case 2:
            size, first = _number(content, start)
            return first, first + size
        case 5:
            return start, start + 4
        case _:
            raise ValueError("no field of protobuf")


def _number(content: bytes | memoryview, start: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    value = 0
    for place in range(MAX_VARINT):
        byte = content[start + place]
        value |= (byte & ~MORE) << (7 * place)
        if not byte & MORE:
            return value, start + place + 1
    raise ValueError("no number of protobuf")
