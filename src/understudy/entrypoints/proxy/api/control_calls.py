"""A call of the control plane as FastAPI hands it on: whose it is, its body, and the parameters that several have."""

from typing import Annotated

from fastapi import Depends, Query, Request

from understudy.entrypoints.proxy.api.predict_route import read_body
from understudy.entrypoints.proxy.control.bodies import MAX_BODY_BYTES
from understudy.entrypoints.proxy.control.handler import ControlCall, ControlHandler
from understudy.entrypoints.proxy.control.pages import MAX_PAGE, NEXT, PageAsked
from understudy.entrypoints.proxy.messages.headers import read_headers
from understudy.settings import Settings

NAME_PATTERN = r"^[^\x00]{1,255}$"
ModelOrAll = Annotated[str | None, Query(pattern=NAME_PATTERN, description="Only this model's.")]
Columns = Annotated[
    int | None, Query(ge=40, le=400, description="Answer also the text for a terminal this wide, as `text`.")
]
Cursor = Annotated[
    str | None, Query(pattern=NAME_PATTERN, description=f"`{NEXT}` of the page before; the first page without it.")
]
DryRun = Annotated[bool, Query(description="Say what would happen; change nothing.")]


def page_asked(limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE, cursor: Cursor = None) -> PageAsked:
    """Return which page of a list is asked for, by the queries ``limit`` and ``cursor``."""
    return PageAsked(limit, cursor)


Paged = Annotated[PageAsked, Depends(page_asked)]
"""The page of a list that may be long."""


def call_of(request: Request, model_name: str) -> ControlCall:
    """Return a call about a model, by the caller that the request's headers name."""
    control: ControlHandler = request.app.state.control
    return control.call(model_name, read_headers(dict(request.scope["headers"])))


async def body_of(request: Request, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the whole body.

    Raises:
        MalformedBody, BodyTooLarge, RequestTimedOut: It cannot be read.
    """
    settings: Settings = request.app.state.settings
    limit = min(limit_bytes, settings.body_limit_bytes)
    return await read_body(request.receive, limit, settings.receive_seconds, request.scope)
