"""``understudy drift``: are predictions and inputs still what the model was trained on?"""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from understudy.core.drift.hours import JUDGED_SECONDS
from understudy.entrypoints.cli.drift.baseline import app as baseline_app
from understudy.entrypoints.cli.drift.page import report_page
from understudy.entrypoints.cli.drift.text import next_step, report_texts
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName
from understudy.entrypoints.cli.shared.page_file import write_page
from understudy.entrypoints.cli.shared.rendering import advise, show
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.cli.shared.times import moment_of
from understudy.entrypoints.documents.drift import drift_document
from understudy.monitoring.drift_view import DriftQuestion, DriftVerdict, judged_seconds_since, view_drift

app = typer.Typer(no_args_is_help=True, help="Say what drifted, and set baselines.", add_completion=False)
app.add_typer(baseline_app, name="baseline")


class PolicyName(StrEnum):
    """A rule that drift is judged by."""

    DEFAULT = "default"
    SEED = "seed"


@app.command()
def report(
    *,
    model: ModelName,
    version: Annotated[str | None, typer.Argument(metavar="[VERSION]", help="Only this one [all active ones].")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Drifts from then on: 14d, 2026-11-20 [14d].")
    ] = None,
    policy: Annotated[
        PolicyName | None, typer.Option(help="Judge by this rule [what the version's metrics say, or default].")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report with charts.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether predictions and inputs are still like their baselines. Leaves with 1 when one has drifted."""
    question = DriftQuestion(model, _judged_seconds(since), version, None if policy is None else policy.value)
    view = with_session(lambda session: view_drift(session.metrics, session.registry, question))
    if html is not None:
        write_page(html, report_page(view))
    document = {"report": {**drift_document(view), "next": next_step(view).command}}
    show(document, *report_texts(view), as_json=as_json)
    if html is not None and not as_json:
        advise(f"Written: {html}")
    raise typer.Exit(ExitCode.PROBLEM if view.verdict is DriftVerdict.DRIFT else ExitCode.DONE)


def _judged_seconds(since: str | None) -> float:
    if since is None:
        return JUDGED_SECONDS
    now = time.time()
    try:
        return judged_seconds_since(moment_of(since, now, "--since"), now)
    except ValueError as problem:
        raise CommandRefused(ExitCode.USAGE, f"--since: {problem}", "Name a later time.") from None
