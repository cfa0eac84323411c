"""What rows break: servers that stand for the whole run, and for each row a database and proxies of its own."""

import asyncio
import os
import shutil
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import asyncpg
from e2e.load import Load
from e2e.stack import Process, Stack, register, sql, wait_for_port
from redis import Redis

from loadtests.machine import on_core
from rigs.faults import model_server
from rigs.faults.links import Link, Links
from rigs.faults.not_here import NotHere
from rigs.faults.small_disk import small_disk
from understudy.adapters.dev_server.catalog import Faults
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.embedded.valkey import EmbeddedValkey, find_server
from understudy.adapters.migrations import upgrade

DEADLINE_MS = 300
LOGGED_SECONDS = 10.0
"""How long after a fault a row may take to be in the log."""
SCRAPE_SECONDS = 5.0
STATE = "state"
"""Folder of a row's proxy, in the row's own."""
_TEMPLATE = "migrated"
_SERVES = {"a": "visits:1", "b": "visits:1", "d": "visits:1", "challenger": "visits:2", "shadow": "visits:4"}
LABELS = {"a": 1, "b": 1, "d": 1, "challenger": 2, "shadow": 4}
MONITOR = ("-m", "understudy.entrypoints.cli", "serve", "monitor")


@dataclass
class Model:
    """A model server with a link before it."""

    name: str
    process: Process
    port: int
    """Where it is switched, and answers over gRPC."""
    asked_port: int
    """Where proxies ask it, by way of the link."""
    link: Link

    def show(self, **faults: Any) -> None:
        """Make it do this wrong from now on; without arguments nothing any more."""
        big = bool(faults.pop("big", False))
        model_server.show(self.port, Faults(**faults), big=big)

    @contextmanager
    def showing(self, **faults: Any) -> Iterator[None]:
        """Do this wrong for the length of a block."""
        self.show(**faults)
        try:
            yield
        finally:
            self.show()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Be frozen for the length of a block."""
        self.process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.signal(signal.SIGCONT)

    @property
    def rows(self) -> int:
        """Rows that it was asked for since it started."""
        return model_server.count(self.port)[1]


class Machine:
    """The servers that stand for the whole run.

    Args:
        folder: For data and logs; other accounts can read it.
        links: The fault proxy.
        deadline_ms: Of each version that names none of its own.
        volume: Size of the volume that the state folder of each row's proxy lies on, such as ``32m``: a tmpfs that is
            mounted for the row. ``None``: the folder is on this machine's disk.
        ulimit: Options of the shell's command of that name, under which proxies and monitors run.
        protocol: By which proxies ask the model servers: ``oip``, or ``oip-http`` for its REST paths.
        dialect: By which the load asks proxies: ``native``, ``grpc`` for the Open Inference Protocol, or a protocol
            over REST
            (:data:`rigs.faults.rest_callers.REST_DIALECTS`).
    """

    def __init__(
        self,
        folder: Path,
        links: Links,
        *,
        deadline_ms: int = DEADLINE_MS,
        volume: str | None = None,
        ulimit: str = "",
        protocol: str = "oip",
        dialect: str = "native",
    ) -> None:
        self.protocol = protocol
        self.dialect = dialect
        self.folder = folder
        self.ulimit = ulimit
        self.links = links
        self.deadline_ms = deadline_ms
        self.volume = volume
        self._opened = ExitStack()
        self._models: dict[str, Model] = {}
        self._rows = 0
        self.notes: list[str] = []
        """What rows have to say beside their figures."""
        self._postgres: EmbeddedPostgres | None = None
        self._valkey: EmbeddedValkey | None = None

    async def __aenter__(self) -> Self:
        self._postgres = EmbeddedPostgres(self.folder / "pg")
        self._opened.callback(self._postgres.remove)
        await asyncio.to_thread(self._postgres.start)
        await sql(self._postgres.url, f"CREATE DATABASE {_TEMPLATE}")
        await upgrade(self.url_of(_TEMPLATE))
        return self

    async def __aexit__(self, *_: object) -> None:
        for model in self._models.values():
            await asyncio.to_thread(model.process.stop)
        await asyncio.to_thread(self._opened.close)

    @property
    def postgres(self) -> EmbeddedPostgres:
        """Postgres with its default, durable settings."""
        assert self._postgres is not None
        return self._postgres

    @property
    def valkey(self) -> EmbeddedValkey:
        """A Valkey, started when it is first asked for."""
        if self._valkey is None:
            if find_server() is None:
                raise NotHere("no valkey-server or redis-server")
            self._valkey = self._opened.enter_context(EmbeddedValkey())
        self._valkey.start()
        return self._valkey

    def valkey_client(self) -> Redis:
        """Return a client of the Valkey."""
        return Redis.from_url(self.valkey.url)

    def url_of(self, database: str, port: int | None = None) -> str:
        """Return where a database is, through the port of a link if one is given."""
        return database_url(self.postgres.url, database, port)

    def model(self, name: str, **flags: int) -> Model:
        """Return a model server that is well; it is started when it is first asked for, and again if it died."""
        known = self._models.get(name)
        if known is not None and known.process.child.poll() is None and not flags:
            known.process.signal(signal.SIGCONT)
            known.show()
            known.link.behave()
            return known
        if known is not None:
            known.process.stop()
        port = known.port if known is not None else free_port()
        is_http = self.protocol != "oip"
        asked_port = known.asked_port if known is not None else (free_port() if is_http else port)
        arguments = ["-m", "rigs.faults.model_server", "--port", str(port), "--serve", _SERVES[name]]
        arguments += [part for flag, value in flags.items() for part in (f"--{flag.replace('_', '-')}", str(value))]
        arguments += ["--http-port", str(asked_port)] if is_http else []
        process = Process(f"model-{name}", arguments, self.folder)
        for one in {port, asked_port}:
            wait_for_port(one)
        link = known.link if known is not None else self.links.to(asked_port)
        link.behave()
        self._models[name] = Model(name, process, port, asked_port, link)
        return self._models[name]

    @asynccontextmanager
    async def world(self, **settings: Any) -> AsyncIterator["World"]:
        """Lend a database and what a row starts on it; ``settings`` are those of its proxies.

        Raises:
            NotHere: There is to be a volume for the state, and none can be mounted.
        """
        self._rows += 1
        name = f"row_{self._rows}"
        tablespace = settings.pop("tablespace", None)
        placed = f" TABLESPACE {tablespace}" if tablespace else ""
        await sql(self.postgres.url, f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}{placed}")
        folder = self.folder / name
        folder.mkdir()
        world = World(self, name, folder, settings)
        volume = nullcontext() if self.volume is None else small_disk(folder / STATE, self.volume)
        try:
            with volume:
                try:
                    yield world
                finally:
                    await asyncio.to_thread(world.stop)
        finally:
            await sql(self.postgres.url, f"DROP DATABASE {name} WITH (FORCE)")
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class World:
    """A database and what runs on it.

    Args:
        machine: Whose servers are used.
        name: Of the database.
        folder: For state and logs.
        settings: Of every proxy that is started.
    """

    machine: Machine
    name: str
    folder: Path
    settings: Mapping[str, Any]
    versions: dict[str, int] = field(default_factory=dict)
    """Ids by the name of the model server that serves them."""
    postgres: Link = field(init=False)
    redis: Link | None = None
    stack: Stack = field(init=False)
    url: str = field(init=False)
    """The database itself, past the link."""
    metrics_port: int = 0
    grpc_port: int = 0
    """Of the proxy that was started last, where the load comes over gRPC."""

    def __post_init__(self) -> None:
        self.postgres = self.machine.links.to(urlsplit(self.machine.postgres.url).port or 0)
        self.url = self.machine.url_of(self.name)
        self.stack = Stack(self.folder, self.machine.url_of(self.name, self.postgres.port))

    def stop(self) -> None:
        """Stop what was started."""
        self.postgres.behave()
        for process in reversed(self.stack.processes.values()):
            if process.child.poll() is None:
                process.signal(signal.SIGCONT)
        self.stack.stop()

    def use_redis(self) -> Link:
        """Give proxies that start from now on an empty Redis, through a link."""
        self.redis = self.machine.links.to(urlsplit(self.machine.valkey.url).port or 0)
        self.stack.redis_url = f"redis://127.0.0.1:{self.redis.port}/0"
        with self.redis_client() as client:
            client.flushall()
        return self.redis

    def redis_client(self) -> Redis:
        """Return a client past the link."""
        return self.machine.valkey_client()

    async def register(self, name: str, *others: str, **columns: Any) -> int:
        """Register the version that a model server serves, with these servers as its replicas.

        ``past_links`` leads to the servers themselves, for answers so long that the links would be what is slow.
        """
        past_links = columns.pop("past_links", False)
        models = [self.machine.model(one) for one in (name, *others)]
        replicas = [model.asked_port if past_links else model.link.port for model in models]
        usual = {
            "timeout_ms": self.machine.deadline_ms,
            "cache_ttl_seconds": 300,
            "protocol": self.machine.protocol,
        }
        self.versions[name] = await register(self.url, LABELS[name], replicas, **{**usual, **columns})
        return self.versions[name]

    async def serve(self, *replicas: str, **columns: Any) -> int:
        """Register a champion, start a proxy and return its port."""
        await self.champion(*replicas, **columns)
        return await self.start_proxy()

    async def champion(self, *replicas: str, **columns: Any) -> None:
        """Register a champion; version ``columns`` are its own."""
        version = await self.register(*(replicas or ("a",)), **columns)
        await self.sql("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)

    async def policy(self, **columns: Any) -> None:
        """Change the policy of the model."""
        assigned = ", ".join(f"{name} = ${number}" for number, name in enumerate(columns, start=1))
        await self.sql(f"UPDATE ServingPolicy SET {assigned} WHERE model_name = 'visits'", *columns.values())

    async def start_proxy(self, name: str = "proxy", core: int | None = None, **settings: Any) -> int:
        """Start a proxy, on a core of its own if one is given, and return its port."""
        self.metrics_port = free_port()
        options = {"state_dir": self.folder / STATE, "ulimit": self.machine.ulimit, **self.settings, **settings}
        options["metrics_port"] = self.metrics_port
        if self.machine.dialect == "grpc":
            self.grpc_port = self.grpc_port or free_port()
            options.setdefault("grpc_port", self.grpc_port)

        def start() -> int:
            with nullcontext() if core is None else on_core(core):
                return self.stack.start_proxy(name, **options)

        return await asyncio.to_thread(start)

    @property
    def proxy(self) -> Process:
        """The proxy's process."""
        return self.stack.processes["proxy"]

    @property
    def port(self) -> int:
        """Where the proxy listens."""
        return self.stack.proxy_port

    def start_monitor(self, name: str, arguments: tuple[str, ...] = MONITOR, **environment: str) -> Process:
        """Start a monitor; by default one that looks each second."""
        env = {
            "DATABASE_URL": self.stack.database_url,
            "UNDERSTUDY_MONITOR_TICK_SECONDS": "1",
            "UNDERSTUDY_MONITOR_METRICS_PORT": str(free_port()),
            **environment,
        }
        self.stack.processes[name] = Process(name, list(arguments), self.folder, env, self.machine.ulimit)
        return self.stack.processes[name]

    async def sql(self, query: str, *values: Any) -> list[asyncpg.Record]:
        """Run a statement past the link."""
        return await sql(self.url, query, *values)

    def metric(self, *prefixes: str, port: int | None = None) -> float:
        """Return the sum of a process's samples whose line begins so; its proxy's by default."""
        lines = self.scrape(port).decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(prefixes))

    def scrape(self, port: int | None = None, seconds: float = SCRAPE_SECONDS) -> bytes:
        """Return a process's page of metrics, its proxy's by default, if it comes in time."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.metrics_port}/metrics", timeout=seconds) as answer:
            page: bytes = answer.read()
        return page

    async def lost_and_doubled(self, *loads: Load) -> dict[str, float]:
        """Return how many answered predictions the log lacks at last, and how many it has twice."""
        expected = {identifier for load in loads for identifier in load.prediction_ids()}
        query = (
            "SELECT prediction_id::text AS id, count(*) AS n FROM PredictionLog"
            " WHERE role <> 'shadow' GROUP BY prediction_id"
        )
        give_up = time.monotonic() + LOGGED_SECONDS
        while True:
            counts = {row["id"]: row["n"] for row in await self.sql(query)}
            lost = len(expected - counts.keys())
            if not lost or time.monotonic() > give_up:
                return {"rows_lost": lost, "rows_dup": sum(n > 1 for n in counts.values())}
            await asyncio.sleep(0.3)


def database_url(server_url: str, database: str, port: int | None = None) -> str:
    """Return the URL of a database of a server, through another port if one is given."""
    parts = urlsplit(server_url)
    account = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{account}@127.0.0.1:{port or parts.port}", path=f"/{database}").geturl()


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is not shared out to disk."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
