"""``understudy ab``: plan A/B tests, and say whether the challenger is better."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.ab.asked import EFFECT, LOOKS, WITHIN, wanted_of
from understudy.entrypoints.cli.ab.outcomes import app as outcomes_app
from understudy.entrypoints.cli.ab.page import report_page
from understudy.entrypoints.cli.ab.tests_text import stopped_words, tests_text
from understudy.entrypoints.cli.ab.text import reference_texts, report_texts, sizes_texts
from understudy.entrypoints.cli.shared.actor import this_person
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, Limit, ModelName
from understudy.entrypoints.cli.shared.page_file import write_page
from understudy.entrypoints.cli.shared.rendering import advise, show
from understudy.entrypoints.cli.shared.session import Experiments, with_experiments, with_session
from understudy.entrypoints.cli.shared.times import day_of, moment_of, seconds_of
from understudy.entrypoints.documents.experiments import ab_document, test_document
from understudy.entrypoints.documents.json_text import document_of
from understudy.entrypoints.documents.policies import version_label
from understudy.experiments.ab_plan import AbSizes, PlanQuestion, plan_ab
from understudy.experiments.ab_report import AbReport, report_ab
from understudy.experiments.declared_rows import MAX_LOOKS
from understudy.experiments.declared_tests import DeclaredTest, MetricChoice
from understudy.experiments.declaring import AbQuestion, candidates, declare_test, find_test, named_b
from understudy.experiments.listed_tests import ListedTest, end_test, list_tests
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
    sizes, experiments = with_experiments(model, lambda experiments: _sizes(experiments, question, version))
    beside = [experiments.label(version_id) for version_id in sizes.beside]
    document = {"plan": {**document_of(sizes), "beside": beside, "model": model, "metric": metric}}
    texts = [*(reference_texts(wanted) if reference_figures else []), *sizes_texts(sizes, question)]
    show(document, *texts, as_json=as_json)


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
    found, experiments = with_experiments(
        model, lambda experiments: _report(experiments, asked, version, looks, asking, with_timeline=html is not None)
    )
    if html is not None:
        write_page(html, report_page(found, model, metric, experiments.label))
    document = ab_document(found, model, metric, experiments.label)
    show(document, *report_texts(found, model, metric, experiments.label), as_json=as_json)
    if html is not None and not as_json:
        advise(f"Written: {html}")


@app.command("list")
def list_declared(
    *,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Only this model's.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List declared tests, newest first: open, decided, or ended by hand."""

    async def read(session: Session) -> tuple[Sequence[ListedTest], Mapping[int, str]]:
        if model is not None:
            await session.registry.show_model(model)
        versions = await session.registry.list_versions(model)
        return await list_tests(session.experiments, model, limit), {one.id: one.version for one in versions}

    found, labels = with_session(read)
    document = {"tests": [test_document(one, lambda version_id: version_label(version_id, labels)) for one in found]}
    show(document, tests_text(found, labels), as_json=as_json)


@app.command()
def stop(
    *,
    model: ModelName,
    test_id: Annotated[int, typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="As ab list has it.")],
    as_json: AsJson = False,
) -> None:
    """End a declared test before it decides; it says nothing then, and another one of the same may be declared."""
    found = with_experiments(model, lambda experiments: _stopped(experiments, model, test_id))
    show({"stopped": {"id": test_id, "model": model, "metric": found}}, stopped_words(test_id, found), as_json=as_json)


async def _stopped(experiments: Experiments, model: str, test_id: int) -> str:
    return (await end_test(experiments.store, model, test_id)).metric


async def _report(
    experiments: Experiments,
    asked: AbQuestion,
    version: str | None,
    looks: int | None,
    given: set[str],
    *,
    with_timeline: bool,
) -> tuple[AbReport, Experiments]:
    question = asked._replace(version_id=await _version_id(experiments, asked.model_name, version))
    await _declare(experiments, question, looks, given)
    return await report_ab(experiments.log, experiments.store, question, with_timeline=with_timeline), experiments


async def _declare(experiments: Experiments, question: AbQuestion, looks: int | None, given: set[str]) -> None:
    """Declare the test when looks are asked for and none is open or decided.

    Raises:
        CommandRefused: The open test was declared with something else, or no plan can be made yet.
    """
    log, store = experiments.log, experiments.store
    found = await find_test(log, store, question.model_name, question.metric, question.version_id)
    if found.test is not None and found.test.is_open:
        _refuse_other_plan(found.test, question, looks, given)
    elif looks is not None and not _is_decided(found.test):
        try:
            await declare_test(log, store, found, question, looks=looks, created_by=this_person())
        except ValueError as problem:
            raise CommandRefused(
                ExitCode.PROBLEM,
                f"no test can be declared yet: {problem}",
                "A plan needs the champion's own figures: let outcomes come in first.",
            ) from None


async def _sizes(experiments: Experiments, question: PlanQuestion, version: str | None) -> tuple[AbSizes, Experiments]:
    version_id = await _version_id(experiments, question.model_name, version)
    try:
        return await plan_ab(experiments.log, question._replace(version_id=version_id)), experiments
    except ValueError as problem:
        raise CommandRefused(
            ExitCode.USAGE, f"no size can be computed: {problem}", "Say the effect relative to A's value: --effect 5%."
        ) from None


async def _version_id(experiments: Experiments, model: str, version: str | None) -> int | None:
    """Return the id of the version that is compared with the champion; ``None``: that of the latest test.

    Raises:
        NotRegistered: There is no such version.
        CommandRefused: It is the champion, or none is named and several may be meant.
    """
    allocations = await experiments.log.allocations(model)
    if version is None:
        found = candidates(allocations)
        if len(found) > 1:
            arms = ", ".join(map(experiments.label, found))
            raise CommandRefused(
                ExitCode.USAGE, f"{model} has several further arms: {arms}", "Name one of them with --version."
            )
        return found[0] if found else None
    try:
        return named_b(allocations, experiments.labels, model, version)
    except ValueError as problem:
        raise CommandRefused(ExitCode.USAGE, str(problem), "Name another with --version.") from None


def _is_decided(test: DeclaredTest | None) -> bool:
    """Whether the answer is known: then no other test of the same is begun, or each command would begin one."""
    return test is not None and test.decision is not None


def _refuse_other_plan(test: DeclaredTest, question: AbQuestion, looks: int | None, given: set[str]) -> None:
    """Go on only when nothing is asked for that a declared test has fixed otherwise.

    Raises:
        CommandRefused: Naming what differs.
    """
    plan, asked = test.plan, question.choice
    same = {
        "--looks": looks == plan.looks,
        "--effect": question.wanted == plan.wanted,
        "--within": asked.within_seconds == plan.choice.within_seconds,
        "--per-call": asked.per_call == plan.choice.per_call,
        "--lower-is-better": asked.higher_is_better == plan.choice.higher_is_better,
        "--since": question.since == test.record.started_at,
    }
    other = [name for name in same if name in given and not same[name]]
    if other:
        raise CommandRefused(
            ExitCode.CONFLICT,
            f"a test of {question.metric} is open since {day_of(test.record.started_at)}, and was declared with other "
            f"{', '.join(other)}",
            "Leave these options out: what a test is to see is fixed before it begins.",
        )
