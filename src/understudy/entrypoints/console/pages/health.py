"""The Health page, what pages of models tell of it, and the parts of both that are fetched again."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.pages.answers import age_of, if_new, reader_of
from understudy.entrypoints.console.questions import STALE_FACTOR, Answer, Kind
from understudy.entrypoints.console.rendered import Live
from understudy.entrypoints.console.views.health import Trouble, health_page, trouble_of
from understudy.entrypoints.console.views.links import trouble_path
from understudy.errors import ScopeMissing, UnderstudyError

HEALTH_SECONDS = 10.0
"""How old its answer may be, and how often its live part asks."""
TROUBLE_SECONDS = 15.0
"""The same of what pages of models tell: one examination in that time, however many of them are open."""
SLACK_SECONDS = 1.0
"""So much sooner it is old: else one page that asks at its period would find it too young every other time."""
SOON_SECONDS = 2.0
"""How often an open page asks while nothing is known yet: no connection waits for the first examination."""
LONGEST_SECONDS = 30.0
"""Of one examination: it asks every model server."""
_HEALTH = "health"


async def show_health(console: Console, request: Request) -> Response:
    """Return the Health page.

    Raises:
        ScopeMissing: The key is for some models, and this is of all.
    """
    visitor = await console.visitor_of(request)
    return console.page("health.html", visitor, live=await _health(console, visitor), period=HEALTH_SECONDS)


async def live_health(console: Console, request: Request) -> Response:
    """Return the live part of the Health page, if it is another one."""
    visitor = await console.visitor_of(request)
    return if_new(request, await _health(console, visitor))


async def live_trouble(console: Console, request: Request) -> Response:
    """Return what the Models page tells of Health, if it is something else."""
    visitor = await console.visitor_of(request)
    return if_new(request, await _examined(console, visitor, None), "trouble")


async def live_trouble_of_model(console: Console, request: Request) -> Response:
    """Return what a page of a model tells of Health, if it is something else.

    Raises:
        ScopeMissing: The key is for other models.
    """
    visitor, name = await reader_of(console, request)
    return if_new(request, await _examined(console, visitor, name), "trouble")


def findings_known(console: Console) -> Answer | None:
    """Return what the last examination found, which is asked for by other parts of a page; ``None`` where it is old."""
    known = console.opened.questions.known(_HEALTH)
    return None if known is None or known.age_seconds > STALE_FACTOR * TROUBLE_SECONDS else known


def trouble_known(console: Console, visitor: Visitor, model_name: str | None = None) -> dict[str, Any]:
    """Return what a page begins with: what the last examination found. The page is sent without waiting for another."""
    known = findings_known(console) or Answer(None, 0.0, 0.0)
    values = {"address": trouble_path(model_name), "period": TROUBLE_SECONDS}
    return {"trouble": _trouble(console, visitor, model_name, known), "trouble_asks": values}


async def _examined(console: Console, visitor: Visitor, model_name: str | None) -> Live:
    try:
        answer = await _answer(console, TROUBLE_SECONDS - SLACK_SECONDS, 0.0)
    except UnderstudyError as problem:
        answer = Answer(None, 0.0, 0.0, problem.as_value())
    return _trouble(console, visitor, model_name, answer)


def _trouble(console: Console, visitor: Visitor, model_name: str | None, answer: Answer) -> Live:
    view: Trouble | None = None  # no examination has ended yet
    if answer.value is not None:
        view = trouble_of(answer.value, visitor.models, model_name)
    elif answer.problem is not None:
        view = Trouble(remark=answer.problem.title)
    age = age_of(answer, TROUBLE_SECONDS) if answer.value is not None else {"is_stale": False, "read_at": ""}
    soon = {"address": trouble_path(model_name), "soon_period": SOON_SECONDS}
    return console.live("_trouble.html", visitor, answer, view=view, **age, **soon)


async def _health(console: Console, visitor: Visitor) -> Live:
    if visitor.models is not None:
        raise ScopeMissing("this is of all models, and needs a key with scope 'read' or 'operate' for all")
    answer = await _answer(console, HEALTH_SECONDS)
    return console.live(
        "_health.html", visitor, answer, view=health_page(answer.value), **age_of(answer, HEALTH_SECONDS)
    )


async def _answer(console: Console, period_seconds: float, first_seconds: float | None = None) -> Answer:
    """Return what an examination found that is at most so old; pages of all kinds share the same one."""
    examine = console.opened.parts.examine
    return await console.opened.questions.shared(
        _HEALTH, examine, period_seconds, LONGEST_SECONDS, of=Kind.HEALTH, first_seconds=first_seconds
    )
