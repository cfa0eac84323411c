"""What a history runs on: a database, two proxies and two monitors, each with a way of its own to Postgres."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx2
from e2e.stack import Process, register

from rigs.faults.links import Link
from rigs.faults.world import Machine, Model, World
from rigs.histories.drawing import VERSIONS
from understudy.adapters.embedded.loopback_ports import free_port

PROXIES, MONITORS = ("proxy-a", "proxy-b"), ("monitor-a", "monitor-b")
TICK_SECONDS = 0.3
READY_SECONDS = 120.0
PASSWORD, KEY_ID, SECRET = "secret", "operator", "of-histories"
LOGINS: Mapping[str, str] = {
    "proxy_login": "understudy_proxy",
    "operator_login": "understudy_engineer",
    "monitor_login": "understudy_monitor, understudy_retention",
}
"""Least privilege: each process and each operator has the rights of its role and no more."""


@dataclass
class Member:
    """A proxy or a monitor, with its link to Postgres.

    Args:
        name: Of its log and its instance.
        link: To Postgres.
        arguments: Of the program.
        environment: Of its process.
        port: Where a proxy listens.
    """

    name: str
    link: Link
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    port: int = 0
    process: Process | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the fault that it has: two at once would undo each other."""

    @property
    def identity(self) -> str:
        """The process, as its rows name it."""
        return f"{self.name}:{self.process.pid if self.process is not None else 0}"

    def start(self, folder: Path) -> None:
        """Start its process."""
        self.process = Process(self.name, list(self.arguments), folder, dict(self.environment))


class Stack:
    """A world with its members.

    Args:
        machine: Postgres and model servers.
        world: The database of this history.
    """

    def __init__(self, machine: Machine, world: World) -> None:
        self.machine = machine
        self.world = world
        self.ids: dict[str, int] = {}
        """Of the versions, by their labels."""
        self.members: dict[str, Member] = {}
        self.server_lock = asyncio.Lock()
        self.challenger: Model = machine.model("b")
        self.http = httpx2.AsyncClient(timeout=15.0, headers={"authorization": f"Bearer {KEY_ID}.{SECRET}"})

    @property
    def operators(self) -> Link:
        """The operators' way to Postgres."""
        return self.world.postgres

    def url(self, login: str, link: Link) -> str:
        """Return the database's address for a login, through a link."""
        return f"postgresql://{login}:{PASSWORD}@127.0.0.1:{link.port}/{self.world.name}"

    async def prepare(self) -> None:
        """Register versions, a policy and a key."""
        good = self.machine.model("a")
        for label in VERSIONS:
            port = self.challenger.port if label == "2" else good.port
            backend = '{"model_name": "visits", "version": "1"}'
            self.ids[label] = await register(self.world.url, int(label), [port], backend=backend, timeout_ms=1_000)
        await self.world.sql(
            "INSERT INTO ApiKey (id, sha256, scopes, created_by) VALUES ($1, $2, $3, 'set up')",
            KEY_ID,
            sha256(SECRET.encode()).hexdigest(),
            ["predict", "read", "operate"],
        )
        await self.world.sql(
            # The model of the policy knows rollouts only.
            "INSERT INTO ServingPolicy (model_name, champion_version, guard) VALUES ('visits', $1, 'off')",
            self.ids["1"],
        )

    async def start(self) -> None:
        """Start every process and wait until the proxies answer."""
        for name in PROXIES:
            self.members[name] = self._proxy(name)
        for name in MONITORS:
            self.members[name] = self._monitor(name)
        for member in self.members.values():
            member.start(self.world.folder)
        await asyncio.gather(*(self.ready(self.members[name]) for name in PROXIES))

    async def ready(self, member: Member) -> None:
        """Wait until a proxy answers.

        Raises:
            TimeoutError: It does not.
        """
        give_up = time.monotonic() + READY_SECONDS
        while time.monotonic() < give_up:
            with suppress(httpx2.HTTPError):
                if (await self.http.get(f"http://127.0.0.1:{member.port}/readyz")).is_success:
                    return
            await asyncio.sleep(0.05)
        raise TimeoutError(f"{member.name} does not get ready, see its log: {_end_of_log(member)}")

    async def heal(self) -> None:
        """Take back every fault of links and model servers; processes are mended by who broke them."""
        for link in (self.operators, *(member.link for member in self.members.values())):
            link.behave()
        await asyncio.to_thread(self.challenger.show)

    async def close(self) -> None:
        """End every process at once: what they had to say is collected by now."""
        await self.http.aclose()
        for member in self.members.values():
            if member.process is not None and member.process.child.poll() is None:
                member.process.child.kill()
                await asyncio.to_thread(member.process.child.wait, 10)

    def _proxy(self, name: str) -> Member:
        link, port = self._link(), free_port()
        environment = {
            "DATABASE_URL": self.url("proxy_login", link),
            "UNDERSTUDY_CONTROL_DATABASE_URL": self.url("operator_login", link),
            "UNDERSTUDY_PORT": str(port),
            "UNDERSTUDY_METRICS_PORT": str(free_port()),
            "UNDERSTUDY_STATE_DIR": str(self.world.folder / name),
            "UNDERSTUDY_INSTANCE": name,
        }
        return Member(name, link, _understudy("proxy"), environment, port)

    def _monitor(self, name: str) -> Member:
        link = self._link()
        environment = {
            "DATABASE_URL": self.url("monitor_login", link),
            "UNDERSTUDY_MONITOR_TICK_SECONDS": str(TICK_SECONDS),
            "UNDERSTUDY_MONITOR_METRICS_PORT": str(free_port()),
            "UNDERSTUDY_ENVIRONMENT": "histories",
            "UNDERSTUDY_INSTANCE": name,
        }
        return Member(name, link, _understudy("monitor"), environment)

    def _link(self) -> Link:
        return self.machine.links.to(urlsplit(self.machine.postgres.url).port or 0)


@asynccontextmanager
async def a_stack(machine: Machine) -> AsyncIterator[Stack]:
    """Lend a stack whose proxies answer."""
    async with machine.world() as world:
        stack = Stack(machine, world)
        try:
            await stack.prepare()
            await stack.start()
            yield stack
        finally:
            await stack.close()


async def make_logins(server_url: str) -> None:
    """Make the logins of processes and operators on a server, whose roles a migration has made."""
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute("CREATE ROLE understudy_trusted NOLOGIN")
        for login, roles in LOGINS.items():
            await connection.execute(
                f"CREATE ROLE {login} LOGIN PASSWORD '{PASSWORD}' IN ROLE understudy_trusted, {roles}"
            )
    finally:
        await connection.close()


def _understudy(what: str) -> tuple[str, ...]:
    return "-m", "understudy.entrypoints.cli", "serve", what


def _end_of_log(member: Member) -> str:
    return "" if member.process is None else member.process.log.read_text()[-2_000:]
