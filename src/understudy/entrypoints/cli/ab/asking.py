"""Questions about A/B tests, answered from the database: by the command line, and by a proxy in its place."""

from collections.abc import Collection
from typing import NamedTuple

from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.ab.tests_text import stopped_words, tests_text
from understudy.entrypoints.cli.ab.text import report_texts, sizes_texts
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.screens import Drawn
from understudy.entrypoints.cli.shared.session import Experiments, experiments_of
from understudy.entrypoints.cli.shared.times import day_of
from understudy.entrypoints.documents.experiments import ab_document, test_document
from understudy.entrypoints.documents.json_text import document_of
from understudy.entrypoints.documents.policies import version_label
from understudy.errors import DeclaredOtherwise, NotDeclarable
from understudy.experiments.ab_plan import AbSizes, PlanQuestion, plan_ab
from understudy.experiments.ab_report import AbReport, report_ab
from understudy.experiments.declared_tests import DeclaredTest
from understudy.experiments.declaring import AbQuestion, candidates, declare_test, find_test, named_b
from understudy.experiments.listed_tests import ListedTest, end_test, list_tests
from understudy.ports.registry.registry import Actor


class ReportAsked(NamedTuple):
    """What a report is asked for."""

    question: AbQuestion
    version: str | None
    """B; ``None``: the challenger, or the only further arm."""
    looks: int | None
    """Declare a test with so many looks, if none is open; ``None``: declare none."""
    given: Collection[str]
    """Options that were given, of those that an open test has fixed."""
    declared_by: str


async def drawn_report(session: Session, asked: ReportAsked) -> Drawn:
    """Return a report as it is shown; raises as :func:`report_of`."""
    model, metric = asked.question.model_name, asked.question.metric
    experiments = await experiments_of(session, model)
    found = await report_of(experiments, asked)
    document = ab_document(found, model, metric, experiments.label)
    return Drawn(document, report_texts(found, model, metric, experiments.label))


async def drawn_sizes(session: Session, question: PlanQuestion, version: str | None) -> Drawn:
    """Return how large a test has to be as it is shown; raises as :func:`_version_id`."""
    experiments = await experiments_of(session, question.model_name)
    sizes = await _sizes(experiments, question, version)
    beside = [experiments.label(version_id) for version_id in sizes.beside]
    about = {"beside": beside, "model": question.model_name, "metric": question.metric}
    return Drawn({"plan": {**document_of(sizes), **about}}, sizes_texts(sizes, question))


async def drawn_tests(session: Session, models: Collection[str] | None, at_most: int, *, utc: bool = False) -> Drawn:
    """Return the newest declared tests of these models as they are shown; ``None``: of all models.

    Raises:
        NotRegistered: One of them is no model.
    """
    labels: dict[int, str] = {}
    found: list[ListedTest] = []
    for model in [None] if models is None else models:
        if model is not None:
            await session.registry.show_model(model)
        labels |= {one.id: one.version for one in await session.registry.list_versions(model)}
        found += await list_tests(session.experiments, model, at_most)
    shown = sorted(found, key=lambda one: one.record.id, reverse=True)[:at_most]
    document = {"tests": [test_document(one, lambda version_id: version_label(version_id, labels)) for one in shown]}
    return Drawn(document, [tests_text(shown, labels, utc=utc)])


async def drawn_stop(session: Session, model: str, test_id: int, by: Actor) -> Drawn:
    """End a test before it decides, and return what is said of that; raises as :func:`end_test`."""
    await session.registry.show_model(model)
    ended = await end_test(session.experiments, model, test_id, by)
    stopped = {"id": test_id, "model": model, "metric": ended.metric, "ended_by": by.name}
    return Drawn({"stopped": stopped}, [stopped_words(test_id, ended.metric)])


async def report_of(experiments: Experiments, asked: ReportAsked, *, with_timeline: bool = False) -> AbReport:
    """Return a report, after the test is declared that is asked for.

    Raises:
        DeclaredOtherwise, NotDeclarable: As :func:`_declare`.
        CommandRefused: B is not clear.
        NotRegistered: There is nothing to compare.
    """
    model_name = asked.question.model_name
    question = asked.question._replace(version_id=await _version_id(experiments, model_name, asked.version))
    await _declare(experiments, question, asked)
    return await report_ab(experiments.log, experiments.store, question, with_timeline=with_timeline)


async def _declare(experiments: Experiments, question: AbQuestion, asked: ReportAsked) -> None:
    """Declare the test when looks are asked for and none is open or decided.

    Raises:
        DeclaredOtherwise: The open test was declared with something else.
        NotDeclarable: No plan can be made yet.
    """
    log, store, looks = experiments.log, experiments.store, asked.looks
    found = await find_test(log, store, question.model_name, question.metric, question.version_id)
    if found.test is not None and found.test.is_open:
        _refuse_other_plan(found.test, question, looks, asked.given)
    elif looks is not None and not _is_decided(found.test):
        try:
            await declare_test(log, store, found, question, looks=looks, created_by=asked.declared_by)
        except ValueError as problem:
            raise NotDeclarable(str(problem)) from None


async def _sizes(experiments: Experiments, question: PlanQuestion, version: str | None) -> AbSizes:
    version_id = await _version_id(experiments, question.model_name, version)
    try:
        return await plan_ab(experiments.log, question._replace(version_id=version_id))
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


def _refuse_other_plan(test: DeclaredTest, question: AbQuestion, looks: int | None, given: Collection[str]) -> None:
    """Go on only when nothing is asked for that a declared test has fixed otherwise.

    Raises:
        DeclaredOtherwise: Naming what differs.
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
        raise DeclaredOtherwise(
            f"a test of {question.metric} has been open since {day_of(test.record.started_at)}, and was declared "
            f"with other {', '.join(other)}"
        )
