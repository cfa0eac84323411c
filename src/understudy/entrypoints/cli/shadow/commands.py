"""``understudy shadow``: how a shadow version would have answered."""

import time
from pathlib import Path
from typing import Annotated

import typer

from understudy.bootstrap.http_control_plane import model_path
from understudy.entrypoints.cli.shadow.drawing import drawn_finding, drawn_shadow
from understudy.entrypoints.cli.shadow.page import report_page
from understudy.entrypoints.cli.shadow.text import Label, examples_texts
from understudy.entrypoints.cli.shared.options import AsJson, ModelName
from understudy.entrypoints.cli.shared.page_file import write_page
from understudy.entrypoints.cli.shared.rendering import advise, show
from understudy.entrypoints.cli.shared.screens import AtProxy, show_screen
from understudy.entrypoints.cli.shared.session import Experiments, with_experiments
from understudy.entrypoints.cli.shared.times import moment_of
from understudy.entrypoints.documents.experiments import found_document
from understudy.experiments.shadow_report import (
    Disagreements,
    ShadowFinding,
    ShadowQuestion,
    largest_disagreements,
    report_shadow,
)

app = typer.Typer(no_args_is_help=True, help="Compare the shadow's answers with the champion's.", add_completion=False)
Since = Annotated[str, typer.Option(metavar="TIME", help="Calls from then on: 24h, 2026-11-20.")]


@app.command()
def report(
    *,
    model: ModelName,
    since: Since = "24h",
    threshold: Annotated[float, typer.Option(help="Scores from here on are a yes.")] = 0.5,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report with charts.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare shadow and champion call by call: decisions, scores, latency, errors, and what was lost."""
    now = time.time()
    question = ShadowQuestion(model, now, moment_of(since, now, "--since"), threshold)
    if html is None:
        place = AtProxy(model_path(model, "reports", "shadow"), {"since": since, "threshold": str(threshold)})
        show_screen(lambda session: drawn_shadow(session, question), place, as_json=as_json)
        return

    async def work(given: Experiments) -> tuple[ShadowFinding, Label]:
        return await report_shadow(given.log, question, given.versions), given.label

    found, label = with_experiments(model, work)
    write_page(html, report_page(found, model, threshold, label))
    document, texts = drawn_finding(found, question, label)
    show(document, *texts, as_json=as_json)
    if not as_json:
        advise(f"Written: {html}")


@app.command()
def examples(
    *,
    model: ModelName,
    top: Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")] = 20,
    since: Since = "24h",
    as_json: AsJson = False,
) -> None:
    """List the calls that shadow and champion scored most differently."""
    now = time.time()
    question = ShadowQuestion(model, now, moment_of(since, now, "--since"))

    async def work(given: Experiments) -> tuple[Disagreements, Label]:
        return await largest_disagreements(given.log, question, top), given.label

    found, label = with_experiments(model, work)
    champion, shadow = label(found.champion_id), label(found.shadow_id)
    document = {"examples": {"model": model, "champion": champion, "shadow": shadow, **found_document(found)}}
    show(document, *examples_texts(found, model, label), as_json=as_json)
