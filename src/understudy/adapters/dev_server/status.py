"""How the development model server's errors leave as gRPC status codes, the codes that the real servers use."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc

from understudy.adapters.dev_server.catalog import InjectedError
from understudy.errors import InputInvalid, UnderstudyError, UnknownModel, UnknownVersion

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")

_CODES: Final[dict[type[UnderstudyError], grpc.StatusCode]] = {
    UnknownModel: grpc.StatusCode.NOT_FOUND,
    UnknownVersion: grpc.StatusCode.NOT_FOUND,
    InputInvalid: grpc.StatusCode.INVALID_ARGUMENT,
}


def refusing(
    call: Callable[[_Request], Awaitable[_Response]],
) -> Callable[[_Request, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[_Response]]:
    """Return a gRPC handler that makes ``call`` and turns its errors into a status."""

    async def handle(request: _Request, context: "grpc.aio.ServicerContext[Any, Any]") -> _Response:
        try:
            return await call(request)
        except (UnknownModel, UnknownVersion, InputInvalid) as error:
            await context.abort(_CODES[type(error)], error.detail)
        except InjectedError as error:
            code = grpc.StatusCode.UNAVAILABLE if error.unavailable else grpc.StatusCode.INTERNAL
            await context.abort(code, str(error))

    return handle
