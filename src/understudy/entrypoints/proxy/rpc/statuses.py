"""Errors as gRPC statuses: code, sentence and trailing metadata."""

from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import quote

import grpc
import orjson

from understudy import errors
from understudy.entrypoints.proxy.dialects.refusals import sentence_of
from understudy.entrypoints.proxy.messages.problems import status_of
from understudy.errors import UnderstudyError

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
_CODES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    412: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    421: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    428: grpc.StatusCode.FAILED_PRECONDITION,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    502: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""By the status that the same error has over HTTP."""
CODE, ERRORS = "understudy-code", "understudy-errors-bin"
PUSHBACK = "grpc-retry-pushback-ms"
NEVER = "-1"
"""Clients that see it try no more by themselves (gRFC A6)."""
MAX_SENTENCE_BYTES = 1_024
"""Of a sentence as it is sent, percent-encoded. Clients take some 8 KiB of metadata with an answer, and break off a
call that has more."""
MAX_PROBLEM_BYTES = 3_072


def code_of(error: UnderstudyError) -> grpc.StatusCode:
    """Return the status code of an error."""
    if isinstance(error, errors.Overloaded):  # clients try UNAVAILABLE again by themselves, and make an overload worse
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    return _CODES[status_of(error)]


def status_parts(error: UnderstudyError, path: str, row: int | None) -> tuple[str, Metadata]:
    """Return the sentence of a status, and the trailing metadata that programs read.

    Args:
        error: What went wrong.
        path: The method's.
        row: The row that failed, of several.
    """
    problem = sentence_of(error, path, row)
    sentence = str(problem.pop("error"))
    found: list[tuple[str, str | bytes]] = [(CODE, error.code)]
    if error.retry_after_seconds is not None:
        found.append(("retry-after", str(error.retry_after_seconds)))
    if isinstance(error, errors.Overloaded):
        found.append((PUSHBACK, NEVER))
    elif code_of(error) is grpc.StatusCode.UNAVAILABLE:
        found.append((PUSHBACK, str(1_000 * (error.retry_after_seconds or 1))))
    text = orjson.dumps(problem)
    while len(text) > MAX_PROBLEM_BYTES and problem.get("errors"):
        problem["errors"] = problem["errors"][: len(problem["errors"]) // 2]
        text = orjson.dumps(problem)
    if len(text) <= MAX_PROBLEM_BYTES:
        found.append((ERRORS, text))
    return _shortened(sentence), tuple(found)


def _shortened(sentence: str) -> str:
    """Return as much of a sentence as its bound takes; a character that is no ASCII takes six bytes or more."""
    if len(quote(sentence)) <= MAX_SENTENCE_BYTES:
        return sentence
    kept, room = [], MAX_SENTENCE_BYTES - len(quote("…"))
    for character in sentence:
        room -= len(quote(character))
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"
