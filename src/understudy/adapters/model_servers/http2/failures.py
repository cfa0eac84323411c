"""How a call fails: the statuses that gRPC gives (doc/statuscodes.md), raised as its own library raises them."""

from collections.abc import Iterable, Mapping

import grpc
import grpc.aio

from understudy.adapters.http2.frames import ErrorCode
from understudy.adapters.model_servers.channels import MAX_ANSWER_BYTES
from understudy.adapters.model_servers.http2.answer_head import AnswerHead

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OF_RESET: Mapping[int, grpc.StatusCode] = {
    ErrorCode.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.CANCEL: grpc.StatusCode.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: grpc.StatusCode.PERMISSION_DENIED,
}
"""All others are INTERNAL."""
_OF_HTTP = {
    400: grpc.StatusCode.INTERNAL,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.UNAVAILABLE,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.UNAVAILABLE,
}
"""Of an answer without a gRPC status (doc/http-grpc-status-mapping.md); all others are UNKNOWN."""
HTTP_OK = 200


def failed(code: grpc.StatusCode, details: str, trailers: Iterable[tuple[bytes, bytes]] = ()) -> grpc.aio.AioRpcError:
    """Return a call's failure."""
    metadata = grpc.aio.Metadata(*((name.decode("latin-1"), value.decode("latin-1")) for name, value in trailers))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details=details)


def late() -> grpc.aio.AioRpcError:
    """Return the failure of a call whose time is over."""
    return failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def lost(why: str) -> grpc.aio.AioRpcError:
    """Return the failure of a call whose connection was lost, or was never made."""
    return failed(grpc.StatusCode.UNAVAILABLE, why)


def reset(code: int) -> grpc.aio.AioRpcError:
    """Return the failure of a call whose stream the server reset."""
    return failed(_OF_RESET.get(code, grpc.StatusCode.INTERNAL), f"Received RST_STREAM with error code {code}")


def too_long(size: int) -> grpc.aio.AioRpcError:
    """Return the failure of a call whose answer is longer than we take."""
    return failed(
        grpc.StatusCode.RESOURCE_EXHAUSTED, f"CLIENT: Received message larger than max ({size} vs. {MAX_ANSWER_BYTES})"
    )


def compressed() -> grpc.aio.AioRpcError:
    """Return the failure of a call whose answer is compressed, which is never asked for."""
    return failed(grpc.StatusCode.UNIMPLEMENTED, "the answer is compressed")


def malformed(why: str) -> grpc.aio.AioRpcError:
    """Return the failure of a call whose answer is none of gRPC's."""
    return failed(grpc.StatusCode.INTERNAL, why)


def ended_with(head: AnswerHead, http_status: int | None) -> grpc.aio.AioRpcError | None:
    """Return the failure that the last header block of an answer tells; ``None``: the call ended with OK."""
    if head.grpc_status == 0:
        return None
    if head.grpc_status is not None:
        return failed(_CODES.get(head.grpc_status, grpc.StatusCode.UNKNOWN), head.message, head.trailers)
    if http_status is not None and http_status != HTTP_OK:
        return of_http(http_status)
    return failed(grpc.StatusCode.UNKNOWN, "the answer has no gRPC status")


def of_http(status: int) -> grpc.aio.AioRpcError:
    """Return the failure that a status of HTTP tells, which is no success."""
    return failed(_OF_HTTP.get(status, grpc.StatusCode.UNKNOWN), f"Received http2 header with status: {status}")
