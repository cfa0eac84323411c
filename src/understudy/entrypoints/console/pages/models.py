"""The pages of models, and what pages that renew themselves have in common."""

from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from understudy.core.routing.policy_file import MAX_NAME
from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import SEE_OTHER, Console, require_read
from understudy.entrypoints.console.pages.streaming import stream
from understudy.entrypoints.console.questions import STALE_FACTOR, Answer
from understudy.entrypoints.console.rendered import Live
from understudy.entrypoints.console.streams.watches import Topic
from understudy.entrypoints.console.views.changes import moment
from understudy.entrypoints.console.views.links import rollout_path
from understudy.entrypoints.console.views.model import model_page
from understudy.entrypoints.console.views.models import models_page
from understudy.errors import NotRegistered

MODELS_SECONDS, ROLLOUT_SECONDS = 5.0, 2.0
"""How old a page's answer may be, and how often its live part asks."""
REST_SECONDS = 1.0
"""Shortest time between two readings of all models, however often one of them changes."""
_MAX_ID = 2**63 - 1
NO_CONTENT = 204


async def show_models(console: Console, request: Request) -> Response:
    """Return the Models page."""
    visitor = await console.visitor_of(request)
    return console.page("models.html", visitor, live=await _models(console, visitor), period=MODELS_SECONDS)


async def live_models(console: Console, request: Request) -> Response:
    """Return the live part of the Models page, if it is another one."""
    visitor = await console.visitor_of(request)
    return if_new(request, await _models(console, visitor))


async def stream_models(console: Console, request: Request) -> Response:
    """Tell an open Models page when there is something new.

    Raises:
        UnknownRoute, Overloaded: As :func:`stream`.
    """
    visitor = await console.visitor_of(request)

    async def read(*, is_told: bool) -> str:
        questions = console.opened.questions
        ask = questions.anew if is_told else questions.shared
        answer = await ask("models", console.opened.reads.models, MODELS_SECONDS)
        return _models_of(console, visitor, answer).digest

    return await stream(console, request, Topic(("models", visitor.models), None, read, MODELS_SECONDS, REST_SECONDS))


async def show_model(console: Console, request: Request) -> Response:
    """Lead to a model's newest rollout, or return the page of a model that has none."""
    visitor, name = await reader_of(console, request)
    find = partial(console.opened.reads.newest_rollout, name)
    newest = (await console.opened.questions.shared(("newest", name), find, ROLLOUT_SECONDS)).value
    if newest is not None:
        return RedirectResponse(f"{rollout_path(name, newest)}{_did(request)}", SEE_OTHER)
    work = partial(console.opened.reads.model, name)
    answer = await console.opened.questions.shared(("model", name), work, ROLLOUT_SECONDS)
    values: dict[str, Any] = {
        "model": name,
        "view": model_page(answer.value),
        "answer": answer,
        **age_of(answer, ROLLOUT_SECONDS),
    }
    return console.page(
        "model.html", visitor, may_operate=visitor.may_operate(name), done=done_of(console, request, visitor), **values
    )


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


async def _models(console: Console, visitor: Visitor) -> Live:
    answer = await console.opened.questions.shared("models", console.opened.reads.models, MODELS_SECONDS)
    return _models_of(console, visitor, answer)


def _models_of(console: Console, visitor: Visitor, answer: Answer) -> Live:
    view = models_page(answer.value, visitor.models)
    return console.live("_models.html", visitor, answer, view=view, **age_of(answer, MODELS_SECONDS))


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


def _did(request: Request) -> str:
    """Return the query that leads to the result of an act, to be passed on."""
    nonce = request.query_params.get("did", "")
    return f"?did={quote(nonce, safe='')}" if nonce else ""


def done_of(console: Console, request: Request, visitor: Visitor) -> Any:
    """Return what the act did that led to a page; ``None`` where none did."""
    nonce = request.query_params.get("did", "")
    return console.opened.once.result(visitor.session.id, nonce)
