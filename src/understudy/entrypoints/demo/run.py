"""Starts the demo's processes in parallel, reports each that is ready, and stops them in reverse order."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from understudy.adapters.embedded.loopback_ports import LOOPBACK, claim, free_port, give_back, is_free
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.embedded.valkey import EmbeddedValkey, find_server
from understudy.entrypoints.demo.artifacts import write_artifacts
from understudy.entrypoints.demo.model_servers import ServerPlace, agent_environment, server_arguments
from understudy.entrypoints.demo.places import Demo
from understudy.entrypoints.demo.processes import Child, Watchdog, start_child, until_answers
from understudy.entrypoints.demo.refusal import DemoRefused
from understudy.entrypoints.demo.state import StateFolder
from understudy.entrypoints.demo.topology import SERVERS, SUMMARY
from understudy.errors import RegistryUnavailable

WANTED_PORT, WANTED_GRPC_PORT, WANTED_CONSOLE_PORT = 8080, 8081, 8090
WANTED_METRICS_PORT, WANTED_MONITOR_PORT = 9090, 9091
TICK_SECONDS = 1
ENVIRONMENT = "demo"
"""Named in alerts."""
CONSOLE_KEY_NOTE = "understudy demo: console, of this start only"
CONSOLE_SCOPES = ("read", "operate")

OnReady = Callable[[str, str, float], None]
"""Gets a part's name, what is ready about it, and the seconds since it was begun."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What may be chosen. ``None`` for a URL starts a server of our own; for the port, takes 8080 or a free one."""

    state_dir: Path
    port: int | None = None
    workers: int = 1
    reset: bool = False
    database_url: str | None = None
    redis_url: str | None = None
    asks_key: bool = False
    """Whether the proxy requires a key of every caller: the demo then makes one for its own calls."""


@asynccontextmanager
async def open_demo(options: DemoOptions, on_ready: OnReady) -> AsyncIterator[Demo]:
    """Start everything; leaving stops every process that was started, also when starting fails half-way.

    Raises:
        DemoRefused: Something did not start; the message has the end of its log.
    """
    folder = StateFolder(options.state_dir)
    folder.hold()
    async with AsyncExitStack() as stack:
        stack.callback(folder.release)
        if options.reset:
            await asyncio.to_thread(folder.clear)
        folder.prepare()
        watchdog = await Watchdog.start()
        stack.push_async_callback(watchdog.stop)
        starter = _Starter(options, folder, watchdog, stack, on_ready)
        await starter.start()
        folder.announce(starter.demo.document())
        yield starter.demo


class _Starter:
    """The steps of one start, and what is open because of them."""

    def __init__(
        self, options: DemoOptions, folder: StateFolder, watchdog: Watchdog, stack: AsyncExitStack, on_ready: OnReady
    ) -> None:
        self._options = options
        self._folder = folder
        self._watchdog = watchdog
        self._stack = stack
        self._on_ready = on_ready
        self.demo = Demo(folder.path)
        self.demo.pids |= {"demo": os.getpid(), "watchdog": watchdog.pid}

    async def start(self) -> None:
        # Pushed before anything starts, so that things stop in this order whatever became ready first.
        own_database, own_cache = AsyncExitStack(), AsyncExitStack()
        servers: list[Child] = []
        for part in (own_database, own_cache):
            await self._stack.enter_async_context(part)
        self._stack.push_async_callback(_stop_all, servers)
        places = {server: self._server_place(server) for server in SERVERS}
        try:
            async with asyncio.TaskGroup() as group:
                registration = group.create_task(asyncio.to_thread(import_module, _REGISTRATION))
                group.create_task(self._open_database(own_database, registration))
                group.create_task(self._open_cache(own_cache))
                group.create_task(self._open_servers(servers, places))
            await self._open_services(places, registration.result())
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None

    async def _open_database(self, stack: AsyncExitStack, registration: Awaitable[Any]) -> None:
        began = time.monotonic()
        if self._options.database_url is None:
            server = EmbeddedPostgres(self._folder.postgres, password=self._folder.password())
            self.demo.pass_file = self._folder.pass_file
            self.demo.database_url = await _started(server, stack)
            self._own("postgres", server.pid, signal.SIGINT)
            what = f"embedded {server.version}"
        else:
            self.demo.database_url = self._options.database_url
            what = "yours, from DATABASE_URL"
        schema = await (await registration).migrate_demo_database(self.demo.database_url)
        self._on_ready("postgres", f"{what}, {schema}", time.monotonic() - began)

    async def _open_cache(self, stack: AsyncExitStack) -> None:
        began = time.monotonic()
        if self._options.redis_url is not None:
            self.demo.redis_url, what = self._options.redis_url, "yours, from REDIS_URL"
        elif find_server() is not None:
            server = EmbeddedValkey(password=token_urlsafe())
            self.demo.redis_url = await _started(server, stack)
            self._own("valkey", server.pid, signal.SIGTERM)
            what = "embedded Valkey"
        else:
            what = "none found: the cache inside the proxy alone (REDIS_URL names one)"
        self._on_ready("cache", what, time.monotonic() - began)

    async def _open_servers(self, servers: list[Child], places: Mapping[str, ServerPlace]) -> None:
        for server, place in places.items():
            arguments = server_arguments(place)
            child = await start_child(server, arguments, self._folder.logs, self._watchdog, reads_line=True)
            servers.append(child)
            self._know(child)
        await asyncio.gather(*(child.first_line() for child in servers))
        self.demo.model_servers |= {server: place.target for server, place in places.items()}

    async def _open_services(self, places: Mapping[str, ServerPlace], registration: Any) -> None:
        """Start what works on the database, once that is migrated, and fill the registry beside it."""
        self.demo.proxy_port = self._proxy_port()
        self.demo.grpc_port = self._port_like(WANTED_GRPC_PORT)
        self.demo.metrics_port = self._port_like(WANTED_METRICS_PORT)
        self.demo.monitor_port = self._port_like(WANTED_MONITOR_PORT)
        self.demo.console_port = self._port_like(WANTED_CONSOLE_PORT)
        agents: list[Child] = []
        services: list[Child] = []
        for children in (agents, services):
            self._stack.push_async_callback(_stop_all, children)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._open_models(agents, places, registration))
            group.create_task(self._open_monitor(services))
            group.create_task(self._open_proxy(services))
            group.create_task(self._open_console(services))

    async def _open_models(self, agents: list[Child], places: Mapping[str, ServerPlace], registration: Any) -> None:
        """Have agents load every version, make the first policies, and the keys of this start."""
        began = time.monotonic()
        for server, place in places.items():
            environment = agent_environment(server, place, self._folder.artifacts)
            await self._serve("agent", environment, agents, name=f"{server}-agent")
        url = self.demo.database_url
        try:
            artifacts = await asyncio.to_thread(write_artifacts, self._folder.artifacts)
        except OSError as problem:
            raise DemoRefused(
                f"the state folder cannot be used: {problem}", "Name another one with --state-dir."
            ) from None
        await registration.register_artifacts(url, artifacts)
        if self._options.asks_key:
            self.demo.credential = await registration.make_key(url)
        self.demo.console_key = await registration.make_key(url, CONSOLE_SCOPES, note=CONSOLE_KEY_NOTE)
        self.demo.standing = await registration.first_policies(url, self.demo.model_servers.values())
        self._on_ready("models", SUMMARY, time.monotonic() - began)

    async def _open_proxy(self, services: list[Child]) -> None:
        began = time.monotonic()
        environment: dict[str, str | None] = {
            "UNDERSTUDY_STATE_DIR": str(self._folder.proxy),
            "UNDERSTUDY_HOST": LOOPBACK,
            "UNDERSTUDY_PORT": str(self.demo.proxy_port),
            "UNDERSTUDY_GRPC_PORT": str(self.demo.grpc_port),
            "UNDERSTUDY_METRICS_HOST": LOOPBACK,
            "UNDERSTUDY_METRICS_PORT": str(self.demo.metrics_port),
            "UNDERSTUDY_WORKERS": str(self._options.workers),
            "UNDERSTUDY_AUTH": str(self._options.asks_key).lower(),
            # On a loopback address, and its own calls do without.
            "UNDERSTUDY_TLS_CERT": None,
            "UNDERSTUDY_TLS_KEY": None,
            **({} if self.demo.redis_url is None else {"REDIS_URL": self.demo.redis_url}),
        }
        proxy = await self._serve("proxy", environment, services)
        await until_answers(proxy, self.demo.proxy_port, "/readyz")
        where = f"{self.demo.proxy_url}   docs {self.demo.proxy_url}/docs"
        self._on_ready("proxy", where, time.monotonic() - began)

    async def _open_monitor(self, services: list[Child]) -> None:
        began = time.monotonic()
        environment = {
            "UNDERSTUDY_METRICS_HOST": LOOPBACK,
            "UNDERSTUDY_MONITOR_METRICS_PORT": str(self.demo.monitor_port),
            "UNDERSTUDY_MONITOR_TICK_SECONDS": str(TICK_SECONDS),
            "UNDERSTUDY_ENVIRONMENT": ENVIRONMENT,
            # A rollback that is part of the scenario must page no one on call.
            "UNDERSTUDY_PAGERDUTY_ROUTING_KEY": None,
        }
        monitor = await self._serve("monitor", environment, services)
        await until_answers(monitor, self.demo.monitor_port, "/metrics")
        self._on_ready("monitor", f"looks at rollouts every {TICK_SECONDS} s", time.monotonic() - began)

    async def _open_console(self, services: list[Child]) -> None:
        began = time.monotonic()
        self.demo.console_secret = token_urlsafe()
        environment = {
            "UNDERSTUDY_CONSOLE_HOST": LOOPBACK,
            "UNDERSTUDY_CONSOLE_PORT": str(self.demo.console_port),
            "UNDERSTUDY_CONSOLE_HTTPS": "false",
            "UNDERSTUDY_CONSOLE_SECRET": self.demo.console_secret,
            "UNDERSTUDY_ENVIRONMENT": ENVIRONMENT,
            # Health looks at what the proxy shares.
            **({} if self.demo.redis_url is None else {"REDIS_URL": self.demo.redis_url}),
        }
        console = await self._serve("console", environment, services)
        await until_answers(console, self.demo.console_port, "/livez")
        self._on_ready("console", self.demo.console_url, time.monotonic() - began)

    async def _serve(
        self, kind: str, environment: Mapping[str, str | None], services: list[Child], *, name: str = ""
    ) -> Child:
        command = ["-m", "understudy.entrypoints.cli", "serve", kind]
        own = {**_NO_FILES, "DATABASE_URL": self.demo.database_url, **environment}
        service = await start_child(name or kind, command, self._folder.logs, self._watchdog, own)
        services.append(service)
        self._know(service)
        return service

    def _proxy_port(self) -> int:
        wanted = self._options.port
        if wanted is None:
            port = self._port_like(WANTED_PORT)
            self.demo.has_usual_port = port == WANTED_PORT
            return port
        # The process that starts the demo may have claimed it; enough that no process listens there.
        if not is_free(wanted):
            raise DemoRefused(f"port {wanted} is taken", "Name another with --port, or leave it out for a free one.")
        return wanted

    def _server_place(self, server: str) -> ServerPlace:
        return ServerPlace(self._own_port(), self._own_port(), self._folder.stages / server)

    def _port_like(self, wanted: int) -> int:
        """Return the port, or a free one in its place, claimed until the demo ends."""
        if not claim(wanted):
            return self._own_port()
        self._stack.callback(give_back, wanted)
        return wanted

    def _own_port(self) -> int:
        port = free_port()
        self._stack.callback(give_back, port)
        return port

    def _know(self, child: Child) -> None:
        self.demo.children.append(child)
        self.demo.pids[child.name] = child.pid

    def _own(self, name: str, pid: int | None, number: signal.Signals) -> None:
        if pid is not None:
            self.demo.pids[name] = pid
            self._watchdog.watch(pid, number)


_SECRETS = ("DATABASE_URL", "REDIS_URL", "UNDERSTUDY_PAGERDUTY_ROUTING_KEY", "UNDERSTUDY_CONSOLE_SECRET")
_NO_FILES = {f"{name}_FILE": None for name in _SECRETS}
"""What the demo itself gives its processes must not come from a file as well."""
_REGISTRATION = "understudy.entrypoints.demo.registration"
"""Imported in a thread while the processes start: SQLAlchemy and alembic take a second."""


async def _started(server: EmbeddedPostgres | EmbeddedValkey, stack: AsyncExitStack) -> str:
    """Start a server in a thread; one whose start is under way when we are told to stop is stopped after it."""
    start = asyncio.ensure_future(asyncio.to_thread(server.start))

    async def stop() -> None:
        with suppress(OSError, RegistryUnavailable):
            await start
        await asyncio.to_thread(server.stop)

    stack.push_async_callback(stop)
    try:
        return await asyncio.shield(start)
    except OSError as problem:
        raise DemoRefused(str(problem), "Set REDIS_URL to a server of your own.") from problem


async def _stop_all(children: list[Child]) -> None:
    await asyncio.gather(*(child.stop() for child in children))
