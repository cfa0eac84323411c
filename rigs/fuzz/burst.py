"""Many large bodies at once, each made so that reading it costs as much as may be."""

import asyncio
import gzip
import time
from collections.abc import Mapping, Sequence

import orjson

from rigs.fuzz.attack import Tally
from rigs.fuzz.bombs import PATHS
from rigs.fuzz.cases import AUTHORIZATION, GOOD, REFUSED, Case
from rigs.fuzz.grpc_messages import INFER, GrpcCase
from rigs.fuzz.models import OFFERS, VISITS
from rigs.fuzz.wire import PATIENCE_SECONDS
from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tfserving
from understudy.adapters.dev_server.example_models import example_rows
from understudy.entrypoints.proxy.dialects.protobuf import INLINE_MESSAGE_BYTES

BURST = 40
SERVICES: Mapping[str, Sequence[str]] = {
    methods.TFSERVING_PREDICTION_SERVICE: ("Predict", "Classify", "Regress", "GetModelMetadata", "MultiInference"),
    methods.TFSERVING_MODEL_SERVICE: ("GetModelStatus", "HandleReloadConfigRequest"),
}
"""Of TensorFlow Serving, whose messages name their model in a message of its own, their first field."""
OTHERS: Mapping[str, Sequence[str]] = {
    methods.OIP_SERVICE: (
        methods.OIP_MODEL_INFER,
        methods.OIP_MODEL_READY,
        methods.OIP_MODEL_METADATA,
        methods.OIP_MODEL_CONFIG,
        methods.OIP_MODEL_STATISTICS,
        methods.OIP_REPOSITORY_INDEX,
        methods.OIP_SERVER_METADATA,
        methods.OIP_SERVER_READY,
        methods.OIP_SERVER_LIVE,
    ),
    methods.HEALTH_SERVICE: ("Check",),
}
"""Whose messages name it in a string, their first field."""
CLASSIFY = f"/{methods.TFSERVING_PREDICTION_SERVICE}/Classify"
_POOL_CALLS = 100
"""At once: more than a worker keeps connections of any kind."""
_BODY_BYTES = 1_048_576
_MORE = 0x80
"""The bit of a byte of protobuf's numbers that says that more follows."""
_ACCEPTED = REFUSED | {413, 503, 504}
_IN_DIALECTS = (
    (PATHS[0], b'{"inputs":[{"name":"input","datatype":"FP32","shape":[1,13],"data":', b"}]}"),
    (PATHS[1], b'{"instances":', b"}"),
    (PATHS[2], b'{"dataframe_split":{"columns":', b',"data":[]}}'),
)
"""Paths of others' dialects, and what stands there around a list."""


def bursts() -> Mapping[str, Sequence[Case]]:
    """Return :data:`BURST` cases of each kind of body, almost as long as a body may be."""
    fills = {
        "large numbers": (b"[", b"1e19", b"]"),
        "long integers": (b"[", b"18446744073709551616", b"]"),
        "empty arrays": (b"[", b"[]", b"]"),
        "objects": (b"[1e19,", b'{"a":1}', b"]"),
        "one key many times": (b"{", b'"a":1', b"}"),
        "strings with colons": (b"[", b'":"', b"]"),
        "escapes": (b'["\\u0000",', b'"\\\\\\""', b"]"),
    }
    bodies = {name: _filled(*parts) for name, parts in fills.items()}
    keys = b",".join(b'"%x":1' % number for number in range(_BODY_BYTES // 10))
    bodies["a hundred thousand keys, one twice"] = b"{%b,%b:2}" % (keys, b'"0"')
    bodies["deep"] = b'{"a":' * 33 + b"0" + b"}" * 33 + b" " * (_BODY_BYTES - 300)
    targets = [f"/v1/models/{VISITS}/predict", f"/v1/models/{VISITS}/predict:batch", f"/v1/models/{OFFERS}/rank"]
    targets.append("/v1/outcomes")
    own = {
        name: [Case(targets[number % len(targets)], body, _ACCEPTED, headers=AUTHORIZATION) for number in range(BURST)]
        for name, body in bodies.items()
    }
    return {**own, **{f"in dialects, {name}": _in_dialects(*parts) for name, parts in fills.items()}}


def _in_dialects(begin: bytes, unit: bytes, end: bytes) -> Sequence[Case]:
    """Return :data:`BURST` cases in others' dialects; each second one compressed, inflated to the same length."""
    bodies = [(path, _filled(before + begin, unit, end + after)) for path, before, after in _IN_DIALECTS]
    plain = [Case(path, body, _ACCEPTED) for path, body in bodies]
    packed = [
        Case(path, gzip.compress(body), _ACCEPTED, headers=b"content-encoding: gzip\r\n") for path, body in bodies
    ]
    return [(plain, packed)[number % 2][number // 2 % len(bodies)] for number in range(BURST)]


def grpc_bursts() -> Mapping[str, Sequence[GrpcCase]]:
    """Return :data:`BURST` messages of each kind, as long as they may be, each second one compressed."""
    repeated = {
        "empty inputs": (INFER, b"\x2a\x00"),
        "empty outputs": (INFER, b"\x32\x00"),
        "empty raw contents": (INFER, b"\x3a\x00"),
        "empty parameters": (INFER, b"\x22\x00"),
        "inputs without a name": (methods.TFSERVING_PREDICT, b"\x12\x00"),
        "empty filters": (methods.TFSERVING_PREDICT, b"\x1a\x00"),
    }
    found = {name: (path, unit * (_BODY_BYTES // len(unit))) for name, (path, unit) in repeated.items()}
    found |= {"many parameters": (INFER, _many_parameters()), "empty examples": (CLASSIFY, _empty_examples())}
    return {f"over gRPC, {name}": _messages(*one) for name, one in found.items()}


def naming_bursts() -> Mapping[str, Sequence[GrpcCase]]:
    """Return :data:`BURST` messages of each kind, whose length is in what names their model, to every unary method.

    Of three to a method one is as long as it may be, one is that compressed, and one is just parsed on the event loop.
    """
    within = {
        "empty versions": b"\x12\x00",
        "unknown fields": b"\x7a\x00",
        "unknown numbers": b"\x78\x00",
        "unknown groups": b"\x7b\x7c",
        "groups within groups": b"\x7b" * 90 + b"\x7c" * 90,
        "groups without an end": b"\x7b",
        "fields within fields": _within_each_other(40),
    }
    return {f"over gRPC, naming a model by {name}": _naming(unit) for name, unit in within.items()}


def unary_paths() -> Mapping[str, bool]:
    """Return every unary method's path, and whether its messages name their model in a message of its own."""
    return {
        f"/{service}/{name}": services is SERVICES
        for services in (SERVICES, OTHERS)
        for service, names in services.items()
        for name in names
    }


def _naming(unit: bytes) -> Sequence[GrpcCase]:
    paths = list(unary_paths().items())
    cases = []
    for number in range(BURST):
        path, is_in_message = paths[number % len(paths)]
        size = (_BODY_BYTES, _BODY_BYTES, INLINE_MESSAGE_BYTES)[number % 3] - 200
        filling = unit * (size // len(unit))
        named = b"\x0a" + bytes([len(VISITS)]) + VISITS.encode()
        message = _sized(0x0A, named + filling) if is_in_message else named + filling
        cases.append(GrpcCase(path, gzip.compress(message), "gzip") if number % 3 == 1 else GrpcCase(path, message))
    return cases


def _within_each_other(depth: int) -> bytes:
    """Return a field that holds a field that holds a field."""
    found = b"\x7a\x00"
    for _ in range(depth):
        found = _sized(0x7A, found)
    return found


def _sized(tag: int, content: bytes) -> bytes:
    length, size = len(content), bytearray()
    while length >= _MORE:
        size.append(length % _MORE | _MORE)
        length //= _MORE
    return bytes([tag, *size, length]) + content


def _messages(path: str, message: bytes) -> Sequence[GrpcCase]:
    both = GrpcCase(path, message), GrpcCase(path, gzip.compress(message), "gzip")
    return [both[number % 2] for number in range(BURST)]


def _many_parameters() -> bytes:
    request = oip.ModelInferRequest(model_name=VISITS)
    for number in range(_BODY_BYTES // 11):
        request.parameters[f"{number:x}"].SetInParent()
    return request.SerializeToString()


def _empty_examples() -> bytes:
    request = tfserving.ClassificationRequest(model_spec={"name": VISITS})
    request.input.example_list.examples.extend([tfserving.Example()] * (_BODY_BYTES // 2 - 20))
    return request.SerializeToString()


def good_calls() -> Sequence[Case]:
    """Return plain calls that differ, to be sent at once: they open every connection that the pools may keep."""
    return [
        Case(
            f"/v1/models/{VISITS}/predict",
            orjson.dumps({"entity_id": row.entity_id, "inputs": row.inputs}),
            GOOD | {503, 504},
            headers=AUTHORIZATION,
        )
        for row in example_rows()[:_POOL_CALLS]
    ]


def _filled(begin: bytes, unit: bytes, end: bytes) -> bytes:
    count = (_BODY_BYTES - len(begin) - len(end)) // (len(unit) + 1)
    return begin + b",".join([unit] * count) + end


async def unread_answers(port: int, name: str, pipelined: int, connections: int) -> Tally:
    """Ask much on several connections and read nothing of the answers for a while, then everything."""
    tally = Tally(name)
    request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"

    async def hoard() -> None:
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        try:
            writer.write(request * pipelined)
            await asyncio.sleep(1.0)
            async with asyncio.timeout(PATIENCE_SECONDS):
                got = len(await reader.read(65_536))
            tally.note([] if got else ["no answer"], request, time.monotonic() - began)
        except (OSError, TimeoutError) as problem:
            tally.note([f"no answer: {type(problem).__name__}"], request, time.monotonic() - began)
        finally:
            writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(hoard())
    return tally
