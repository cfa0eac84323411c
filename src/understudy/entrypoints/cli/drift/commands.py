"""``understudy drift``: are predictions and inputs still what the model was trained on?"""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from understudy.bootstrap.http_control_plane import model_path
from understudy.core.drift.hours import JUDGED_SECONDS
from understudy.entrypoints.cli.drift.baseline import app as baseline_app
from understudy.entrypoints.cli.drift.drawing import drawn_drift, drawn_view
from understudy.entrypoints.cli.drift.page import report_page
from understudy.entrypoints.cli.drift.skew import drawn_skew
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName
from understudy.entrypoints.cli.shared.page_file import write_page
from understudy.entrypoints.cli.shared.rendering import advise, show
from understudy.entrypoints.cli.shared.screens import AtProxy, show_screen
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.cli.shared.times import moment_of
from understudy.monitoring.drift_view import DriftQuestion, DriftVerdict, judged_seconds_since, view_drift
from understudy.monitoring.skew_view import SkewVerdict

app = typer.Typer(no_args_is_help=True, help="Say what drifted or is skewed, and set baselines.", add_completion=False)
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
    if html is None:
        asked = {"version": version, "since": since, "policy": None if policy is None else policy.value}
        named = {name: text for name, text in asked.items() if text is not None}
        place = AtProxy(model_path(model, "reports", "drift"), named)
        document = show_screen(lambda session: drawn_drift(session, question), place, as_json=as_json)
    else:
        view = with_session(lambda session: view_drift(session.metrics, session.registry, question))
        write_page(html, report_page(view))
        document, texts = drawn_view(view)
        show(document, *texts, as_json=as_json)
    if html is not None and not as_json:
        advise(f"Written: {html}")
    is_drift = document["report"]["verdict"] == DriftVerdict.DRIFT.value
    raise typer.Exit(ExitCode.PROBLEM if is_drift else ExitCode.DONE)


@app.command()
def skew(
    *,
    model: ModelName,
    version: Annotated[str | None, typer.Argument(metavar="[VERSION]", help="Only this one [all that answer].")] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether features are served as the feature store has them. Leaves with 1 when one is not."""
    place = AtProxy(model_path(model, "reports", "skew"), {} if version is None else {"version": version})
    document = show_screen(lambda session: drawn_skew(session, model, version), place, as_json=as_json)
    is_skewed = document["report"]["verdict"] == SkewVerdict.SKEW.value
    raise typer.Exit(ExitCode.PROBLEM if is_skewed else ExitCode.DONE)


def _judged_seconds(since: str | None) -> float:
    if since is None:
        return JUDGED_SECONDS
    now = time.time()
    try:
        return judged_seconds_since(moment_of(since, now, "--since"), now)
    except ValueError as problem:
        raise CommandRefused(ExitCode.USAGE, f"--since: {problem}", "Name a later time.") from None
