"""Pages of a model beside its rollout: its versions, its drift, its shadow."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from understudy.bootstrap.session import Session
from understudy.core.drift.hours import JUDGED_SECONDS
from understudy.core.durations import moment
from understudy.entrypoints.charts.frame import Chart
from understudy.entrypoints.charts.report import part_of_page
from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.pages.answers import age_of, done_of, reader_of
from understudy.entrypoints.console.questions import REPORT_SECONDS, Answer, Kind
from understudy.entrypoints.console.views.actors import noted_entries
from understudy.entrypoints.console.views.drift import drift_charts, drift_page
from understudy.entrypoints.console.views.shadow import THRESHOLD, ShadowSeen, shadow_charts, shadow_page
from understudy.entrypoints.console.views.versions import MAX_ENTRIES, MAX_VERSIONS, VersionsSeen, versions_page
from understudy.entrypoints.documents.policies import version_label
from understudy.experiments.shadow_report import ShadowQuestion, report_shadow
from understudy.monitoring.drift_view import DriftQuestion, DriftView, view_drift
from understudy.ports.registry.registry import AuditSubject

KEPT_SECONDS = 60.0
"""How old a report may be."""
SHADOW_SECONDS = 86_400.0
"""What a shadow's report is of, as by default on the command line."""


async def show_versions(console: Console, request: Request) -> Response:
    """Return the page of a model's versions.

    Raises:
        NotRegistered: There is no such model.
    """
    visitor, model = await reader_of(console, request)
    seen = await console.opened.questions.look(partial(_versions, console, model))
    done, may_operate = done_of(console, request, visitor), visitor.may_operate(model)
    values = {"view": versions_page(seen), "read_at": moment(seen.read_at), "done": done, "may_operate": may_operate}
    return console.page("versions.html", visitor, model=model, **values)


async def show_drift(console: Console, request: Request) -> Response:
    """Return the page of a model's drift.

    Raises:
        NotRegistered: There is no such model.
        Overloaded: Two reports are computed.
    """
    visitor, model = await reader_of(console, request)
    answer = await reported(console, ("drift", model), partial(_drift, model))
    values = of_report(answer, drift_page(answer.value), drift_charts(answer.value))
    return console.page("drift.html", visitor, model=model, **values)


async def show_shadow(console: Console, request: Request) -> Response:
    """Return the page of a model's shadow.

    Raises:
        NotRegistered: There is no such model, or it never had a shadow.
        Overloaded: Two reports are computed.
    """
    visitor, model = await reader_of(console, request)
    answer = await reported(console, ("shadow", model), partial(_shadow, model))
    values = of_report(answer, shadow_page(answer.value), shadow_charts(answer.value))
    return console.page("shadow.html", visitor, model=model, **values)


async def reported(console: Console, name: object, work: Callable[[Session], Awaitable[Any]]) -> Answer:
    """Return a report, computed beside the event loop and kept for all who ask for it within a minute."""
    compute = partial(console.opened.parts.report, work)
    return await console.opened.questions.shared(name, compute, KEPT_SECONDS, REPORT_SECONDS, of=Kind.REPORT)


def of_report(answer: Answer, view: Any, charts: Sequence[str | Chart]) -> dict[str, Any]:
    """Return what a report's page is rendered with; charts are markup of ours, in which every text is escaped."""
    return {"answer": answer, "view": view, "charts": list(map(part_of_page, charts)), **age_of(answer, KEPT_SECONDS)}


async def _versions(console: Console, model: str) -> VersionsSeen:
    session = console.opened.reads.session
    policy = (await session.registry.show_model(model)).policy
    versions = await session.registry.list_versions(model)
    loading = await session.loading.of_model(model, MAX_VERSIONS)
    audit = await session.registry.list_audit(model, MAX_ENTRIES, AuditSubject.VERSION)
    audit = noted_entries(audit, await console.opened.reads.notes.read())
    return VersionsSeen(model, policy, versions, loading, audit, time.time())


async def _drift(model: str, session: Session) -> DriftView:
    return await view_drift(session.metrics, session.registry, DriftQuestion(model, JUDGED_SECONDS))


async def _shadow(model: str, session: Session) -> ShadowSeen:
    await session.registry.show_model(model)
    versions = await session.registry.list_versions(model)
    labels, now = {version.id: version.version for version in versions}, time.time()
    question = ShadowQuestion(model, now, now - SHADOW_SECONDS, THRESHOLD)
    found = await report_shadow(session.experiment_log, question, versions)
    return ShadowSeen(model, found, lambda version_id: version_label(version_id, labels))
