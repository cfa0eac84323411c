"""Installations that have grown: many models registered, bodies of many features, policies that change all the time.

Each is a database of its own with its own proxy, so that nothing else has it beside itself. That the log is written is
asked of Postgres: a scrape of the proxy's metrics costs more with each model.
"""

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import asyncpg
import orjson
from e2e.flips import FLIP
from e2e.stack import sql

from loadtests.checkouts import Checkout
from loadtests.machine import cpu_seconds
from loadtests.rounds import Contender
from loadtests.scene import BENCH, OUTPUT_SCHEMA, REGISTER, Proxy, Scene, input_schema
from loadtests.wrk import FULL
from understudy.adapters.migrations import upgrade

FEATURES = (13, 130, 1_300)
MODELS = (1, 100, 5_000)
CHANGES_PER_MINUTE = 200
WIDE = "wide"
"""The installation with a model for each number of features."""
_SCRAPES = 5
_QUIET_SECONDS = 0.5
"""More than twice as long as the shipper rests: no row came meanwhile, so none is left."""
_LOG_SECONDS = 30.0
_ADD_VERSIONS = """
    INSERT INTO ModelVersion (model_name, version, artifact_path, framework, protocol, input_schema, output_schema)
    SELECT 'other-' || number, '1', 'none', 'none', $1, $2, $3 FROM generate_series(1, $4::int) AS number
"""
_ADD_ENDPOINTS = """
    INSERT INTO ModelEndpoint (model_version_id, target)
    SELECT id, $1 FROM ModelVersion WHERE model_name LIKE 'other-%'
"""
_ADD_POLICIES = """
    INSERT INTO ServingPolicy (model_name, champion_version)
    SELECT model_name, id FROM ModelVersion WHERE model_name LIKE 'other-%'
"""


class Installation(NamedTuple):
    """A database with the model ``bench``, whose policy flips between two versions, and what is beside it."""

    database_url: str
    versions: tuple[int, int]


class Grown(NamedTuple):
    """An installation with its proxy."""

    installation: Installation
    proxy: Proxy

    def contender(self, name: str, model: str = BENCH, features: int = FEATURES[0]) -> Contender:
        """Return a load of this model."""
        what = FULL._replace(features=features)
        return Contender(name, self.proxy.url(model), self.proxy.pid, settle=self.await_log, what=what)

    def await_log(self) -> None:
        """Wait until no more rows come."""
        give_up = time.monotonic() + _LOG_SECONDS
        before, rows = -1, self._rows()
        while rows != before:
            if time.monotonic() > give_up:
                raise RuntimeError(f"rows still come {_LOG_SECONDS:.0f} s after the load ended")
            time.sleep(_QUIET_SECONDS)
            before, rows = rows, self._rows()

    def _rows(self) -> int:
        (counted,) = asyncio.run(sql(self.installation.database_url, "SELECT count(*) AS n FROM PredictionLog"))
        return int(counted["n"])

    def scrape_ms(self) -> float:
        """Return the processor time of a scrape of the proxy's metrics, in milliseconds."""
        before = cpu_seconds([self.proxy.pid])
        for _ in range(_SCRAPES):
            self.proxy.metric("none")
        return (cpu_seconds([self.proxy.pid]) - before) * 1000 / _SCRAPES


class Changes:
    """Flips a policy while a load goes on."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self.made = 0
        self.due = 0.0

    def begin(self) -> None:
        """Start to change."""
        self._is_over.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._change()), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait for the last one."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    async def _change(self) -> None:
        pause = 60 / CHANGES_PER_MINUTE
        loop = asyncio.get_running_loop()
        connection = await asyncpg.connect(self._installation.database_url)
        started, made = loop.time(), 0
        try:
            while not self._is_over.is_set():
                await connection.fetchval(FLIP, *self._installation.versions, BENCH)
                made += 1
                await asyncio.sleep(max(0.0, started + made * pause - loop.time()))
        finally:
            self.made += made
            self.due += (loop.time() - started) / pause
            await connection.close()


def grown_to(models: int) -> str:
    """Return the name of the installation with so many models."""
    return f"grown_{models}"


def wide_model(features: int) -> str:
    """Return the name of the model with so many features."""
    return f"{WIDE}-{features}"


def start(
    scene: Scene, name: str, installations: Mapping[str, Installation], checkout: Checkout | None = None
) -> Grown:
    """Return an installation with its proxy, which is started when it is asked for first."""
    installation = installations[name]
    environment = {**(checkout.environment if checkout else {}), "DATABASE_URL": installation.database_url}
    return Grown(installation, scene.proxy(name, checkout=checkout, environment=environment))


def install(scene: Scene) -> dict[str, Installation]:
    """Make the databases, once: one with models of each size, and for each number of models one with as many."""
    target = f"127.0.0.1:{scene.stubs['champion']}"
    return asyncio.run(_installed(scene.postgres.url, scene.protocol, target))


async def _installed(server: str, protocol: str, target: str) -> dict[str, Installation]:
    first, *others = names = [grown_to(MODELS[0]), WIDE, *map(grown_to, MODELS[1:])]
    urls = {name: urlsplit(server)._replace(path=f"/{name}").geturl() for name in names}
    if await sql(server, "SELECT 1 FROM pg_database WHERE datname = $1", first):
        rows = await sql(urls[first], "SELECT id FROM ModelVersion WHERE model_name = $1 ORDER BY id", BENCH)
        return {name: Installation(url, (rows[0]["id"], rows[1]["id"])) for name, url in urls.items()}
    await sql(server, f"CREATE DATABASE {first}")
    await upgrade(urls[first])
    versions = await _register(urls[first], protocol, target, BENCH, FEATURES[0])
    for name in others:
        await sql(server, f"CREATE DATABASE {name} TEMPLATE {first}")
    for count in FEATURES:
        await _register(urls[WIDE], protocol, target, wide_model(count), count)
    for count in MODELS[1:]:
        url = urls[grown_to(count)]
        schemas = (orjson.dumps(one).decode() for one in (input_schema(FEATURES[0]), OUTPUT_SCHEMA))
        await sql(url, _ADD_VERSIONS, protocol, *schemas, count - 1)
        await sql(url, _ADD_ENDPOINTS, target)
        await sql(url, _ADD_POLICIES)
    return {name: Installation(url, versions) for name, url in urls.items()}


async def _register(url: str, protocol: str, target: str, model: str, features: int) -> tuple[int, int]:
    """Register two versions of a model, the first of them its champion."""
    schemas = [orjson.dumps(one).decode() for one in (input_schema(features), OUTPUT_SCHEMA)]
    ids: list[int] = []
    for version in ("1", "2"):
        (row,) = await sql(url, REGISTER, model, version, protocol, *schemas, 0)
        ids.append(row["id"])
        await sql(url, "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", ids[-1], target)
    await sql(url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", model, ids[0])
    return ids[0], ids[1]
