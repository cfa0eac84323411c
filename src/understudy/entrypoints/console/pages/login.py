"""Sign-in with a key, and sign-out."""

from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from understudy.core.routing.policy import ApiKey
from understudy.entrypoints.console.access.visitors import may_enter, parts_of
from understudy.entrypoints.console.console import SEE_OTHER, UNAUTHORIZED, Console
from understudy.errors import Unauthenticated

_HOME = "/"
_MAX_ADDRESS = 2_000


async def show_login(console: Console, request: Request) -> Response:
    """Return the login page. A link that signs in once is used by its button: what only looks at it uses nothing up."""
    once = request.query_params.get("once", "") if console.takes_links else ""
    named = console.named_by_proxy(request)
    is_shut_out = named is not None and not may_enter(named.scopes)
    problem = (
        f"{named.name} is in no group that may look. A key signs in all the same." if named and is_shut_out else ""
    )
    return _login_page(
        console, _inside(request.query_params.get("next", "")), once=once[:_MAX_ADDRESS], problem=problem
    )


def _login_page(console: Console, following: str, status: int = 200, *, once: str = "", problem: str = "") -> Response:
    return console.page("login.html", None, status, next=following, once=once, problem=problem)


async def sign_in(console: Console, request: Request) -> Response:
    """Start a session of a key.

    Raises:
        TooManyLogins: Too many wrong keys were tried.
        RegistryUnavailable: Postgres does not answer in time.
    """
    fields = await console.form_of(request, None)
    credential, following = fields.get("key", ""), _inside(fields.get("next", ""))
    address = request.client.host if request.client is not None else ""
    key_id, _ = parts_of(credential)
    console.tries.begin(address, key_id)
    once = fields.get("once", "") if console.takes_links else ""
    check = partial(_key_of_link, console, once) if once else partial(console.opened.visitors.check, credential)
    try:
        key = await console.opened.questions.enter(check)
    except Unauthenticated as problem:
        return _login_page(console, following, UNAUTHORIZED, problem=problem.detail)
    except BaseException:  # Postgres is away, there was no place, or the visitor left: no key was found wrong
        console.tries.forgive(address, key_id)
        raise
    console.tries.forgive(address, key_id)
    response = RedirectResponse(following, SEE_OTHER)
    console.set_cookie(response, console.sessions.start(key.id))
    return response


async def _key_of_link(console: Console, link: str) -> ApiKey:
    """Return the key of a link that signs in once, and use the link up once it is known that the key is good.

    Raises:
        Unauthenticated: It is over, was used, or is none of this console's; or its key may not enter.
    """
    over = Unauthenticated("the link was used, or is older than a minute", hint="Sign in with the key itself.")
    key_id = console.sessions.key_of_link(link)
    if key_id is None:
        raise over
    key = await console.opened.visitors.entering(key_id)
    if not console.sessions.use_link(link):
        raise over
    return key


async def sign_out(console: Console, request: Request) -> Response:
    """End the session.

    Raises:
        FormOfAnotherSession: The form is not of this session.
    """
    session = console.session_of(request)
    response = RedirectResponse("/login", SEE_OTHER)
    if session is not None:
        await console.form_of(request, session)
        console.sessions.end(session)
    console.forget_cookie(response)
    return response


def _inside(address: str) -> str:
    """Return an address of our own pages; any other one is replaced by the first page."""
    is_ours = address.startswith("/") and not address.startswith(("//", "/\\")) and len(address) <= _MAX_ADDRESS
    return address if is_ours and address.isprintable() and address.isascii() else _HOME
