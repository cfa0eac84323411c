"""What pages have in common: who asks for what, and the answers of parts that renew themselves."""

from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from understudy.core.durations import moment
from understudy.core.routing.policy_file import MAX_NAME
from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console, require_read
from understudy.entrypoints.console.questions import STALE_FACTOR, Answer
from understudy.entrypoints.console.rendered import Live
from understudy.errors import NotRegistered

_MAX_ID = 2**63 - 1
NO_CONTENT = 204


def model_of(request: Request) -> str:
    """Return the model that a request's path names.

    Raises:
        NotRegistered: No model can have this name.
    """
    name = unquote(request.path_params["model"])
    if not name or len(name) > MAX_NAME or "\0" in name:
        raise NotRegistered("there is no such model")
    return name


def rollout_id_of(request: Request) -> int:
    """Return the rollout that a request's path names.

    Raises:
        NotRegistered: It is no rollout's number.
    """
    text = request.path_params["rollout"]
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(_MAX_ID)) or int(text) > _MAX_ID:
        raise NotRegistered("there is no such rollout")
    return int(text)


async def reader_of(console: Console, request: Request) -> tuple[Visitor, str]:
    """Return who looks at a page of a model, and the model.

    Raises:
        Unauthenticated, ScopeMissing: The visitor may not.
    """
    visitor, name = await console.visitor_of(request), model_of(request)
    require_read(visitor, name)
    return visitor, name


def age_of(answer: Answer, period_seconds: float) -> dict[str, Any]:
    """Return what a page says of its figures' age; nothing while they are fresh.

    A newer answer that is waited for is no reason yet: where much is done at once, each page would turn pale each time.
    """
    is_stale = answer.problem is not None or answer.age_seconds > STALE_FACTOR * period_seconds
    return {"is_stale": is_stale, "read_at": moment(answer.read_at)}


def if_new(request: Request, live: Live, part: str = "") -> Response:
    """Return a live part, or 204 where the page has it already; a page with several parts names each but the first."""
    if request.query_params.get("seen") == live.digest:
        return Response(status_code=NO_CONTENT)
    name = f"seen-{part}" if part else "seen"
    return HTMLResponse(f'{live.html}<input type="hidden" name="seen" id="{name}" value="{live.digest}">')


def done_of(console: Console, request: Request, visitor: Visitor) -> Any:
    """Return what the act did that led to a page; ``None`` where none did."""
    nonce = request.query_params.get("did", "")
    return console.opened.once.result(visitor.session.id, nonce)
