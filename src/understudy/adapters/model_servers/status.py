"""What the end of a call means, by its gRPC status or over HTTP: for the replica, for the caller, and in words."""

import grpc
import grpc.aio

from understudy.adapters.model_servers.http_failures import HttpCallFailed
from understudy.core.upstream.replicas import CallResult
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded
from understudy.ports.telemetry.tracing import Attributes

MAX_DETAIL_CHARACTERS = 200
"""Characters that are kept of what a model server says about a call that it refused."""

CALL_FAILED = (grpc.aio.AioRpcError, HttpCallFailed)
"""What a call raises that failed, by its protocol."""
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
_OTHER_NAME = ("hostname verification", "peer name", "hostname mismatch", "ip address mismatch")
"""What gRPC and Python's ``ssl`` say of a certificate for another name."""
_RESET = "Received RST_STREAM"
"""What gRPC writes into the details when the peer reset the stream; the code is INTERNAL for most reasons."""


class NotTaken(Exception):
    """The replica did not take or finish the call; another one may."""

    def __init__(self, result: CallResult, what: str, why: str = "", said: str = "") -> None:
        super().__init__(what)
        self.result = result
        self.what = what
        """How the call ended: the name of its gRPC status, or over HTTP ``HTTP 503``."""
        self.why = why
        self.said = said


def result_of(error: grpc.aio.AioRpcError | HttpCallFailed, refusal_mark: str | None) -> CallResult:
    """Return what a failed call says about its replica; ``refusal_mark``: as in ``ServerTraits``."""
    if isinstance(error, HttpCallFailed):
        return error.result
    details = error.details() or ""
    if refusal_mark is not None and refusal_mark in details:
        return CallResult.REFUSED
    if _RESET in details:
        return CallResult.UNAVAILABLE
    if any(mark in details for mark in _TOO_LARGE):
        return CallResult.REFUSED
    return _RESULTS.get(error.code(), CallResult.REFUSED)


def translated(error: grpc.aio.AioRpcError | HttpCallFailed, result: CallResult, budget_seconds: float) -> Exception:
    """Return what is raised for a failed call: :class:`NotTaken` when another replica may take it."""
    if result is CallResult.LATE:
        return DeadlineExceeded("upstream", budget_seconds)
    if result.is_failure:
        return NotTaken(result, what_ended(error), _why(error), said(error))
    refused = f"refused the call with {what_ended(error)}"
    problem = BadAnswer(f"the model server {error.sent if isinstance(error, HttpCallFailed) else refused}")
    problem.said = said(error)
    return problem


def unavailable(not_taken: NotTaken) -> BackendUnavailable:
    """Return what a caller is told when no replica took the call."""
    why = f"; {not_taken.why}" if not_taken.why else ""
    problem = BackendUnavailable(f"no model server of the version takes the call ({not_taken.what}{why})")
    problem.said = not_taken.said
    return problem


def closed() -> BackendUnavailable:
    """Return what a caller is told whose call outlived the connections."""
    return BackendUnavailable("the connections to the model version are closed")


def what_ended(error: grpc.aio.AioRpcError | HttpCallFailed) -> str:
    """Return what a call ended with: the name of its gRPC status, or over HTTP ``HTTP 503``, or what broke."""
    return error.what if isinstance(error, HttpCallFailed) else error.code().name


def said(error: grpc.aio.AioRpcError | HttpCallFailed) -> str:
    """Return the server's own words about a call: one line, printable, of bounded length."""
    words = " ".join((error.said if isinstance(error, HttpCallFailed) else error.details() or "").split())
    return "".join(letter for letter in words if letter.isprintable())[:MAX_DETAIL_CHARACTERS]


def why_no_handshake(details: str) -> str:
    """Return what to look at when TLS failed; gRPC's own words stay out, they may quote the server."""
    lowered = details.lower()
    if any(mark in lowered for mark in _OTHER_NAME):
        return "its certificate is for another host name"
    if "certificate_verify_failed" in lowered or "certificate verify failed" in lowered:
        return "its certificate is not signed by a trusted authority: see backend.tls"
    if "wrong_version_number" in lowered or "handshake failed" in lowered:
        return "it does not speak TLS, which backend.tls asks for"
    if "alpn" in lowered:
        return "it speaks TLS without HTTP/2 (ALPN), over which gRPC goes"
    return ""


def why_no_connection(error: grpc.aio.AioRpcError | HttpCallFailed) -> str:
    """Return why a call found no connection, as far as that is known; empty where it had one."""
    if isinstance(error, HttpCallFailed):
        return error.why if error.is_unconnected else ""
    details = error.details() or ""
    refused = "nothing listens there" if "connection refused" in details.lower() else ""
    return why_no_handshake(details) or refused


def why_probe_failed(error: grpc.aio.AioRpcError | HttpCallFailed) -> str:
    """Return why a readiness probe has no answer, with the server's own words, which operators may read."""
    if isinstance(error, HttpCallFailed) and error.is_unconnected:
        return error.why
    words = said(error) or _why(error)
    return f"the readiness probe ended with {what_ended(error)}{f': {words}' if words else ''}"


def traced_end(error: Exception | None) -> Attributes:
    """Return what a span says of how a call ended; ``None``: it was answered, or cancelled."""
    if isinstance(error, grpc.aio.AioRpcError):
        return {"rpc.grpc.status_code": error.code().value[0]}
    return {"http.response.status_code": error.status} if isinstance(error, HttpCallFailed) and error.status else {}


def _why(error: grpc.aio.AioRpcError | HttpCallFailed) -> str:
    return error.why if isinstance(error, HttpCallFailed) else why_no_handshake(error.details() or "")
