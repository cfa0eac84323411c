"""The page of a rollout, and its parts that are fetched again while it is open: how it stands, and what happened."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from understudy.entrypoints.console.access.sessions import ConsoleSession
from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.pages.answers import age_of, done_of, if_new, reader_of, rollout_id_of
from understudy.entrypoints.console.pages.charts import FIRST_SECONDS, charts, charts_known
from understudy.entrypoints.console.pages.health import findings_known, trouble_known
from understudy.entrypoints.console.pages.models import ROLLOUT_SECONDS
from understudy.entrypoints.console.pages.streaming import stream
from understudy.entrypoints.console.questions import Answer
from understudy.entrypoints.console.rendered import Live
from understudy.entrypoints.console.streams.watches import Topic
from understudy.entrypoints.console.views.links import rollout_path
from understudy.entrypoints.console.views.rollouts.charts import failing_of
from understudy.entrypoints.console.views.rollouts.page import rollout_page
from understudy.entrypoints.console.views.rollouts.seen import Beside

STORY_SECONDS = 5.0
"""How often the part with what happened is asked for."""
REST_SECONDS = 0.25
"""Shortest time between two readings, however often something changes."""
_STANDING, _STORY = "_rollout.html", "_story.html"


async def show_rollout(console: Console, request: Request) -> Response:
    """Return a rollout's page."""
    visitor, name = await reader_of(console, request)
    number = rollout_id_of(request)
    began = time.monotonic()
    answer = await _answer(console, name, number)
    # Begun after it, charts take no time from what is read first; a page that took long does not wait for them as well.
    drawn = await charts(console, visitor, name, number, max(0.0, FIRST_SECONDS - (time.monotonic() - began)))
    live, story = _rendered(console, answer, visitor, (_STANDING, _STORY), may_operate=visitor.may_operate(name))
    values: dict[str, Any] = {
        "model": name,
        "number": number,
        "address": f"/live{rollout_path(name, number)}",
        "period": ROLLOUT_SECONDS,
        "story_period": STORY_SECONDS,
        **trouble_known(console, visitor, name),
    }
    return console.page(
        "rollout.html", visitor, live=live, drawn=drawn, story=story, done=done_of(console, request, visitor), **values
    )


async def live_rollout(console: Console, request: Request) -> Response:
    """Return how a rollout stands, if it is another one."""
    visitor, name = await reader_of(console, request)
    [live] = await _parts(console, visitor, name, rollout_id_of(request), _STANDING)
    return if_new(request, live)


async def live_story(console: Console, request: Request) -> Response:
    """Return what happened to a rollout, if there is more."""
    visitor, name = await reader_of(console, request)
    [live] = await _parts(console, visitor, name, rollout_id_of(request), _STORY)
    return if_new(request, live, "story")


async def stream_rollout(console: Console, request: Request) -> Response:
    """Tell an open page of a rollout when there is something new.

    Raises:
        NotRegistered: The model has no such rollout.
        UnknownRoute, Overloaded: As :func:`stream`.
    """
    visitor, name = await reader_of(console, request)
    number = rollout_id_of(request)

    async def read(*, is_told: bool) -> str:
        answer = await _answer(console, name, number, is_told=is_told)
        shown = _rendered(console, answer, visitor, (_STANDING, _STORY), may_operate=False)
        return " ".join(one.digest for one in shown)

    topic = Topic(("rollout", name, number), name, read, ROLLOUT_SECONDS, REST_SECONDS)
    return await stream(console, request, topic)


async def _parts(console: Console, visitor: Visitor, name: str, number: int, *templates: str) -> list[Live]:
    answer = await _answer(console, name, number)
    return _rendered(console, answer, visitor, templates, may_operate=visitor.may_operate(name))


async def _answer(console: Console, name: str, number: int, *, is_told: bool = False) -> Answer:
    work = partial(console.opened.reads.rollout, name, number)
    ask = console.opened.questions.anew if is_told else console.opened.questions.shared
    return await ask(("rollout", name, number), work, ROLLOUT_SECONDS)


def _rendered(
    console: Console, answer: Answer, visitor: Visitor, templates: Sequence[str], *, may_operate: bool
) -> list[Live]:
    """Return parts of a page, which are the same for all who may do the same."""
    age = age_of(answer, ROLLOUT_SECONDS)
    # What is kept for all can show nothing of one: templates get neither a session nor scopes.
    anyone = visitor._replace(session=ConsoleSession("", "", 0.0, 0.0), scopes=frozenset())

    rollout = answer.value.status.view.record
    named, number = rollout.state.model_name, rollout.id
    findings, drawn = findings_known(console), charts_known(console.opened.questions, named, number)
    found, failing = findings and findings.value, drawn and failing_of(drawn.value)
    beside = Beside(found, failing, age["is_stale"])

    def make() -> list[Live]:
        values: dict[str, Any] = {"view": rollout_page(answer.value._replace(beside=beside)), **age}
        return [console.live(one, anyone, answer, may_operate=may_operate, **values) for one in templates]

    problem = "" if answer.problem is None else answer.problem.code
    read_at = (answer.read_at, *(None if one is None else one.read_at for one in (findings, drawn)))
    seen = (named, number, read_at, age["is_stale"], problem)
    return console.opened.rendered.of((*seen, tuple(templates), may_operate, visitor.is_read_only), make)
