"""The charts of a rollout's page: computed beside the event loop, shared by all viewers, fetched by themselves."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from understudy.bootstrap.session import Session
from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.pages.answers import if_new, reader_of, rollout_id_of
from understudy.entrypoints.console.pages.models import ROLLOUT_SECONDS
from understudy.entrypoints.console.questions import REPORT_SECONDS, STALE_FACTOR, Answer, Kind, Questions
from understudy.entrypoints.console.rendered import Live
from understudy.entrypoints.console.views.links import rollout_path
from understudy.entrypoints.console.views.rollouts.charts import ChartsPart, charts_part
from understudy.errors import (
    DeadlineExceeded,
    InternalFault,
    MigrationNeeded,
    Overloaded,
    RegistryUnavailable,
    UnderstudyError,
)
from understudy.ports.prediction_log.prediction_history import LoggedFailures
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.history import read_history
from understudy.rollout.status import failures_of, view_of

CHARTS_SECONDS = 15.0
"""How old charts may be: a window more is in by then."""
MAX_AGE_SECONDS = STALE_FACTOR * CHARTS_SECONDS
"""Beyond that they are old: they say so, and other parts of the page take nothing from them."""
FIRST_SECONDS = 0.4
"""How long a page waits for its charts, which come by themselves otherwise."""
_FAILURES_SECONDS = 2.0
"""Longest time of reading failing calls: charts are worth showing without them."""


async def live_charts(console: Console, request: Request) -> Response:
    """Return the charts of a rollout's page, if they are others."""
    visitor, name = await reader_of(console, request)
    return if_new(request, await charts(console, visitor, name, rollout_id_of(request)), "charts")


async def charts(
    console: Console, visitor: Visitor, name: str, number: int, first_seconds: float = FIRST_SECONDS
) -> Live:
    """Return the charts, or that they are not there yet, or why there are none.

    The first ones are waited for no longer than ``first_seconds``.

    Raises:
        NotRegistered: There is no such rollout of the model.
    """
    compute = partial(console.opened.parts.draw, partial(_drawn, name, number))
    problem: UnderstudyError | None = None
    answer = Answer(None, 0.0, 0.0)
    topic = ("charts", name, number)
    try:
        answer = await console.opened.questions.shared(
            topic, compute, CHARTS_SECONDS, REPORT_SECONDS, of=Kind.CHARTS, first_seconds=first_seconds
        )
    except (RegistryUnavailable, MigrationNeeded, DeadlineExceeded, Overloaded, InternalFault) as found:
        problem = found  # the page has the way back on it, which a defect of a chart must not take away
    # Late ones are not old yet: their rest may be longer than their period.
    is_old = answer.problem is not None or answer.age_seconds > MAX_AGE_SECONDS
    address = f"/live{rollout_path(name, number)}/charts"
    periods = {"period": CHARTS_SECONDS, "soon_period": ROLLOUT_SECONDS}
    values = {"view": answer.value, "problem": problem, "is_stale": is_old, "address": address, **periods}
    return console.live("_drawn.html", visitor, answer, **values)


def charts_known(questions: Questions, name: str, number: int) -> Answer | None:
    """Return the charts that were drawn last, which their own part asks for; ``None``: there are none, or old ones.

    Those that were drawn after the end of a rollout stay as they are, and are never old.
    """
    known = questions.known(("charts", name, number))
    if known is None or known.value.is_final:
        return known
    return None if known.age_seconds > MAX_AGE_SECONDS else known


async def _drawn(name: str, number: int, session: Session) -> ChartsPart:
    view = await view_of(session.rollouts, name, number)
    history = await read_history(session.rollouts, session.windows, view)
    events = await session.rollouts.events(number)
    return charts_part(view, history, events, await _failures(session, view))


async def _failures(session: Session, view: RolloutView) -> LoggedFailures | None:
    try:
        return await failures_of(session.history(_FAILURES_SECONDS), view)
    except (RegistryUnavailable, MigrationNeeded):
        return None
