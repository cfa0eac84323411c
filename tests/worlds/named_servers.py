"""Real model servers behind one name, on loopback addresses of one port, as pods of a headless Service are."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from builders import a_version
from contract.servers import MODEL_NAME, ModelServer

from understudy.adapters.memory.resolver import MemoryResolver
from understudy.adapters.model_servers.addresses import Discovery
from understudy.adapters.model_servers.connect import connect, replicas_of
from understudy.adapters.model_servers.replicas.replica_set import ReplicaSet
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.tensors import Row

NAME = "models.localhost"
"""One that may be on this machine."""
LOAD_SECONDS = 5.0
"""A deadline that only a broken server misses, however busy the machine is."""


def a_row(value: float = 0.0) -> Row:
    return (struct.pack("<3f", value, 0, 0),)


def named_version(port: int, name: str = NAME, **columns: Any) -> ModelVersion:
    schema = {
        "features": [{"name": letter, "dtype": "float32"} for letter in "abc"],
        "tensors": [{"name": "x", "dtype": "float32", "features": ["a", "b", "c"]}],
    }
    backend = {"discover": True, "model_name": MODEL_NAME, **columns.pop("backend", {})}
    return a_version(
        endpoints=[f"{name}:{port}"], input_schema=schema, output_schema={"tensor": "p"}, backend=backend,
        protocol=columns.pop("protocol", "oip"), **columns,
    )  # fmt: skip


class NamedServers:
    """Servers at 127.0.0.1, 127.0.0.2 and so on, of which the name has those that a test says."""

    def __init__(self, servers: Sequence[ModelServer]) -> None:
        self.servers = servers
        self.resolver = MemoryResolver({})
        self.failures = 0
        self.lead_to(*range(1, len(servers) + 1))

    @property
    def port(self) -> int:
        return self.servers[0].port

    @property
    def calls(self) -> list[int]:
        return [server.calls for server in self.servers]

    def lead_to(self, *numbers: int) -> None:
        """Have the name lead to these servers, counted from 1."""
        self.resolver.names[NAME] = [f"127.0.0.{number}" for number in numbers]

    def fail(self) -> None:
        """Have the name server know nothing of the name."""
        self.resolver.names.pop(NAME, None)

    @property
    def discovery(self) -> Discovery:
        return Discovery(self.resolver, 0.02, self._failed)

    def connector(self, **options: Any) -> Any:
        return partial(connect, discovery=self.discovery, **options)

    def _failed(self) -> None:
        self.failures += 1


class Caller:
    """A backend of a name, which may be called all the time beside what a test does."""

    def __init__(self, named: NamedServers, version: ModelVersion | None = None, **options: Any) -> None:
        self.backend: Any = named.connector(**options)(version or named_version(named.port))
        found = replicas_of(self.backend)
        assert found is not None
        self.replicas: ReplicaSet = found
        self.answered = 0
        self.problems: list[Exception] = []

    async def ask(self, value: float = 0.0, timeout_seconds: float = LOAD_SECONDS) -> float:
        tensor = await self.backend.infer([a_row(value)], timeout_seconds)
        return float(tensor.values[0])

    @asynccontextmanager
    async def load(self, callers: int = 4) -> AsyncIterator[None]:
        """Call all the time; a call that fails is in :attr:`problems`."""
        tasks = [asyncio.create_task(self._call_on()) for _ in range(callers)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _call_on(self) -> None:
        while True:
            try:
                assert await self.ask(2.0) == 2.0
                self.answered += 1
            except Exception as problem:  # noqa: BLE001 - the test says what is expected
                self.problems.append(problem)
            await asyncio.sleep(0)


@asynccontextmanager
async def named_servers(count: int = 3) -> AsyncIterator[NamedServers]:
    """Start servers on one port of as many loopback addresses."""
    servers = [ModelServer() for _ in range(count)]
    try:
        await servers[0].start()
        for number, server in enumerate(servers[1:], 2):
            await server.start(f"127.0.0.{number}:{servers[0].port}")
        yield NamedServers(servers)
    finally:
        for server in servers:
            await server.stop()


@asynccontextmanager
async def calling(named: NamedServers, version: ModelVersion | None = None, **options: Any) -> AsyncIterator[Caller]:
    """Yield a caller, whose connections are closed at the end."""
    caller = Caller(named, version, **options)
    try:
        yield caller
    finally:
        await caller.backend.close()
