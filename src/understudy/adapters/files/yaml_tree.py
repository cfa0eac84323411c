"""YAML and JSON as a tree that knows its places: PyYAML's scanner and parser, without its ideas of types.

A plain word is kept as it was written, so that the version 1.10 is no number and the guard ``off`` no flag. Aliases and
tags are refused: no file needs them, and what they build has no bound.
"""

from collections.abc import Iterator
from typing import Any

from yaml import MarkedYAMLError, SafeLoader, parse
from yaml.error import Mark
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.reader import ReaderError

from understudy.core.routing.policy_file import Entries, Items, Node, Place, Scalar

MAX_BYTES = 65_536
"""Of a file: the parser is written in Python and reads about a megabyte a second."""
MAX_DEPTH = 8
"""Of lists and mappings in each other; a policy has two."""


class TreeRefused(Exception):
    """The file is no YAML, or more than is read of it."""

    def __init__(self, place: Place, detail: str) -> None:
        super().__init__(detail)
        self.place = place
        self.detail = detail


def read_documents(content: bytes, *, is_json: bool = False, max_bytes: int = MAX_BYTES) -> list[Node]:
    """Return the documents of a file, without empty ones.

    Args:
        content: The file, in UTF-8.
        is_json: Whether tabs are blanks, as in JSON.
        max_bytes: What a file may have.

    Raises:
        TreeRefused: Naming the first place that cannot be read.
    """
    if len(content) > max_bytes:
        raise TreeRefused(Place(1, 1), f"a file has at most {max_bytes:,} bytes, this one has {len(content):,}")
    text = _decoded(content)
    try:
        # In JSON a tab is never part of a text.
        return list(_documents(parse(text.replace("\t", " ") if is_json else text, SafeLoader)))
    except ReaderError as problem:
        raise TreeRefused(_place_in(text, problem.position), "there is a character that no text may have") from None
    except MarkedYAMLError as problem:
        said = " ".join(str(problem.problem or problem.context).split())
        raise TreeRefused(_place(problem.problem_mark or problem.context_mark), f"it is no YAML: {said}") from None


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        before = content[: problem.start].decode("utf-8-sig")
        raise TreeRefused(_place_in(before, len(before)), "this is no UTF-8") from None


def _documents(events: Iterator[Any]) -> Iterator[Node]:
    for event in events:
        if isinstance(event, DocumentStartEvent):
            document = _tree(next(events), events, 0)
            if not (isinstance(document, Scalar) and document.is_null):
                yield document


def _tree(event: Any, events: Iterator[Any], depth: int) -> Node:
    """Return what begins with an event; its own last event is read with it."""
    place = _place(event.start_mark)
    if isinstance(event, AliasEvent) or event.anchor is not None:
        raise TreeRefused(place, "anchors and aliases are not read: each document stands for itself")
    if event.tag is not None:
        raise TreeRefused(place, f"tags are not read, such as {event.tag}")
    if isinstance(event, ScalarEvent):
        return Scalar(place, _whole(event.value), is_quoted=event.style is not None)
    if depth >= MAX_DEPTH:
        raise TreeRefused(place, f"lists and mappings are {MAX_DEPTH} deep at most")
    if isinstance(event, SequenceStartEvent):
        for _ in _until(SequenceEndEvent, events, depth):
            pass
        return Items(place)
    return Entries(place, list(_entries(events, depth)))


def _until(end: type[Any], events: Iterator[Any], depth: int) -> Iterator[Node]:
    """Yield what lies in a list or mapping, one level below ``depth``, up to its last event."""
    for event in events:
        if isinstance(event, end):
            return
        yield _tree(event, events, depth + 1)


def _entries(events: Iterator[Any], depth: int) -> Iterator[tuple[Scalar, Node]]:
    inside = _until(MappingEndEvent, events, depth)
    for name in inside:
        if not isinstance(name, Scalar):
            raise TreeRefused(name.place, "a field's name is a word, not a list or a mapping")
        yield name, next(inside)


def _whole(text: str) -> str:
    r"""Return a text whose characters beyond 65,535 JSON wrote as two halves: ``\ud83d\ude00``."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if not text.isascii() else text


def _place(mark: Mark | None) -> Place:
    return Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)


def _place_in(text: str, position: int) -> Place:
    before = text[:position]
    return Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
