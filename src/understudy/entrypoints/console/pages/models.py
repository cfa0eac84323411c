"""The pages of models."""

from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import SEE_OTHER, Console
from understudy.entrypoints.console.pages.answers import age_of, done_of, if_new, reader_of
from understudy.entrypoints.console.pages.health import trouble_known
from understudy.entrypoints.console.pages.streaming import stream
from understudy.entrypoints.console.questions import Answer
from understudy.entrypoints.console.rendered import Live
from understudy.entrypoints.console.streams.watches import Topic
from understudy.entrypoints.console.views.links import rollout_path
from understudy.entrypoints.console.views.model import model_page
from understudy.entrypoints.console.views.models import models_page

MODELS_SECONDS, ROLLOUT_SECONDS = 5.0, 2.0
"""How old a page's answer may be, and how often its live part asks."""
REST_SECONDS = 1.0
"""Shortest time between two readings of all models, however often one of them changes."""


async def show_models(console: Console, request: Request) -> Response:
    """Return the Models page."""
    visitor = await console.visitor_of(request)
    live = await _models(console, visitor)
    return console.page("models.html", visitor, live=live, period=MODELS_SECONDS, **trouble_known(console, visitor))


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
        **trouble_known(console, visitor, name),
    }
    return console.page(
        "model.html", visitor, may_operate=visitor.may_operate(name), done=done_of(console, request, visitor), **values
    )


async def _models(console: Console, visitor: Visitor) -> Live:
    answer = await console.opened.questions.shared("models", console.opened.reads.models, MODELS_SECONDS)
    return _models_of(console, visitor, answer)


def _models_of(console: Console, visitor: Visitor, answer: Answer) -> Live:
    view = models_page(answer.value, visitor.models)
    return console.live("_models.html", visitor, answer, view=view, **age_of(answer, MODELS_SECONDS))


def _did(request: Request) -> str:
    """Return the query that leads to the result of an act, to be passed on."""
    nonce = request.query_params.get("did", "")
    return f"?did={quote(nonce, safe='')}" if nonce else ""
