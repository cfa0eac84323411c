"""Acts on versions: retire one, bring one back, and send it logged calls to see what it answers."""

from functools import partial
from secrets import token_urlsafe
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.console import Console, require_operate
from understudy.entrypoints.console.doing import Done
from understudy.entrypoints.console.pages.answers import model_of
from understudy.entrypoints.console.pages.confirming import (
    NONCE_BYTES,
    Confirmed,
    confirmed_of,
    done_once,
    typed_again,
)
from understudy.entrypoints.console.views.confirmations.act_form import ActForm
from understudy.entrypoints.console.views.confirmations.version_acts import (
    bring_back_page,
    replay_done,
    replay_page,
    retire_page,
    status_words,
    wanted_replay,
)
from understudy.entrypoints.console.views.links import REPLAY, RETIRE, versions_path
from understudy.errors import ActNotConfirmed, NotRegistered
from understudy.experiments.log_replay import ReplayWanted
from understudy.ports.registry.registry import Actor, VersionChange
from understudy.ports.rollout.rollout_store import VIA_CONSOLE

MAX_VERSION = 255


async def ask_about_version(console: Console, request: Request) -> Response:
    """Return what is asked before an act on a version.

    Raises:
        ScopeMissing: The key lacks ``operate``.
        NotRegistered: The model has no such version.
        PolicyRefused: It has a role, or a part in a rollout.
    """
    visitor, model = await console.visitor_of(request), model_of(request)
    require_operate(visitor, model)
    version = _version(request.query_params.get("version", ""))
    read = _replay_page if _act_of(request) == REPLAY else _status_page
    page = await console.opened.questions.look(partial(read, console, model, version, _act_of(request)))
    return _asked(console, request, visitor, page)


async def carry_out_about_version(console: Console, request: Request) -> Response:
    """Retire a version, bring it back or replay calls on it, and lead to the page of the model's versions.

    Raises:
        NotRegistered, PolicyRefused: It is not there, or has a role; nothing was changed.
        BackendUnavailable: No model server of the version answers.
    """
    form, act = await confirmed_of(console, request), _act_of(request)
    version = _version(form.fields.get("version", ""))
    if act == REPLAY:
        wanted = wanted_replay(form.model, version, form.fields)
        work = partial(console.opened.questions.report, partial(_replayed, console, wanted))
    else:
        try:
            form.require_reason()
        except ActNotConfirmed as problem:
            values = typed_again(request, form, problem)
            read = partial(_status_page, console, form.model, version, act)
            return _asked(console, request, form.visitor, await console.opened.questions.look(read), **values)
        work = partial(console.opened.questions.change, partial(_set, console, form, version, act))
    return await done_once(console, form, versions_path(form.model), work)


def _asked(console: Console, request: Request, visitor: Visitor, page: ActForm, **values: Any) -> Response:
    nonce, action = token_urlsafe(NONCE_BYTES), request.scope["path"]
    return console.page("act_form.html", visitor, model=page.model, view=page, nonce=nonce, action=action, **values)


async def _status_page(console: Console, model: str, version: str, act: str) -> ActForm:
    tried = await _changed(console, model, version, act, Actor("console", VIA_CONSOLE), dry_run=True)
    return retire_page(tried) if act == RETIRE else bring_back_page(tried)


async def _replay_page(console: Console, model: str, version: str, _act: str) -> ActForm:
    registry = console.opened.reads.session.registry
    await registry.show_version(model, version)
    known = [one.version for one in await registry.list_versions(model)]
    return replay_page(model, version, tuple(one for one in reversed(known) if one != version))


async def _set(console: Console, form: Confirmed, version: str, act: str) -> Done:
    changed = await _changed(console, form.model, version, act, form.actor)
    return Done(status_words(changed), changed.before.status != changed.after.status)


async def _changed(
    console: Console, model: str, version: str, act: str, actor: Actor, *, dry_run: bool = False
) -> VersionChange:
    registry = console.opened.acts.registry
    return await registry.set_retired(model, version, actor, is_retired=act == RETIRE, dry_run=dry_run)


async def _replayed(console: Console, wanted: ReplayWanted) -> Done:
    return replay_done(await console.opened.parts.replay(wanted))


def _act_of(request: Request) -> str:
    path: str = request.scope["path"]
    return path.rpartition("/")[2]


def _version(text: str) -> str:
    """Return the version that a query or a form names.

    Raises:
        NotRegistered: No version can have this name.
    """
    if not 0 < len(text) <= MAX_VERSION or "\0" in text:
        raise NotRegistered("there is no such version")
    return text
