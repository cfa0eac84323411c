"""Real parts for the tests: one Postgres and one Valkey per session, one fresh database per test."""

import asyncio
import gc
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import hypothesis
import pytest
import structlog
from command import CommandLine
from e2e.stack import shared_models
from failing.standstill import MAX_SECONDS, MAX_SECONDS_ALONE, MachineStoodStill, Standstills
from loopback.server_folder import server_folder
from loopback.server_statements import CONNECT_SECONDS, STATEMENT_SECONDS, ServerStatements, server_statements
from pytest_rerunfailures import StatusDB
from traffic.chance import IS_RANDOM
from traffic.clusters import TEMPLATE, choose_folder, delete_folder, put_migrated_cluster

from understudy.adapters.embedded.installations import find_installations
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.embedded.valkey import EmbeddedValkey, find_server
from understudy.adapters.migrations import upgrade

# The defaults (200 ms an example, and a look at how long drawing one takes) measure a machine that others share.
hypothesis.settings.register_profile(
    "shared machine",
    deadline=timedelta(seconds=2),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=True,
)
hypothesis.settings.register_profile(
    "random draws", hypothesis.settings.get_profile("shared machine"), derandomize=False
)
hypothesis.settings.register_profile("few_examples", hypothesis.settings.get_profile("shared machine"), max_examples=30)
"""For each suite that does not draw at random; such a run draws all 100, and the gate draws ten."""
hypothesis.settings.register_profile("ten_examples", hypothesis.settings.get_profile("shared machine"), max_examples=10)
hypothesis.settings.load_profile("random draws" if IS_RANDOM else "shared machine")

# Its own way shows what every variable held, drawn with rich: that takes half a second for each logged exception.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

STANDSTILLS = Standstills()

FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "max_wal_size": "256MB",
    # Else each of the connections that meets a trigger loads it anew, for half a millisecond.
    "shared_preload_libraries": "plpgsql",
}
POSTGRES_WITH_IO_METHODS = 18


class PostgresServer(NamedTuple):
    """A server that tests make databases on.

    ``url`` names the database to connect to for that; ``copied`` is how its databases are copied most cheaply.
    ``template`` is a migrated database, where there is one.
    """

    url: str
    copied: str = ""
    template: str | None = None

    def url_of(self, database: str) -> str:
        return urlsplit(self.url)._replace(path=f"/{database}").geturl()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep in each worker how often its tests were run.

    So that a test may be run again after a crash of its worker, which nobody here asks for, the plugin has each worker
    ask the first process over a socket about every test: half of the gate's time was spent in waiting for that.
    """
    if hasattr(config, "workerinput"):
        config.failures_db.sock.close()  # type: ignore[attr-defined]  # as below
        config.failures_db = StatusDB()  # type: ignore[attr-defined]  # the plugin's own
    else:
        choose_folder()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Delete what the workers shared, which have ended."""
    if not hasattr(config, "workerinput"):
        delete_folder()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what is marked as long where two workers begin, so that none is left alone with it at the end.

    Each worker has a slice of the order, and idle ones take from the end of another's. So the long tests, which load
    the whole machine, run one after the other on the first worker and on the one in the middle, and the others take
    what is behind them. On one worker alone they took as long as all other tests together.
    """
    long = sorted((item for item in items if item.get_closest_marker("long") is not None), key=lambda item: item.nodeid)
    short = [item for item in items if item.get_closest_marker("long") is None]
    middle = (len(items) + 1) // 2 - len(long[::2])
    items[:] = [*long[::2], *short[:middle], *long[1::2], *short[middle:]]


def pytest_sessionstart() -> None:
    """Look for no garbage while tests are collected: hardly any is made, and it is a seventh of that time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the collected tests out of every later look for garbage: a twentieth of the gate's processor time."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the interpreter end as ever: a library that counts its objects then would call the kept ones leaked."""
    if not hasattr(session.config, "forked"):  # which ends at once, and would copy all of them to look at each
        gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Say of a failure that the machine stood still meanwhile: pytest runs only those again (see pyproject.toml)."""
    STANDSTILLS.watch()
    began = time.monotonic()
    is_alone = pyfuncitem.get_closest_marker("alone") is not None
    try:
        with _garbage_as_in_a_proxy() if is_alone else nullcontext():
            return (yield)
    except Exception as failure:
        seconds = STANDSTILLS.longest_since(began, MAX_SECONDS_ALONE if is_alone else MAX_SECONDS)
        if seconds == 0:
            raise
        raise MachineStoodStill(f"for {seconds:.1f} s during this test") from failure


@contextmanager
def _garbage_as_in_a_proxy() -> Iterator[None]:
    """Look for garbage seldom, and not in what is there already, as a proxy does (``tune_runtime``).

    A look through what hundreds of tests have imported and made takes 0.1 s, in a turn of the event loop that a test
    may be timing.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 5, 200)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder that an unprivileged account can reach too, with a path short enough for a unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="us-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """``DATABASE_URL``, else an embedded server; ``UNDERSTUDY_TEST_POSTGRES=15`` asks for one of that major version."""
    own = os.environ.get("DATABASE_URL")
    if own:
        yield PostgresServer(own)
        return
    wanted = os.environ.get("UNDERSTUDY_TEST_POSTGRES")
    installations = [found for found in find_installations() if wanted in (None, str(found.major))]
    # A worker process that reads for others costs more than it saves where nothing is on a disk.
    parameters = FAST | ({"io_method": "sync"} if installations[0].major >= POSTGRES_WITH_IO_METHODS else {})
    # The server has no TLS, and making the context to ask it for some is a third of a connection's cost to the client.
    with server_folder() as folder, pytest.MonkeyPatch.context() as environment:
        environment.setenv("PGSSLMODE", "disable")
        put_migrated_cluster(folder / "pg", installations, parameters)
        server = EmbeddedPostgres(folder / "pg", parameters=parameters, installations=installations)
        try:
            # File by file: half the processor time of copying through the write-ahead log, and without fsync the
            # checkpoints that it needs cost next to nothing.
            found = PostgresServer(server.start(), copied="STRATEGY FILE_COPY", template=TEMPLATE)
            # The first connection to a database writes down what each later one has to know of the catalogue, in a
            # file that is copied too. Starting a server deletes it.
            with server_statements(found.url_of(TEMPLATE)):
                pass
            yield found
        finally:
            server.remove()


@pytest.fixture(scope="session")
def server_url(postgres: PostgresServer) -> str:
    """The server's own database, for statements about databases."""
    return postgres.url


@pytest.fixture(scope="session")
def statements(postgres: PostgresServer) -> Iterator[ServerStatements]:
    """For the fixtures that make and drop databases."""
    with server_statements(postgres.url) as opened:
        yield opened


@pytest.fixture(scope="session")
def migrated_template(postgres: PostgresServer, statements: ServerStatements) -> Iterator[str]:
    """The name of a migrated database that others are copied from, which is faster than migrating each."""
    if postgres.template is not None:
        yield postgres.template
        return
    name = f"understudy_template_{uuid4().hex[:12]}"
    statements.execute(f"CREATE DATABASE {name}")
    asyncio.run(upgrade(postgres.url_of(name)))
    yield name
    statements.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_database_url(postgres: PostgresServer, statements: ServerStatements) -> Iterator[str]:
    """A database of the test's own with nothing in it."""
    name = f"understudy_test_{uuid4().hex[:12]}"
    statements.execute(f"CREATE DATABASE {name} {postgres.copied}")
    yield postgres.url_of(name)
    statements.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database_url(postgres: PostgresServer, statements: ServerStatements, migrated_template: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    name = f"understudy_test_{uuid4().hex[:12]}"
    statements.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_template} {postgres.copied}")
    yield postgres.url_of(name)
    statements.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to :func:`database_url`, as a person with a SQL prompt has one."""
    connection = await asyncpg.connect(database_url, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS)
    yield connection
    connection.terminate()


@pytest.fixture(scope="session")
def model_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], int]]:
    """Ports of real model servers, by what they serve (``visits:1``); tests that stop or freeze one start their own."""
    with shared_models(tmp_path_factory.mktemp("models")) as port_of:
        yield port_of


@pytest.fixture
def understudy(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line of somebody in the test's own folder, whose ``DATABASE_URL`` is the test's."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(database_url)


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """``REDIS_URL`` when set, else an embedded Valkey."""
    own = os.environ.get("REDIS_URL")
    if own:
        yield own
        return
    if find_server() is None:
        pytest.skip("no valkey-server on this machine")
    with EmbeddedValkey() as server:
        yield server.url
