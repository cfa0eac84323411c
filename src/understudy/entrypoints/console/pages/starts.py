"""The page that asks for a rollout, the page of its plan at today's traffic, and the start."""

import time
from collections.abc import Mapping
from functools import partial
from secrets import token_hex, token_urlsafe
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console, require_operate
from understudy.entrypoints.console.doing import Done
from understudy.entrypoints.console.pages.answers import model_of, reader_of
from understudy.entrypoints.console.pages.confirming import (
    NONCE_BYTES,
    Confirmed,
    confirmed_of,
    done_once,
    require_unmoved,
    typed_again,
)
from understudy.entrypoints.console.views.confirmations.rollout_start import (
    FIELDS,
    AskedStart,
    StartPage,
    asked_start,
    start_form,
    start_page,
)
from understudy.entrypoints.console.views.links import model_path, rollout_path
from understudy.entrypoints.console.views.policy import PolicySeen
from understudy.entrypoints.proxy.messages.problems import status_of
from understudy.errors import ActNotConfirmed, NotRegistered, PolicyRefused, RegistryError, VersionNotReady
from understudy.rollout.start.start import (
    ENTITIES_WAIT_SECONDS,
    OUTCOMES_WAIT_SECONDS,
    Prepared,
    prepare,
    require_same_inputs,
)

SALT_BYTES = 4
_REFUSALS = (PolicyRefused, NotRegistered, VersionNotReady)


async def show_start(console: Console, request: Request) -> Response:
    """Return the page that asks for a rollout.

    Raises:
        NotRegistered: There is no such model.
    """
    visitor, model = await reader_of(console, request)
    return await _form(console, visitor, model, request.query_params)


async def ask_start(console: Console, request: Request) -> Response:
    """Return the plan of a rollout and what starts it; where it is refused, the form with why.

    Raises:
        ScopeMissing: The key lacks ``operate``.
    """
    visitor, model = await console.visitor_of(request), model_of(request)
    require_operate(visitor, model)
    asked = asked_start(request.query_params)
    try:
        prepared = await console.opened.questions.look(partial(_prepared, console, model, asked))
    except _REFUSALS as refused:
        return await _form(console, visitor, model, request.query_params, refused)
    return _asked(console, request, visitor, start_page(asked, prepared), model)


async def carry_out_start(console: Console, request: Request) -> Response:
    """Start a rollout once its version has answered a warm-up, and lead to its page.

    Raises:
        ActNotConfirmed: The generation is missing; nothing was started. Where the reason or the model's name is, the
            page is shown again.
        GenerationMoved: The policy was changed since the plan was shown; nothing was started.
        DeadlineExceeded: It took too long; whether it was started the model's page shows.
    """
    form = await confirmed_of(console, request)
    asked, generation = asked_start(form.fields), form.number("generation")
    work = partial(console.opened.questions.start, partial(_begin, console, form, asked, generation))
    try:
        form.require_reason()
        form.require_name()
        return await done_once(console, form, model_path(form.model), work)
    except ActNotConfirmed as problem:
        values = typed_again(request, form, problem)
        prepared = await console.opened.questions.look(partial(_prepared, console, form.model, asked))
        require_unmoved(form, "generation", prepared.generation)
        return _asked(console, request, form.visitor, start_page(asked, prepared), form.model, **values)
    except _REFUSALS as refused:
        fields = {name: form.fields.get(name, "") for name in FIELDS}
        return await _form(console, form.visitor, form.model, fields, refused)


def _asked(
    console: Console, request: Request, visitor: Visitor, view: StartPage, model: str, **values: Any
) -> Response:
    nonce, action = token_urlsafe(NONCE_BYTES), request.scope["path"]
    return console.page("begin.html", visitor, model=model, view=view, nonce=nonce, action=action, **values)


async def _begin(console: Console, form: Confirmed, asked: AskedStart, generation: int) -> Done:
    prepared = await _prepared(console, form.model, asked)
    require_same_inputs(prepared)
    await console.opened.parts.require_ready(form.model, asked.version)
    new = prepared.rollout(prepared.plan.salt or token_hex(SALT_BYTES))
    record = await console.opened.acts.rollouts.start(new, form.actor, expected_generation=generation)
    sentence = f"Done: rollout {record.id} has begun: the warm-up comes first."
    return Done(sentence, changed=True, href=rollout_path(form.model, record.id))


async def _prepared(console: Console, model: str, asked: AskedStart) -> Prepared:
    """Return what a start would mean, from the use case of ``understudy plan``."""
    acts, parts = console.opened.acts, console.opened.parts
    return await prepare(
        acts.registry,
        acts.windows,
        model,
        asked.version,
        asked.plan,
        now=time.time(),
        budget_ratio=parts.budget_ratio,
        freezes=asked.freezes,
        expect_different_scores=asked.expects_scores,
        entities=acts.history(ENTITIES_WAIT_SECONDS),
        outcome_before=acts.outcome_before(OUTCOMES_WAIT_SECONDS),
    )


async def _form(
    console: Console,
    visitor: Visitor,
    model: str,
    values: Mapping[str, str],
    refused: RegistryError | None = None,
) -> Response:
    seen: PolicySeen = await console.opened.questions.look(partial(console.opened.reads.policy, model))
    view, may_operate = start_form(seen, values, refused), visitor.may_operate(model)
    status = 200 if refused is None else status_of(refused)
    return console.page("start.html", visitor, status, model=model, view=view, may_operate=may_operate)
