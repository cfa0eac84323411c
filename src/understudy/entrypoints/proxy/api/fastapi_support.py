"""Adapters to FastAPI: names in a path, and replies as responses."""

from typing import Annotated
from urllib.parse import unquote

from fastapi import Response
from pydantic import AfterValidator

from understudy.entrypoints.proxy.messages.reply import Reply

Name = Annotated[str, AfterValidator(unquote)]
"""A name in a path; the predict route leaves it percent-encoded, so that it may hold a slash."""


def response_of(reply: Reply) -> Response:
    """Return a reply as FastAPI sends it."""
    response = Response(reply.body, reply.status)
    response.raw_headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
    return response
