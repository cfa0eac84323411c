"""``understudy shadow``: how a shadow version would have answered."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from understudy import __version__
from understudy.entrypoints import charts
from understudy.entrypoints.charts import Distribution, Tone
from understudy.entrypoints.cli.shadow.text import Label, evidence_rows, examples_texts, heading_line, names_of
from understudy.entrypoints.cli.shadow.text import report_texts as shadow_texts
from understudy.entrypoints.cli.shared.options import AsJson, ModelName
from understudy.entrypoints.cli.shared.page_file import write_page
from understudy.entrypoints.cli.shared.rendering import advise, show
from understudy.entrypoints.cli.shared.session import Experiments, with_experiments
from understudy.entrypoints.cli.shared.times import moment_of
from understudy.entrypoints.documents.experiments import document_of, shadow_document
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

    async def work(given: Experiments) -> tuple[ShadowFinding, Label]:
        return await report_shadow(given.log, question), given.label

    found, label = with_experiments(model, work)
    if html is not None:
        write_page(html, report_page(found, model, threshold, label))
    document = shadow_document(found, model, label)
    show(document, *shadow_texts(found, model, threshold, label), as_json=as_json)
    if html is not None and not as_json:
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
    document = {"examples": {"model": model, "champion": champion, "shadow": shadow, **document_of(found)}}
    show(document, *examples_texts(found, model, label), as_json=as_json)


def report_page(found: ShadowFinding, model_name: str, threshold: float, label: Label) -> str:
    """Return a report as a page with its chart; without pairs it is the sentence that says so."""
    champion, shadow = names_of(found, label)
    scores, parts = found.report.scores, []
    if scores is not None:
        arms = [
            Distribution(champion, Tone.CHAMPION, scores.champion_cells),
            Distribution(shadow, Tone.SHADOW, scores.shadow_cells),
        ]
        parts.append(charts.distributions("score of a call", arms, scores.edges))
    rows = evidence_rows(found.report, threshold)
    if scores is not None:
        rows.append(("distance of the scores", "", "", f"PSI {scores.psi:.3f}, KS {scores.ks:.3f}"))
    if rows:
        parts.append(charts.table(["", champion, shadow, "difference"], rows))
    largest = [
        (one.prediction_id, f"{one.champion_score:.3f}", f"{one.shadow_score:.3f}")
        for one in found.report.disagreements
    ]
    if largest:
        parts.append(charts.table(["largest disagreements: prediction id", champion, shadow], largest))
    until = datetime.fromtimestamp(found.until, UTC)
    note = f"Understudy {__version__}, calls until {until:%Y-%m-%d %H:%M} UTC."
    title = heading_line(found, model_name, label).replace("   ", " · ")
    return charts.page(title, [found.report.sentence], parts, note)
