"""``Console``: what the handlers of all pages work with."""

import asyncio
import time
from collections.abc import Mapping
from hashlib import sha256
from secrets import token_bytes
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from understudy.bootstrap.console import ConsoleParts
from understudy.bootstrap.session import Session
from understudy.entrypoints.console.access.identity import Named, identity_of
from understudy.entrypoints.console.access.login_tries import LoginTries
from understudy.entrypoints.console.access.sessions import ABSOLUTE_SECONDS, ConsoleSession, Sessions
from understudy.entrypoints.console.access.visitors import Visitor, Visitors, may_enter
from understudy.entrypoints.console.as_json import PageResponse, shown_of, wants_json
from understudy.entrypoints.console.connections import FORM_SECONDS
from understudy.entrypoints.console.doing import Once
from understudy.entrypoints.console.looks import StaticFile, Templates, read_static
from understudy.entrypoints.console.questions import Answer, Questions
from understudy.entrypoints.console.reads import Reads
from understudy.entrypoints.console.rendered import Live, Rendered
from understudy.entrypoints.console.streams.watches import Watches
from understudy.entrypoints.console.views.links import ROLL_BACK, act_path, beginning_of, model_path
from understudy.entrypoints.proxy.messages.problems import status_of
from understudy.entrypoints.proxy.server.head_rules import HEAD_PROBLEM
from understudy.errors import (
    ActNotConfirmed,
    BodyTooLarge,
    DeadlineExceeded,
    FormOfAnotherSession,
    GenerationMoved,
    MigrationNeeded,
    NotRegistered,
    RegistryUnavailable,
    RequestTimedOut,
    ScopeMissing,
    Unauthenticated,
    UnderstudyError,
)
from understudy.registry.console_link import signing_secret
from understudy.settings import Settings

_log = structlog.get_logger(__name__)
COOKIE, SECURE_COOKIE = "understudy_console", "__Host-understudy_console"
SECRET_BYTES = 32
MAX_FORM_BYTES, MAX_FIELDS = 16_384, 32
SEE_OTHER, UNAUTHORIZED = 303, 401
_SIGN_IN, _SIGN_IN_HINT = "sign in first", "Sign in with a key that has the scope read or operate."
_SHORT = 16
"""Characters of the digest that tells a part of a page from its earlier form."""


NEXT_STEPS = {
    "E110": "Open the console's own page, and send its form again.",
    "E409": "Open the page again: it shows what holds now, and asks anew.",
    "E404": "Start at Models: the address is wrong, or of something that is there no more.",
    "E405": "Start at Models: this address is not for that.",
    "E421": "Call the console by a name of its own; UNDERSTUDY_CONSOLE_HOST_NAMES permits further ones.",
    "E500": "Try again. This is a defect of the console: report it with what its log has.",
    "E504": "Try again; look first at the page whether an act was carried out. Postgres answers slowly.",
    "E510": "Try again in a moment. Health says what is wrong with Postgres; a search or a report may only be slow.",
    "E507": "Try again in a second: too many ask the console at once.",
}
"""What to do next, where an error's own hint is for callers of a proxy."""
HEADINGS = {"E203": "Nothing was changed", DeadlineExceeded.code: "No answer in time", NotRegistered.code: "Not found"}
"""What a page is headed with, where an error's title says more than is known of what was asked for."""


class Open(NamedTuple):
    """What a process opens for its lifetime."""

    questions: Questions
    visitors: Visitors
    reads: Reads
    acts: Session
    """The stores of acts."""
    once: Once
    parts: ConsoleParts
    watches: Watches
    """Of the pages that are open."""
    rendered: Rendered[list[Live]]
    """Parts of the pages of rollouts."""


class Console:
    """Sessions, templates and what is open; the handlers of pages are functions of it.

    Args:
        settings: The console's.
    """

    def __init__(self, settings: Settings) -> None:
        secret, before = settings.console_secret, settings.console_secret_before
        signing = signing_secret(secret.get_secret_value()) if secret else token_bytes(SECRET_BYTES)
        self.sessions = Sessions(signing, time.time, signing_secret(before.get_secret_value()) if before else None)
        self._identity = identity_of(settings)
        self.takes_links = settings.is_console_local
        self.tries = LoginTries(time.monotonic)
        self.is_https, self._is_read_only = settings.console_is_https, settings.console_read_only
        self._form_seconds = min(settings.receive_seconds, FORM_SECONDS)
        self.files: Mapping[str, StaticFile] = read_static()
        self._templates = Templates(self.files, settings.runbooks_url)
        self._open: Open | None = None

    def open(self, parts: ConsoleParts, watches: Watches) -> None:
        """Take what the process has opened."""
        questions, visitors, reads = Questions(), Visitors(parts.keys), Reads(parts)
        self._open = Open(questions, visitors, reads, parts.acts, Once(), parts, watches, Rendered())

    def prepare(self) -> None:
        """Do what each first visitor of a page would wait for."""
        self._templates.prepare()

    @property
    def opened(self) -> Open:
        """What is open; the lifespan has begun before the first request."""
        if self._open is None:
            raise RuntimeError("the lifespan has not begun")
        return self._open

    # -- who -----------------------------------------------------------------------------------------------------------

    def _named(self, request: Request) -> Named | None:
        """Return whom a proxy in front says that a request is of; one whose groups may nothing may have a key."""
        found = self.named_by_proxy(request)
        return found if found is not None and may_enter(found.scopes) else None

    def named_by_proxy(self, request: Request) -> Named | None:
        """Return whom a proxy in front names, whatever that one may do."""
        if self._identity is None or request.client is None:
            return None
        return self._identity.of(request.client.host, request.headers)

    def session_of(self, request: Request) -> ConsoleSession | None:
        """Return the session of whom a proxy in front names, or that a request's cookie names."""
        named = self._named(request)
        if named is not None:
            return self.sessions.of_proxy(named.name)
        return self.sessions.read(request.cookies.get(SECURE_COOKIE if self.is_https else COOKIE))

    def require_session(self, request: Request) -> ConsoleSession:
        """Return the session that a request's cookie names.

        Raises:
            Unauthenticated: There is none.
        """
        session = self.session_of(request)
        if session is None:
            raise Unauthenticated(_SIGN_IN, hint=_SIGN_IN_HINT)
        return session

    async def visitor_of(self, request: Request, *, acts: bool = False) -> Visitor:
        """Return who sends a request.

        Raises:
            Unauthenticated: The request has no session, or the key was revoked since.
            RegistryUnavailable: Postgres does not answer, and did not lately.
        """
        named, session = self._named(request), self.require_session(request)
        if named is not None:
            visitor: Visitor | None = Visitor(session, named.scopes, is_of_proxy=True)
        else:
            visitor = await self.opened.visitors.of(session, acts=acts)
        if visitor is None:
            raise Unauthenticated(_SIGN_IN, hint=_SIGN_IN_HINT)
        found: Visitor = visitor._replace(is_read_only=self._is_read_only)
        request.state.visitor = found
        return found

    def _known_visitor(self, request: Request, problem: UnderstudyError) -> Visitor | None:
        """Return who sees the page of an error, which asks no database: what is not known of a key is not shown."""
        if isinstance(problem, Unauthenticated) or HEAD_PROBLEM in request.scope:
            return None
        found: Visitor | None = getattr(request.state, "visitor", None)
        session = None if found is not None else self.session_of(request)
        if session is None:
            return found
        return Visitor(session, frozenset(), self._is_read_only, self._named(request) is not None)

    async def form_of(self, request: Request, session: ConsoleSession | None) -> Mapping[str, str]:
        """Return the fields of a form.

        Raises:
            BodyTooLarge: It is longer than any form of ours.
            RequestTimedOut: It did not arrive in time, or its browser has gone.
            ActNotConfirmed: It has more fields than any form of ours.
            FormOfAnotherSession: It has not the token of the session; not asked where there is no session yet.
        """
        body = b""
        try:
            async with asyncio.timeout(self._form_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > MAX_FORM_BYTES:
                        raise BodyTooLarge(f"a form has at most {MAX_FORM_BYTES} bytes", hint="Shorten the reason.")
        except (TimeoutError, ClientDisconnect):  # a browser that has gone is told nothing
            raise RequestTimedOut from None
        try:
            found = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise ActNotConfirmed(f"a form has at most {MAX_FIELDS} fields") from None
        fields = dict(found)
        if session is not None and not self.sessions.is_form_of(session, fields.get("token", "")):
            raise FormOfAnotherSession
        return fields

    def set_cookie(self, response: Response, session: ConsoleSession) -> None:
        """Have the browser keep a session."""
        response.set_cookie(
            SECURE_COOKIE if self.is_https else COOKIE,
            self.sessions.cookie(session),
            max_age=round(ABSOLUTE_SECONDS),
            path="/",
            secure=self.is_https,
            httponly=True,
            samesite="strict",
        )

    def forget_cookie(self, response: Response) -> None:
        """Have the browser forget its session."""
        name = SECURE_COOKIE if self.is_https else COOKIE
        response.delete_cookie(name, path="/", secure=self.is_https, httponly=True, samesite="strict")

    # -- what is answered ----------------------------------------------------------------------------------------------

    def page(self, name: str, visitor: Visitor | None, status: int = 200, **values: Any) -> PageResponse:
        """Return a whole page; a visitor's session is renewed with it."""
        token = "" if visitor is None else self.sessions.form_token(visitor.session)
        html = self._templates.render(name, {"visitor": visitor, "token": token, **values})
        response = PageResponse(html, status, shown_of(name, values))
        has_cookie = visitor is not None and not visitor.is_of_proxy
        renewed = self.sessions.renewed(visitor.session) if visitor is not None and has_cookie else None
        if renewed is not None:
            self.set_cookie(response, renewed)
        return response

    def live(self, name: str, visitor: Visitor, answer: Answer, **values: Any) -> Live:
        """Return a part of a page, and its digest."""
        html = self._templates.render(name, {"visitor": visitor, "answer": answer, **values})
        digest = sha256(html.encode()).hexdigest()[:_SHORT]
        return Live(html, digest, values["view"], answer.read_at, values["is_stale"])

    def _may_roll_back(self, problem: UnderstudyError, request: Request) -> bool:
        is_unread = isinstance(problem, MigrationNeeded) and "rollout" in request.path_params
        return is_unread and not self._is_read_only

    def problem(self, request: Request, problem: UnderstudyError) -> Response:
        """Return the page of an error; one who is not signed in is shown the login."""
        path: str = request.scope["path"]  # not of the URL: that has the Host header in it, which may be no host
        query = request.scope["query_string"].decode("ascii", "replace")
        is_part = path.startswith("/live/")
        is_browser = not is_part and not wants_json(request)
        if isinstance(problem, Unauthenticated) and is_browser and request.method == "GET":
            wanted = f"{path}?{query}" if query else path
            return RedirectResponse(f"/login?next={quote(wanted, safe='')}", SEE_OTHER)
        if isinstance(problem, RegistryUnavailable | MigrationNeeded):
            _log.warning("console.failed", code=problem.code, why=problem.detail)
        headers = {"HX-Redirect": "/login"} if isinstance(problem, Unauthenticated) and is_part else {}
        if isinstance(problem, RequestTimedOut):
            headers["Connection"] = "close"  # the rest of the form would be read for a further request
        if problem.retry_after_seconds is not None:
            headers["Retry-After"] = str(problem.retry_after_seconds)
        values = self._problem_values(request, problem)
        visitor = self._known_visitor(request, problem)
        response = self.page("problem.html", visitor, status_of(problem), **values)
        response.headers.update(headers)
        return response

    def _problem_values(self, request: Request, problem: UnderstudyError) -> Mapping[str, Any]:
        """Return what the page of an error shows."""
        path: str = request.scope["path"]
        query = request.scope["query_string"].decode("ascii", "replace")
        name = unquote(request.path_params.get("model", "")) or "MODEL"
        is_act = request.method == "POST" and path.startswith("/models/")
        again = beginning_of(path) if is_act else path
        return {
            "code": problem.code,
            "title": problem.title,
            "is_missing": isinstance(problem, NotRegistered),
            "heading": HEADINGS.get(problem.code, problem.title),
            "detail": _detail_of(problem),
            "next_step": NEXT_STEPS.get(problem.code, problem.next_step),
            "is_away": isinstance(problem, RegistryUnavailable | DeadlineExceeded),
            "is_act": is_act,
            "again": "" if path.startswith(("/login", "/live/")) else again + (f"?{query}" if query else ""),
            "anew": beginning_of(path) if isinstance(problem, GenerationMoved) and "/acts/" in path else "",
            "back": model_path(name) if "model" in request.path_params else "",
            # A rollout that this release cannot read is taken back all the same.
            "roll_back": act_path(name, ROLL_BACK, None) if self._may_roll_back(problem, request) else "",
            "named": name,
        }


def require_read(visitor: Visitor, model_name: str) -> None:
    """Let a visitor look at a model who may.

    Raises:
        ScopeMissing: The key is for other models.
    """
    if not visitor.may_read(model_name):
        raise ScopeMissing("this needs a key with scope 'read' for the model")


def require_operate(visitor: Visitor, model_name: str) -> None:
    """Let a visitor act on a model who may.

    Raises:
        ScopeMissing: The key lacks ``operate``, or has it for other models.
    """
    if not visitor.may_operate(model_name):
        raise ScopeMissing("you may look; scope 'operate' is needed to act")


def _detail_of(problem: UnderstudyError) -> str:
    """Return what is told of a problem: no address of a database, and no name of another model."""
    if isinstance(problem, NotRegistered):
        return problem.detail_without_others
    if isinstance(problem, MigrationNeeded):
        return problem.detail_for_callers or problem.title
    if isinstance(problem, DeadlineExceeded) and problem.budget_seconds is not None:
        return f"It took longer than {problem.budget_seconds:g} s."
    return problem.title if isinstance(problem, RegistryUnavailable) else problem.detail
