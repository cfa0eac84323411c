"""The page that asks before an act, and the act: two clicks, and no act without the second."""

from functools import partial
from secrets import token_urlsafe
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from understudy.core.rollout.state import Command, CommandKind
from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console, require_operate
from understudy.entrypoints.console.doing import give_command, roll_back
from understudy.entrypoints.console.pages.answers import model_of
from understudy.entrypoints.console.pages.confirming import (
    NONCE_BYTES,
    Confirmed,
    confirmed_of,
    done_once,
    require_unmoved,
    typed_again,
)
from understudy.entrypoints.console.views.confirmations.rollout_acts import (
    OF_WHAT_WAS_SEEN,
    ActPage,
    blind_rollback_page,
    command_page,
    rollback_page,
)
from understudy.entrypoints.console.views.links import EXPECTED, ROLL_BACK, SCORES, model_path, rollout_path
from understudy.errors import (
    ActNotConfirmed,
    DeadlineExceeded,
    NotRegistered,
    Overloaded,
    PolicyRefused,
    RegistryUnavailable,
    UnknownRoute,
)
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import VIA_CONSOLE
from understudy.rollout.status import view_of

_MAX_DIGITS = 18


async def ask(console: Console, request: Request) -> Response:
    """Return the page that asks.

    Raises:
        ScopeMissing: The key lacks ``operate``.
        UnknownRoute: There is no such act.
        NotRegistered: There is no such model or rollout.
    """
    visitor, model = await console.visitor_of(request), model_of(request)
    require_operate(visitor, model)
    act, number = request.path_params["act"], _number(request.query_params.get("rollout"))
    try:
        expects_scores = request.query_params.get(SCORES) == EXPECTED
        work = partial(_page_of, console, model, act, number, expects_scores=expects_scores)
        page = await console.opened.questions.ask(work)
    except (DeadlineExceeded, Overloaded) as problem:
        if act != ROLL_BACK:
            raise
        page = blind_rollback_page(model, number, problem.title)
    return _asked(console, request, visitor, page, _back(model, number))


async def carry_out(console: Console, request: Request) -> Response:
    """Carry out an act, and lead to the page that shows what it did.

    Raises:
        FormOfAnotherSession, ScopeMissing, UnknownRoute: Nothing was changed.
        ActNotConfirmed: The form is no whole one; nothing was changed. Where only the reason or the model's name is
            missing, its page is shown again.
        GenerationMoved, PolicyRefused, NotRegistered, RegistryUnavailable: As the use case.
        DeadlineExceeded: It took too long; whether it was carried out the page shows.
    """
    form = await confirmed_of(console, request)
    act, number = request.path_params["act"], _number(form.fields.get("rollout"))
    if act == ROLL_BACK:
        work = partial(roll_back, console.opened.acts, form.model, form.actor)
    else:
        kind = _kind(act)
        revision = form.number("revision") if kind in OF_WHAT_WAS_SEEN else None
        try:
            if kind is not CommandKind.RESUME:
                form.require_reason()
            if kind is CommandKind.PROMOTE:
                form.require_name()
        except ActNotConfirmed as problem:
            return await _again(console, request, form, problem)
        is_meant = kind is CommandKind.RESUME and form.fields.get(SCORES) == EXPECTED
        command = Command(kind, form.actor.name, form.actor.reason or "", expects_different_scores=is_meant)
        work = partial(give_command, console.opened.acts, form.model, number, command, revision)
    return await done_once(console, form, _back(form.model, number), partial(console.opened.questions.act, work))


async def _again(console: Console, request: Request, form: Confirmed, problem: ActNotConfirmed) -> Response:
    """Return the page that asks once more; it confirms what it was first shown for, and nothing newer."""
    values = typed_again(request, form, problem)
    number = _number(form.fields.get("rollout"))
    expects_scores = form.fields.get(SCORES) == EXPECTED
    work = partial(_page_of, console, form.model, request.path_params["act"], number, expects_scores=expects_scores)
    page = await console.opened.questions.ask(work)
    require_unmoved(form, "revision", page.revision)
    return _asked(console, request, form.visitor, page, _back(form.model, number), **values)


def _asked(console: Console, request: Request, visitor: Visitor, page: ActPage, back: str, **values: Any) -> Response:
    nonce, action = token_urlsafe(NONCE_BYTES), request.scope["path"]
    return console.page("act.html", visitor, view=page, nonce=nonce, back=back, action=action, **values)


async def _page_of(console: Console, model: str, act: str, number: int | None, *, expects_scores: bool) -> ActPage:
    if act == ROLL_BACK:
        return await _rollback_page(console, model, number)
    view = await view_of(console.opened.acts.rollouts, model, number)
    return command_page(_kind(act), view, expects_scores=expects_scores)


async def _rollback_page(console: Console, model: str, number: int | None) -> ActPage:
    try:
        policy = (await console.opened.acts.registry.show_model(model)).policy
        if policy is None:
            raise PolicyRefused(f"{model} has no policy: there is nothing to take back")
        tried = await console.opened.acts.rollouts.roll_back(model, Actor("console", VIA_CONSOLE), dry_run=True)
    except RegistryUnavailable as problem:
        return blind_rollback_page(model, number, problem.title)
    return rollback_page(model, policy, tried, number)


def _kind(act: str) -> CommandKind:
    try:
        return CommandKind(act)
    except ValueError:
        raise UnknownRoute("there is no such act") from None


def _number(text: str | None) -> int | None:
    """Return the number that a field has; ``None`` for an empty one.

    Raises:
        NotRegistered: It is none.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise NotRegistered("there is no such rollout")
    return int(text)


def _back(model: str, number: int | None) -> str:
    return model_path(model) if number is None else rollout_path(model, number)
