"""Pages as JSON: the same values, for a program that asks with ``Accept: application/json``."""

import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from understudy.entrypoints.documents.json_text import document_of, json_text, moment_of

_JSON, _HTML = "application/json", "text/html"
_OF_THE_BODY = (b"content-length", b"content-type")


class PageResponse(HTMLResponse):
    """A page, and what it shows.

    Args:
        html: The page.
        status: Its status.
        shown: The same as a document.
    """

    def __init__(self, html: str, status: int, shown: Mapping[str, Any]) -> None:
        super().__init__(html, status)
        self.shown = shown


def wants_json(request: Request) -> bool:
    """Whether JSON is asked for; a browser names HTML first."""
    accepted = request.headers.get("accept", "")
    return _JSON in accepted and _HTML not in accepted


def shown_of(name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a page shows as a document: its view, when that was read, or its error."""
    page = name.removesuffix(".html")
    if "code" in values:
        named = {"code": values["code"], "title": values["title"], "detail": values["detail"]}
        return {"error": {**named, "next": values["next_step"]}}
    live, answer = values.get("live"), values.get("answer")
    if live is not None:
        view, read_at, is_stale = live.view, live.read_at, live.is_stale
    else:
        # What is not shared was read for this request.
        view, is_stale = values.get("view"), values.get("is_stale", False)
        read_at = time.time() if answer is None else answer.read_at
    shown = {"page": page, "read_at": moment_of(read_at), "is_stale": is_stale, "view": document_of(view)}
    return {**shown, "trouble": document_of(values["trouble"].view)} if "trouble" in values else shown


def as_json(response: PageResponse) -> Response:
    """Return a page's document instead of it, with its status and its cookies."""
    found = Response(json_text(response.shown), response.status_code, media_type=_JSON)
    found.raw_headers += [one for one in response.raw_headers if one[0] not in _OF_THE_BODY]
    return found
