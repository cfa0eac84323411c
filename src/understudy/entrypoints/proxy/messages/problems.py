"""Errors as RFC 9457 problems: the one place that knows an error's HTTP status."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from understudy import errors
from understudy.entrypoints.proxy.messages.headers import header_lines
from understudy.errors import RequestError, UnderstudyError, Violation

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
    errors.CrossSiteRequest: 403,
    errors.NotOffered: 501,
    errors.UnknownModel: 404,
    errors.UnknownVersion: 404,
    errors.UnknownRoute: 404,
    errors.MethodNotAllowed: 405,
    errors.HostUnknown: 421,
    errors.GenerationNotNamed: 428,
    errors.QuotaExceeded: 429,
    errors.Unauthenticated: 401,
    errors.ScopeMissing: 403,
    errors.TooManyLogins: 429,
    errors.FormOfAnotherSession: 403,
    errors.ActNotConfirmed: 422,
    errors.BadAnswer: 502,
    errors.BackendUnavailable: 503,
    errors.VersionUnloaded: 503,
    errors.DeadlineExceeded: 504,
    errors.FeaturesUnavailable: 503,
    errors.PolicyNotLoaded: 503,
    errors.Overloaded: 503,
    errors.NotLogged: 503,
    errors.TokenKeysAway: 503,
    errors.InternalFault: 500,
    errors.PolicyRefused: 409,
    errors.SchemaInvalid: 422,
    errors.AlreadyRegistered: 409,
    errors.NotRegistered: 404,
    errors.VersionNotReady: 409,
    errors.ArchiveDiffers: 409,
    errors.ArchiveBusy: 409,
    errors.DataWouldBeLost: 409,
    errors.MigrationBlocked: 503,
    errors.ArtifactDiffers: 409,
    errors.ArtifactUnreachable: 503,
    errors.ArtifactForbidden: 403,
    errors.ArtifactNotTaken: 422,
    errors.NothingFits: 409,
    errors.ServerTaken: 409,
    errors.ServerNotManageable: 503,
    errors.NotValidated: 409,
    errors.LoadRefused: 409,
    errors.SchemaNotTold: 422,
    errors.ModelContradicts: 409,
    errors.VersionInUse: 409,
    errors.PolicyFileInvalid: 422,
    errors.PolicyContradicted: 409,
    errors.DatabaseNeeded: 409,
    errors.DeclaredOtherwise: 409,
    errors.NotDeclarable: 409,
    errors.SourceAway: 503,
    errors.GenerationMoved: 412,
    errors.RegistryUnavailable: 503,
    errors.LoginNotAllowed: 503,
    errors.ControlPlaneAway: 503,
    errors.MigrationNeeded: 503,
    errors.ArchiveUnavailable: 503,
    errors.LakeUnavailable: 503,
    errors.LeadershipLost: 503,
}
_KINDS = {kind.code: kind for kind in STATUS}
MAX_PLACES_BYTES = 65_536
"""Of the JSON of all places that the answer to one request names."""
MAX_PATH_SHOWN = 255
"""Characters of the path that a problem names."""
PROBLEM_JSON = b"application/problem+json"


def status_of(error: UnderstudyError) -> int:
    """Return the HTTP status of an error."""
    return STATUS[type(error)]


class Places:
    """Room for the places that the answer to one request names: 1,000, and 64 KiB of JSON.

    The members of a batch share it; the first ones are named.
    """

    def __init__(self) -> None:
        self._left = errors.MAX_VIOLATIONS
        self._bytes_left = MAX_PLACES_BYTES

    def take(self, violations: Sequence[Violation]) -> list[dict[str, str]]:
        """Return as many of the violations, as JSON, as there is room for."""
        named: list[dict[str, str]] = []
        for violation in violations[: self._left]:
            place = violation._asdict()
            self._bytes_left -= len(orjson.dumps(place)) + 1
            if self._bytes_left < 0:
                self._left = 0
                return named
            named.append(place)
        self._left -= len(named)
        return named


def problem_of(error: UnderstudyError, path: str, places: Places | None = None) -> dict[str, Any]:
    """Return the problem document. Its ``error`` makes it a valid Open Inference Protocol error too.

    Args:
        error: What went wrong.
        path: The path of the request.
        places: What the whole answer may name, where there are several problems.
    """
    problem = _problem(type(error), error.detail, error.next_step, path[:MAX_PATH_SHOWN])
    if isinstance(error, RequestError) and error.violations:
        named = (places or Places()).take(error.violations)
        if named:
            problem["errors"] = named
        else:
            problem["detail"] += "; the answer names no more places"
    return problem


def problem_body(error: UnderstudyError, path: str) -> bytes:
    """Return the problem as JSON; characters of the path that are not UTF-8 are replaced."""
    if isinstance(error, RequestError) and error.violations:
        return orjson.dumps(problem_of(error, _clean(path)))
    return _body(error.code, error.detail, error.next_step, path[:MAX_PATH_SHOWN])


def problem_headers(error: UnderstudyError) -> list[tuple[bytes, bytes]]:
    """Return the headers that the error itself asks for."""
    return _headers(type(error), error.retry_after_seconds, ends_connection=error.ends_connection)


def problem_lines(error: UnderstudyError) -> bytes:
    """Return :func:`problem_headers` as header lines."""
    return _lines(error.code, error.retry_after_seconds, error.ends_connection)


def _headers(
    kind: type[UnderstudyError], retry_after_seconds: int | None, *, ends_connection: bool
) -> list[tuple[bytes, bytes]]:
    headers = [(b"content-type", PROBLEM_JSON)]
    if retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % retry_after_seconds))
    if issubclass(kind, errors.Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if ends_connection:
        headers.append((b"connection", b"close"))  # the rest of the body would be parsed as the next request
    return headers


@lru_cache(maxsize=256)
def _lines(code: str, retry_after_seconds: int | None, ends_connection: bool) -> bytes:  # noqa: FBT001 - cached by place
    return header_lines(_headers(_KINDS[code], retry_after_seconds, ends_connection=ends_connection))


def _problem(kind: type[UnderstudyError], detail: str, next_step: str, path: str) -> dict[str, Any]:
    return {
        "type": f"/problems/{kind.code}",
        "title": kind.title,
        "status": STATUS[kind],
        "code": kind.code,
        "detail": detail,
        "instance": path,
        "error": kind.title,
        "next": next_step,
    }


@lru_cache(maxsize=256)
def _body(code: str, detail: str, next_step: str, path: str) -> bytes:
    """Return the cached body of a problem: under overload hundreds of calls are refused with the same one."""
    return orjson.dumps(_problem(_KINDS[code], detail, next_step, _clean(path)))


def _clean(path: str) -> str:
    return path.encode(errors="replace").decode()
