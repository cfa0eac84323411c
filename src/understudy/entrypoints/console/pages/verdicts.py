"""The page of a rollout's stored verdicts, each judged again."""

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from understudy.bootstrap.session import Session
from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.pages.answers import reader_of, rollout_id_of
from understudy.entrypoints.console.pages.reports import of_report, reported
from understudy.entrypoints.console.views.rollouts.verdicts import Judged, VerdictsSeen, verdicts_page
from understudy.rollout.status import view_of
from understudy.rollout.verdicts.replay import judged_again


async def show_verdicts(console: Console, request: Request) -> Response:
    """Return the page; judging takes processor time, and so it is a report.

    Raises:
        NotRegistered: There is no such rollout of the model.
        Overloaded: Two reports are computed.
    """
    visitor, model = await reader_of(console, request)
    number = rollout_id_of(request)
    answer = await reported(console, ("verdicts", model, number), partial(judge_stored, model, number))
    values = of_report(answer, verdicts_page(answer.value), [])
    return console.page("verdicts.html", visitor, model=model, **values)


async def judge_stored(model: str, number: int, session: Session) -> VerdictsSeen:
    """Judge all verdicts of a rollout again.

    Raises:
        NotRegistered: There is no such rollout of the model.
    """
    await view_of(session.rollouts, model, number)
    found: list[Judged] = []
    for event in await session.rollouts.events(number):
        found += [(event, replay) for _, replay in judged_again([event]) if replay is not None]
        await asyncio.sleep(0)  # here its deadline, or the end of the process, ends it
    return VerdictsSeen(model, number, found)
