"""Errors as RFC 9457 problems: the one place that knows an error's HTTP status."""

from collections.abc import Mapping
from typing import Any

import orjson

from understudy import errors
from understudy.errors import RequestError, UnderstudyError

STATUS: Mapping[type[UnderstudyError], int] = {
    errors.MalformedBody: 400,
    errors.InputInvalid: 422,
    errors.EntityIdInvalid: 422,
    errors.BodyTooLarge: 413,
    errors.HeaderInvalid: 400,
    errors.BatchInvalid: 422,
    errors.QueryInvalid: 400,
    errors.RequestTimedOut: 408,
    errors.BodyInvalid: 422,
    errors.NotRankable: 409,
    errors.UnknownModel: 404,
    errors.UnknownVersion: 404,
    errors.UnknownRoute: 404,
    errors.MethodNotAllowed: 405,
    errors.GenerationNotNamed: 428,
    errors.QuotaExceeded: 429,
    errors.Unauthenticated: 401,
    errors.ScopeMissing: 403,
    errors.BadAnswer: 502,
    errors.BackendUnavailable: 503,
    errors.DeadlineExceeded: 504,
    errors.FeaturesUnavailable: 503,
    errors.PolicyNotLoaded: 503,
    errors.Overloaded: 503,
    errors.InternalFault: 500,
    errors.PolicyRefused: 409,
    errors.SchemaInvalid: 422,
    errors.AlreadyRegistered: 409,
    errors.NotRegistered: 404,
    errors.VersionNotReady: 409,
    errors.ArchiveDiffers: 409,
    errors.ArchiveBusy: 409,
    errors.GenerationMoved: 412,
    errors.RegistryUnavailable: 503,
    errors.MigrationNeeded: 503,
    errors.ArchiveUnavailable: 503,
    errors.LeadershipLost: 503,
}
MAX_PATH_SHOWN = 255
"""Characters of the path that a problem names."""
PROBLEM_JSON = b"application/problem+json"


def status_of(error: UnderstudyError) -> int:
    """Return the HTTP status of an error."""
    return STATUS[type(error)]


def problem_of(error: UnderstudyError, path: str) -> dict[str, Any]:
    """Return the problem document. ``error`` beside ``title`` makes it a valid Open Inference Protocol error too."""
    problem: dict[str, Any] = {
        "type": f"/problems/{error.code}",
        "title": error.title,
        "status": status_of(error),
        "code": error.code,
        "detail": error.detail,
        "instance": path[:MAX_PATH_SHOWN],
        "error": error.title,
        "next": error.next_step,
    }
    if isinstance(error, RequestError) and error.violations:
        problem["errors"] = [
            {"pointer": violation.pointer, "detail": violation.detail} for violation in error.violations
        ]
    return problem


def problem_body(error: UnderstudyError, path: str) -> bytes:
    """Return the problem as JSON; a path that is no clean text is shown as far as it is."""
    return orjson.dumps(problem_of(error, path.encode(errors="replace").decode()))


def problem_headers(error: UnderstudyError) -> list[tuple[bytes, bytes]]:
    """Return the headers that the error itself asks for."""
    headers = [(b"content-type", PROBLEM_JSON)]
    if error.retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after_seconds))
    if isinstance(error, errors.Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, errors.RequestTimedOut):
        headers.append((b"connection", b"close"))  # what still comes would be read as the next request
    return headers
