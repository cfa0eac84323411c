"""What a call leaves behind: nothing that waits for the garbage collector."""

import gc
import weakref

import grpc.aio
import pytest

from understudy.adapters.model_servers.http2.call import UnaryCall
from understudy.adapters.model_servers.http2.failures import lost


async def failed() -> "weakref.ref[Exception]":
    call = UnaryCall(b"", b"", b"request", 10.0, waits=False)
    call.settle(lost("the connection was closed"))
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return weakref.ref(error)
    raise AssertionError


async def test_a_failure_and_the_request_in_its_traceback_are_freed_at_once():
    gc.disable()
    try:
        assert (await failed())() is None
    finally:
        gc.enable()


async def test_a_call_says_what_it_ended_with():
    call = UnaryCall(b"", b"", b"request", 10.0, waits=False)
    call.settle(b"answer")
    assert await call == b"answer"

    call = UnaryCall(b"", b"", b"request", 0.0, waits=False)
    with pytest.raises(grpc.aio.AioRpcError, match="Deadline Exceeded"):
        await call
