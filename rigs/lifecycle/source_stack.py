"""What is followed, and who follows: registries with their logins, an agent, and ``understudy source follow``."""

import asyncio
import time
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from e2e.lifecycle import Lifecycle
from e2e.stack import Process, Stack, sql, wait_for_port
from loopback.docker_registry import DockerRegistry, Login
from loopback.oci_registry import LOGINS_OF, PASSWORD, TITLE, USER

from understudy.adapters import migrations
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.loading.image_tag import VERSION
from understudy.core.rollout.sources.version_source import STEPS
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

MODELS: Final[Mapping[Login, str]] = {"token": "visits", "basic": "visits-basic", "none": "visits-none"}
"""One model for each way in which its registry asks for a login; that of the tokens gives them to anyone."""
REPOSITORY: Final = "models/visits"
CANARY: Final = "visits-canary"
"""A further model of the registry with tokens, since a model has one source."""
ACTOR: Final = Actor("rig", "cli", "tags are followed")
TIMEOUT_MS: Final = 4_000
"""Which no call misses because the machine is busy; what is pushed later is like the champion in this, too."""
GIVE_UP_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.05
SAMPLE_OF_LOG: Final = 3_000
MANY_LOOKS: Final = 10
_CHAMPION = "INSERT INTO ServingPolicy (model_name, champion_version, guard) VALUES ($1, $2, 'off')"
_BY_DIGEST = "SELECT id FROM ModelVersion WHERE model_name = $1 AND artifact_path LIKE '%@' || $2"
_LOADED = """
    SELECT model_version_id, server, state, loaded.attempt, loaded.artifact_digest,
           EXISTS (SELECT FROM ModelEndpoint e WHERE e.model_version_id = loaded.model_version_id) AS has_endpoint
    FROM LoadedVersion AS loaded ORDER BY 1, 2
"""
_SOURCE = """
kind: oci
model: {model}
url: oci://{registry}/{repository}:{tag}
group: onnx
on_new: {on_new}
"""


class SourceStack:
    """The registries are started by who makes this; all else is by ``start``, and ends with the stack."""

    def __init__(self, stack: Stack, registries: Mapping[Login, DockerRegistry], every_seconds: float) -> None:
        self.stack = stack
        self.registries = registries
        self.every_seconds = every_seconds
        self.proxy_metrics, self._monitor_metrics, self._agent_metrics, self._metrics = (free_port() for _ in range(4))
        self._url = stack.database_url
        self._number = 0

    @property
    def targets(self) -> Mapping[str, list[str]]:
        """What Prometheus reads, by the job's name."""
        others = (self._monitor_metrics, self._agent_metrics, self._metrics)
        proxy = [f"127.0.0.1:{self.proxy_metrics}"]
        return {"understudy-proxy": proxy, "understudy-monitor": [f"127.0.0.1:{port}" for port in others]}

    async def start(self) -> None:
        """Start everything, with a champion of each model that an agent has loaded from its registry."""
        await migrations.upgrade(self._url)
        lifecycle = Lifecycle(self.stack)
        lifecycle.start_server()
        lifecycle.start_monitor(metrics_port=self._monitor_metrics)
        stores = ",".join(f"oci://{registry.name}/{REPOSITORY}" for registry in self.registries.values())
        own = {"UNDERSTUDY_ARTIFACT_STORES": stores, "UNDERSTUDY_AGENT_METRICS_PORT": str(self._agent_metrics)}
        lifecycle.start_agent({**self._access(), **own})
        for login, model in (*MODELS.items(), ("token", CANARY)):
            await self._start_champion(login, model)
        self.stack.start_proxy(metrics_port=self.proxy_metrics)
        self._start_follower()
        await asyncio.to_thread(wait_for_port, self._metrics)
        await self._until_looks("unset", dict.fromkeys(self.looks("unset"), 1.0))

    def push(self, login: Login, tag: str, *, steps: str | None = None, number: int | None = None) -> str:
        """Push an image to which a tag then leads, a new one or that of a number before; return its digest."""
        self._number += number is None
        said = {VERSION: f"2026.{self._number if number is None else number}"}
        if steps is not None:
            said[STEPS] = steps
        model = (example_version("visits", 1).read(), "application/octet-stream", {TITLE: "model.onnx"})
        return self.registries[login].push(REPOSITORY, tag, model, annotations=said)

    @property
    def newest(self) -> int:
        """The number of the image that was pushed last."""
        return self._number

    async def until_registered(self, login: Login, digest: str) -> float:
        """Wait until a version has this digest; return when that was."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while not await sql(self._url, _BY_DIGEST, MODELS[login], digest):
            if time.monotonic() > give_up:
                said = self.stack.processes["source"].log.read_text()[-SAMPLE_OF_LOG:]
                raise TimeoutError(f"{digest} of {MODELS[login]} is not registered after {GIVE_UP_SECONDS:g} s: {said}")
            await asyncio.sleep(PAUSE_SECONDS)
        return time.monotonic()

    async def until_all_loaded(self) -> None:
        """Wait until the server has every version, with its endpoint."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        versions = (await sql(self._url, "SELECT count(*) FROM ModelVersion"))[0][0]
        while True:
            rows = await self.loaded()
            if len(rows) == versions and all(row[2] == "AVAILABLE" and row[-1] for row in rows):
                return
            if time.monotonic() > give_up:
                raise TimeoutError(f"not all of {versions} versions were loaded within {GIVE_UP_SECONDS:g} s: {rows}")
            await asyncio.sleep(1)

    async def loaded(self) -> list[tuple[Any, ...]]:
        """Return what servers have of each version."""
        return [tuple(row) for row in await sql(self._url, _LOADED)]

    def looks(self, state: str) -> Mapping[str, float]:
        """Return how often each source was found in a state."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        marks = [(line, f',state="{state}"}} ') for line in lines if line.startswith("source_looks_total{")]
        return {line.split('"')[1]: float(line.split()[-1]) for line, mark in marks if mark in line}

    async def until_looked(self, times: int) -> None:
        """Wait until so many further looks at each source found nothing to be done."""
        before = self.looks("done")
        await self._until_looks("done", {name: count + times for name, count in before.items()})

    async def _until_looks(self, state: str, counts: Mapping[str, float]) -> None:
        give_up = time.monotonic() + GIVE_UP_SECONDS + MANY_LOOKS * self.every_seconds
        while any(self.looks(state)[name] < count for name, count in counts.items()):
            if time.monotonic() > give_up:
                raise TimeoutError(f"sources were {state} so often: {self.looks(state)}, not {counts}")
            await asyncio.sleep(0.5)

    def _access(self) -> Mapping[str, str]:
        """Return the settings with which all three registries may be read."""
        return {
            "UNDERSTUDY_OCI_LOGINS": LOGINS_OF.format(self.registries["basic"].name),
            "UNDERSTUDY_OCI_PLAIN_HTTP": self.registries["token"].token_server,
        }

    async def _start_champion(self, login: Login, model: str) -> None:
        digest = await asyncio.to_thread(self.push, login, "first")
        artifact = f"oci://{self.registries[login].name}/{REPOSITORY}:first@{digest}"
        example = example_version("visits", 1)
        schemas = (example.input_schema, example.output_schema)
        new = NewVersion(model, "first", artifact, "sklearn", *schemas, group_name="onnx", cache_ttl_seconds=0)
        new = new._replace(timeout_ms=TIMEOUT_MS)
        version = (await register_version(PostgresRegistry(self._url), new, ACTOR)).id
        await self.until_all_loaded()
        await sql(self._url, _CHAMPION, model, version)

    def _start_follower(self) -> None:
        sources = [(model, self.registries[login].name, "latest", "register", login) for login, model in MODELS.items()]
        sources.append((CANARY, self.registries["token"].name, "canary", "rollout", "token"))
        documents = [
            _SOURCE.format(model=model, registry=registry, repository=REPOSITORY, tag=tag, on_new=on_new)
            + ("token_env: REGISTRY_LOGIN\n" if login == "basic" else "")
            for model, registry, tag, on_new, login in sources
        ]
        file = self.stack.folder / "sources.yaml"
        file.write_text("---".join(documents))
        environment = {**self._access(), "DATABASE_URL": self._url, "REGISTRY_LOGIN": f"{USER}:{PASSWORD}"}
        del environment["UNDERSTUDY_OCI_LOGINS"]
        every = ("--every", f"{self.every_seconds:g}s", "--metrics-port", str(self._metrics))
        arguments = ["-m", "understudy.entrypoints.cli", "source", "follow", "-f", str(file), *every]
        self.stack.processes["source"] = Process("source", arguments, self.stack.folder, environment)
