"""The page of a model's policy, the page that says what a change of it would be, and the change."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from secrets import token_urlsafe
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.shared.policy_changes.newcomers import newcomers_of
from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console, require_operate
from understudy.entrypoints.console.doing import Done, reach_words
from understudy.entrypoints.console.pages.answers import done_of, model_of, reader_of
from understudy.entrypoints.console.pages.confirming import (
    NONCE_BYTES,
    Confirmed,
    confirmed_of,
    done_once,
    require_unmoved,
    typed_again,
)
from understudy.entrypoints.console.views.confirmations.policy_change import (
    ChangePage,
    ChangeWords,
    TriedChange,
    change_page,
    done_words,
    restore_command,
    set_command,
)
from understudy.entrypoints.console.views.links import audit_path, policy_path
from understudy.entrypoints.console.views.policy import FIELDS, PolicySeen, asked_change, policy_page
from understudy.entrypoints.proxy.messages.problems import status_of
from understudy.errors import ActNotConfirmed, NotRegistered, PolicyRefused, RegistryError, UnknownRoute
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import VIA_CONSOLE
from understudy.registry.asked_change import AskedChange, make_change, settled
from understudy.registry.policy_changes import moves_traffic
from understudy.registry.policy_files import open_rollout_of
from understudy.registry.policy_restore import restored_change

GENERATION = "generation"
_TRIED = Actor("console", VIA_CONSOLE)
Find = Callable[[Session], Awaitable[AskedChange]]


async def show_policy(console: Console, request: Request) -> Response:
    """Return the page of a model's policy.

    Raises:
        NotRegistered: There is no such model.
    """
    visitor, model = await reader_of(console, request)
    return await _form(_At(console, request, visitor, model))


async def ask_change(console: Console, request: Request) -> Response:
    """Return what a change would be; where it is refused, the form with why.

    Raises:
        ScopeMissing: The key lacks ``operate``.
        GenerationMoved: The policy was changed since the form was shown.
    """
    visitor, model = await console.visitor_of(request), model_of(request)
    require_operate(visitor, model)
    asked = {name: value for name, value in request.query_params.items() if name in (*FIELDS, GENERATION)}
    try:
        page = await console.opened.questions.look(partial(_set_page, console, model, asked))
    except (PolicyRefused, NotRegistered) as refused:
        return await _form(_At(console, request, visitor, model), asked, refused)
    return _asked(console, request, visitor, page)


async def carry_out_change(console: Console, request: Request) -> Response:
    """Change a policy as its page said, and lead to the page that shows it; where it is refused, the form with why.

    Raises:
        ActNotConfirmed: The generation is missing; nothing was changed. Where the reason or the model's name is, the
            page is shown again.
        GenerationMoved: The policy was changed since the page was shown; nothing was changed.
    """
    form = await confirmed_of(console, request)
    asked, generation = form.fields, form.number(GENERATION)

    async def find(session: Session) -> AskedChange:
        policy = (await session.registry.show_model(form.model)).policy
        return asked_change(policy, form.model, asked, generation)

    try:
        form.require_reason()
        return await _made(console, form, policy_path(form.model), find)
    except ActNotConfirmed as problem:
        values = typed_again(request, form, problem)
        page = await console.opened.questions.look(partial(_set_page, console, form.model, asked))
        return _asked(console, request, form.visitor, page, **values)
    except (PolicyRefused, NotRegistered) as refused:
        return await _form(_At(console, request, form.visitor, form.model), asked, refused)


async def ask_restore(console: Console, request: Request) -> Response:
    """Return what the restore of an older policy would be.

    Raises:
        ScopeMissing: The key lacks ``operate``.
        NotRegistered, PolicyRefused: There is no such generation, or it cannot be restored.
    """
    visitor, model = await console.visitor_of(request), model_of(request)
    require_operate(visitor, model)
    generation = _generation(request.query_params.get("from", ""))
    page = await console.opened.questions.look(partial(_restore_page, console, model, generation))
    return _asked(console, request, visitor, page)


async def carry_out_restore(console: Console, request: Request) -> Response:
    """Restore an older policy as a new change, and lead to the audit that shows it.

    Raises:
        As :func:`carry_out_change`.
    """
    form = await confirmed_of(console, request)
    older, expected = form.number("from"), form.number(GENERATION)

    async def find(session: Session) -> AskedChange:
        found = await restored_change(session.registry, form.model, older)
        return found._replace(expected_generation=expected)

    try:
        form.require_reason()
        return await _made(console, form, audit_path(form.model), find)
    except ActNotConfirmed as problem:
        values = typed_again(request, form, problem)
        page = await console.opened.questions.look(partial(_restore_page, console, form.model, older))
        require_unmoved(form, GENERATION, dict(page.fields)[GENERATION])
        return _asked(console, request, form.visitor, page, **values)


async def _made(console: Console, form: Confirmed, back: str, find: Find) -> Response:
    work = partial(_change, console.opened.acts, form, find)
    return await done_once(console, form, back, partial(console.opened.questions.change, work))


async def _change(session: Session, form: Confirmed, find: Find) -> Done:
    """Make a change that the form confirms; whether calls move the database says, not the form."""
    asked = await settled(session.registry, await find(session))
    before, after = await make_change(session.registry, asked, form.actor, dry_run=True)
    if before is not None and moves_traffic(before, after):
        form.require_name()
    changed = await make_change(session.registry, asked, form.actor)
    reach = ""
    if changed.is_changed:
        reach = await reach_words(session, form.model, changed.after.generation)
    return Done(done_words(changed, reach), changed=changed.is_changed)


async def _set_page(console: Console, model: str, asked: Mapping[str, str]) -> ChangePage:
    policy = (await console.opened.acts.registry.show_model(model)).policy
    generation = _generation(asked.get(GENERATION, ""))
    change = asked_change(policy, model, asked, generation)
    fields = {name: asked[name] for name in FIELDS if name in asked} | {GENERATION: str(generation)}
    words = ChangeWords("Change the policy", set_command(model, change), policy_path(model))
    return change_page(words, await _tried(console.opened.acts, change), fields)


async def _restore_page(console: Console, model: str, older: int) -> ChangePage:
    change = await restored_change(console.opened.acts.registry, model, older)
    fields = {"from": str(older), GENERATION: str(change.expected_generation or 0)}
    title = f"Restore the policy of generation {older}"
    words = ChangeWords(title, restore_command(model, older), audit_path(model))
    return change_page(words, await _tried(console.opened.acts, change), fields)


async def _tried(acts: Session, change: AskedChange) -> TriedChange:
    """Return what a change would be, which the database has tried and taken back."""
    changed = await make_change(acts.registry, await settled(acts.registry, change), _TRIED, dry_run=True)
    newcomers = await newcomers_of(acts.registry, *changed)
    before = changed.before
    return TriedChange(changed, newcomers, before and await open_rollout_of(acts.rollouts, before))


async def _form(at: "_At", asked: Mapping[str, str] | None = None, refused: RegistryError | None = None) -> Response:
    console, request, visitor, model = at
    seen: PolicySeen = await console.opened.questions.look(partial(console.opened.reads.policy, model))
    values = {
        "model": model,
        "view": policy_page(seen, asked, refused),
        "may_operate": visitor.may_operate(model),
        "done": done_of(console, request, visitor),
    }
    return console.page("policy.html", visitor, 200 if refused is None else status_of(refused), **values)


class _At(NamedTuple):
    """Who looks at which model."""

    console: Console
    request: Request
    visitor: Visitor
    model: str


def _asked(console: Console, request: Request, visitor: Visitor, page: ChangePage, **values: Any) -> Response:
    nonce, action = token_urlsafe(NONCE_BYTES), request.scope["path"]
    return console.page("change.html", visitor, model=page.model, view=page, nonce=nonce, action=action, **values)


def _generation(text: str) -> int:
    """Return the generation that an address names.

    Raises:
        UnknownRoute: It names none.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:  # noqa: PLR2004 - digits of a BIGINT
        raise UnknownRoute("the address has no generation of a policy")
    return int(text)
