"""Traces of real calls: real servers on both sides of the proxy's application, and a collector that reads protobuf."""

import asyncio
import statistics
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import orjson
import pytest
import structlog
from builders import KeptRows, a_version_row, policy_rows
from contract.servers import Behaviour, ModelServer, running
from integration.entrypoints.test_fast_path import port_of, serving
from loopback.collector import Collector, Seen, collecting
from worlds.proxy import Running

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.memory.features import MemoryFeatureStore
from understudy.adapters.memory.tracing import MemorySpan, MemoryTracer
from understudy.adapters.model_servers.connect import connect
from understudy.adapters.model_servers.replicas.hedged_call import Hedging
from understudy.bootstrap.tracing import open_tracer
from understudy.core.routing.policy_document import version_from_row
from understudy.entrypoints.logs import name_trace
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH
from understudy.ports.telemetry.tracing import Tracer, within
from understudy.serving.turn import Limits
from understudy.settings import Settings

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = [(b"traceparent", f"00-{TRACE}-{SPAN}-01".encode())]
NOT_SAMPLED = [(b"traceparent", f"00-{TRACE}-{SPAN}-00".encode())]
OPERATOR = [(b"authorization", b"Bearer ops.secret")]
PREDICT = "/v1/models/linear/predict"
SERVER_SPAN = "POST /v1/models/{model}/predict"
MODEL_INFER = "inference.GRPCInferenceService/ModelInfer"
PLANTED = 31337.25
"""Among the inputs; no figure of ours is this one."""
BODY = {"entity_id": "canary-entity", "inputs": {"a": PLANTED, "b": 2, "c": 3}}
LIMITS = Limits(feature_timeout_seconds=5, challenger_budget_ratio=0.4, shadow_timeout_seconds=30)
WAYS = pytest.mark.parametrize("way", ["fast", "asgi"])
SCHEMA: dict[str, Any] = {
    "features": [{"name": name, "dtype": "float32"} for name in "abc"],
    "tensors": [{"name": "x", "dtype": "float32", "features": ["a", "b", "c"]}],
    "batch": True,
}
STORED = {
    **SCHEMA,
    "features": [*SCHEMA["features"][:2], {"name": "c", "dtype": "float32", "source": "store", "default": 0}],
}


class Said(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: Any


class World:
    """An application on a port, with model servers behind it and a collector beside it."""

    def __init__(self, proxy: Running, port: int, servers: list[ModelServer], tracer: list[Tracer]) -> None:
        self.proxy, self.port, self.servers = proxy, port, servers
        self._tracer = tracer

    async def ask(self, headers: Sequence[tuple[bytes, bytes]] = (), path: str = PREDICT, document: Any = BODY) -> Said:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1_000_000)
        body = orjson.dumps(document)
        lines = [f"POST {path} HTTP/1.1".encode(), b"host: x", b"content-length: %d" % len(body)]
        lines += [b"%b: %b" % header for header in headers]
        async with asyncio.timeout(30):
            writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            found = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            content = orjson.loads(await reader.readexactly(int(found["content-length"])))
        writer.close()
        return Said(int(head[0].split()[1]), found, content)

    async def sent(self) -> None:
        """Return when all spans that there are have been sent, or given up."""
        for tracer in self._tracer:
            await tracer.close(20)


def a_model(servers: Sequence[ModelServer], schema: Any = SCHEMA, **changes: Any) -> dict[str, Any]:
    """Return a model whose version 1 has the first server, and whose versions 2 and 3 have the last one."""
    options = {"input_schema": schema, "output_schema": {"tensor": "p"}, "timeout_ms": 20_000, "cache_ttl_seconds": 0}
    options |= changes.pop("version", {})
    versions = [
        a_version_row(label, **{"endpoints": [servers[-1 if label != "1" else 0].endpoint], **options})
        for label in ("1", "2", "3")
    ]
    return policy_rows(versions=versions, **changes)


@asynccontextmanager
async def a_world(
    start: Any,
    way: str,
    *behaviours: Behaviour,
    model: Callable[[list[ModelServer]], dict[str, Any]] = a_model,
    collector_url: str,
    features: Any = None,
    options: Any = None,
    traces: Any = None,
) -> AsyncIterator[World]:
    """Serve with the fast path or without it."""
    made: list[Tracer] = []

    def tracer_of(telemetry: Any) -> Tracer | None:
        settings = Settings.model_validate({"otel_exporter_otlp_endpoint": collector_url, **(traces or {})})
        tracer = open_tracer(settings, telemetry)
        made.extend([tracer] if tracer is not None else [])
        return tracer

    async with running(*behaviours) as servers:
        proxy = await start(
            models={"linear": model(servers)},
            connect=connect,
            tracer_of=tracer_of,
            limits=LIMITS,
            features=features,
            most_shadows=1_000,
            **{"spool": KeptRows(), **(options or {})},
        )
        state = {FAST_PATH: proxy.state[FAST_PATH]} if way == "fast" else {}
        async with serving(proxy.app, state) as server:
            yield World(proxy, port_of(server), servers, made)
        for tracer in made:
            await tracer.close(20)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def of_kind(spans: Sequence[Seen], kind: str) -> list[Seen]:
    return [span for span in spans if span.kind == kind]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)


# -- what a trace is like ----------------------------------------------------------------------------------------------


@WAYS
async def test_a_call_goes_on_in_its_callers_trace_and_the_model_server_in_ours(start, collector, way):
    async with a_world(start, way, collector_url=collector.url) as world:
        said = await world.ask([*SAMPLED, (b"tracestate", b"vendor=7")])
        await world.sent()
        (server,), (client,) = of_kind(collector.spans, "server"), of_kind(collector.spans, "client")

    assert (server.name, server.place.trace_id, server.parent_id) == (SERVER_SPAN, TRACE, SPAN)
    assert server.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/models/{model}/predict",
        "http.response.status_code": 200,
        "understudy.model": "linear",
        "understudy.version": "1",
        "understudy.assigned_version": "1",
        "understudy.role": "champion",
        "understudy.reason": "bucket",
        "understudy.bucket": server.attributes["understudy.bucket"],
        "understudy.cache": "bypass",
        "understudy.policy_generation": 1,
        "understudy.prediction_id": said.headers["x-prediction-id"],
    }
    assert (client.name, client.place.trace_id, client.parent_id) == (MODEL_INFER, TRACE, server.place.span_id)
    assert client.attributes["rpc.grpc.status_code"] == 0
    assert client.attributes["server.port"] == world.servers[0].port
    assert (server.failed, client.failed) == (False, False)
    assert world.servers[0].metadata[-1]["traceparent"] == f"00-{TRACE}-{client.place.span_id}-01"
    assert world.servers[0].metadata[-1]["tracestate"] == "vendor=7"
    assert said.headers["traceresponse"] == f"00-{TRACE}-{server.place.span_id}-01"
    assert server.resource["service.name"] == "understudy"


@WAYS
async def test_a_call_that_its_caller_does_not_sample_is_recorded_by_nobody_and_its_header_goes_on(
    start, collector, way
):
    def shadowed(servers):
        return a_model(servers, shadow_version=3)

    async with a_world(start, way, Behaviour(), Behaviour(), collector_url=collector.url, model=shadowed) as world:
        said = await world.ask([*NOT_SAMPLED, (b"tracestate", b"vendor=7")])
        await until(lambda: world.servers[1].calls)
        await world.sent()

    assert said.status == 200
    assert collector.bodies == []
    assert world.servers[0].metadata[-1]["traceparent"] == NOT_SAMPLED[0][1].decode()
    assert world.servers[0].metadata[-1]["tracestate"] == "vendor=7"
    assert "traceparent" not in world.servers[1].metadata[-1]
    assert said.headers["traceresponse"].startswith(f"00-{TRACE}-")
    assert said.headers["traceresponse"].endswith("-00")


@WAYS
async def test_a_shadow_call_is_a_trace_of_its_own_that_is_linked_to_the_call(start, collector, way):
    def shadowed(servers):
        return a_model(servers, shadow_version=3)

    async with a_world(start, way, Behaviour(), Behaviour(), collector_url=collector.url, model=shadowed) as world:
        await world.ask(SAMPLED)
        await until(lambda: world.servers[1].completed)
        await until(lambda: len(world.proxy.spool.rows) == 2)
        await asyncio.sleep(0)
        await world.sent()
        (server,), (shadow,) = of_kind(collector.spans, "server"), of_kind(collector.spans, "internal")
        clients = {client.parent_id: client for client in of_kind(collector.spans, "client")}

    assert (shadow.name, shadow.parent_id, shadow.links) == ("understudy.shadow", "", [server.place])
    assert shadow.place.trace_id != TRACE
    assert (shadow.attributes["understudy.role"], shadow.attributes["understudy.version"]) == ("shadow", "3")
    asked = clients[shadow.place.span_id]
    assert asked.place.trace_id == shadow.place.trace_id
    assert world.servers[1].metadata[-1]["traceparent"] == f"00-{asked.place.trace_id}-{asked.place.span_id}-01"
    assert clients[server.place.span_id].place.trace_id == TRACE
    assert len(clients) == 2


@WAYS
async def test_a_call_that_another_replica_takes_has_a_span_for_each_attempt(start, collector, way):
    def replicated(servers):
        return a_model(servers, version={"endpoints": [server.endpoint for server in servers]})

    refusing = Behaviour(code=grpc.StatusCode.UNAVAILABLE)
    async with a_world(start, way, refusing, Behaviour(), collector_url=collector.url, model=replicated) as world:
        while not world.servers[0].calls:
            assert (await world.ask()).status == 200
        await world.sent()
        spans = collector.spans

    failed = next(span for span in spans if span.failed)
    first, second = [span for span in spans if span.parent_id == failed.parent_id]
    assert {first.attributes["server.port"], second.attributes["server.port"]} == {one.port for one in world.servers}
    assert [span.attributes["rpc.grpc.status_code"] for span in (first, second)] == [14, 0]
    assert first.attributes["error.type"] == "UNAVAILABLE"
    assert not any(span.failed for span in of_kind(spans, "server"))


@WAYS
async def test_a_fallback_is_an_event_with_what_failed_and_both_versions_are_asked_in_one_trace(start, collector, way):
    def split(servers):
        return a_model(servers, challenger_version=2, challenger_weight=100)

    refusing = Behaviour(code=grpc.StatusCode.INVALID_ARGUMENT)
    async with a_world(start, way, Behaviour(), refusing, collector_url=collector.url, model=split) as world:
        answers = await asyncio.gather(*(world.ask() for _ in range(6)))
        await world.sent()
        spans = collector.spans

    assert {said.body["fallback"]["from_version"] for said in answers} == {"2"}
    servers = of_kind(spans, "server")
    assert len(servers) == 6
    assert all(
        span.events == [("understudy.fallback", {"understudy.version": "2", "error.type": "E502"})] for span in servers
    )
    assert {
        (one.attributes["understudy.version"], one.attributes["understudy.assigned_version"]) for one in servers
    } == {("1", "2")}
    # Who shares a model call has a link to it where it is not its child.
    for span in servers:
        own = [
            one for one in of_kind(spans, "client") if one.parent_id == span.place.span_id or one.place in span.links
        ]
        assert {one.attributes["server.port"] for one in own} == {server.port for server in world.servers}


@WAYS
async def test_what_is_in_the_cache_asks_no_server_and_says_so(start, collector, way):
    def cached(servers):
        return a_model(servers, version={"cache_ttl_seconds": 60})

    async with a_world(start, way, collector_url=collector.url, model=cached) as world:
        for _ in range(2):
            await world.ask()
        await world.sent()
        miss, hit = of_kind(collector.spans, "server")
        (client,) = of_kind(collector.spans, "client")

    assert (miss.attributes["understudy.cache"], miss.events) == ("miss", [])
    assert (hit.attributes["understudy.cache"], hit.events) == ("hit", [("understudy.cache_hit", {})])
    assert client.parent_id == miss.place.span_id


@WAYS
async def test_a_look_at_the_feature_store_is_a_step_of_the_call(start, collector, way):
    store = MemoryFeatureStore({("linear", "canary-entity"): {"c": 3}})
    document = {"entity_id": "canary-entity", "inputs": {"a": 1, "b": 2}}

    def stored(servers):
        return a_model(servers, STORED)

    async with a_world(start, way, collector_url=collector.url, model=stored, features=store) as world:
        assert (await world.ask(document=document)).status == 200
        store.available = False
        assert (await world.ask(document=document)).status == 200
        await world.sent()
        servers, steps = of_kind(collector.spans, "server"), of_kind(collector.spans, "internal")

    assert [(step.name, step.parent_id, step.failed) for step in steps] == [
        ("features", servers[0].place.span_id, False),
        ("features", servers[1].place.span_id, True),
    ]
    assert steps[1].attributes == {"error.type": "FeaturesUnavailable"}


@WAYS
async def test_calls_that_share_one_call_of_the_model_server_are_linked_to_it(start, collector, way):
    calls = 40
    async with a_world(start, way, Behaviour(delay_seconds=0.1), collector_url=collector.url) as world:
        await asyncio.gather(*(world.ask() for _ in range(calls)))
        await world.sent()
        servers, clients = of_kind(collector.spans, "server"), of_kind(collector.spans, "client")

    assert len(servers) == calls
    assert len(clients) == world.servers[0].calls < calls
    for server in servers:
        (its,) = [one for one in clients if one.parent_id == server.place.span_id or server.place in one.links]
        assert (its.place in server.links) == (server.place in its.links) == (its.parent_id != server.place.span_id)


async def test_members_of_a_batch_are_steps_and_other_ways_to_predict_have_routes_of_their_own(start, collector):
    member = {"entity_id": "canary-entity", "inputs": BODY["inputs"]}
    async with a_world(start, "fast", collector_url=collector.url) as world:
        batch = await world.ask(path=f"{PREDICT}:batch", document={"entities": [member, member]})
        forced = await world.ask(OPERATOR, path="/v1/models/linear/versions/2/predict")
        await world.ask(path="/v1/models/linear/p%72edict")
        await world.ask(path="/v1/outcomes", document={"events": []})
        await world.sent()
        spans = collector.spans

    assert (batch.status, forced.status) == (200, 200)
    names = [span.name for span in of_kind(spans, "server")]
    assert names == [
        "POST /v1/models/{model}/predict:batch",
        "POST /v1/models/{model}/versions/{version}/predict",
        "POST /v1/models/{model}/predict",
    ]
    members = of_kind(spans, "internal")
    assert [(one.name, one.attributes["understudy.version"]) for one in members] == [("understudy.predict", "1")] * 2
    assert {one.parent_id for one in members} == {of_kind(spans, "server")[0].place.span_id}


async def test_a_late_call_and_its_hedge_are_both_steps_and_what_is_broken_off_has_not_failed():
    tracer = MemoryTracer()
    row = a_version_row(input_schema=SCHEMA, output_schema={"tensor": "p"}, timeout_ms=20_000)
    async with running(Behaviour(), Behaviour()) as servers:
        version = version_from_row("linear", {**row, "endpoints": [server.endpoint for server in servers]})
        backend: Any = connect(version, hedging=Hedging(0.5, 128, lambda _outcome: None))
        packed = (struct.pack("<3f", 1, 2, 3),)
        for _ in range(300):
            await backend.infer([packed], 10)
        async with asyncio.timeout(60):
            while not any(len(_clients(tracer, call)) == 2 for call in _calls(tracer)):
                servers[0].behaviour.delay_seconds = 0.3
                call = tracer.receive("call", None, {})
                with within(call):
                    await backend.infer([packed], 10)
                servers[0].behaviour.delay_seconds = 0
                call.end()
                for _ in range(20):
                    await backend.infer([packed], 10)
        await backend.close()

    hedged = next(call for call in _calls(tracer) if len(_clients(tracer, call)) == 2)
    assert sorted(span.attributes["rpc.grpc.status_code"] for span in _clients(tracer, hedged)) == [0, 1]
    assert not any(span.failed for span in _clients(tracer, hedged))


def _calls(tracer: MemoryTracer) -> list[MemorySpan]:
    return [span for span in tracer.ended if span.kind == "server"]


def _clients(tracer: MemoryTracer, call: MemorySpan) -> list[MemorySpan]:
    return [span for span in tracer.ended if span.parent == call.context]


# -- what a trace must not have, and what must not be able to hurt -----------------------------------------------------


@WAYS
async def test_no_input_no_entity_and_no_key_is_in_what_leaves(start, collector, way):
    wrong = [(b"authorization", b"Bearer canary-id.canary-key")]
    unlike = {"entity_id": "canary-entity", "inputs": {"canary-name": "canary-value"}}
    model = "/v1/models/canary-model/predict"
    refusing = Behaviour(code=grpc.StatusCode.INVALID_ARGUMENT, details=f"canary-details {PLANTED}")
    for behaviour in (Behaviour(), refusing):
        async with a_world(
            start, way, behaviour, collector_url=collector.url, options={"auth": True},
            traces={"otel_exporter_otlp_headers": "x-collector-key=canary-collector-key"},
        ) as world:  # fmt: skip
            asked = [
                await world.ask(OPERATOR), await world.ask(wrong), await world.ask(),
                await world.ask(OPERATOR, document=unlike), await world.ask(OPERATOR, document=[]),
                await world.ask(OPERATOR, path=model),
            ]  # fmt: skip
            await world.sent()
    sent = b"".join(collector.bodies)

    assert [said.status for said in asked] == [502, 401, 401, 422, 422, 404] or asked[4].status == 400
    spans = of_kind(collector.spans, "server")
    assert len(spans) == 12
    assert {span.name for span in spans} == {SERVER_SPAN}
    assert spans[-6].failed
    assert [span.attributes.get("error.type") for span in spans][:4] == [None, "E401", "E401", "E101"]
    planted = [
        b"canary",
        b"secret",
        str(PLANTED).encode(),
        struct.pack("<d", PLANTED),
        struct.pack("<f", PLANTED),
    ]
    assert [one for one in planted if one in sent] == []
    assert {found["x-collector-key"] for found in collector.headers} == {"canary-collector-key"}


HOSTILE: dict[str, list[tuple[bytes, bytes]]] = {
    "garbage": [(b"traceparent", b"\xff\xfe'; DROP TABLE")],
    "10 kB": [(b"traceparent", b"00-" + b"a" * 10_240)],
    "twice": [*SAMPLED, *SAMPLED],
    "zeros": [(b"traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01")],
    "a state of 10 kB": [*SAMPLED, (b"tracestate", b"a=" + b"b" * 10_240)],
    "a state that is none": [*SAMPLED, (b"tracestate", b"\xff=,,,=")],
}


@WAYS
async def test_a_caller_whose_trace_cannot_be_used_is_answered_as_usual(start, collector, way):
    async with a_world(start, way, collector_url=collector.url) as world:
        usual = await world.ask()
        answers = {why: await world.ask(headers) for why, headers in HOSTILE.items()}
        await world.sent()
        spans = of_kind(collector.spans, "server")

    assert len(spans) == len(HOSTILE) + 1
    for (why, said), span in zip(answers.items(), spans[1:], strict=True):
        assert (said.status, said.body["prediction"]) == (200, usual.body["prediction"]), why
        assert (span.place.trace_id == TRACE) == why.startswith("a state"), why
        assert span.trace_state == "", why
    assert all("tracestate" not in metadata for metadata in world.servers[0].metadata)


def dropped_or_failed(world: World) -> dict[str, int]:
    page = world.proxy.telemetry.exposition()[0].decode()
    lines = [line for line in page.splitlines() if line.startswith("trace_spans_total{")]
    return {line.split('"')[1]: int(float(line.rpartition(" ")[2])) for line in lines}


async def median_ms(world: World, calls: int) -> float:
    found = []
    for _ in range(calls):
        started = time.perf_counter()
        assert (await world.ask()).status == 200
        found.append((time.perf_counter() - started) * 1000)
    return statistics.median(found)


@pytest.mark.alone
@WAYS
async def test_without_a_collector_calls_are_as_fast_and_the_spans_are_counted_and_one_line_says_so(
    start, way, tmp_path_factory
):
    away = f"http://127.0.0.1:{free_port()}"
    bounded = {"otel_bsp_max_queue_size": "50", "otel_exporter_otlp_timeout": "200"}
    folders = [tmp_path_factory.mktemp("world") for _ in range(2)]
    with structlog.testing.capture_logs() as lines:
        async with (
            a_world(start, way, collector_url=away, traces=bounded, options={"folder": folders[0]}) as traced,
            a_world(
                start, way, collector_url=away, traces={"otel_traces_exporter": "none"}, options={"folder": folders[1]}
            ) as plain,
        ):
            medians = [(await median_ms(traced, 40), await median_ms(plain, 40)) for _ in range(6)]
            await traced.sent()
            fates = dropped_or_failed(traced)

    assert statistics.median(with_traces / without for with_traces, without in medians) < 2
    assert fates["sent"] == 0
    assert fates["dropped"] + fates["failed"] == 2 * 6 * 40
    (line,) = [line for line in lines if line["event"] == "traces.lost" and line["log_level"] == "warning"]
    assert line["why"]


async def test_a_collector_that_hangs_fills_a_bounded_queue_and_what_finds_no_room_is_counted(start, collector):
    collector.delay_seconds = 8
    bounded = {"otel_bsp_max_queue_size": "50", "otel_exporter_otlp_timeout": "10000"}
    async with a_world(start, "fast", collector_url=collector.url, traces=bounded) as world:
        for _ in range(100):
            assert (await world.ask()).status == 200
        fates = dropped_or_failed(world)
        for tracer in world._tracer:  # noqa: SLF001 - its own end would wait for the collector
            await tracer.close(0.1)

    in_the_queue_and_on_their_way = 2 * 50
    assert fates["dropped"] >= 2 * 100 - in_the_queue_and_on_their_way


@pytest.mark.alone
async def test_a_collector_that_hangs_does_not_keep_a_process_from_ending(start, collector):
    collector.delay_seconds = 8
    async with a_world(start, "fast", collector_url=collector.url) as world:
        for _ in range(3):
            await world.ask()
        started = time.monotonic()
        for tracer in world._tracer:  # noqa: SLF001 - its own end is what is measured
            await tracer.close(0.5)
        took = time.monotonic() - started

    assert 0.4 < took < 1.5
    assert dropped_or_failed(world)["dropped"] == 6


@WAYS
async def test_a_line_of_the_log_that_is_written_during_a_call_names_its_trace(start, collector, way):
    class Broken(KeptRows):
        def append(self, row: Any) -> bool:
            raise RuntimeError("a defect of ours")

        def append_all(self, rows: Any) -> tuple[int, ...]:
            raise RuntimeError("a defect of ours")

    with structlog.testing.capture_logs(processors=[name_trace]) as lines:
        async with a_world(start, way, collector_url=collector.url, options={"spool": Broken()}) as world:
            answers = await asyncio.gather(*(world.ask() for _ in range(5)))
            await world.sent()

    assert {said.status for said in answers} == {500}
    failed = [line for line in lines if line["event"] == "request.failed"]
    expected = {said.headers["x-request-id"]: said.headers["traceresponse"].split("-")[1:3] for said in answers}
    assert {line["request_id"]: [line["trace_id"], line["span_id"]] for line in failed} == expected
    spans = of_kind(collector.spans, "server")
    assert [(span.failed, span.attributes["error.type"]) for span in spans] == [(True, "E500")] * 5
