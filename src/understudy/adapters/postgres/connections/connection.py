"""Connections to Postgres that notice a dead peer; every vendor error becomes ``RegistryUnavailable``."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from understudy.adapters.postgres.connections.known_types import Connection
from understudy.core.connection_urls import postgres_problem, without_password
from understudy.errors import LoginNotAllowed, MigrationNeeded, NotRegistered, PolicyRefused, RegistryUnavailable

VENDOR_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""What asyncpg raises when Postgres is unavailable, slow, or refuses."""

_OF_ANOTHER_SCHEMA = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError)
_POOLER_HINT = (
    "This looks like a pooler in transaction mode, through which LISTEN gets no notifications. DATABASE_URL must lead "
    "to Postgres itself; only the log's rows may go through the pooler: UNDERSTUDY_LOG_DATABASE_URL."
)
_WRONG_LOGIN_HINT = (
    "Correct the user or the password in DATABASE_URL, where a character such as @ or / of a password is written as "
    "%40 or %2F; the server's own log says which of the two was wrong."
)
_NO_ENTRY_HINT = (
    "Name another login or database in DATABASE_URL, or let the server accept this one: CREATE ROLE … LOGIN, and a "
    "line for it in pg_hba.conf."
)
_PORT = "5432"
MAX_IDLE = 8
"""Shared connections of a store that wait for the next call."""
UNSTORABLE = "a text has U+0000 or half a surrogate pair in it, which Postgres' text cannot hold"
UNSTORABLE_HINT = "Take that character out of what was typed, or out of the file, which is to be in UTF-8."
_TEXT = "Correct the name: Postgres' text holds neither, so nothing can be stored or found by it."


def normal_dsn(database_url: str) -> str:
    """Return the URL as asyncpg reads it; SQLAlchemy's ``postgresql+asyncpg://`` is understood as well.

    Raises:
        RegistryUnavailable: It is not a Postgres URL. The message does not repeat it: it may hold a password.
    """
    problem = postgres_problem(database_url)
    if problem is not None:
        raise RegistryUnavailable(f"DATABASE_URL cannot be read: {problem}")
    scheme, separator, rest = database_url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


async def connect(
    database_url: str,
    *,
    timeout_seconds: float,
    application_name: str,
    server_settings: Mapping[str, str] | None = None,
) -> asyncpg.Connection:
    """Open a connection that gives up on each command after ``timeout_seconds``, and on a silent peer within 10 s.

    No prepared statement is kept, so that it also works through a pooler in transaction mode (without
    ``server_settings``, parameters of the session that a pooler may refuse).

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
        LoginNotAllowed: Postgres answers, and refuses the login, or does not let it connect to this database.
    """
    async with translated("Postgres cannot be reached"):
        try:
            connection = await asyncpg.connect(
                normal_dsn(database_url),
                timeout=timeout_seconds,
                command_timeout=timeout_seconds,
                statement_cache_size=0,
                connection_class=Connection,
                server_settings={"application_name": application_name, **(server_settings or {})},
            )
        except ssl.SSLError:
            raise  # some are ValueErrors too, and say what is wrong with a certificate
        except (ValueError, IndexError):
            # The client's own error may repeat a part of the URL.
            raise RegistryUnavailable(
                "the client does not take a part of DATABASE_URL, such as the value of a parameter behind the ?"
            ) from None
        except FileNotFoundError:
            raise RegistryUnavailable(
                "a file that DATABASE_URL names (sslrootcert, sslcert, sslkey, or a socket) does not exist"
            ) from None
        except asyncpg.InsufficientPrivilegeError as problem:
            raise LoginNotAllowed(f"the login may not connect: {problem}") from problem
        except asyncpg.InvalidAuthorizationSpecificationError as problem:
            hint = _WRONG_LOGIN_HINT if isinstance(problem, asyncpg.InvalidPasswordError) else _NO_ENTRY_HINT
            raise LoginNotAllowed(f"{refused_login(database_url)}: {problem}", hint=hint) from problem
        except asyncpg.ProtocolViolationError as problem:
            raise RegistryUnavailable(f"Postgres cannot be reached: {problem}", hint=_POOLER_HINT) from problem
    _keep_alive(connection)
    return connection


@asynccontextmanager
async def session(
    database_url: str, what: str, timeout_seconds: float, application_name: str
) -> AsyncIterator[asyncpg.Connection]:
    """Open a connection for one use, with one deadline for all of it; errors as :func:`translated`."""
    async with translated(what, timeout_seconds):
        connection = await connect(database_url, timeout_seconds=timeout_seconds, application_name=application_name)
        try:
            yield connection
        finally:
            # Not close(): it waits for a server that may be frozen.
            connection.terminate()


class SessionPerCall:
    """A store that opens a connection for each call: calls are few, and no dead connection is used again.

    Args:
        database_url: Of the registry, with a role that may read and write what the store does.
        timeout_seconds: Longest time of one call, connecting included.
        on_unusable: Called with a table and the number of its rows that were read, could not be used and were left out.
    """

    def __init__(
        self, database_url: str, *, timeout_seconds: float, on_unusable: Callable[[str, int], None] | None = None
    ) -> None:
        self._database_url = database_url
        self._timeout_seconds = timeout_seconds
        self._on_unusable = on_unusable
        self._sharing = 0
        """How many :meth:`shared_session` are open."""
        self._idle: list[asyncpg.Connection] = []
        """The shared connections, between two calls."""

    def _left_out(self, table: str, rows: int) -> None:
        if rows and self._on_unusable is not None:
            self._on_unusable(table, rows)

    @asynccontextmanager
    async def shared_session(self) -> AsyncIterator[None]:
        """Have the calls inside use a connection again: connecting takes longer than most of them.

        It is closed at the end of the last session, and where a call fails; then the next call opens another. Calls at
        the same time have one each, of which ``MAX_IDLE`` are kept.
        """
        self._sharing += 1
        try:
            yield
        finally:
            self._sharing -= 1
            while self._idle and not self._sharing:
                self._idle.pop().terminate()

    def _session(self, what: str, application_name: str) -> AbstractAsyncContextManager[asyncpg.Connection]:
        if self._sharing:
            return self._shared(what, application_name)
        return session(self._database_url, what, self._timeout_seconds, application_name)

    @asynccontextmanager
    async def _shared(self, what: str, application_name: str) -> AsyncIterator[asyncpg.Connection]:
        async with translated(what, self._timeout_seconds):
            held = self._idle.pop() if self._idle else None
            if held is None or held.is_closed():
                seconds = self._timeout_seconds
                held = await connect(self._database_url, timeout_seconds=seconds, application_name=application_name)
            try:
                yield held
            except BaseException:
                held.terminate()  # its state is unknown
                raise
            if self._sharing and len(self._idle) < MAX_IDLE:
                self._idle.append(held)
            else:  # of many calls at the same time, or of one that ends late
                held.terminate()


class KeptConnection:
    """A connection that is opened at its first use, and again after each failure; for one use at a time.

    Args:
        database_url: Of Postgres, or of a pooler.
        what: Names the data in errors.
        timeout_seconds: Longest time of one use, waiting for its turn and connecting included.
        application_name: Of the session.
    """

    def __init__(self, database_url: str, what: str, timeout_seconds: float, application_name: str) -> None:
        self._database_url = database_url
        self._what = what
        self._timeout_seconds = timeout_seconds
        self._application_name = application_name
        self._held: asyncpg.Connection | None = None
        self._in_use = asyncio.Lock()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[asyncpg.Connection]:
        """Hold the connection; errors as :func:`translated`."""
        async with translated(self._what, self._timeout_seconds), self._in_use:
            held, self._held = self._held, None
            if held is None or held.is_closed():
                held = await connect(
                    self._database_url, timeout_seconds=self._timeout_seconds, application_name=self._application_name
                )
            try:
                yield held
            except BaseException:
                held.terminate()  # its state is unknown
                raise
            self._held = held

    def drop(self) -> None:
        """Close the connection."""
        if self._held is not None:
            # Not close(): it waits for a server that may be frozen.
            self._held.terminate()
        self._held = None


@asynccontextmanager
async def translated(
    what: str,
    timeout_seconds: float | None = None,
    vendor_errors: tuple[type[BaseException], ...] = VENDOR_ERRORS,
) -> AsyncIterator[None]:
    """Turn every vendor error inside into an error of the registry, and end the block after ``timeout_seconds``.

    A missing table, column or function is ``MigrationNeeded``, a right that the login lacks ``LoginNotAllowed``, a text
    that Postgres cannot hold ``PolicyRefused``; everything else is ``RegistryUnavailable``.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except vendor_errors as problem:
        # SQLAlchemy keeps asyncpg's error as the cause of its own, whose text also holds the statement.
        cause = problem if isinstance(problem, asyncpg.PostgresError) else asyncpg_error(problem)
        said = said_by(cause)
        if isinstance(cause, _OF_ANOTHER_SCHEMA):
            raise MigrationNeeded(f"{what}: {said}") from problem
        if isinstance(cause, asyncpg.InsufficientPrivilegeError):
            raise LoginNotAllowed(f"{what}: {said}") from problem
        if is_unstorable_text(cause):
            raise PolicyRefused(UNSTORABLE, hint=UNSTORABLE_HINT) from problem
        raise RegistryUnavailable(f"{what}: {said}") from problem


def said_by(problem: BaseException) -> str:
    """Return in words what was wrong with a connection, where its client names only a state or nothing.

    When Postgres ends a connection between two statements, as while it shuts down, the next statement fails with a
    state of the client's protocol: ``cannot switch to state 15; another operation (2) is in progress``.
    """
    if isinstance(problem, asyncpg.InternalClientError) and "cannot switch to state" in str(problem):
        return "Postgres has ended the connection"
    if isinstance(problem, TimeoutError):
        return str(problem) or "no answer in time"
    return str(problem) or type(problem).__name__


@contextmanager
def named_by_callers() -> Iterator[None]:
    """Turn a name that Postgres' text cannot hold into ``NotRegistered``: it is no outage, and no row has it."""
    try:
        yield
    except asyncpg.PostgresError as problem:
        if not is_unstorable_text(problem):
            raise
        raise NotRegistered("nothing has a name with U+0000 or half a surrogate pair in it", hint=_TEXT) from None


def is_unstorable_text(problem: BaseException) -> bool:
    """Whether Postgres, or its client, refused a text with U+0000 or half a surrogate pair: that is no outage."""
    refused = asyncpg.CharacterNotInRepertoireError | asyncpg.UntranslatableCharacterError
    return isinstance(problem, refused) or (
        isinstance(problem, asyncpg.DataError) and "surrogates not allowed" in str(problem)
    )


def refused_login(database_url: str) -> str:
    """Return in words which server was reached and which login it refused; the rest of the URL may be secret."""
    parts = urlsplit(without_password(database_url))
    account, _, place = parts.netloc.rpartition("@")
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    hosts = unquote(place) or asked.get("host") or os.environ.get("PGHOST", "")
    port = asked.get("port") or os.environ.get("PGPORT") or _PORT
    user = unquote(account) or asked.get("user") or os.environ.get("PGUSER", "")
    server = f" at {' or '.join(_with_port(host, port) for host in hosts.split(','))}" if hosts else ""
    return f"Postgres{server} was reached, and refused the login{f' {user}' if user else ''}"


def _with_port(host: str, port: str) -> str:
    # An IPv6 address has colons within its brackets, and the path of a socket has no port of its own.
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port or host.startswith("/") else f"{host}:{port}"


def asyncpg_error(problem: BaseException) -> BaseException:
    """Return the error of asyncpg's connection that SQLAlchemy's has as its cause; without one, the error itself."""
    cause: BaseException | None = problem
    while cause is not None and not isinstance(cause, asyncpg.PostgresError):
        cause = cause.__cause__
    return cause or problem


def _keep_alive(connection: asyncpg.Connection) -> None:
    """Let the kernel notice a dead peer: asyncpg leaves keepalives off, and a LISTEN would wait for ever."""
    held = cast(Any, connection)._transport.get_extra_info("socket")  # noqa: SLF001 - there is no public one
    if held is None or held.family not in (socket.AF_INET, socket.AF_INET6):
        return
    held.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000)):
        with suppress(AttributeError, OSError):  # not every system has all four
            held.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
