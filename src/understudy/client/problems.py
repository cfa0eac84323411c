"""The proxy's problems (RFC 9457) as the errors that it raised."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from understudy.errors import DeadlineExceeded, RequestError, UnderstudyError, Violation, leaf_errors

MAX_ANSWER_BYTES = 8 * 1_048_576
_GOOD = frozenset({200, 201, 202})
_MAX_SECONDS_DIGITS = 6
_MAX_PLACES_SHOWN = 20
"""Of a request, in the text of its error; ``violations`` has all."""
_PASSING = frozenset({429, 502, 503, 504})
"""Statuses by which a load balancer, too, says that another attempt may do."""
_ERRORS: Mapping[str, type[UnderstudyError]] = {error.code: error for error in leaf_errors()}


class ProxyAway(Exception):
    """No server answers at the address, or it is no proxy; the text says which, what was called, and what to do next.

    Args:
        detail: What happened.
        is_passing: Whether another attempt may do.
        retry_after_seconds: What the server that answered asks for.
        hint: What to do next.
    """

    next_step: str
    called = ""
    """The method and the URL; empty where the caller of the client tells them."""
    tried = ""
    """How often it was called, and for how long."""

    def __init__(
        self, detail: str, *, is_passing: bool = True, retry_after_seconds: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(detail)
        self.is_passing = is_passing
        self.retry_after_seconds = retry_after_seconds
        self.next_step = hint

    def __str__(self) -> str:
        detail = str(self.args[0])
        if not self.called:
            return detail
        tried, then = (f" ({self.tried})" if self.tried else ""), (f". {self.next_step}" if self.next_step else "")
        return f"{self.called}: {detail}{tried}{then}"


NOT_THERE = (
    "Start a proxy there (understudy demo, or understudy serve proxy), or name another one with UNDERSTUDY_PROXY_URL "
    "or the client's url."
)
ANOTHER_SERVER = "Compare the address with the proxy's: UNDERSTUDY_PROXY_URL, or the client's url; and both releases."
LATE = (
    "Allow more time with timeout_seconds, of the client or of this call; docs/how-to/trace-a-call.md says how to find "
    "out which stage is slow."
)
"""What to do when no server answers, when one does that is no proxy, and when it is too late."""


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
        hint=ANOTHER_SERVER,
    )


def away(problem: Exception, called: str) -> ProxyAway:
    """Return what it means that the library found no server, or lost the one that it had.

    Args:
        problem: The library's.
        called: The method and the URL.
    """
    found = ProxyAway(f"no proxy answers: {str(problem) or type(problem).__name__}", hint=NOT_THERE)
    found.called = called
    return found


def late(seconds: float, called: str) -> DeadlineExceeded:
    """Return what it means that an answer did not come within this time; ``called`` as in :func:`away`."""
    found = DeadlineExceeded("answer", seconds)
    return _with_advice(found, f"{found.detail}: {called} has no answer yet")


def late_before(seconds: float) -> DeadlineExceeded:
    """Return what it means that a call has no time: its caller's own was over, by so many seconds below zero."""
    found = DeadlineExceeded("call", seconds)
    return _with_advice(found, f"timeout_seconds={seconds:g}: the time was over before the call, so none was made")


def _with_advice(found: DeadlineExceeded, text: str) -> DeadlineExceeded:
    found.args = (text,)
    found.next_step = LATE
    found.add_note(f"{found.code}, what to do next: {LATE}")
    return found


def retry_after(headers: Mapping[str, str]) -> int | None:
    """Return the seconds of ``Retry-After``; ``None`` where it is not there, or is a date."""
    said = headers.get("retry-after", "").strip()
    return int(said) if said.isascii() and said.isdigit() and len(said) <= _MAX_SECONDS_DIGITS else None


def error_of(document: Mapping[str, Any]) -> UnderstudyError | None:
    """Return the error of a problem; ``None`` when its code is unknown.

    Its text has the places of the request that are wrong, and its traceback what to do next; ``detail`` is the proxy's.
    """
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
        error.args = (_with_places(error),)
    error.add_note(f"{error.code}, what to do next: {error.next_step}")
    return error


def _with_places(error: RequestError) -> str:
    """Return what happened and in which places: a traceback, as a notebook shows it, has nothing else."""
    shown = error.violations[:_MAX_PLACES_SHOWN]
    more = len(error.violations) - len(shown)
    lines = [f"{place.pointer or 'the body'}: {place.detail}" for place in shown]
    return "\n  ".join([error.detail, *lines, *([f"and {more:,} more: violations has all"] if more else [])])
