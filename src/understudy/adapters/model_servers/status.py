"""What a gRPC status means: for the replica that gave it, for the caller, and in words."""

import grpc
import grpc.aio

from understudy.core.upstream.replicas import CallResult
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded

MAX_DETAIL_CHARACTERS = 200
"""Characters that are kept of what a model server says about a call that it refused."""

_RESULTS = {
    grpc.StatusCode.UNAVAILABLE: CallResult.UNAVAILABLE,
    grpc.StatusCode.CANCELLED: CallResult.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: CallResult.LATE,
    # Given at once and to every call: as refusals they would draw all calls to the replica that is least busy.
    grpc.StatusCode.NOT_FOUND: CallResult.UNABLE,
    grpc.StatusCode.UNIMPLEMENTED: CallResult.UNABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: CallResult.UNABLE,
    grpc.StatusCode.UNAUTHENTICATED: CallResult.UNABLE,
    grpc.StatusCode.PERMISSION_DENIED: CallResult.UNABLE,
}
"""What a status says about the replica; all others are refusals of the call."""
_TOO_LARGE = ("larger than max", "exceeds maximum size")
"""What gRPC (C and Go; Java) writes into RESOURCE_EXHAUSTED for one message over a limit, ours or the server's."""
_RESET = "Received RST_STREAM"
"""What gRPC writes into the details when the peer reset the stream; the code is INTERNAL for most reasons."""


class NotTaken(Exception):
    """The replica did not take or finish the call; another one may."""

    def __init__(self, result: CallResult, code: grpc.StatusCode, why: str = "", said: str = "") -> None:
        super().__init__(code.name)
        self.result = result
        self.code = code
        self.why = why
        self.said = said


def result_of(error: grpc.aio.AioRpcError, refusal_mark: str | None) -> CallResult:
    """Return what a failed call says about its replica; ``refusal_mark``: as in ``ServerTraits``."""
    details = error.details() or ""
    if refusal_mark is not None and refusal_mark in details:
        return CallResult.REFUSED
    if _RESET in details:
        return CallResult.UNAVAILABLE
    if any(mark in details for mark in _TOO_LARGE):
        return CallResult.REFUSED
    return _RESULTS.get(error.code(), CallResult.REFUSED)


def translated(error: grpc.aio.AioRpcError, result: CallResult, budget_seconds: float) -> Exception:
    """Return what is raised for a failed call: :class:`NotTaken` when another replica may take it."""
    if result is CallResult.LATE:
        return DeadlineExceeded("upstream", budget_seconds)
    if result.is_failure:
        return NotTaken(result, error.code(), why_no_handshake(error.details() or ""), said(error))
    problem = BadAnswer(f"the model server refused the call with {error.code().name}")
    problem.said = said(error)
    return problem


def unavailable(not_taken: NotTaken) -> BackendUnavailable:
    """Return what a caller is told when no replica took the call."""
    why = f"; {not_taken.why}" if not_taken.why else ""
    problem = BackendUnavailable(f"no model server of the version takes the call ({not_taken.code.name}{why})")
    problem.said = not_taken.said
    return problem


def closed() -> BackendUnavailable:
    """Return what a caller is told whose call outlived the connections."""
    return BackendUnavailable("the connections to the model version are closed")


def said(error: grpc.aio.AioRpcError) -> str:
    """Return the server's own words about a call: one line, printable, of bounded length."""
    words = " ".join((error.details() or "").split())
    return "".join(letter for letter in words if letter.isprintable())[:MAX_DETAIL_CHARACTERS]


def why_no_handshake(details: str) -> str:
    """Return what to look at when TLS failed; gRPC's own words stay out, they may quote the server."""
    lowered = details.lower()
    if "hostname verification" in lowered or "peer name" in lowered:
        return "its certificate is for another host name"
    if "certificate_verify_failed" in lowered or "certificate verify failed" in lowered:
        return "its certificate is not signed by a trusted authority: see backend.tls"
    if "wrong_version_number" in lowered or "handshake failed" in lowered:
        return "it does not speak TLS, which backend.tls asks for"
    return ""
