"""The proxy application with in-memory parts."""

import asyncio
import os
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

import httpx2
import numpy as np
import pytest
from asgi import lifespan
from builders import KeptRows, a_version_row, an_input_schema, policy_rows

from understudy.adapters.disk.snapshot_file import JsonSnapshotFile
from understudy.adapters.local_cache import PredictionMemory
from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.outcomes import MemoryOutcomeStore
from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.bootstrap.control import Control, control_of
from understudy.bootstrap.proxy import Parts
from understudy.bootstrap.session import Session
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.entrypoints.proxy.api.app import create_app
from understudy.entrypoints.proxy.api.predict_route import App
from understudy.ports.telemetry.tracing import Tracer
from understudy.ports.upstream.feature_store import FeatureStore
from understudy.ports.upstream.model_backend import ConnectBackend, ModelBackend
from understudy.serving.call import refuse_unlogged
from understudy.serving.prediction_log.durable_commit import DurableCommit
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.routing.policy_feed import PolicyFeed
from understudy.serving.shadow_pool import ShadowPool
from understudy.serving.turn import Clocks, Limits, Predictor
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.cached_inference import CachedInference
from understudy.serving.upstream.champion_health import ChampionWatch
from understudy.settings import Settings

LIMITS = Limits(feature_timeout_seconds=0.05, challenger_budget_ratio=0.4, shadow_timeout_seconds=0.1)
VISITOR = {"id": "visitor", "sha256": sha256(b"secret").hexdigest(), "scopes": ["predict:visits"]}
KEY = {"id": "ops", "sha256": sha256(b"secret").hexdigest(), "scopes": ["predict", "outcomes", "read", "operate"]}


def mean(rows: Sequence[Row]) -> Tensor:
    values = [sum(struct.unpack("<2f", row[0])) / 2 for row in rows]
    return Tensor(Datatype.FP32, (len(rows), 1), np.array(values, "<f4"))


class Answer(NamedTuple):
    """What the application sent."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Running:
    """The application with in-memory parts, and a client for it."""

    def __init__(
        self,
        app: App,
        client: httpx2.AsyncClient,
        backends: dict[str, MemoryBackend],
        spool: KeptRows,
        telemetry: PrometheusTelemetry,
        *,
        outcomes: MemoryOutcomeStore,
        source: MemoryPolicySource,
        state: Mapping[str, Any],
    ) -> None:
        self.app, self.client, self.backends, self.spool, self.telemetry = app, client, backends, spool, telemetry
        self.outcomes, self.source, self.state = outcomes, source, state

    async def ask(
        self,
        path: str,
        *chunks: bytes,
        method: str = "POST",
        headers: Sequence[tuple[bytes, bytes]] = (),
        through: App | None = None,
        ends: bool = True,
    ) -> Answer:
        """Ask as the proxy's server does; a body that does not end leaves the application waiting for more."""
        sent: list[Any] = []
        raw_path, _, query = path.encode().partition(b"?")
        scope = {
            "type": "http", "method": method, "path": unquote(raw_path.decode()), "raw_path": raw_path,
            "query_string": query, "headers": list(headers), "http_version": "1.1", "scheme": "http",
            "server": ("proxy", 80), "root_path": "",
        }  # fmt: skip
        chunks = chunks or (b"",)  # the first message is there at once, whatever has come
        last = len(chunks) - 1 if ends else len(chunks)
        parts = iter([
            {"type": "http.request", "body": chunk, "more_body": index != last} for index, chunk in enumerate(chunks)
        ])  # fmt: skip

        async def receive() -> Any:
            if (part := next(parts, None)) is not None:
                return part
            return await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await (through or self.app)(scope, receive, send)
        return Answer(sent[0]["status"], dict(sent[0]["headers"]), b"".join(part["body"] for part in sent[1:]))


Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start the application; options are settings and what is not as usual."""
    async with AsyncExitStack() as stack:

        async def run(
            *,
            registry_answers: bool = True,
            offers: bool = False,
            spool: KeptRows | None = None,
            on_open: Callable[[], None] = lambda: None,
            models: Mapping[str, Any] = MappingProxyType({}),
            functions: Mapping[str, Callable[[Sequence[Row]], Tensor]] = MappingProxyType({}),
            folder: Path = tmp_path,
            most_shadows: int = 4,
            limits: Limits = LIMITS,
            connect: ConnectBackend | None = None,
            callers: Mapping[str, Any] = MappingProxyType({}),
            features: FeatureStore | None = None,
            tracer_of: Callable[[PrometheusTelemetry], Tracer | None] = lambda _telemetry: None,
            keys: Sequence[Mapping[str, Any]] = (),
            **options: Any,
        ) -> Running:
            backends = {label: MemoryBackend(functions.get(label, mean)) for label in ("1", "2", "3", "7/x", "9")}
            spool = spool or KeptRows()
            outcomes = MemoryOutcomeStore()
            age = {"name": "age", "dtype": "float32", "min": 0, "max": 130}
            schema = an_input_schema(features=[age, {"name": "income", "dtype": "float32"}])
            price = {"name": "price", "dtype": "float32", "min": 0, "per": "treatment"}
            tensor = {"name": "input", "features": ["age", "price"]}
            rankable = a_version_row("9", input_schema=an_input_schema(features=[age, price], tensors=[tensor]))
            versions = [a_version_row(label, input_schema=schema, timeout_ms=10_000) for label in ("1", "2", "3")]
            document: dict[str, Any] = {
                "models": {
                    "visits": policy_rows(versions=versions),
                    "a/b": policy_rows(champion_version=7, versions=[a_version_row("7/x", id=7, input_schema=schema)]),
                    **models,
                },
                "keys": [KEY, VISITOR, *keys],
            }
            if offers:
                document["models"]["offers"] = policy_rows(champion_version=9, versions=[rankable])
            settings = Settings(metrics_port=0, state_dir=folder, **options)

            telemetry = PrometheusTelemetry()
            source = MemoryPolicySource(document)
            source.available = registry_answers

            @asynccontextmanager
            async def parts(_: Settings) -> AsyncIterator[Parts]:
                log = _make_log(settings, spool)
                pool = BackendPool(
                    lambda version: _make_caller(
                        version, connect(version) if connect else backends[version.version], callers
                    )
                )
                feed = PolicyFeed(
                    source,
                    JsonSnapshotFile(folder / "policy.json"),
                    telemetry,
                    instance="test",
                    poll_seconds=1,
                    now=time.monotonic,
                    on_swap=pool.reconcile,
                    in_flight=pool.in_flight,
                )
                shadows = ShadowPool(most_shadows, partial(telemetry.count, "shadow_dropped_total"))
                inference = CachedInference(
                    pool,
                    memory_cache=PredictionMemory(100_000),
                    shared_cache=None,
                    telemetry=telemetry,
                    now=time.monotonic,
                )
                predictor = Predictor(
                    snapshot=lambda: feed.snapshot,
                    inference=inference,
                    features=features,
                    log=log,
                    shadows=shadows,
                    telemetry=telemetry,
                    limits=limits,
                    clocks=Clocks(time.monotonic, time.time, os.urandom),
                )
                await feed.start()
                champions = ChampionWatch(pool, time.monotonic)
                yield Parts(
                    predictor,
                    feed,
                    pool,
                    champions,
                    shadows,
                    telemetry,
                    outcomes,
                    _with_outcomes(control_of(settings), outcomes),
                    tracer=tracer_of(telemetry),
                )
                await feed.stop()
                await pool.close()

            app = create_app(settings, parts, on_open)
            state = await stack.enter_async_context(lifespan(app))
            transport = httpx2.ASGITransport(app=app)
            client = httpx2.AsyncClient(transport=transport, base_url="http://proxy")
            opened = await stack.enter_async_context(client)
            return Running(app, opened, backends, spool, telemetry, outcomes=outcomes, source=source, state=state)

        yield run


def _with_outcomes(control: Control, outcomes: MemoryOutcomeStore) -> Control:
    """Have calls of the control plane ask the twin about outcomes; no other store of theirs is there."""

    @asynccontextmanager
    async def parts() -> AsyncIterator[Session]:
        async with control.parts() as session:
            vars(session)["outcomes"] = outcomes
            yield session

    return control._replace(parts=parts)


def _make_log(settings: Settings, spool: Any) -> GroupCommit:
    refused = refuse_unlogged if settings.spool_full == "refuse" else None
    if settings.spool_sync == "interval":
        return GroupCommit(spool, refused)
    return DurableCommit(spool, refused, wait_seconds=settings.spool_sync_seconds)


def _make_caller(version: ModelVersion, backend: ModelBackend, changes: Mapping[str, Any]) -> BatchingCaller:
    usual = {"concurrency": 2, "gap_seconds": 0.002, "batch_rows": 32, "queue_rows": 1_000, "now": time.monotonic}
    return BatchingCaller(version, backend, **{**usual, **changes})
