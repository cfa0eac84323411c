"""The gRPC status of the development model server's errors: the codes that the real servers use."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from understudy.adapters.dev_server.catalog import InjectedError
from understudy.errors import InputInvalid, UnderstudyError, UnknownModel, UnknownVersion

_CODES: Final[dict[type[UnderstudyError], grpc.StatusCode]] = {
    UnknownModel: grpc.StatusCode.NOT_FOUND,
    UnknownVersion: grpc.StatusCode.NOT_FOUND,
    InputInvalid: grpc.StatusCode.INVALID_ARGUMENT,
}


def unary_handler(call: Callable[[Any], Awaitable[Any]], request_type: Any, response_type: Any) -> Any:
    """Return a gRPC handler that makes ``call`` and turns its errors into a status."""

    async def handle(request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        try:
            return await call(request)
        except (UnknownModel, UnknownVersion, InputInvalid) as error:
            await context.abort(_CODES[type(error)], error.detail)
        except InjectedError as error:
            code = grpc.StatusCode.UNAVAILABLE if error.unavailable else grpc.StatusCode.INTERNAL
            await context.abort(code, str(error))

    return grpc.unary_unary_rpc_method_handler(handle, request_type.FromString, response_type.SerializeToString)
