"""The fast path answers what ASGI answers: the same requests to two servers, one of which has no fast path."""

import asyncio
import json
import re
import struct
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import uvicorn
from builders import KeptRows, a_version_row, an_input_schema, policy_rows
from traffic.chance import IS_RANDOM, seed
from worlds.hedged import HedgedBackend
from worlds.proxy import mean

from understudy.adapters.memory.features import MemoryFeatureStore
from understudy.adapters.memory.tracing import MemorySpan, MemoryTracer
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.entrypoints.proxy.api.predict_route import App
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH, FastPath, model_of
from understudy.entrypoints.proxy.processes.uvicorn_process import uvicorn_options
from understudy.entrypoints.proxy.server.connection import Connection
from understudy.errors import BadAnswer, Overloaded
from understudy.serving.turn import Limits
from understudy.settings import Settings

ROUNDS, REQUESTS = 640 if IS_RANDOM else 128, 16
"""2,048 requests in all; 10,240, of other seeds, in nightly runs (``UNDERSTUDY_TEST_RANDOM=1``)."""
AGE = {"name": "age", "dtype": "float32", "min": 0, "max": 130}
INCOME = {"name": "income", "dtype": "float32"}
SCHEMA = an_input_schema(features=[AGE, INCOME])
STORED = an_input_schema(features=[AGE, {**INCOME, "source": "store"}])
FITTING = an_input_schema(features=[AGE, {**INCOME, "source": "store", "default": 3}])
UNANSWERABLE = 13.0
LATE = (1, 12.5)
"""Ages of which a call is late at its first model server, where calls are hedged."""
AGES = (0, 1, 12.5, UNANSWERABLE, 130, 131, True)
DIALECTS_SHARE = 0.6
ONE_OF_A_NAME_SHARE = 0.8
"""Of requests that have no header twice."""
"""Of the requests."""
RECEIVE_SECONDS = 1.0
RESET = b"the connection was reset"
"""A server that closes before it has read everything may take its last answer with it."""
ANSWER = re.compile(rb"HTTP/1\.1 [2-5]")
LAST = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def a_model(number: int, schema: dict[str, Any] = SCHEMA, *, caches: bool = False, **policy: Any) -> dict[str, Any]:
    """Return a model's part of a document: versions 1, 2 and 3 under ids of their own; 1 is champion."""
    options = {"input_schema": schema, "deterministic": caches, "timeout_ms": 30_000}
    versions = [a_version_row(label, **options, id=10 * number + int(label)) for label in ("1", "2", "3")]
    named = {name: 10 * number + label for name, label in policy.items() if name.endswith("_version")}
    return policy_rows(versions=versions, **{**policy, "champion_version": 10 * number + 1, **named})


MODELS = {
    "plain": a_model(1),
    "split": a_model(2, challenger_version=2, challenger_weight=50, shadow_version=3),
    "strict": a_model(3, challenger_version=2, challenger_weight=50, fallback=False),
    "groups": a_model(4, challenger_version=2, challenger_weight=10, category_roles={"vip": "challenger"}),
    "sampled": a_model(5, input_sample_percent=60),
    "cached": a_model(6, caches=True),
    "stored": a_model(7, STORED),
    "single": a_model(8, an_input_schema(features=[AGE, INCOME], batch=False)),
    "fitting": a_model(9, FITTING, challenger_version=2, challenger_weight=50, input_sample_percent=60),
}
KEPT: Mapping[str, Mapping[str, Any]] = {"a": {"income": 7}, "b": {"income": "x"}, "c": {"income": 1e300}}
"""What the feature store has of entities: a value that fits, one of another type, and one that is too large."""


def picky(rows: Sequence[Row]) -> Tensor:
    """Refuse what the challenger cannot answer."""
    if any(struct.unpack("<2f", row[0])[0] == UNANSWERABLE for row in rows):
        raise BadAnswer("INVALID_ARGUMENT")
    values = [struct.unpack("<2f", row[0])[1] for row in rows]
    return Tensor(Datatype.FP32, (len(rows), 1), np.array(values, "<f4"))


Answering = Callable[[Sequence[Row]], Tensor]
ROOMY = {"queue_rows": 100_000, "max_calls": 10_000}
"""Of a version that is asked for each row by itself: time would decide which rows of a long body find no room."""


class Hedged:
    """Has the calls of every version hedged, and counts hedges as the proxy does."""

    telemetry: PrometheusTelemetry
    """Of the world, which is made later than this."""

    def __init__(self, functions: Mapping[str, Answering]) -> None:
        self._functions = functions

    def connect(self, version: ModelVersion) -> HedgedBackend:
        # Where a cache is asked, a call that takes longer would decide by chance whether the next one is a hit.
        return HedgedBackend(
            self._functions.get(version.version, mean),
            lambda row: not version.caches and struct.unpack("<2f", row[0])[0] in LATE,
            lambda outcome: self.telemetry.count("hedges_total", version.model_name, version.version, outcome),
        )


class Counted:
    """The fast path, and for each request that it was offered whether it took it."""

    def __init__(self, fast_path: FastPath) -> None:
        self._fast_path = fast_path
        self.taken: list[bool] = []
        self.read_whole = self.dialects = 0

    def offer(self, target: bytes, headers: Any, body: bytes, writer: Any) -> bool:
        self.taken.append(self._fast_path.offer(target, headers, body, writer))
        self.read_whole += self.taken[-1] and not isinstance(headers, list)  # which the parser's are
        self.dialects += self.taken[-1] and not target.endswith(b"/predict")
        return self.taken[-1]


@asynccontextmanager
async def serving(app: App, state: Mapping[str, Any], **changes: Any) -> AsyncIterator[uvicorn.Server]:
    """Serve on a port of its own, as the proxy is served; ``state`` is what connections find."""

    def connection(**arguments: Any) -> Connection:
        return Connection(receive_seconds=RECEIVE_SECONDS, **{**arguments, "app_state": dict(state)})

    options = {**uvicorn_options(Settings()), "lifespan": "off", "http": connection, **changes}
    server = uvicorn.Server(uvicorn.Config(app, port=0, **options))
    task = asyncio.create_task(server._serve())  # noqa: SLF001 - serve() takes the signals of this process
    while not server.started:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    yield server
    server.should_exit = True
    await task


def port_of(server: uvicorn.Server) -> int:
    return int(server.servers[0].sockets[0].getsockname()[1])


class Pair(NamedTuple):
    """Two servers of the same world, of which the first has the fast path."""

    ports: tuple[int, int]
    spools: tuple[KeptRows, KeptRows]
    telemetries: tuple[PrometheusTelemetry, PrometheusTelemetry]
    fast_path: Counted
    tracers: tuple[MemoryTracer, MemoryTracer] | None
    """Of a world that is traced."""
    hedged: bool
    """Whether some calls of every version that is not cached are hedged."""


def crowded(rows: Sequence[Row]) -> Tensor:
    """Have no call free for anybody."""
    raise Overloaded(f"{len(rows)} rows wait")


@asynccontextmanager
async def a_pair(
    start: Any,
    tmp_path: Path,
    functions: Mapping[str, Answering],
    tracers: tuple[MemoryTracer, MemoryTracer] | None = None,
    *,
    hedged: bool = False,
) -> AsyncIterator[Pair]:
    servers = [Hedged(functions), Hedged(functions)]
    for name in ("fast", "asgi"):
        (tmp_path / name).mkdir()
    one, other = [
        await start(
            spool=KeptRows(),
            models=MODELS,
            features=MemoryFeatureStore({(model, one): kept for model in MODELS for one, kept in KEPT.items()}),
            functions=functions,
            folder=tmp_path / name,
            most_shadows=10_000,
            limits=Limits(feature_timeout_seconds=5, challenger_budget_ratio=0.4, shadow_timeout_seconds=30),
            tracer_of=lambda _telemetry, number=number: None if tracers is None else tracers[number],
            connect=servers[number].connect if hedged else None,
            callers=ROOMY if hedged else {},
        )
        for number, name in enumerate(("fast", "asgi"))
    ]
    servers[0].telemetry, servers[1].telemetry = one.telemetry, other.telemetry
    fast_path = Counted(one.state[FAST_PATH])
    async with serving(one.app, {FAST_PATH: fast_path}) as fast, serving(other.app, {}) as asgi:
        yield Pair(
            (port_of(fast), port_of(asgi)),
            (one.spool, other.spool),
            (one.telemetry, other.telemetry),
            fast_path,
            tracers,
            hedged,
        )


@pytest.fixture
async def pair(start: Any, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    kinds = getattr(request, "param", "")
    tracers = (MemoryTracer(), MemoryTracer()) if kinds.startswith("traced") else None
    async with a_pair(start, tmp_path, {"2": picky}, tracers, hedged=kinds.endswith("hedged")) as both:
        yield both


# -- what is sent ------------------------------------------------------------------------------------------------------

NUMBERS: tuple[Any, ...] = (0, 1, 12.5, UNANSWERABLE, 130, 131, -1, 2**64, 1e300, True, None, "7", [1], {})
ENTITIES = ("a", "b", "c", "d", "customer-42", "é", "x" * 255)
ODD_BODIES = (
    b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"\xef\xbb\xbf{}", b'{"entity_id":"a","entity_id":"b","inputs":{}}',
    b'{"entity_id":"\\u0000","inputs":{}}', b'{"entity_id":"a","inputs":{"age":NaN,"income":1}}', b"[" * 100,
    b'{"entity_id":"a","inputs":{"age":1,"income":1}}' + b" " * 40_000, b" " * 1_100_000,
)  # fmt: skip
TARGETS = (
    *(f"/v1/models/{name}/predict" for name in (*MODELS, *MODELS, "plain", "split")),
    "/v1/models/nobody/predict", "/v1/models/pl%61in/predict", "/v1/models/plain/predict?x=1",
    "/v1/models/plain/predict/", "/v1/models//predict", "/v1/models/plain/predict:batch",
    "http://x/v1/models/plain/predict", "/v1/models/plain/versions/2/predict", "//v1/models/plain/predict", "*",
    "/v1/models/plain/predict#x", "/v1/models/pl;ain/predict", "/v1/models/a%2Fb/predict",
)  # fmt: skip
DIALECT_TARGETS = (
    *(target for name in MODELS for target in (f"/v2/models/{name}/infer", f"/v1/models/{name}:predict")),
    "/v2/models/plain/infer", "/v1/models/plain:predict",
    "/v2/models/nobody/infer", "/v1/models/nobody:predict", "/v2/models/pl%61in/infer", "/v1/models/plain%3Apredict",
    "/V2/models/plain/infer", "/v1/models/plain:PREDICT", "/v2/models/plain/infer?x=1", "/v2/models/plain/infer/",
    "/v2/models/plain/versions/2/infer", "/v1/models/plain/labels/stable:predict", "/v1/models/plain:classify",
    "/v2/models//infer", "/v1/models/:predict", "/v2/models/stats/infer", "/v1/models/plain/predict/infer",
)  # fmt: skip
HEADERS = (
    "X-Request-Id: mine", "x-request-id: é", "X-REQUEST-ID: " + "x" * 200,
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "traceparent: x",
    "Authorization: Bearer ops.secret", "authorization: Bearer nobody.x", "Authorization: Basic b3Bz",
    "x-request-timeout-ms: 60000", "X-Request-Timeout-Ms: 0", "x-request-timeout-ms: soon", "grpc-timeout: 1M",
    "grpc-timeout: 2H", "x-envoy-expected-rq-timeout-ms: 30000", "content-encoding: gzip",
    "Content-Encoding: identity", "content-type: text/plain", "Connection: keep-alive", "Connection: close",
    "Expect: 100-continue", "connection: upgrade\r\nupgrade: h2c",
    "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\nUpgrade: h2c",
    "cookie: " + "c" * 5_000, "x: y\r\nx: z",
)  # fmt: skip
DIALECT_HEADERS = (
    "X-Entity-Id: a", "x-entity-id: customer-42", "x-entity-id: ", "x-entity-id: é", "x-entity-id: a\r\nX-Entity-Id: b",
    "x-category: vip", "X-Category: x", "Accept-Encoding: gzip, deflate", "accept-encoding: identity",
    "Inference-Header-Content-Length: 10", "inference-header-content-length: x", "inference-header-content-length: 0",
    "content-type: application/octet-stream",
)  # fmt: skip
METHODS = ("POST",) * 12 + ("GET", "PUT", "PATCH", "post", "NONSENSE")
PROTOCOLS = ("HTTP/1.1",) * 12 + ("HTTP/1.0", "HTTP/2.0")
FRAMINGS = ("length",) * 12 + ("chunked", "trailers", "twice", "none")


def some(chance: Random, **choices: Any) -> dict[str, Any]:
    """Return some of the fields, each with one of its values."""
    return {name: chance.choice(values) for name, values in choices.items() if chance.random() < 0.7}


def a_body(chance: Random) -> bytes:
    kind = chance.random()
    if kind < 0.6:
        inputs = {"age": chance.choice((0, 1, 12.5, UNANSWERABLE, 130)), "income": chance.choice((-1, 0.5, 1e6))}
        good = {"entity_id": chance.choice(ENTITIES), "inputs": inputs, "category": chance.choice((None, "vip", "x"))}
        return json.dumps(good).encode()
    if kind < 0.8:
        odd_inputs = some(chance, **dict.fromkeys(("age", "income", "é~/"), NUMBERS))
        return json.dumps(
            some(
                chance,
                entity_id=(*ENTITIES, "", "x" * 256, None, 7),
                inputs=(odd_inputs, odd_inputs, None, [], "x"),
                category=(None, 7, "vip", "x" * 256),
            )
            | ({"extra": 1} if kind < 0.65 else {})
        ).encode()
    return chance.choice(ODD_BODIES)


def a_dialects_body(chance: Random, target: str) -> tuple[bytes, Sequence[str]]:
    """Return a body in the form of its target's protocol, and the headers that go with it.

    It names an entity, as a drawn one is another one on each server.
    """
    if chance.random() < 0.15:
        return a_body(chance), ()
    count, is_long = chance.choice((1, 1, 1, 1, 2, 5)), chance.random() < 0.02
    rows = [[chance.choice(AGES), chance.choice((-1, 0.5, 1e6))] for _ in range(700 if is_long else count)]
    entities = [chance.choice(ENTITIES) for _ in rows]
    more = some(chance, parameters=({"entity_id": "a", "category": "vip"}, {"entity_id": 7}, None, [])) | (
        {"extra": [1]} if chance.random() < 0.05 else {}
    )
    if target.endswith("infer"):
        return an_infer_body(chance, rows, entities, more)
    named = [
        dict(zip(("age", "income"), row, strict=True), entity_id=one) for row, one in zip(rows, entities, strict=True)
    ]
    columns = {
        name: [row[name] for row in named]
        for name in chance.choice((("age", "income", "entity_id"), ("age", "entity_id")))
    }
    document = chance.choice((
        {"instances": named, **more},
        {"instances": rows, "entity_id": entities[0], **more},
        {"inputs": columns, **more},
        {"inputs": rows, "entity_id": entities[0], "signature_name": "serving_default", **more},
    ))  # fmt: skip
    return json.dumps(document).encode(), ()


def an_infer_body(
    chance: Random, rows: list[list[Any]], entities: list[str], more: dict[str, Any]
) -> tuple[bytes, Sequence[str]]:
    flat = [value for row in rows for value in row]
    tensor: dict[str, Any] = {"name": "input", "datatype": "FP32", "shape": [len(rows), 2]}
    names: dict[str, Any] = {"name": "entity_id", "datatype": "BYTES", "shape": [len(rows)], "data": entities}
    ages = {"name": "age", "datatype": "FP32", "shape": [len(rows), 1], "data": [row[0] for row in rows]}
    odd = {**tensor, "datatype": chance.choice(("FP64", "X")), "shape": chance.choice(([2], [len(rows), 3], [-1], "x"))}
    document: dict[str, Any] = {
        "id": "mine",
        "outputs": chance.choice(([], [{"name": "output"}], [{"name": "understudy_version"}])),
    }
    kind = chance.random()
    if kind < 0.6:
        document |= {"inputs": [{**tensor, "data": chance.choice((flat, rows))}, names]}
    elif kind < 0.75:
        document |= {"inputs": [ages, names]}
    elif kind < 0.85:
        document |= {"inputs": [{**odd, "data": flat}, names]}
    else:
        content = struct.pack(f"<{len(flat)}f", *flat) + b"x" * chance.choice((0, 0, 0, 1))
        inputs = [{**tensor, "parameters": {"binary_data_size": 8 * len(rows)}}, names]
        text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        return text + content, [f"Inference-Header-Content-Length: {len(text)}"]
    return json.dumps(document | more).encode(), ()


def a_request(chance: Random) -> bytes:
    is_dialects = chance.random() < DIALECTS_SHARE
    target = chance.choice(DIALECT_TARGETS if is_dialects else TARGETS)
    headers: Sequence[str] = HEADERS
    body, of_body = a_dialects_body(chance, target) if is_dialects else (a_body(chance), ())
    sent = body
    framing = chance.choice(FRAMINGS)
    if is_dialects and chance.random() < 0.5:
        headers = DIALECT_HEADERS
    drawn = chance.sample(headers, chance.choice((0, 0, 1, 2, 3)))
    if chance.random() < ONE_OF_A_NAME_SHARE:  # two of most names are refused
        drawn = [*{line.partition(":")[0].lower(): line for line in drawn}.values()]
    asked = [*of_body, *drawn]
    lines = [f"{chance.choice(METHODS)} {target} {chance.choice(PROTOCOLS)}", "Host: x", *asked]
    if framing in ("length", "twice"):
        lines += [f"Content-Length: {len(body)}"] * (1 if framing == "length" else 2)
    elif framing == "none":
        sent = b""
    else:
        lines.append("Transfer-Encoding: chunked")
        sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:7], body[7:]) if piece) + b"0\r\n"
        sent += b"x-late: 1\r\n\r\n" if framing == "trailers" else b"\r\n"
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + sent


def is_well_formed(request: bytes) -> bool:
    """Whether what follows it in the same write is a request too."""
    head = request.partition(b"\r\n\r\n")[0].lower()
    return not re.match(rb"NONSENSE|post |\S+ \S*[*#]|\S+ \S+ HTTP/2", request) and head.count(b"content-length") < 2


# -- what is compared --------------------------------------------------------------------------------------------------

VARIES = [
    (re.compile(rb'"prediction_id":"[^"]+"'), b'"prediction_id":""'),
    (re.compile(rb'"prediction_ids":"[^"]+"'), b'"prediction_ids":""'),
    (re.compile(rb"\r\nx-prediction-id: [^\r]+"), b"\r\nx-prediction-id:"),
    (re.compile(rb"\r\nx-request-id: [0-9a-f]{32}\r"), b"\r\nx-request-id:\r"),
    (re.compile(rb"dur=[0-9.]+"), b"dur="),
    (re.compile(rb"-[0-9a-f]{16}-(0[01])\r\n"), rb"-span-\1\r\n"),
    (re.compile(rb"\r\ntraceresponse: 00-0{20}[0-9a-f]{12}-"), b"\r\ntraceresponse: 00-made-"),
    (re.compile(rb"\r\ndate: [^\r]+"), b"\r\ndate:"),
]


def normal(answer: bytes) -> bytes:
    for pattern, text in VARIES:
        answer = pattern.sub(text, answer)
    return answer


async def answers(port: int, sent: Sequence[bytes], way: str) -> list[bytes]:
    """Send the requests and return what came for each.

    Args:
        port: Where to.
        sent: The requests.
        way: Each by itself, that and then each again, in two pieces, or all in one write.
    """
    if way == "again":
        return [*await answers(port, sent, "whole"), *await answers(port, sent, "whole")]
    if way == "pipelined":
        return [await until_closed(port, [b"".join(one for one in sent if is_well_formed(one))])]
    halves = [len(one) // 2 if way == "in pieces" else len(one) for one in sent]
    pieces = [[one[:half], one[half:]] for one, half in zip(sent, halves, strict=True)]
    return await asyncio.gather(*(until_closed(port, both) for both in pieces))


async def until_closed(port: int, pieces: Sequence[bytes]) -> bytes:
    """Return all that comes. The last request, sent once there is an answer, asks for the connection to be closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = b""
    try:
        async with asyncio.timeout(20):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.002)
            while not ANSWER.search(found) and (more := await reader.read(65_536)):
                found += more
            writer.write(LAST)
            return normal(found + await reader.read())
    except ConnectionError:
        return RESET
    finally:
        writer.close()


Evidence = tuple[Counter[Any], set[str]]


def evidence(pair: Pair, number: int) -> Evidence:
    """Return the rows of one server and its spans, and what it counted; of what it measured, how often."""
    rows = Counter(row._replace(prediction_id="", predicted_at=0.0, latency_us=0) for row in pair.spools[number].rows)
    lines = pair.telemetries[number].exposition()[0].decode().splitlines()
    spans = Counter(told(span) for span in pair.tracers[number].ended) if pair.tracers is not None else Counter[Any]()
    return rows + spans, {line for line in lines if "_total{" in line or "_count{" in line}


def told(span: MemorySpan) -> tuple[Any, ...]:
    """Return what a span has, without its ids."""
    kept = {name: value for name, value in span.attributes.items() if name != "understudy.prediction_id"}
    caller = span.parent.trace_id if span.kind == "server" and span.parent is not None else ""
    return span.name, span.kind, span.failed, caller, tuple(sorted(kept.items())), tuple(map(str, span.events))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("pair", "rounds"),
    [
        pytest.param("untraced", ROUNDS, id="untraced", marks=pytest.mark.long),
        pytest.param("traced", ROUNDS // 4, id="traced"),
        pytest.param("untraced, hedged", ROUNDS // 4, id="hedged"),
        pytest.param("traced, hedged", ROUNDS // 8, id="traced and hedged"),
    ],
    indirect=["pair"],
)
async def test_both_ways_answer_log_trace_and_count_the_same(pair: Pair, rounds: int):
    start = seed()
    for number in range(start, start + rounds):
        chance = Random(number)
        sent = [a_request(chance) for _ in range(REQUESTS)]
        await compare(pair, sent, chance.choice(("whole", "again", "in pieces", "pipelined")), number)
    own = 1 if pair.tracers is None else 1 - DIALECTS_SHARE  # traced calls in other protocols go through ASGI
    assert pair.fast_path.taken.count(True) > rounds * REQUESTS / 8 * own
    assert pair.fast_path.taken.count(False) > 0
    assert pair.fast_path.read_whole > rounds * REQUESTS / 30 * own
    assert pair.tracers is not None or pair.fast_path.dialects > rounds * REQUESTS / 8
    assert pair.tracers is None or len(pair.tracers[0].ended) > rounds * REQUESTS / 4
    hedges = outcomes_of_hedges(pair.telemetries[0])
    assert hedges.keys() <= {"won"}
    assert not pair.hedged or hedges["won"] > rounds * REQUESTS / 40


def outcomes_of_hedges(telemetry: PrometheusTelemetry) -> Counter[str]:
    """Return what was counted of hedges, of all versions."""
    counted = re.findall(r'hedges_total\{[^}]*outcome="(\w+)"[^}]*\} (\S+)', telemetry.exposition()[0].decode())
    found = Counter[str]()
    for outcome, times in counted:
        found[outcome] += int(float(times))
    return found


async def compare(pair: Pair, sent: Sequence[bytes], way: str, number: int) -> None:
    for spool in pair.spools:
        spool.rows.clear()

    through_fast_path, through_asgi = await asyncio.gather(*(answers(port, sent, way) for port in pair.ports))
    ours, theirs = await settled_evidence(pair)

    for place, (one, other) in enumerate(zip(through_fast_path, through_asgi, strict=True)):
        asked = sent[place % len(sent)][:500] if way != "pipelined" else way
        assert one == other or RESET in (one, other), f"seed {number}: {asked!r}"
    assert (ours[0] - theirs[0], theirs[0] - ours[0]) == (Counter(), Counter()), f"seed {number}"
    assert (ours[1] - theirs[1], theirs[1] - ours[1]) == (set(), set()), f"seed {number}"


async def test_who_is_refused_in_a_crowd_is_told_and_logged_the_same_both_ways(start: Any, tmp_path: Path):
    async with a_pair(start, tmp_path, {"1": crowded}) as both:
        for model in ("plain", "single", "split"):
            await compare(both, [a_call(model, {**GOOD, "entity_id": entity}) for entity in ENTITIES], "again", 0)
        refused = (await answers(both.ports[0], [a_call()], "whole"))[0]

    assert b" 503 " in refused
    assert b"\r\nretry-after: 1\r\n" in refused
    assert b'"code":"E507","detail":"1 rows wait"' in refused
    assert both.fast_path.read_whole > 0


@pytest.mark.parametrize("name", ["x-request-timeout-ms", "x-envoy-expected-rq-timeout-ms", "grpc-timeout"])
async def test_a_deadline_that_is_sent_twice_is_refused_both_ways_in_any_order(pair: Pair, name: str):
    good = "5S" if name == "grpc-timeout" else "5000"
    orders = [(good, "nan"), ("nan", good), (good, good)]
    sent = [a_call(more=[f"{name}: {first}", f"{name.title()}: {second}"]) for first, second in orders]

    await compare(pair, sent, "again", 0)
    once, *twice = await answers(pair.ports[0], [a_call(more=[f"{name}: {good}"]), *sent], "whole")

    assert b" 200 " in once
    for answer in twice:
        assert b" 400 " in answer
        assert b'"code":"E104","detail":"%b: there are two"' % name.encode() in answer


async def settled_evidence(pair: Pair) -> tuple[Evidence, Evidence]:
    """Return both servers' evidence, with what comes after the answers: shadows, callers that have disconnected."""
    give_up = asyncio.get_running_loop().time() + 20
    while True:
        ours, theirs = evidence(pair, 0), evidence(pair, 1)
        if ours == theirs or asyncio.get_running_loop().time() > give_up:
            return ours, theirs
        await asyncio.sleep(0.01)


# -- a connection's life -----------------------------------------------------------------------------------------------

GOOD = {"entity_id": "a", "inputs": {"age": 1, "income": 2}}


def a_call(model: str = "plain", document: object = GOOD, more: Sequence[str] = ()) -> bytes:
    body = json.dumps(document).encode()
    lines = [f"POST /v1/models/{model}/predict HTTP/1.1", "host: x", *more, f"content-length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def next_head(reader: asyncio.StreamReader) -> bytes:
    """Return the head of the next answer, past its body."""
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length.group(1)))
        return head


async def test_a_connection_whose_last_call_was_refused_lasts_as_long_as_any_other(pair: Pair):
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.ports[0])

    for _ in range(4):
        writer.write(a_call(document={}))
        assert b" 422 " in await next_head(reader)
        await asyncio.sleep(RECEIVE_SECONDS / 2)
    writer.write(a_call())

    assert b" 200 " in await next_head(reader)
    writer.close()


async def test_a_server_that_stops_gives_each_answer_that_it_is_asked_for_and_the_last_one_says_so(start: Any):
    world = await start(spool=KeptRows(), models=MODELS)
    world.backends["1"].delay_seconds = 1.0
    async with serving(world.app, {FAST_PATH: world.state[FAST_PATH]}) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(a_call())
        while not world.backends["1"].calls:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)
        server.should_exit = True
        await asyncio.sleep(0.3)
        writer.write(a_call("cached"))

        heads = [await next_head(reader), await next_head(reader)]
        rest = await reader.read()
        writer.close()

    assert [b" 200 " in head for head in heads] == [True, True]
    assert [b"connection: close" in head for head in heads] == [False, True]
    assert rest == b""
    assert len(world.spool.rows) == 2


async def test_the_keep_alive_of_a_refused_call_does_not_end_the_call_that_came_with_it(start: Any):
    world = await start(spool=KeptRows(), models=MODELS)
    world.backends["1"].delay_seconds = 0.5
    async with serving(world.app, {FAST_PATH: world.state[FAST_PATH]}, timeout_keep_alive=0.2) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(a_call(document={}) + a_call())

        assert b" 422 " in await next_head(reader)
        assert b" 200 " in await next_head(reader)
        writer.close()


COMPRESSIBLE = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [200, 2], "data": [1, 2] * 200}]}


@pytest.mark.parametrize("accepted", ["gzip", "deflate", "gzip, deflate", "br, gzip;q=0", "gzip;q=0"])
async def test_an_answer_is_compressed_alike_both_ways(pair: Pair, accepted: str):
    call = a_call(document={**COMPRESSIBLE, "parameters": {"entity_id": "a"}}, more=[f"accept-encoding: {accepted}"])
    call = call.replace(b"/v1/models/plain/predict", b"/v2/models/plain/infer")

    one, other = [await answered(port, call) for port in pair.ports]

    assert one == other
    assert pair.fast_path.dialects > 0


async def answered(port: int, call: bytes) -> tuple[bytes, bytes]:
    """Return the coding of an answer, and the outputs in it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(call)
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head)[0]))
    writer.close()
    coding = b"".join(re.findall(rb"content-encoding: (\w+)", head))
    window = {b"gzip": 31, b"deflate": 15}.get(coding)
    text = body if window is None else zlib.decompress(body, window)
    return coding, json.dumps(json.loads(text)["outputs"]).encode()


async def test_calls_without_an_entity_have_one_of_their_own_on_the_fast_path(pair: Pair):
    call = a_call(document={"instances": [[1, 2]]}).replace(b"/plain/predict", b"/plain:predict")

    found = await answers(pair.ports[0], [call] * 20, "whole")

    assert all(b" 200 " in one for one in found)
    entities = {row.entity_id for row in pair.spools[0].rows}
    assert len(entities) == 20
    assert all(one.startswith("call:") for one in entities)


def test_a_target_of_any_length_is_looked_at_and_only_short_ones_are_remembered():
    for target in (b"/v1/models/visits/predict", b"/v1/models/visits:predict", b"/v2/models/visits/infer"):
        assert model_of(target) == "visits"
    for target in (b"/v2/models/visits/predict", b"/v1/models/visits/infer", b"/v2/models/visits:predict"):
        assert model_of(target) is None
    assert model_of(b"/v1/models/" + b"x" * 1_000 + b"/predict") is None
