"""What every form of an act has to have before anything is done: its session's token, a nonce, a key that may act."""

from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from understudy.entrypoints.console.access.visitors import Visitor
from understudy.entrypoints.console.as_json import wants_json
from understudy.entrypoints.console.console import SEE_OTHER, Console, require_operate
from understudy.entrypoints.console.doing import Done
from understudy.entrypoints.console.pages.answers import model_of
from understudy.errors import ActNotConfirmed, GenerationMoved
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import VIA_CONSOLE

NONCE_BYTES, MAX_NONCE = 12, 64
MAX_REASON = 1_000
"""Characters, as the database has it."""
UNPROCESSABLE = 422
_MAX_DIGITS, _BOUND = 18, 32


def at_field(name: str, detail: str) -> ActNotConfirmed:
    """Return that a field is missing or wrong, so that its form can be shown again."""
    problem = ActNotConfirmed(detail)
    problem.field = name
    return problem


def typed_again(request: Request, form: "Confirmed", problem: ActNotConfirmed) -> Mapping[str, Any]:
    """Return what the page of an act shows once more: what was typed, and what is wrong beside its field.

    Raises:
        ActNotConfirmed: It is wrong at no field that can be filled in, or a program asks and not a browser.
    """
    if not problem.field or wants_json(request):
        raise problem
    said = problem.detail[0].upper() + problem.detail[1:]
    return {
        "typed": {name: form.fields.get(name, "") for name in ("reason", "name")},
        "wrong": {problem.field: f"{said} ({problem.code}). Nothing was changed."},
        "status": UNPROCESSABLE,
    }


def require_unmoved(form: "Confirmed", name: str, now: str | int | None) -> None:
    """Show a form again only where it asks for what it did: a newer page wants to be read first.

    Raises:
        GenerationMoved: What the form was of is another now.
    """
    if form.fields.get(name, "") != ("" if now is None else str(now)):
        raise GenerationMoved("it was changed by another since the page was shown")


class Confirmed(NamedTuple):
    """A form that was sent by one who may act on the model."""

    visitor: Visitor
    model: str
    fields: Mapping[str, str]
    nonce: str
    """The form's, bound to its address: sent to another act it is another form."""
    actor: Actor
    """With the reason, where one was given."""

    def require_reason(self) -> None:
        """Go on only with a reason.

        Raises:
            ActNotConfirmed: There is none.
        """
        if not self.actor.reason:
            raise at_field("reason", "a reason is needed")

    def require_name(self) -> None:
        """Go on only where the model's name was typed.

        Raises:
            ActNotConfirmed: It was not.
        """
        if self.fields.get("name", "") != self.model:
            raise at_field("name", "the model's name was not typed as it is")

    def number(self, name: str) -> int:
        """Return a number that the page put into its form.

        Raises:
            ActNotConfirmed: The form has it not.
        """
        text = self.fields.get(name, "")
        if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
            raise ActNotConfirmed(f"the form has no {name}", hint="Open the page again and send its form.")
        return int(text)


async def confirmed_of(console: Console, request: Request) -> Confirmed:
    """Return the form of an act.

    Raises:
        FormOfAnotherSession, Unauthenticated, ScopeMissing: Nothing is to be done.
        ActNotConfirmed: It lacks its nonce, or its reason is too long.
    """
    # The token first: a form that is not of the session asks the database for nothing.
    fields = await console.form_of(request, console.require_session(request))
    visitor, model = await console.visitor_of(request, acts=True), model_of(request)
    require_operate(visitor, model)
    reason, nonce = fields.get("reason", "").strip(), fields.get("nonce", "")
    if not 0 < len(nonce) <= MAX_NONCE:
        raise ActNotConfirmed("the form has no nonce", hint="Open the page again and send its form.")
    if len(reason) > MAX_REASON:
        raise ActNotConfirmed(f"a reason has at most {MAX_REASON:,} characters")
    bound = sha256(f"{request.scope['path']} {nonce}".encode()).hexdigest()[:_BOUND]
    return Confirmed(visitor, model, fields, bound, Actor(visitor.session.key_id, VIA_CONSOLE, reason or None))


async def done_once(console: Console, form: Confirmed, back: str, work: Callable[[], Awaitable[Done]]) -> Response:
    """Carry an act out once for each form, and lead to the page that shows what it did: its own, or ``back``."""
    done = await console.opened.once.do(form.visitor.session.id, form.nonce, work)
    return RedirectResponse(f"{done.href or back}?did={quote(form.nonce, safe='')}", SEE_OTHER)
