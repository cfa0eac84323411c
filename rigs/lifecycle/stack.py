"""What is killed: two model servers with their agents, two monitors, a proxy and Postgres, as processes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, TypeVar

from e2e.lifecycle import Lifecycle
from e2e.stack import Stack, sql

from understudy.adapters import migrations
from understudy.adapters.dev_server.example_models import ExampleVersion, example_cases, example_version
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.postgres.connections.connection import VENDOR_ERRORS
from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.errors import PolicyRefused, RegistryUnavailable
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

MODEL: Final = "visits"
LABELS: Final = ("1", "2", "3")
GROUP: Final = "onnx"
SERVERS: Final = ("onnx-0", "onnx-1")
MONITORS: Final = ("monitor-a", "monitor-b")
ACTOR: Final = Actor("rig", "cli", "a champion is exchanged")
TIMEOUT_MS: Final = 4_000
TIMEOUT_SECONDS: Final = 5.0
GIVE_UP_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.2
STARTS: Final = 3
CASES: Final = 200
AWAY: Final = (*VENDOR_ERRORS, RegistryUnavailable, PolicyRefused)
"""What is met while Postgres is killed, or starts."""
T = TypeVar("T")


class LifecycleStack:
    """All of it in ``folder``; ``stop`` ends what was started.

    With ``has_cases`` artifacts bring so many validation cases that their validation takes a part of a second.
    """

    def __init__(self, folder: Path, *, has_cases: bool = False) -> None:
        self._cases = CASES if has_cases else 0
        self.postgres = EmbeddedPostgres(folder / "postgres")
        self.start_postgres()
        self.stack = Stack(folder, self.postgres.url)
        self.members = {name: Lifecycle(self.stack, name) for name in SERVERS}
        self.loading = PostgresLoadingRegistry(self.url, timeout_seconds=TIMEOUT_SECONDS)
        self.ids: dict[str, int] = {}
        """Of the versions, by their labels."""

    @property
    def url(self) -> str:
        """Postgres' address, which is the same after each of its starts."""
        return self.postgres.url

    async def start(self) -> None:
        """Start everything and wait until the first version is champion, loaded on both servers, and called."""
        await migrations.upgrade(self.url)
        for member in self.members.values():
            member.start_server()
            member.start_agent()
        for name in MONITORS:
            self.start_monitor(name)
        await self._register()
        await until_available(self, LABELS[0])
        await sql(
            self.url,
            "INSERT INTO ServingPolicy (model_name, champion_version, guard) VALUES ($1, $2, 'off')",
            MODEL,
            self.ids[LABELS[0]],
        )
        self.stack.start_proxy()

    def start_postgres(self) -> None:
        """Start Postgres, and again where it took longer than a minute."""
        for _ in range(STARTS - 1):
            try:
                self.postgres.start()
            except RegistryUnavailable:
                continue
            return
        self.postgres.start()

    def start_monitor(self, name: str) -> None:
        """Start a monitor under its name."""
        next(iter(self.members.values())).start_monitor(name)

    def stop(self) -> None:
        """End every process."""
        self.stack.stop()
        self.postgres.stop("immediate")

    async def _register(self) -> None:
        registry = PostgresRegistry(self.url)
        for label in LABELS:
            example = example_version(MODEL, int(label))
            cases = islice(cycle(_cases_of(example)), self._cases)
            member = next(iter(self.members.values()))
            artifact = member.put_cases(int(label), *cases) if self._cases else member.put_artifact(int(label))
            new = NewVersion(
                MODEL,
                label,
                artifact,
                "sklearn",
                example.input_schema,
                example.output_schema,
                cache_ttl_seconds=0,
                timeout_ms=TIMEOUT_MS,
                group_name=GROUP,
            )
            self.ids[label] = (await register_version(registry, new, ACTOR)).id
        for label in LABELS[1:]:
            await self.loading.unload(MODEL, label, ACTOR)


def _cases_of(example: ExampleVersion) -> Sequence[dict[str, Any]]:
    """Return the cases of an example without their names, so that each may be asked several times."""
    return [{name: value for name, value in case.items() if name != "case_id"} for case in example_cases(example)]


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until it is answered: what it needs may just have been killed."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            return await ask()
        except AWAY:
            if time.monotonic() > give_up:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


async def until_available(stack: LifecycleStack, label: str) -> None:
    """Wait until every server has a version, with its endpoint."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    query = "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE' AND model_version_id = $1"

    async def servers() -> int:
        return int((await sql(stack.url, query, stack.ids[label]))[0][0])

    while await patiently(servers) < len(SERVERS):
        if time.monotonic() > give_up:
            raise TimeoutError(f"version {label} was not loaded on every server within {GIVE_UP_SECONDS:g} s")
        await asyncio.sleep(PAUSE_SECONDS)
