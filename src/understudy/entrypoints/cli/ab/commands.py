"""``understudy ab``: plan A/B tests, and say whether the challenger is better."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.bootstrap.http_control_plane import model_path
from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.ab.asked import EFFECT, LOOKS, WITHIN, wanted_of
from understudy.entrypoints.cli.ab.asking import (
    ReportAsked,
    drawn_report,
    drawn_sizes,
    drawn_stop,
    drawn_tests,
    report_of,
)
from understudy.entrypoints.cli.ab.outcomes import app as outcomes_app
from understudy.entrypoints.cli.ab.page import report_page
from understudy.entrypoints.cli.ab.text import reference_texts, report_texts
from understudy.entrypoints.cli.shared.actor import actor_of_command, this_login
from understudy.entrypoints.cli.shared.options import AsJson, Limit, ModelName, Utc
from understudy.entrypoints.cli.shared.page_file import write_page
from understudy.entrypoints.cli.shared.rendering import advise, show
from understudy.entrypoints.cli.shared.screens import AtProxy, Drawn, show_screen
from understudy.entrypoints.cli.shared.session import Experiments, with_experiments
from understudy.entrypoints.cli.shared.times import moment_of, seconds_of
from understudy.entrypoints.documents.experiments import ab_document
from understudy.experiments.ab_plan import PlanQuestion
from understudy.experiments.ab_report import AbReport
from understudy.experiments.declared_rows import MAX_LOOKS
from understudy.experiments.declared_tests import MetricChoice
from understudy.experiments.declaring import AbQuestion
from understudy.ports.experiments.experiment_log import Observed

app = typer.Typer(no_args_is_help=True, help="Plan A/B tests, report on them, bring outcomes in.", add_completion=False)
app.add_typer(outcomes_app, name="outcomes")

Effect = Annotated[
    str | None,
    typer.Option(
        "--effect", metavar="CHANGE", help=f"To be seen: 5% or 0.05 of A's value, 0.5pt of a share [{EFFECT}]."
    ),
]
Within = Annotated[
    str | None,
    typer.Option("--within", metavar="TIME", help=f"Outcomes count that long after an entity's first call [{WITHIN}]."),
]
Version = Annotated[
    str | None,
    typer.Option("--version", metavar="VERSION", help="B, if not the challenger or the only further arm."),
]
PerCall = Annotated[bool, typer.Option("--per-call", help="The metric is per call, and not per entity.")]


@app.command()
def plan(
    *,
    model: ModelName,
    metric: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the outcomes to be compared.")] = None,
    effect: Effect = None,
    within: Within = None,
    per_call: PerCall = False,
    looks: Annotated[int, typer.Option(min=1, max=MAX_LOOKS, help="How often one may look and decide.")] = LOOKS,
    version: Version = None,
    reference_figures: Annotated[
        bool, typer.Option("--seed-figures", help="Show seed 003's one-sample sizes too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say how many entities a test needs, and how many days that takes at today's traffic. Changes nothing."""
    wanted = wanted_of(effect)
    choice = MetricChoice(seconds_of(within or WITHIN, "--within"), per_call)
    question = PlanQuestion(model, metric, wanted, choice, looks, time.time())
    parameters = {
        name: value for name, value in {"metric": metric, "effect": effect, "version": version}.items() if value
    }
    parameters |= {"within_seconds": str(choice.within_seconds), "per_call": str(per_call).lower(), "looks": str(looks)}

    async def draw(session: Session) -> Drawn:
        return await drawn_sizes(session, question, version)

    if reference_figures and not as_json:
        show({}, *reference_texts(wanted), as_json=False)
    show_screen(draw, AtProxy(model_path(model, "reports", "ab-plan"), parameters), as_json=as_json)


@app.command()
def report(
    *,
    model: ModelName,
    metric: Annotated[str, typer.Option(metavar="NAME", help="Name of the outcomes that are compared.")],
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Count from then on: 7d, 2026-11-20 [the challenger's start].")
    ] = None,
    looks: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_LOOKS, help="Declare a test with so many looks, if none is open."),
    ] = None,
    effect: Effect = None,
    within: Within = None,
    per_call: PerCall = False,
    lower_is_better: Annotated[bool, typer.Option("--lower-is-better", help="Less of the metric is better.")] = False,
    version: Version = None,
    quantiles: Annotated[
        Observed | None,
        typer.Option("--quantiles", help="Compare p50, p90, p95 and p99 too: of latencies, or of outcomes."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report with charts.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether B (the challenger) is better than A (the champion), or what is missing until it can be said.

    Only a declared test decides, and only at one of its looks: asking more often finds no winner by chance.
    --looks declares one; --effect, --within, --per-call and --lower-is-better go with it and do not change any more.
    """
    now = time.time()
    choice = MetricChoice(seconds_of(within or WITHIN, "--within"), per_call, not lower_is_better)
    asked = AbQuestion(
        model, metric, now, None if since is None else moment_of(since, now, "--since"), wanted_of(effect), choice
    )._replace(quantiles=quantiles)
    given = {
        "--looks": looks is not None,
        "--effect": effect is not None,
        "--within": within is not None,
        "--per-call": per_call,
        "--lower-is-better": lower_is_better,
        "--since": since is not None,
    }

    asking = {name for name, is_given in given.items() if is_given}
    report_asked = ReportAsked(asked, version, looks, asking, "" if html is None else this_login())
    if html is None:

        async def draw(session: Session) -> Drawn:
            return await drawn_report(session, report_asked._replace(declared_by=this_login()))

        show_screen(draw, _at_proxy(report_asked, effect), as_json=as_json)
        return
    found, experiments = with_experiments(model, lambda experiments: _with_page(experiments, report_asked))
    write_page(html, report_page(found, model, metric, experiments.label))
    document = ab_document(found, model, metric, experiments.label)
    show(document, *report_texts(found, model, metric, experiments.label), as_json=as_json)
    if not as_json:
        advise(f"Written: {html}")


@app.command("list")
def list_declared(
    *,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Only this model's.")] = None,
    limit: Limit = 20,
    utc: Utc = False,
    as_json: AsJson = False,
) -> None:
    """List declared tests, newest first: open, decided, or ended by hand."""

    async def draw(session: Session) -> Drawn:
        return await drawn_tests(session, None if model is None else [model], limit, utc=utc)

    parameters = {"limit": str(limit)} | ({} if model is None else {"model": model}) | ({"utc": "true"} if utc else {})
    show_screen(draw, AtProxy("/v1/experiments", parameters), as_json=as_json)


@app.command()
def stop(
    *,
    model: ModelName,
    test_id: Annotated[int, typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="As ab list has it.")],
    as_json: AsJson = False,
) -> None:
    """End a declared test before it decides; it says nothing then, and another one of the same may be declared."""

    async def draw(session: Session) -> Drawn:
        return await drawn_stop(session, model, test_id, actor_of_command(None))

    show_screen(draw, AtProxy(f"{model_path(model, 'experiments', str(test_id))}:stop", {}, "POST"), as_json=as_json)


async def _with_page(experiments: Experiments, asked: ReportAsked) -> tuple[AbReport, Experiments]:
    return await report_of(experiments, asked, with_timeline=True), experiments


def _at_proxy(asked: ReportAsked, effect: str | None) -> AtProxy:
    """Return where a proxy says the same; with looks it declares the test, which is a change."""
    question = asked.question
    body: dict[str, Any] = {
        "metric": question.metric,
        "within_seconds": question.choice.within_seconds,
        "per_call": question.choice.per_call,
        "lower_is_better": not question.choice.higher_is_better,
        "given": sorted(asked.given),
    }
    optional = {
        "since": None if question.since is None else datetime.fromtimestamp(question.since, UTC).isoformat(),
        "effect": effect,
        "version": asked.version,
        "quantiles": None if question.quantiles is None else question.quantiles.value,
        "looks": asked.looks,
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    path = model_path(question.model_name, *(("experiments",) if asked.looks is not None else ("reports", "ab")))
    return AtProxy(path, {}, "POST", body)
