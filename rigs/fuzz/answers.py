"""Answers as bytes, read without a client library: it would forgive what a test must see."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

_STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3})[^\r\n\x00]*")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t\x20-\x7e\x80-\xff]*)")


class NoAnswer(Exception):
    """The bytes are no HTTP answer."""


class Answer(NamedTuple):
    """One answer."""

    status: int
    headers: Mapping[str, bytes]
    body: bytes

    def document(self) -> Any:
        """Return the body's JSON, or ``None``."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


def parse_answers(data: bytes) -> list[Answer]:
    """Return all answers in the bytes of a connection that is over, interim ones left out.

    Raises:
        NoAnswer: There is something else among them, or the last one is not whole.
    """
    answers = []
    while data:
        head, found, rest = data.partition(b"\r\n\r\n")
        if not found:
            raise NoAnswer(f"{len(data)} bytes behind the last answer, without the end of a head")
        status, headers = parse_head(head)
        if status < 200:  # noqa: PLR2004 - interim
            data = rest
            continue
        length = headers.get("content-length")
        # A plain-text refusal of uvicorn's has no length: it ends with the connection.
        size = len(rest) if length is None else int(length)
        if len(rest) < size:
            raise NoAnswer(f"an answer of {size} bytes ends after {len(rest)}")
        answers.append(Answer(status, headers, rest[:size]))
        data = rest[size:]
    return answers


def parse_head(head: bytes) -> tuple[int, dict[str, bytes]]:
    """Return the status and the header fields of a head without its last empty line.

    Raises:
        NoAnswer: It is not one, byte for byte.
    """
    first, *lines = head.split(b"\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise NoAnswer(f"no status line: {first[:60]!r}")
    headers: dict[str, bytes] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise NoAnswer(f"no header field: {line[:60]!r}")
        headers[field.group(1).decode().lower()] = field.group(2)
    return int(found.group(1)), headers
