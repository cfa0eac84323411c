"""The Health page, and its part that is fetched again while it is open."""

from starlette.requests import Request
from starlette.responses import Response

from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.pages.models import age_of, if_new
from understudy.entrypoints.console.rendered import Live
from understudy.entrypoints.console.views.health import health_page
from understudy.errors import ScopeMissing

HEALTH_SECONDS = 10.0
"""How old its answer may be, and how often its live part asks."""
LONGEST_SECONDS = 30.0
"""Of one examination: it asks every model server."""


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


async def _health(console: Console, visitor: Visitor) -> Live:
    if visitor.models is not None:
        raise ScopeMissing("this is of all models, and needs a key with scope 'read' or 'operate' for all")
    examine = console.opened.parts.examine
    answer = await console.opened.questions.shared("health", examine, HEALTH_SECONDS, LONGEST_SECONDS)
    return console.live(
        "_health.html", visitor, answer, view=health_page(answer.value), **age_of(answer, HEALTH_SECONDS)
    )
