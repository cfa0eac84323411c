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

BURST = 40
CLASSIFY = f"/{methods.TFSERVING_PREDICTION_SERVICE}/Classify"
_POOL_CALLS = 100
"""At once: more than a worker keeps connections of any kind."""
_BODY_BYTES = 1_048_576
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
