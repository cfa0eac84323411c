"""The pages of declared tests, and the acts on them: declare one, take a look that is due, end one."""

import time
from collections.abc import Mapping
from functools import partial
from secrets import token_urlsafe

from starlette.requests import Request
from starlette.responses import Response

from understudy.bootstrap.session import Session
from understudy.core.durations import moment
from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console, require_operate
from understudy.entrypoints.console.doing import Done
from understudy.entrypoints.console.pages.answers import done_of, model_of, reader_of
from understudy.entrypoints.console.pages.confirming import NONCE_BYTES, Confirmed, confirmed_of, done_once
from understudy.entrypoints.console.pages.reports import of_report, reported
from understudy.entrypoints.console.views.actors import Notes, noted
from understudy.entrypoints.console.views.confirmations.act_form import ActForm
from understudy.entrypoints.console.views.experiments.acts import (
    FIELDS,
    AskedTest,
    asked_test,
    declare_form,
    declare_page,
    stop_page,
    take_page,
)
from understudy.entrypoints.console.views.experiments.page import (
    ExperimentSeen,
    experiment_charts,
    experiment_page,
    experiments_page,
)
from understudy.entrypoints.console.views.links import STOP, TAKE, experiment_path, experiments_path
from understudy.entrypoints.documents.policies import version_label
from understudy.entrypoints.proxy.messages.problems import status_of
from understudy.errors import NotRegistered, PolicyRefused
from understudy.experiments.ab_plan import AbSizes, PlanQuestion, plan_ab
from understudy.experiments.ab_report import report_ab
from understudy.experiments.declaring import AbQuestion, Found, candidates, declare_test, find_test, named_b
from understudy.experiments.listed_tests import ListedTest, end_test, list_tests, test_of

SHOWN = 50
_MAX_DIGITS = 18


async def show_experiments(console: Console, request: Request) -> Response:
    """Return the page of a model's declared tests.

    Raises:
        NotRegistered: There is no such model.
    """
    visitor, model = await reader_of(console, request)

    async def read() -> tuple[list[ListedTest], dict[int, str]]:
        session = console.opened.reads.session
        await session.registry.show_model(model)
        notes = await console.opened.reads.notes.read()
        found = [_noted(one, notes) for one in await list_tests(session.experiments, model, SHOWN)]
        return found, await _labels(session, model)

    view = experiments_page(model, *await console.opened.questions.look(read))
    done, may_operate = done_of(console, request, visitor), visitor.may_operate(model)
    values = {"view": view, "read_at": moment(time.time()), "done": done, "may_operate": may_operate}
    return console.page("experiments.html", visitor, model=model, **values)


def _noted(one: ListedTest, notes: Notes) -> ListedTest:
    record, ended_by = one.record, one.record.ended_by
    named = record._replace(created_by=noted(record.created_by, notes))
    return one._replace(record=named._replace(ended_by=ended_by and noted(ended_by, notes)))


async def show_experiment(console: Console, request: Request) -> Response:
    """Return the page of one declared test with what is known now; a look that is due is not taken by looking on.

    Raises:
        NotRegistered: The model has no such test.
        Overloaded: Two reports are computed.
    """
    visitor, model = await reader_of(console, request)
    number = _number(request.path_params["test"])
    answer = await reported(console, ("experiment", model, number), partial(_experiment, model, number))
    values = of_report(answer, experiment_page(answer.value), experiment_charts(answer.value))
    done, may_operate = done_of(console, request, visitor), visitor.may_operate(model)
    return console.page("experiment.html", visitor, model=model, done=done, may_operate=may_operate, **values)


async def show_declare(console: Console, request: Request) -> Response:
    """Return the form of a new test.

    Raises:
        NotRegistered: There is no such model.
    """
    visitor, model = await reader_of(console, request)
    return await _form(console, request, visitor, model)


async def ask_declare(console: Console, request: Request) -> Response:
    """Return how large a test has to be, and what declares it; where it is refused, the form with why.

    Raises:
        ScopeMissing: The key lacks ``operate``.
    """
    visitor, model = await console.visitor_of(request), model_of(request)
    require_operate(visitor, model)
    try:
        asked = asked_test(request.query_params)
        work = partial(console.opened.parts.report, partial(_sizes, model, asked))
        sizes, question = await console.opened.questions.report(work)
    except PolicyRefused as refused:
        return await _form(console, request, visitor, model, refused)
    return _asked(console, request, visitor, declare_page(sizes, question, request.query_params))


async def carry_out_declare(console: Console, request: Request) -> Response:
    """Declare a test, and lead to its page.

    Raises:
        NotRegistered, PolicyRefused: It cannot be declared; nothing was changed.
    """
    form = await confirmed_of(console, request)
    asked = asked_test(form.fields)
    work = partial(console.opened.parts.report, partial(_declare, form, asked))
    return await done_once(console, form, experiments_path(form.model), partial(console.opened.questions.report, work))


async def ask_about_test(console: Console, request: Request) -> Response:
    """Return what is asked before a test is ended, or a look of it taken.

    Raises:
        ScopeMissing: The key lacks ``operate``.
        NotRegistered: The model has no such test.
        PolicyRefused: It is over.
    """
    visitor, model = await console.visitor_of(request), model_of(request)
    require_operate(visitor, model)
    number = _number(request.query_params.get("test", ""))
    work = partial(test_of, console.opened.reads.session.experiments, model, number)
    found = await console.opened.questions.look(work)
    if found.test is not None and not found.test.is_open:
        raise PolicyRefused(f"test {number} of {model} is over", hint="Nothing has to be done.")
    is_stop = request.scope["path"].endswith(f"/{STOP}")
    return _asked(console, request, visitor, (stop_page if is_stop else take_page)(found))


async def carry_out_about_test(console: Console, request: Request) -> Response:
    """End a test, or take the look that is due, and lead to its page.

    Raises:
        NotRegistered, PolicyRefused: It is not there, or over; nothing was changed.
    """
    form = await confirmed_of(console, request)
    number, back = form.number("test"), experiment_path(form.model, form.number("test"))
    if request.scope["path"].endswith(f"/{TAKE}"):
        take = partial(console.opened.parts.report, partial(_take, form.model, number))
        work = partial(console.opened.questions.report, take)
    else:
        work = partial(console.opened.questions.change, partial(_stop, console.opened.acts, form, number))
    response = await done_once(console, form, back, work)
    console.opened.questions.forget(("experiment", form.model, number))
    return response


async def _labels(session: Session, model: str) -> dict[int, str]:
    return {version.id: version.version for version in await session.registry.list_versions(model)}


async def _experiment(model: str, number: int, session: Session) -> ExperimentSeen:
    listed, labels = await test_of(session.experiments, model, number), await _labels(session, model)
    seen = ExperimentSeen(listed, None, lambda version_id: version_label(version_id, labels))
    if not await _is_reported(session, listed):
        return seen
    store, log = session.experiments, session.experiment_log
    report = await report_ab(log, store, _question(listed, model), with_timeline=True, takes_looks=False)
    return seen._replace(report=report, is_look_due=report.is_look_due)


def _question(listed: ListedTest, model: str) -> AbQuestion:
    record, test = listed.record, listed.test
    assert test is not None
    plan = test.plan
    return AbQuestion(model, record.metric, time.time(), None, plan.wanted, plan.choice, record.challenger_id)


async def _is_reported(session: Session, listed: ListedTest) -> bool:
    """Whether a report of its metric is about this test: the newest of its versions, of which A is the champion now."""
    record = listed.record
    versions = record.champion_id, record.challenger_id
    newest = await session.experiments.latest(record.model_name, record.metric, versions)
    if listed.test is None or newest is None or newest.id != record.id:
        return False
    allocations = await session.experiment_log.allocations(record.model_name)
    return bool(allocations) and allocations[-1].champion_id == record.champion_id


async def _sizes(model: str, asked: AskedTest, session: Session) -> tuple[AbSizes, PlanQuestion]:
    version_id = await _version_id(session, model, asked)
    question = PlanQuestion(model, asked.metric, asked.wanted, asked.choice, asked.looks, time.time(), version_id)
    try:
        return await plan_ab(session.experiment_log, question), question
    except ValueError as problem:
        raise PolicyRefused(f"effect: no size can be computed: {problem}", hint="Say it as a share: 5%.") from None


async def _declare(form: Confirmed, asked: AskedTest, session: Session) -> Done:
    model, log, store = form.model, session.experiment_log, session.experiments
    question = AbQuestion(
        model, asked.metric, time.time(), None, asked.wanted, asked.choice, await _version_id(session, model, asked)
    )
    found = await find_test(log, store, model, asked.metric, question.version_id)
    if found.test is not None and found.test.is_open:
        raise PolicyRefused(f"metric: a test of {asked.metric} is open already", hint="Look at it, or end it first.")
    made = await _declared(session, found, question, asked, form.actor.name)
    if made.test is None:
        raise PolicyRefused(f"metric: a test of {asked.metric} was declared at this moment", hint="Look at the list.")
    record = made.test.record
    href = experiment_path(model, record.id)
    return Done(f"Done: test {record.id} of {asked.metric} is declared.", changed=True, href=href)


async def _declared(session: Session, found: Found, question: AbQuestion, asked: AskedTest, by: str) -> Found:
    try:
        log, store = session.experiment_log, session.experiments
        return await declare_test(log, store, found, question, looks=asked.looks, created_by=by)
    except ValueError as problem:
        hint = "A plan needs the champion's own figures: let outcomes come in first."
        raise PolicyRefused(f"metric: no test can be declared yet: {problem}", hint=hint) from None


async def _version_id(session: Session, model: str, asked: AskedTest) -> int | None:
    """Return who is compared with the champion; ``None``: find out as a report does.

    Raises:
        NotRegistered: There is no such model or version.
        PolicyRefused: It is the champion, or none is named and several may be meant.
    """
    await session.registry.show_model(model)
    allocations, labels = await session.experiment_log.allocations(model), await _labels(session, model)
    if asked.version is not None:
        try:
            return named_b(allocations, labels, model, asked.version)
        except ValueError as problem:
            raise PolicyRefused(f"version: {problem}", hint="Name another one.") from None
    found = candidates(allocations)
    if len(found) > 1:
        raise PolicyRefused("version: the model has several further arms", hint="Name one of them.")
    return found[0] if found else None


async def _take(model: str, number: int, session: Session) -> Done:
    listed = await test_of(session.experiments, model, number)
    if listed.test is None or not listed.test.is_open or not await _is_reported(session, listed):
        why = f"test {number} is over, or not of the versions that share the calls now"
        raise PolicyRefused(why, hint="Nothing was taken.")
    before = len(listed.test.looks)
    report = await report_ab(session.experiment_log, session.experiments, _question(listed, model))
    test = report.found.test
    if test is None or test.record.id != number or len(test.looks) == before:
        return Done("Nothing changed: no look is due.", changed=False)
    return Done(f"Done: look {len(test.looks)} of {test.plan.looks} is taken. {report.sentence}", changed=True)


async def _stop(session: Session, form: Confirmed, number: int) -> Done:
    record = await end_test(session.experiments, form.model, number, form.actor)
    return Done(f"Done: test {number} of {record.metric} is over, and decides nothing.", changed=True)


async def _form(
    console: Console, request: Request, visitor: Visitor, model: str, refused: PolicyRefused | None = None
) -> Response:
    async def read() -> list[str]:
        policy = (await console.opened.reads.session.registry.show_model(model)).policy
        versions = await console.opened.reads.session.registry.list_versions(model)
        return [one.version for one in versions if policy is None or one.version != policy.champion]

    values: Mapping[str, str] = {name: request.query_params[name] for name in FIELDS if name in request.query_params}
    view = declare_form(model, await console.opened.questions.look(read), values, refused)
    status = 200 if refused is None else status_of(refused)
    return console.page("declare.html", visitor, status, model=model, view=view, may_operate=visitor.may_operate(model))


def _asked(console: Console, request: Request, visitor: Visitor, page: ActForm) -> Response:
    nonce, action = token_urlsafe(NONCE_BYTES), request.scope["path"]
    return console.page("act_form.html", visitor, model=page.model, view=page, nonce=nonce, action=action)


def _number(text: str) -> int:
    """Return the number of a test.

    Raises:
        NotRegistered: It is none.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise NotRegistered("there is no such test")
    return int(text)
