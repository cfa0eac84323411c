"""A defect is logged under its request's id; a caller that is gone is none."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from understudy.entrypoints.proxy.api.request_id import RequestIdMiddleware
from understudy.entrypoints.proxy.server.response_writer import IS_LOST


class Handler:
    tracer = None

    def refuse(self, problem: Any, _path: str) -> Any:
        raise problem


@pytest.mark.parametrize(
    ("defect", "is_lost", "events"),
    [
        (RuntimeError("the handler is closed"), True, []),
        (RuntimeError("the handler is closed"), False, ["request.failed"]),
        (KeyError("a defect"), True, ["request.failed"]),
    ],
)
async def test_a_write_to_a_closed_connection_is_no_defect(defect, is_lost, events):
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise defect

    def handler() -> Any:
        return Handler()

    async def receive() -> Any:
        raise AssertionError

    async def send(_message: Any) -> None:
        return

    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "headers": [], IS_LOST: lambda: is_lost}
    with capture_logs() as logged:
        await RequestIdMiddleware(app, handler, lambda: "a" * 32)(scope, receive, send)

    assert [entry["event"] for entry in logged] == events
