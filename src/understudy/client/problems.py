"""The proxy's problems (RFC 9457) as the errors that it raised."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from understudy.errors import RequestError, UnderstudyError, Violation, leaf_errors

MAX_ANSWER_BYTES = 8 * 1_048_576
_GOOD = frozenset({200, 201, 202})
_MAX_SECONDS_DIGITS = 6
_PASSING = frozenset({429, 502, 503, 504})
"""Statuses by which a load balancer, too, says that another attempt may do."""
_ERRORS: Mapping[str, type[UnderstudyError]] = {error.code: error for error in leaf_errors()}


class ProxyAway(Exception):
    """No server answers at the address, or it is no proxy; the text says which.

    Args:
        detail: What happened.
        is_passing: Whether another attempt may do.
        retry_after_seconds: What the server that answered asks for.
    """

    def __init__(self, detail: str, *, is_passing: bool = True, retry_after_seconds: int | None = None) -> None:
        super().__init__(detail)
        self.is_passing = is_passing
        self.retry_after_seconds = retry_after_seconds


class AnswerTooLong(ProxyAway):
    """The answer is longer than this client reads: fewer things of a list may do."""


class Answer(NamedTuple):
    """A good answer: its JSON object, and its headers with names in lower case."""

    document: Mapping[str, Any]
    headers: Mapping[str, str]


def understood(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Return a good answer.

    Args:
        status: Of the HTTP answer.
        headers: With names in lower case.
        body: Whole.

    Raises:
        UnderstudyError: The leaf that the proxy's problem names.
        ProxyAway: It is no answer of a proxy, or of one of a later release.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, dict):
        if status in _GOOD:
            return Answer(document, headers)
        problem = error_of(document)
        if problem is not None:
            problem.retry_after_seconds = retry_after(headers)
            raise problem
    kind = headers.get("content-type", "no content type")
    what = "no Understudy proxy" if document is None else "no proxy of this version"
    raise ProxyAway(
        f"the server that answers is {what}: status {status}, {kind}",
        is_passing=status in _PASSING,
        retry_after_seconds=retry_after(headers),
    )


def retry_after(headers: Mapping[str, str]) -> int | None:
    """Return the seconds of ``Retry-After``; ``None`` where it is not there, or is a date."""
    said = headers.get("retry-after", "").strip()
    return int(said) if said.isascii() and said.isdigit() and len(said) <= _MAX_SECONDS_DIGITS else None


def error_of(document: Mapping[str, Any]) -> UnderstudyError | None:
    """Return the error of a problem; ``None`` when its code is unknown."""
    kind = _ERRORS.get(str(document.get("code")))
    if kind is None:
        return None
    # The constructors of leaves need more than a problem has, so only the texts are set.
    error = kind.__new__(kind)
    UnderstudyError.__init__(error, str(document.get("detail") or ""), hint=str(document.get("next") or "") or None)
    if isinstance(error, RequestError):
        places = document.get("errors")
        error.violations = tuple(
            Violation(str(place.get("pointer", "")), str(place.get("detail", "")))
            for place in (places if isinstance(places, list) else ())
            if isinstance(place, Mapping)
        )
    return error
