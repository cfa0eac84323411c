"""The contract of ``ModelBackend``: the in-memory twin, and adapters against real servers over gRPC and HTTP."""

import asyncio
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import numpy as np
import orjson
import pytest
from structlog.testing import capture_logs

from rigs.faults.tcp import Behaviour as FaultBehaviour
from rigs.faults.tcp import Door
from understudy.adapters._proto.methods import OIP_MODEL_INFER, OIP_SERVICE, oip_method
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.model_servers.addresses import DEFAULT_GRPC_CLIENT, GrpcClient
from understudy.adapters.model_servers.connect import connect, examine, replicas_of
from understudy.adapters.model_servers.replicas.hedged_call import Hedging
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.server_backend import ServerApi, ServerBackend
from understudy.core.requests.rank import parse_rank
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.policy_document import version_from_row
from understudy.core.schema.codec import join_bytes_elements, tensor_of_content
from understudy.core.schema.tensors import Block, Datatype, Row, Tensor
from understudy.core.upstream.endpoint_rules import parse_rules
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, ServingError
from understudy.ports.upstream.model_backend import ModelBackend

from .http_server import HttpModelServer, running_http
from .servers import (
    MODEL_NAME,
    WEIGHTS,
    Behaviour,
    FrameServer,
    ModelServer,
    TcpRelay,
    end_ok_with,
    eventually,
    message_of,
    reset_with,
    running,
)

NUMBERS = {
    "features": [{"name": name, "dtype": "float32"} for name in ("a", "b", "c")],
    "tensors": [{"name": "x", "dtype": "float32", "features": ["a", "b", "c"]}],
}
WORDS = {"features": [{"name": "word", "dtype": "string"}]}
ADAPTERS: dict[str, dict[str, Any]] = {
    "tfserving": {"protocol": "tfserving"},
    "oip": {"protocol": "oip"},
    "oip-typed": {"protocol": "oip", "backend": {"typed_contents": True}},
    "oip-torchserve": {
        "protocol": "oip",
        "backend": {"service_path": "org.pytorch.serve.grpc.openinference.GRPCInferenceService"},
    },
    "torchserve": {"protocol": "torchserve"},
}
OTHER_CLIENT = " by gRPC's library"
HTTP_ADAPTERS: dict[str, dict[str, Any]] = {
    "oip-http": {"protocol": "oip-http"},
    "tfserving-http": {"protocol": "tfserving-http"},
    "mlflow": {"protocol": "mlflow"},
    "json": {
        "protocol": "json",
        "backend": {
            "path": "/score",
            "inputs": "$.rows[*]",
            "output": "$.result.rows[*].score",
            "ready_path": "/health",
        },
    },
    "json-one-row": {
        "protocol": "json",
        "backend": {"path": "/one", "inputs": "$", "output": "$.score", "ready_path": "/health"},
    },
}
SECOND = 1.0
LOAD_SECONDS = 20.0
"""A deadline that only a broken server misses, however busy the machine is."""
CORRUPTED_CALLS = 100
MANY = 60
"""Calls of which each goes to one of two replicas at random: one of them gets fewer than three once in 10¹⁴ times."""


def a_version(
    *endpoints: str, adapter: str = "oip", inputs: Any = NUMBERS, output: str | None = "p", **changed: Any
) -> ModelVersion:
    row: dict[str, Any] = {
        "id": 1,
        "version": "1",
        "status": "champion",
        "endpoints": endpoints,
        "input_schema": inputs,
        "output_schema": {} if output is None else {"tensor": output},
        "deterministic": True,
        "cache_ttl_seconds": 60,
        "timeout_ms": 500,
        **(ADAPTERS | HTTP_ADAPTERS)[adapter],
    }
    row["backend"] = {**row.get("backend", {}), **changed}
    return version_from_row(MODEL_NAME, row)


def a_row(*values: float) -> Row:
    return (struct.pack("<3f", *values),)


def word_row(word: str) -> Row:
    return (join_bytes_elements([word.encode()]),)


ROW = a_row(1, 2, 3)
SCORE = 321.0


@asynccontextmanager
async def connected(version: ModelVersion, grpc_client: GrpcClient = DEFAULT_GRPC_CLIENT) -> AsyncIterator[Any]:
    backend = connect(version, grpc_client=grpc_client)
    try:
        yield backend
    finally:
        await backend.close()


def corrupted(content: bytes, chance: Random) -> bytes:
    """Return the content with about one byte of twenty turned into another, at least one."""
    spoilt = bytearray(content)
    for place in [chance.randrange(len(spoilt)) for _ in range(1 + len(spoilt) // 20)]:
        spoilt[place] ^= 1 << chance.randrange(8)
    return bytes(spoilt)


@asynccontextmanager
async def corrupting(server: ModelServer, every_bytes: int) -> AsyncIterator[Door]:
    """A wire to a server on which each so-manyth byte of the answers is another one."""
    door = Door(server.port)
    await door.behave(FaultBehaviour(corrupt_every_bytes=every_bytes))
    try:
        yield door
    finally:
        await door.close()


@asynccontextmanager
async def serving(adapter: str, **changed: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A backend and the one server behind it; an adapter may name the client that makes its calls."""
    adapter, other, _ = adapter.partition(OTHER_CLIENT)
    client: GrpcClient = "grpcio" if other else DEFAULT_GRPC_CLIENT
    async with (
        running_http() if adapter in HTTP_ADAPTERS else running() as (server,),
        connected(a_version(server.endpoint, adapter=adapter, **changed), client) as backend,
    ):
        yield backend, server


class Subject:
    """A backend and the few things a test may do to what stands behind it, the same for twin and adapters."""

    def __init__(self, backend: ModelBackend, server: MemoryBackend | ModelServer | HttpModelServer) -> None:
        self.backend = backend
        self.refusal = "HTTP 400" if isinstance(server, HttpModelServer) else "INVALID_ARGUMENT"
        """What is said of a call that it refuses."""
        self._server = server

    def is_slow(self, seconds: float) -> None:
        behind: Any = self._server if isinstance(self._server, MemoryBackend) else self._server.behaviour
        behind.delay_seconds = seconds

    def refuses(self) -> None:
        if isinstance(self._server, MemoryBackend):
            self._server.error = BadAnswer("the model server refused the call with INVALID_ARGUMENT")
        else:
            self._server.behaviour.code = grpc.StatusCode.INVALID_ARGUMENT

    def is_not_ready(self) -> None:
        if isinstance(self._server, MemoryBackend):
            self._server.is_ready = False
        else:
            self._server.behaviour.ready = False

    async def goes_down(self) -> None:
        if isinstance(self._server, MemoryBackend):
            self._server.error = BackendUnavailable()
        else:
            await self._server.stop()

    async def all_calls_end(self) -> bool:
        async def ended() -> bool:
            held = self._server if isinstance(self._server, MemoryBackend) else replicas_of(self.backend)
            return held is not None and held.in_flight == 0

        return await eventually(ended, 2 * LOAD_SECONDS)


def linear(rows: Sequence[Row]) -> Tensor:
    matrix = np.frombuffer(b"".join(row[0] for row in rows), "<f4").reshape(-1, 3)
    return Tensor(Datatype.FP32, (len(rows),), matrix @ WEIGHTS)


OTHERS = [f"oip{OTHER_CLIENT}", f"tfserving{OTHER_CLIENT}", "oip-http", "json-one-row"]


@pytest.fixture(params=["memory", *ADAPTERS, *OTHERS])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if request.param == "memory":
        twin = MemoryBackend(linear)
        yield Subject(twin, twin)
        return
    async with serving(request.param) as (backend, server):
        yield Subject(backend, server)


async def seconds_of(call: Callable[[], Any], error: type[Exception]) -> float:
    """How long a call takes to fail with ``error``: the quickest of three, the machine may be busy."""
    taken = []
    for _ in range(3):
        started = time.monotonic()
        with pytest.raises(error):
            await call()
        taken.append(time.monotonic() - started)
    return min(taken)


# -- twin and adapters -------------------------------------------------------------------------------------------------


async def test_one_row_gets_its_answer_with_a_leading_batch_dimension(subject: Subject):
    tensor = await subject.backend.infer([ROW], LOAD_SECONDS)

    assert (tensor.shape, tensor.values.tolist()) == ((1,), [SCORE])


async def test_the_rows_of_a_batch_are_answered_in_their_order(subject: Subject):
    count = subject.backend.rows_per_call or 40
    rows = [a_row(n, 0, 0) for n in range(count)]

    tensor = await subject.backend.infer(rows, LOAD_SECONDS)

    assert (tensor.shape, tensor.values.tolist()) == ((count,), list(range(count)))


async def test_a_block_of_rows_is_answered_in_their_order_or_refused_where_a_call_has_one(subject: Subject):
    block = Block((np.array([[n, 0, 0] for n in range(2_000)], "<f4").tobytes(),), ((2_000, 3),))

    if subject.backend.rows_per_call is None:
        tensor = await subject.backend.infer_block(block, LOAD_SECONDS)
        assert (tensor.shape, tensor.values.tolist()) == ((2_000,), list(range(2_000)))
    else:
        with pytest.raises(BadAnswer, match="one row a call"):
            await subject.backend.infer_block(block, LOAD_SECONDS)


async def test_a_block_that_is_late_or_refused_ends_as_a_row_does(subject: Subject):
    if subject.backend.rows_per_call is not None:
        pytest.skip("takes no blocks")
    block = Block((struct.pack("<6f", 1, 2, 3, 1, 2, 3),), ((2, 3),))
    with pytest.raises(DeadlineExceeded):
        await subject.backend.infer_block(block, 0.0)
    subject.refuses()

    with pytest.raises(BadAnswer, match=subject.refusal):
        await subject.backend.infer_block(block, LOAD_SECONDS)


async def test_a_twin_that_takes_one_row_a_call_refuses_blocks():
    with pytest.raises(BadAnswer, match="1 rows"):
        await MemoryBackend(linear, rows_per_call=1).infer_block(Block((b"",), ((1, 3),)), LOAD_SECONDS)


@pytest.mark.parametrize("kind", ["memory", "torchserve", "json-one-row"])
async def test_more_rows_than_one_call_takes_are_a_mistake_of_the_caller(kind: str):
    twin = MemoryBackend(linear, rows_per_call=1)
    backend = twin if kind == "memory" else connect(a_version("127.0.0.1:1", adapter=kind))

    with pytest.raises(ValueError, match="1"):
        await backend.infer([ROW, ROW], LOAD_SECONDS)

    assert (backend.rows_per_call, twin.calls) == (1, [])
    await backend.close()


async def test_calls_at_the_same_time_each_get_their_own_answer(subject: Subject):
    calls = [subject.backend.infer([a_row(n, 0, 0)], LOAD_SECONDS) for n in range(50)]

    answers = await asyncio.gather(*calls)

    assert [answer.values.tolist() for answer in answers] == [[n] for n in range(50)]


@pytest.mark.timed
async def test_a_slow_server_is_left_at_the_deadline_within_30_ms(subject: Subject):
    await subject.backend.infer([ROW], LOAD_SECONDS)
    subject.is_slow(0.4)

    seconds = await seconds_of(lambda: subject.backend.infer([ROW], 0.1), DeadlineExceeded)

    assert 0.095 <= seconds <= 0.13


async def test_no_time_left_is_a_deadline_in_stage_upstream(subject: Subject):
    with pytest.raises(DeadlineExceeded) as caught:
        await subject.backend.infer([ROW], 0.0)

    assert caught.value.stage == "upstream"


@pytest.mark.timed
async def test_a_server_that_is_down_is_reported_within_50_ms(subject: Subject):
    await subject.backend.infer([ROW], LOAD_SECONDS)
    await subject.goes_down()

    seconds = await seconds_of(lambda: subject.backend.infer([ROW], LOAD_SECONDS), BackendUnavailable)

    assert seconds <= 0.05


async def test_a_refused_call_is_a_bad_answer_without_the_servers_own_words(subject: Subject):
    subject.refuses()

    with pytest.raises(BadAnswer) as caught:
        await subject.backend.infer([ROW], LOAD_SECONDS)

    assert subject.refusal in caught.value.detail
    assert "secret" not in caught.value.detail


async def test_what_a_model_server_says_about_a_call_is_kept_apart_and_short():
    details = "input 'age' must have shape [-1, 1],\n has [1]\x1b[2J " + "x" * 500
    for code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND):
        async with (
            running(Behaviour(code=code, details=details)) as (server,),
            connected(a_version(server.endpoint)) as backend,
        ):
            with pytest.raises(ServingError) as caught:
                await backend.infer([ROW], LOAD_SECONDS)

        assert caught.value.said.startswith("input 'age' must have shape [-1, 1], has [1][2J xxx")
        assert len(caught.value.said) == 200
        assert "shape" not in caught.value.detail


async def test_a_cancelled_call_leaves_nothing_behind_and_the_next_one_is_answered(subject: Subject):
    subject.is_slow(SECOND)
    calls = [asyncio.ensure_future(subject.backend.infer([ROW], LOAD_SECONDS)) for _ in range(20)]
    await asyncio.sleep(0.05)

    for call in calls:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    subject.is_slow(0)

    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert (await subject.backend.infer([ROW], LOAD_SECONDS)).values.tolist() == [SCORE]
    assert await subject.all_calls_end()


async def test_readiness_follows_the_server_and_never_raises(subject: Subject):
    before = await subject.backend.ready(LOAD_SECONDS)
    subject.is_not_ready()
    after = await subject.backend.ready(LOAD_SECONDS)
    await subject.backend.close()
    closed = await subject.backend.ready(0.05)

    assert (before, after, closed) == (True, False, False)


@pytest.mark.parametrize("adapter", [*ADAPTERS, *HTTP_ADAPTERS])
async def test_each_server_is_examined_by_itself(adapter: str):
    behaviours = (Behaviour(), Behaviour(ready=False))
    async with (
        running_http(*behaviours) if adapter in HTTP_ADAPTERS else running(*behaviours) as (good, unready),
        connected(a_version(good.endpoint, unready.endpoint, adapter=adapter)) as backend,
    ):
        found = await examine(backend, LOAD_SECONDS)

    assert [(server.endpoint, server.problem) for server in found] == [
        (good.endpoint, ""),
        (unready.endpoint, "it says that it does not serve the version"),
    ]
    assert all(0 < server.seconds < LOAD_SECONDS for server in found)


async def test_of_a_server_that_does_not_answer_an_examination_says_why():
    refusing, nowhere = f"127.0.0.1:{free_port()}", "nowhere.invalid:1"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        silent = f"127.0.0.1:{listening.getsockname()[1]}"
        async with (
            running(Behaviour(probes_hang=True)) as (hanging,),
            connected(a_version(hanging.endpoint, silent, refusing, nowhere)) as backend,
        ):
            found = await examine(backend, 3 * SECOND)

    problems = {server.endpoint: server.problem for server in found}
    assert problems == {
        hanging.endpoint: "it accepted the connection and did not answer within 3 s",
        silent: "no connection to it within 3 s",
        refusing: "nothing listens there",
        nowhere: f"the name of the endpoint {nowhere} cannot be resolved",
    }
    assert all(server.seconds >= 3 * SECOND for server in found if server.endpoint != nowhere)


async def test_after_a_probe_it_is_known_whether_this_process_reaches_a_server_whatever_that_says():
    async with running(Behaviour(ready=False)) as (server,):
        for endpoints, reached in (
            ((server.endpoint,), True),
            ((f"127.0.0.1:{free_port()}",), False),
            (("no-such-host.invalid:9",), False),
            ((f"127.0.0.1:{free_port()}", server.endpoint), True),
        ):
            async with connected(a_version(*endpoints)) as backend:
                assert not await backend.ready(SECOND)
                assert backend.is_connected == reached, endpoints


async def test_a_server_that_this_process_may_not_connect_to_is_not_reached():
    async with running() as (server,):
        backend = connect(a_version(server.endpoint), rules=parse_rules("10.0.0.0/8"))

        assert not await backend.ready(SECOND)
        assert not backend.is_connected
        await backend.close()


async def test_of_a_server_that_cannot_answer_an_examination_says_why():
    async with (
        running() as (server,),
        connected(a_version(server.endpoint, service_path="another.Service")) as backend,
    ):
        (found,) = await examine(backend, LOAD_SECONDS)

    assert found.problem.startswith("the readiness probe ended with UNIMPLEMENTED: ")


async def test_a_probe_under_way_when_its_backend_is_closed_finds_no_server_and_cancels_no_task():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with connected(a_version(f"127.0.0.1:{silent.getsockname()[1]}")) as backend:
            probe = asyncio.create_task(backend.ready(LOAD_SECONDS))
            await asyncio.sleep(0.2)
            await backend.close()

            assert await probe is False


class FloatsBackend(ServerBackend):
    """A throw-away kind of server: floats in, floats out."""

    def _api(self, version: ModelVersion) -> ServerApi:
        method = oip_method(OIP_SERVICE, OIP_MODEL_INFER)
        return ServerApi(method, Probe(method, version.server_model_name.encode(), bool))

    def _encode(self, block: Block) -> bytes:
        return b"".join(block.contents)

    def _decode(self, answer: bytes) -> Tensor:
        return tensor_of_content(Datatype.FP32, (len(answer) // 4,), answer)


async def test_a_new_kind_of_server_is_its_api_an_encoder_and_a_decoder():
    async with running(Behaviour(answer=struct.pack("<f", SCORE))) as (server,):
        backend = FloatsBackend(a_version(server.endpoint))

        assert await backend.ready(LOAD_SECONDS)
        one = await backend.infer([ROW], LOAD_SECONDS)
        block = await backend.infer_block(Block(ROW, ((1, 3),)), LOAD_SECONDS)
        (seen,) = await examine(backend, LOAD_SECONDS)
        await backend.close()

    assert one.values.tolist() == block.values.tolist() == [SCORE]
    assert (seen.endpoint, seen.problem) == (server.endpoint, "")


class Misreading(FloatsBackend):
    def _decode(self, answer: bytes) -> Tensor:
        raise KeyError(answer)


async def test_an_answer_that_a_decoder_was_not_made_for_is_a_bad_answer_and_no_defect_of_the_call():
    async with running(Behaviour(answer=b"secret")) as (server,):
        backend = Misreading(a_version(server.endpoint))

        with pytest.raises(BadAnswer, match="the answer cannot be read"):
            await backend.infer([ROW], LOAD_SECONDS)
        with pytest.raises(BadAnswer, match="the answer cannot be read"):
            await backend.infer_block(Block(ROW, ((1, 3),)), LOAD_SECONDS)
        await backend.close()


def test_a_protocol_that_no_backend_speaks_is_refused():
    with pytest.raises(BackendUnavailable, match="'smtp'"):
        connect(replace(a_version("127.0.0.1:1"), protocol="smtp"))


async def test_a_closed_backend_refuses_calls(subject: Subject):
    await subject.backend.infer([ROW], LOAD_SECONDS)
    await subject.backend.close()

    with pytest.raises(BackendUnavailable):
        await subject.backend.infer([ROW], LOAD_SECONDS)


# -- every adapter -----------------------------------------------------------------------------------------------------

every_adapter = pytest.mark.parametrize("adapter", ADAPTERS)


@every_adapter
@pytest.mark.parametrize("form", ["raw", "typed"])
async def test_raw_and_typed_answers_are_read_alike(adapter: str, form: str):
    async with serving(adapter) as (backend, server):
        server.behaviour.typed = form == "typed"

        tensor = await backend.infer([ROW], LOAD_SECONDS)

        assert (tensor.datatype.is_float, tensor.shape, tensor.values.tolist()) == (True, (1,), [SCORE])


@every_adapter
async def test_strings_go_there_and_come_back(adapter: str):
    async with serving(adapter, inputs=WORDS, output="label") as (backend, _):
        words = ["größe", "", "ab"][: backend.rows_per_call]

        tensor = await backend.infer([word_row(word) for word in words], LOAD_SECONDS)

        assert tensor.datatype is Datatype.BYTES
        assert [value.decode() for value in tensor.values] == [word.upper() for word in words]


@every_adapter
async def test_the_output_that_the_schema_names_is_returned_among_several(adapter: str):
    async with serving(adapter) as (backend, server):
        server.behaviour.extra_output = True

        tensor = await backend.infer([ROW], LOAD_SECONDS)

        assert tensor.values.tolist() == [SCORE]


@every_adapter
async def test_without_a_name_in_the_schema_the_only_output_is_returned(adapter: str):
    async with serving(adapter, output=None) as (backend, _):
        tensor = await backend.infer([ROW], LOAD_SECONDS)

        assert tensor.values.tolist() == [SCORE]


@every_adapter
async def test_a_version_without_batch_sends_its_shape_as_it_is(adapter: str):
    async with serving(adapter, inputs={**NUMBERS, "batch": False}) as (backend, server):
        tensor = await backend.infer([ROW], LOAD_SECONDS)

        assert (tensor.shape, tensor.values.tolist()) == ((), [SCORE])
        assert server.last_inputs["x"].shape == (3,)


@every_adapter
async def test_several_rows_for_a_version_without_batch_are_a_mistake_of_the_caller(adapter: str):
    async with serving(adapter, inputs={**NUMBERS, "batch": False}) as (backend, _):
        with pytest.raises(ValueError, match=r"without a batch dimension|too many values"):
            await backend.infer([ROW, ROW], LOAD_SECONDS)


NESTED = {
    "features": [
        {"name": "age", "dtype": "float32"},
        *({"name": name, "dtype": "float32", "per": "treatment"} for name in ("a", "b", "c")),
    ],
    "tensors": [{"name": "user", "features": ["age"]}, {"name": "x", "features": ["a", "b", "c"]}],
    "treatments": {"layout": "nested", "counts": "treatment_counts"},
}
nesting_adapter = pytest.mark.parametrize("adapter", ["tfserving", "oip", "oip-typed", "oip-torchserve"])


@nesting_adapter
async def test_nested_treatments_go_there_with_their_count_beside_the_entity(adapter: str):
    values = [[0, 0, 1], [1, 2, 3]]
    request = parse_rank(
        orjson.dumps({
            "entity_id": "e",
            "inputs": {"age": 40},
            "treatments": {"ids": ["s", "t"], "inputs": {n: [v[i] for v in values] for i, n in enumerate("abc")}},
        })
    )  # fmt: skip
    async with serving(adapter, inputs=NESTED) as (backend, server):
        version = a_version("127.0.0.1:1", inputs=NESTED)
        assembled = request.assemble(version, None)

        tensor = await backend.infer_block(assembled.block, LOAD_SECONDS)
        ranking = orjson.loads(assembled.ranking_of(version.output_schema, tensor).json)

        assert {name: array.tolist() for name, array in server.last_inputs.items()} == {
            "user": [[40.0]],
            "x": [values],
            "treatment_counts": [2],
        }
        assert tensor.shape == (1, 2)
        assert ranking == {"treatments": 2, "scores": [100.0, SCORE]}


@nesting_adapter
async def test_predict_calls_of_a_nested_version_have_one_treatment_each(adapter: str):
    async with serving(adapter, inputs=NESTED) as (backend, server):
        schema = a_version("127.0.0.1:1", inputs=NESTED).input_schema
        rows = [schema.assemble({"age": age, "a": 1, "b": 2, "c": 3}).row for age in (40, 50)]

        tensor = await backend.infer(rows, LOAD_SECONDS)

        assert {name: array.tolist() for name, array in server.last_inputs.items()} == {
            "user": [[40.0], [50.0]],
            "x": [[[1, 2, 3]], [[1, 2, 3]]],
            "treatment_counts": [1, 1],
        }
        assert (tensor.shape, tensor.values.tolist()) == ((2, 1), [SCORE, SCORE])


UNUSABLE: dict[str, dict[str, Any]] = {
    "no such output": {"rename_output": "q"},
    "over 4 MiB": {"huge": True},
    "not the protocol": {"answer": b"\xff\xff\xff"},
    "nothing": {"answer": b""},
}


@every_adapter
@pytest.mark.parametrize("why", UNUSABLE)
async def test_an_unusable_answer_is_refused(adapter: str, why: str):
    async with serving(adapter) as (backend, server):
        for name, value in UNUSABLE[why].items():
            setattr(server.behaviour, name, value)

        with pytest.raises(BadAnswer):
            await backend.infer([ROW], LOAD_SECONDS)


WITHOUT_A_MESSAGE = {"trailers only": None, "no data": b"", "half a message": b"\0\0\0\0\x09half"}


@every_adapter
@pytest.mark.parametrize("content", WITHOUT_A_MESSAGE.values(), ids=WITHOUT_A_MESSAGE)
async def test_a_call_that_ends_ok_without_a_message_is_a_bad_answer_and_a_probe_that_does_says_nothing(
    adapter: str, content: bytes | None
):
    async with (
        FrameServer(end_ok_with(content)) as server,
        connected(a_version(server.endpoint, adapter=adapter)) as backend,
    ):
        with pytest.raises(BadAnswer, match="without an answer"):
            await backend.infer([ROW], LOAD_SECONDS)

        assert not await backend.ready(LOAD_SECONDS)
        (seen,) = await examine(backend, LOAD_SECONDS)
        assert seen.problem == "its answer cannot be read"


@every_adapter
async def test_a_corrupted_answer_is_an_outcome_of_ours_and_no_defect(adapter: str):
    async with serving(adapter) as (backend, server):
        await backend.infer([ROW], LOAD_SECONDS)
    chance = Random(adapter)
    good = message_of(server.last_answer)

    def frames(stream: int) -> bytes:
        return end_ok_with(corrupted(good, chance))(stream)

    async with (
        FrameServer(frames) as corrupting,
        connected(a_version(corrupting.endpoint, adapter=adapter)) as backend,
    ):
        calls = [backend.infer([ROW], 2 * SECOND) for _ in range(CORRUPTED_CALLS)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert [outcome for outcome in outcomes if not isinstance(outcome, Tensor | ServingError)] == []
    assert BadAnswer in {type(outcome) for outcome in outcomes}


@every_adapter
async def test_on_a_wire_that_corrupts_one_byte_of_twenty_every_call_has_an_outcome_of_ours(adapter: str):
    async with running() as (server,), corrupting(server, 20) as door:
        version = a_version(f"127.0.0.1:{door.port}", adapter=adapter)
        async with connected(version) as backend:
            calls = [backend.infer([ROW], SECOND / 2) for _ in range(20)]
            *answers, ready = await asyncio.gather(*calls, backend.ready(SECOND / 2), return_exceptions=True)

    assert [answer for answer in answers if not isinstance(answer, Tensor | ServingError)] == []
    assert isinstance(ready, bool)


async def test_a_replica_that_ends_every_call_without_a_message_is_ejected_while_the_other_answers():
    async with (
        FrameServer(end_ok_with(None)) as mute,
        running() as (server,),
        connected(a_version(mute.endpoint, server.endpoint)) as backend,
    ):
        for _ in range(MANY):
            with suppress(BadAnswer):
                await backend.infer([ROW], LOAD_SECONDS)

        assert backend.replicas.ejected == 1
        assert await backend.infer([ROW], LOAD_SECONDS)


@pytest.mark.parametrize("adapter", ["tfserving", "oip"])
@pytest.mark.parametrize("form", ["raw", "typed"])
@pytest.mark.parametrize("shape", [[2], [1, 2], [-1, -1], [0], [10**12]])
async def test_a_shape_that_does_not_fit_the_values_is_refused(adapter: str, form: str, shape: list[int]):
    async with serving(adapter) as (backend, server):
        server.behaviour.typed = form == "typed"
        server.behaviour.shape = shape

        with pytest.raises(BadAnswer, match="shape"):
            await backend.infer([ROW], LOAD_SECONDS)


@pytest.mark.parametrize(("adapter", "datatype"), [("tfserving", 8), ("tfserving", 99), ("oip", "FP16"), ("oip", "x")])
async def test_a_datatype_that_we_do_not_know_is_refused(adapter: str, datatype: Any):
    async with serving(adapter) as (backend, server):
        server.behaviour.datatype = datatype

        with pytest.raises(BadAnswer, match="not supported"):
            await backend.infer([ROW], LOAD_SECONDS)


@pytest.mark.parametrize("adapter", ["tfserving", "oip"])
async def test_nan_is_handed_on_for_the_output_check_to_refuse(adapter: str):
    async with serving(adapter) as (backend, server):
        server.behaviour.nan = True

        tensor = await backend.infer([ROW], LOAD_SECONDS)

        assert np.isnan(tensor.values).all()


@every_adapter
async def test_the_model_and_version_names_at_the_server_are_settings(adapter: str):
    async with serving(adapter, model_name="elsewhere", version="7") as (backend, server):
        await backend.infer([ROW], LOAD_SECONDS)

        name, version = server.last_model
        assert name == "elsewhere"
        assert (version.version.value if adapter == "tfserving" else version) in (7, "7")


OF_ANOTHER: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "another name": ({}, ("fraud", "")),
    "another name, version right": ({"version": "7"}, ("fraud", "7")),
    "another version": ({"version": "7"}, (MODEL_NAME, "6")),
    "another label": ({"version": "v1"}, (MODEL_NAME, "v2")),
    "the name that was asked for, where the server uses another": ({"answers_as": "linear_1"}, (MODEL_NAME, "")),
    "a version of too many digits": ({"version": "7"}, (MODEL_NAME, "0" * 5_000 + "7")),
}


@pytest.mark.parametrize(("asked", "says"), OF_ANOTHER.values(), ids=OF_ANOTHER)
async def test_an_answer_that_names_another_model_or_version_is_no_answer(asked: dict[str, Any], says: tuple[str, str]):
    async with serving("oip", **asked) as (backend, server):
        server.behaviour.says_model = says

        with capture_logs() as logged, pytest.raises(BadAnswer, match=r"is of another (model|version) than") as refused:
            await backend.infer([ROW], LOAD_SECONDS)
        with pytest.raises(BadAnswer):
            await backend.infer([ROW], LOAD_SECONDS)

    assert "fraud" not in refused.value.detail
    assert [line["answered"] for line in logged] == [says[not logged[0]["event"].endswith("model")][:64]]


OF_THE_SAME: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "no names": ({"version": "7"}, ("", "")),
    "no version": ({"version": "7"}, (MODEL_NAME, "")),
    "any version where none was asked for": ({}, (MODEL_NAME, "6")),
    "the number as Triton writes it": ({"version": "007"}, (MODEL_NAME, "7")),
    "the latest": ({"version": -1}, (MODEL_NAME, "6")),
    "the name that the server uses": ({"answers_as": "linear_1"}, ("linear_1", "1")),
    "any": ({"answers_as": "*", "version": "7"}, ("fraud", "6")),
}


@pytest.mark.parametrize(("asked", "says"), OF_THE_SAME.values(), ids=OF_THE_SAME)
async def test_an_answer_that_names_what_was_asked_for_or_nothing_is_read(asked: dict[str, Any], says: tuple[str, str]):
    async with serving("oip", **asked) as (backend, server):
        server.behaviour.says_model = says

        tensor = await backend.infer([ROW], LOAD_SECONDS)

    assert tensor.values.tolist() == [SCORE]


async def test_under_torchserves_path_the_handler_names_the_model_as_it_likes():
    async with serving("oip-torchserve", version="2.0") as (backend, server):
        server.behaviour.says_model = ("archive", "1.0")

        assert await backend.infer([ROW], LOAD_SECONDS)


@pytest.mark.parametrize("name", [7, "", None, ["a"]])
def test_a_name_in_answers_that_is_no_text_refuses_the_version(name: Any):
    with pytest.raises(BackendUnavailable, match="answers_as"):
        connect(a_version("127.0.0.1:1", answers_as=name))


@pytest.mark.parametrize("output", ["p", None])
async def test_an_answer_with_two_outputs_of_one_name_is_no_answer(output: str | None):
    async with running(Behaviour(twice=True)) as (server,), connected(a_version(server.endpoint, output=output)) as one:
        with pytest.raises(BadAnswer, match="several outputs 'p'"):
            await one.infer([ROW], LOAD_SECONDS)


@every_adapter
async def test_a_token_from_the_environment_goes_with_every_call(adapter: str):
    name = "UNDERSTUDY_BACKEND_TOKEN_A"
    async with running() as (server,):
        backend = connect(a_version(server.endpoint, adapter=adapter, token_env=name), {name: "t0ken"})

        await backend.infer([ROW], LOAD_SECONDS)
        await backend.close()

        assert server.metadata[-1]["authorization"] == "Bearer t0ken"


@pytest.mark.parametrize("name", ["DATABASE_URL", "UNDERSTUDY_BACKEND_TOKEN_UNSET"])
def test_a_token_that_may_not_be_sent_or_is_not_set_refuses_the_version(name: str):
    with pytest.raises(BackendUnavailable, match=name if "UNSET" in name else "must name a variable"):
        connect(a_version("127.0.0.1:1", token_env=name), {"DATABASE_URL": "postgresql://secret"})


@every_adapter
async def test_a_token_goes_to_the_hosts_that_its_operator_names(adapter: str):
    name = "UNDERSTUDY_BACKEND_TOKEN_A"
    async with running() as (server,):
        version = a_version(server.endpoint, adapter=adapter, token_env=name)
        backend = connect(version, {name: "t0ken", f"{name}_HOSTS": "*.models.internal,127.0.0.0/8"})

        await backend.infer([ROW], LOAD_SECONDS)
        await backend.close()

        assert server.metadata[-1]["authorization"] == "Bearer t0ken"


@pytest.mark.parametrize("hosts", ["*.models.internal", "models.internal,10.0.0.0/8", ""])
@pytest.mark.parametrize("endpoint", ["evil.example:443", "127.0.0.1:1", "models.internal.evil.example:1"])
def test_a_token_goes_to_no_host_that_its_operator_does_not_name(hosts: str, endpoint: str):
    name = "UNDERSTUDY_BACKEND_TOKEN_A"

    with pytest.raises(BackendUnavailable, match=f"may not have the token in {name}: {name}_HOSTS does not name"):
        connect(a_version(endpoint, token_env=name), {name: "t0ken", f"{name}_HOSTS": hosts})


def test_a_list_of_hosts_that_cannot_be_read_lets_the_token_go_nowhere():
    name = "UNDERSTUDY_BACKEND_TOKEN_A"

    with pytest.raises(BackendUnavailable, match=f"{name}_HOSTS, cannot be used: 'http://m'"):
        connect(a_version("m:1", token_env=name), {name: "t0ken", f"{name}_HOSTS": "http://m"})


# -- one protocol's own ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "choice"), [(None, None), (0, None), (3, "version"), ("stable", "version_label")])
async def test_tfserving_version_zero_is_unset_and_text_is_a_label(wanted: Any, choice: str | None):
    async with serving("tfserving", version=wanted, signature_name="classify") as (backend, server):
        await backend.infer([ROW], LOAD_SECONDS)

        spec = server.last_model[1]
        assert (spec.WhichOneof("version_choice"), spec.signature_name) == (choice, "classify")


async def test_an_empty_contents_beside_raw_bytes_is_ignored_as_mlserver_sends_it():
    async with serving("oip") as (backend, server):
        server.behaviour.empty_contents = True

        tensor = await backend.infer([ROW], LOAD_SECONDS)

        assert tensor.values.tolist() == [SCORE]


@pytest.mark.parametrize("adapter", ["torchserve", "oip-torchserve"])
async def test_torchserve_refusing_a_payload_with_unavailable_is_neither_retried_nor_held_against_it(adapter: str):
    async with running(Behaviour(), Behaviour()) as servers:
        for server in servers:
            server.behaviour.code = grpc.StatusCode.UNAVAILABLE
            server.behaviour.details = "Prediction failed\norg.pytorch.serve.http.InternalServerException"
        async with connected(a_version(*(server.endpoint for server in servers), adapter=adapter)) as backend:
            for _ in range(8):
                with pytest.raises(BadAnswer, match="UNAVAILABLE"):
                    await backend.infer([ROW], LOAD_SECONDS)

            assert sum(server.calls for server in servers) == 8
            assert backend.replicas.ejected == 0


@pytest.mark.parametrize("adapter", ["torchserve", "oip-torchserve"])
async def test_a_torchserve_call_runs_to_its_end_when_its_caller_has_gone(adapter: str):
    async with serving(adapter) as (backend, server):
        server.behaviour.delay_seconds = 0.3
        with pytest.raises(DeadlineExceeded):
            await backend.infer([ROW], 0.1)
        still_running = backend.replicas.in_flight

        async def ended() -> bool:
            return bool(backend.replicas.in_flight == 0)

        assert still_running == 1
        assert await eventually(ended, LOAD_SECONDS)
        assert server.completed == 1


async def test_torchserve_calls_that_run_on_are_bounded():
    async with serving("torchserve") as (backend, server):
        server.behaviour.delay_seconds = 30
        late = [backend.infer([ROW], 0.2) for _ in range(64)]
        outcomes = await asyncio.gather(*late, return_exceptions=True)

        with pytest.raises(BackendUnavailable, match="after their deadlines"):
            await backend.infer([ROW], LOAD_SECONDS)

        assert all(isinstance(outcome, DeadlineExceeded) for outcome in outcomes)


TORCHSERVE_ANSWERS: dict[str, tuple[Any, Any]] = {
    "a number": (b"3", ((1,), [3])),
    "a list": (b"[1, 2.5]", ((1, 2), [1.0, 2.5])),
    "an object": (b'{"p": [[true], [false]]}', ((1, 2, 1), [True, False])),
    "ragged lists": (b"[[1], [2, 3]]", None),
    "mixed kinds": (b'[1, "a"]', None),
    "null": (b"null", None),
    "NaN": (b"NaN", None),
    "text": (b"cat", None),
    "an integer over 63 bits": (b"18446744073709551615", None),
    "lists nested deep": (b"[" * 500 + b"1" + b"]" * 500, None),
    "an empty list": (b"[]", None),
}


@pytest.mark.parametrize("kind", TORCHSERVE_ANSWERS)
async def test_what_a_torchserve_handler_may_answer(kind: str):
    text, expected = TORCHSERVE_ANSWERS[kind]
    async with serving("torchserve") as (backend, server):
        server.behaviour.answer = b"\x0a" + _varint(len(text)) + text
        if expected is None:
            with pytest.raises(BadAnswer):
                await backend.infer([ROW], LOAD_SECONDS)
        else:
            tensor = await backend.infer([ROW], LOAD_SECONDS)
            assert (tensor.shape, tensor.values.tolist()) == expected


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


# -- replicas (the same code for every protocol) -----------------------------------------------------------------------


async def test_with_one_of_two_replicas_dead_no_call_fails_and_it_is_ejected():
    async with (
        running(Behaviour(), Behaviour()) as (one, other),
        connected(a_version(one.endpoint, other.endpoint)) as backend,
    ):
        await asyncio.gather(*(backend.infer([ROW], LOAD_SECONDS) for _ in range(50)))
        calls = [asyncio.ensure_future(backend.infer([ROW], LOAD_SECONDS)) for _ in range(50)]
        await asyncio.sleep(0)

        await one.stop()
        calls += [asyncio.ensure_future(backend.infer([ROW], LOAD_SECONDS)) for _ in range(100)]
        answers = await asyncio.gather(*calls)

        assert [answer.values.tolist() for answer in answers] == [[SCORE]] * 150
        assert backend.replicas.ejected == 1


@pytest.mark.timed
async def test_a_hung_replica_is_ejected_stays_out_while_it_hangs_and_comes_back():
    async with (
        running(Behaviour(), Behaviour()) as (one, other),
        connected(a_version(one.endpoint, other.endpoint)) as backend,
    ):
        one.behaviour.delay_seconds, one.behaviour.probes_hang = 3_600, True
        late = 0
        while backend.replicas.ejected == 0:
            outcomes = await asyncio.gather(*(backend.infer([ROW], 0.1) for _ in range(2)), return_exceptions=True)
            late += sum(isinstance(outcome, DeadlineExceeded) for outcome in outcomes)
        end = time.monotonic() + 1.8
        while time.monotonic() < end:  # the first probe, after 1 s, fails beside the traffic
            await backend.infer([ROW], LOAD_SECONDS)
        one.behaviour.delay_seconds, one.behaviour.probes_hang = 0, False

        async def back() -> bool:
            await backend.infer([ROW], LOAD_SECONDS)
            return bool(backend.replicas.ejected == 0)

        assert late == 3
        assert await eventually(back, 4 * SECOND)


def hung() -> Behaviour:
    return Behaviour(delay_seconds=3_600, probes_hang=True)


async def is_answering(backend: Any) -> bool:
    with suppress(BackendUnavailable):
        await backend.infer([ROW], LOAD_SECONDS)
        return True
    return False


async def until_one_is_suspect(backend: Any) -> None:
    """Call servers of which two hang, until one of these is ejected and the other, which may not be, is suspect."""
    async with asyncio.timeout(LOAD_SECONDS):
        while True:
            healths = [replica.health for replica in backend.replicas._replicas]  # noqa: SLF001 - not shown
            if backend.replicas.ejected and any(health.is_suspect and not health.ejected for health in healths):
                return
            with suppress(DeadlineExceeded):
                await backend.infer([ROW], 0.05)


async def test_a_replica_that_stays_frozen_when_the_other_is_back_costs_no_call():
    async with (
        running(hung(), hung()) as servers,
        connected(a_version(*(server.endpoint for server in servers))) as backend,
    ):
        await until_one_is_suspect(backend)
        replicas = backend.replicas._replicas  # noqa: SLF001 - its health is not shown
        back = next(index for index, replica in enumerate(replicas) if replica.health.ejected)
        servers[back].behaviour.delay_seconds, servers[back].behaviour.probes_hang = 0, False

        assert await eventually(partial(is_answering, backend), LOAD_SECONDS)
        outcomes = [await backend.infer([ROW], LOAD_SECONDS) for _ in range(40)]

        async def other_is_ejected() -> bool:
            await backend.infer([ROW], LOAD_SECONDS)
            return bool(replicas[1 - back].health.ejected)

        assert [outcome.values.tolist() for outcome in outcomes] == [[SCORE]] * 40
        assert await eventually(other_is_ejected, LOAD_SECONDS)  # by its silence, as it gets no calls


async def test_with_two_of_three_replicas_frozen_the_third_answers_every_call():
    async with (
        running(Behaviour(), hung(), hung()) as servers,
        connected(a_version(*(server.endpoint for server in servers))) as backend,
    ):
        await until_one_is_suspect(backend)

        at_once = await asyncio.gather(*(backend.infer([ROW], LOAD_SECONDS) for _ in range(40)))
        in_turn = [await backend.infer([ROW], LOAD_SECONDS) for _ in range(40)]

        assert [answer.values.tolist() for answer in (*at_once, *in_turn)] == [[SCORE]] * 80


async def test_a_call_that_a_replica_did_not_take_goes_to_no_suspect_one():
    async with (
        running(Behaviour(), hung(), hung()) as servers,
        connected(a_version(*(server.endpoint for server in servers))) as backend,
    ):
        await until_one_is_suspect(backend)
        servers[0].behaviour.code = grpc.StatusCode.UNAVAILABLE
        before = [server.calls for server in servers]

        for _ in range(8):
            with pytest.raises(BackendUnavailable):  # given to a replica that hangs it would end at its deadline
                await backend.infer([ROW], SECOND)

        assert [server.calls for server in servers[1:]] == before[1:]


async def test_a_suspect_replica_gets_calls_again_once_it_says_that_it_serves_though_others_answer():
    async with (
        running(Behaviour(), hung(), hung()) as servers,
        connected(a_version(*(server.endpoint for server in servers))) as backend,
    ):
        await until_one_is_suspect(backend)
        for server in servers:
            server.behaviour.delay_seconds, server.behaviour.probes_hang = 0, False

        async def all_serve() -> bool:
            await backend.infer([ROW], LOAD_SECONDS)
            return all(server.completed for server in servers)

        assert await eventually(all_serve, LOAD_SECONDS)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_an_only_replica_without_a_readiness_call_is_used_again_after_a_freeze(adapter: str):
    async with (
        running(Behaviour(delay_seconds=3_600, probes_hang=True, has_probes=False)) as (server,),
        connected(a_version(server.endpoint, adapter=adapter)) as backend,
    ):
        async with asyncio.timeout(LOAD_SECONDS):
            while not backend.replicas._replicas[0].health.is_suspect:  # noqa: SLF001 - not shown
                with suppress(DeadlineExceeded):
                    await backend.infer([ROW], 0.05)
        with pytest.raises(BackendUnavailable):  # while it is frozen callers are told at once
            await backend.infer([ROW], LOAD_SECONDS)
        server.behaviour.delay_seconds, server.behaviour.probes_hang = 0, False

        assert await eventually(partial(is_answering, backend), LOAD_SECONDS)
        assert not await backend.ready(LOAD_SECONDS)  # it never said so


async def test_an_ejected_replica_without_a_readiness_call_comes_back():
    async with (
        running(Behaviour(), Behaviour(has_probes=False, code=grpc.StatusCode.NOT_FOUND)) as servers,
        connected(a_version(*(server.endpoint for server in servers))) as backend,
    ):
        async with asyncio.timeout(LOAD_SECONDS):
            while not backend.replicas.ejected:
                await backend.infer([ROW], LOAD_SECONDS)
        servers[1].behaviour.code = None

        async def both_serve() -> bool:
            await backend.infer([ROW], LOAD_SECONDS)
            return bool(servers[1].completed)

        assert await eventually(both_serve, LOAD_SECONDS)


async def test_callers_with_tiny_deadlines_eject_no_replica_that_is_well():
    async with (
        # So long that no busy machine has the answer together with the end of the deadline.
        running(*(Behaviour(delay_seconds=0.3) for _ in range(2))) as servers,
        connected(a_version(*(server.endpoint for server in servers))) as backend,
    ):
        await asyncio.gather(*(backend.infer([ROW], LOAD_SECONDS) for _ in range(20)))
        for _ in range(30):
            with pytest.raises(DeadlineExceeded):
                await backend.infer([ROW], 0.005)
            assert backend.replicas.ejected == 0

        assert not any(replica.health.late for replica in backend.replicas._replicas)  # noqa: SLF001 - not shown


async def test_a_deadline_that_the_replicas_own_percentile_exceeds_ejects_none_however_long_it_is():
    hedging = Hedging(0.05, 128, lambda _outcome: None)
    async with running(*(Behaviour(delay_seconds=0.2) for _ in range(2))) as servers:
        backend: Any = connect(a_version(*(server.endpoint for server in servers)), hedging=hedging)
        await asyncio.gather(*(backend.infer([ROW], LOAD_SECONDS) for _ in range(100)))
        for _ in range(12):
            with pytest.raises(DeadlineExceeded):
                await backend.infer([ROW], 0.1)

        ejected = backend.replicas.ejected
        await backend.close()

    assert ejected == 0


async def test_a_replica_that_hangs_is_found_by_callers_with_tiny_deadlines_too():
    async with (
        running(Behaviour(), hung()) as servers,
        connected(a_version(*(server.endpoint for server in servers))) as backend,
    ):

        async def is_ejected() -> bool:
            with suppress(DeadlineExceeded):
                await backend.infer([ROW], 0.005)
            return bool(backend.replicas._replicas[1].health.ejected)  # noqa: SLF001 - not shown

        assert await eventually(is_ejected, LOAD_SECONDS)


@pytest.mark.timed
async def test_the_only_replica_answers_within_a_second_of_coming_back_on_its_port():
    async with serving("oip") as (backend, server):
        await backend.infer([ROW], LOAD_SECONDS)
        await server.stop()
        end = time.monotonic() + 3.0  # by then gRPC's own back-off would pause for 2 to 3 s
        while time.monotonic() < end:
            with pytest.raises(BackendUnavailable):
                await backend.infer([ROW], LOAD_SECONDS)
            await asyncio.sleep(0.02)
        await server.start()

        async def answers() -> bool:
            try:
                await backend.infer([ROW], LOAD_SECONDS)
            except BackendUnavailable:
                return False
            return True

        assert await eventually(answers, SECOND)


async def test_connections_that_the_server_retires_cost_no_call():
    options = (("grpc.max_connection_age_ms", 150), ("grpc.max_connection_age_grace_ms", 20))
    async with running(options=options) as (server,), connected(a_version(server.endpoint)) as backend:
        server.behaviour.delay_seconds = 0.005
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            await asyncio.gather(*(backend.infer([ROW], LOAD_SECONDS) for _ in range(8)))

        assert backend.replicas.in_flight == 0


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_connection_reset_under_a_call_costs_a_retry_and_not_the_call(replicas: int):
    async with running() as (server,), TcpRelay(server.port) as relay:
        endpoints = [relay.endpoint, server.endpoint][:replicas]
        async with connected(a_version(*endpoints)) as backend:
            server.behaviour.delay_seconds = 1.0
            calls = [asyncio.ensure_future(backend.infer([ROW], LOAD_SECONDS)) for _ in range(4)]

            async def are_under_way() -> bool:
                return server.calls == 4

            assert await eventually(are_under_way, LOAD_SECONDS)
            relay.cut()
            answers = await asyncio.gather(*calls)

            assert [answer.values.tolist() for answer in answers] == [[SCORE]] * 4
            assert server.calls > 4


async def test_a_connection_that_breaks_while_it_is_young_costs_a_retry_and_not_the_call():
    async with running(Behaviour(delay_seconds=0.1)) as (server,), TcpRelay(server.port) as relay:
        for moment in [0.0, 0.001, 0.002, 0.005] * 6:  # some of them meet a write
            async with connected(a_version(relay.endpoint)) as backend:
                assert await backend.ready(LOAD_SECONDS)  # one that breaks while it is being made is no connection yet
                calls = [asyncio.ensure_future(backend.infer([ROW], LOAD_SECONDS)) for _ in range(4)]
                await asyncio.sleep(moment)

                relay.cut()
                answers = await asyncio.gather(*calls)

            assert [answer.values.tolist() for answer in answers] == [[SCORE]] * 4


async def test_a_replica_that_says_unavailable_is_replaced_by_the_other_for_that_call():
    async with (
        running(Behaviour(code=grpc.StatusCode.UNAVAILABLE, ready=False), Behaviour()) as (one, other),
        connected(a_version(one.endpoint, other.endpoint)) as backend,
    ):
        for _ in range(MANY):
            await backend.infer([ROW], LOAD_SECONDS)

        assert other.completed == MANY
        assert one.calls == 3


@pytest.mark.parametrize("replicas", [1, 2])
async def test_while_no_replica_answers_retries_end_and_answers_earn_them_again(replicas: int):
    async with (
        running(*(Behaviour() for _ in range(replicas))) as servers,
        connected(a_version(*(server.endpoint for server in servers))) as backend,
    ):

        async def calls_made(count: int, code: grpc.StatusCode | None) -> int:
            before = sum(server.calls for server in servers)
            for server in servers:
                server.behaviour.code = code
            for _ in range(count):
                with nullcontext() if code is None else pytest.raises(BackendUnavailable):
                    await backend.infer([ROW], LOAD_SECONDS)
            return sum(server.calls for server in servers) - before

        assert await calls_made(400, grpc.StatusCode.UNAVAILABLE) == 400 + 100
        assert await calls_made(52, None) == 52
        assert await calls_made(40, grpc.StatusCode.UNAVAILABLE) == 40 + 10


async def test_a_call_that_the_server_cancels_is_unavailable_and_cancels_no_caller():
    async with serving("oip") as (backend, server):
        server.behaviour.code = grpc.StatusCode.CANCELLED

        with pytest.raises(BackendUnavailable):
            await backend.infer([ROW], LOAD_SECONDS)


CANNOT_SERVE = ["NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "PERMISSION_DENIED"]


@pytest.mark.parametrize("code", CANNOT_SERVE)
async def test_a_replica_that_cannot_serve_the_version_is_replaced_by_the_other_and_ejected(code: str):
    async with (
        running(Behaviour(code=grpc.StatusCode[code]), Behaviour()) as (one, other),
        connected(a_version(one.endpoint, other.endpoint)) as backend,
    ):
        one.behaviour.ready = False
        for _ in range(MANY):
            await backend.infer([ROW], LOAD_SECONDS)

        assert (other.completed, one.calls, backend.replicas.ejected) == (MANY, 3, 1)


@pytest.mark.parametrize("code", CANNOT_SERVE)
async def test_the_only_replica_that_cannot_serve_the_version_is_called_once_and_unavailable(code: str):
    async with serving("oip") as (backend, server):
        server.behaviour.code = grpc.StatusCode[code]
        for _ in range(6):
            with pytest.raises(BackendUnavailable, match=code):
                await backend.infer([ROW], LOAD_SECONDS)

        assert (server.calls, backend.replicas.ejected) == (6, 0)


async def test_a_replica_that_refuses_every_call_is_ejected_while_the_other_answers():
    async with (
        running(Behaviour(code=grpc.StatusCode.INTERNAL, ready=False), Behaviour()) as (one, other),
        connected(a_version(one.endpoint, other.endpoint)) as backend,
    ):
        calls = [backend.infer([ROW], LOAD_SECONDS) for _ in range(200)]
        outcomes = [await asyncio.gather(call, return_exceptions=True) for call in calls]
        refused = [outcome for (outcome,) in outcomes if isinstance(outcome, BadAnswer)]

        assert backend.replicas.ejected == 1
        assert 5 <= len(refused) == one.calls < 40
        assert other.completed == 200 - len(refused)


@pytest.mark.parametrize(
    "details", ["SERVER: Received message larger than max (9 vs. 4)", "gRPC message exceeds maximum size 4: 9"]
)
async def test_a_message_over_the_servers_limit_is_the_calls_fault_and_not_the_replicas(details: str):
    async with running(Behaviour(), Behaviour()) as servers:
        for server in servers:
            server.behaviour.code, server.behaviour.details = grpc.StatusCode.RESOURCE_EXHAUSTED, details
        async with connected(a_version(*(server.endpoint for server in servers))) as backend:
            for _ in range(12):
                with pytest.raises(BadAnswer, match="RESOURCE_EXHAUSTED"):
                    await backend.infer([ROW], LOAD_SECONDS)

            assert (backend.replicas.ejected, sum(server.calls for server in servers)) == (0, 12)


async def test_calls_that_every_replica_refuses_eject_none_and_are_not_repeated():
    async with running(Behaviour(), Behaviour()) as servers:
        for server in servers:
            server.behaviour.code = grpc.StatusCode.INTERNAL
        async with connected(a_version(*(server.endpoint for server in servers))) as backend:
            for _ in range(12):
                with pytest.raises(BadAnswer, match="INTERNAL"):
                    await backend.infer([ROW], LOAD_SECONDS)

            assert (backend.replicas.ejected, sum(server.calls for server in servers)) == (0, 12)


async def test_closing_fails_the_calls_in_flight_and_cancels_no_caller():
    async with serving("oip") as (backend, server):
        server.behaviour.delay_seconds = 30
        calls = [asyncio.ensure_future(backend.infer([ROW], LOAD_SECONDS)) for _ in range(5)]
        await asyncio.sleep(0.1)

        await backend.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert all(isinstance(outcome, BackendUnavailable) for outcome in outcomes)


@pytest.mark.parametrize("http2_error", [1, 2, 7, 8], ids=["protocol", "internal", "refused", "cancel"])
async def test_a_stream_that_the_peer_resets_is_taken_to_the_other_replica(http2_error: int):
    async with (
        FrameServer(reset_with(http2_error)) as resetter,
        running() as (server,),
        connected(a_version(resetter.endpoint, server.endpoint)) as backend,
    ):
        for _ in range(MANY):
            await backend.infer([ROW], LOAD_SECONDS)

        assert server.completed == MANY
        assert resetter.calls >= 1


OUTLIVES = """
import asyncio, sys
from contract.servers import FrameServer, go_away_with, running
from contract.test_model_backend import ROW, a_version, connected
from understudy.errors import ServingError

async def main():
    async with (
        FrameServer(go_away_with(int(sys.argv[1]))) as leaving,
        running() as (server,),
        connected(a_version(leaving.endpoint, server.endpoint)) as backend,
    ):
        for _ in range(20):
            try:
                await backend.infer([ROW], 20.0)
            except ServingError as problem:
                print(type(problem).__name__)
        print(server.completed, leaving.calls > 0)

asyncio.run(main())
"""
"""A process of its own: releases of gRPC abort it (ADR 61)."""
LOCKED_GRPC = re.findall(r"^grpcio==(\S+)", Path("requirements/dev.txt").read_text(), re.MULTILINE)[0]


@pytest.mark.deep
@pytest.mark.skipif(grpc.__version__ != LOCKED_GRPC, reason=f"not the locked release {LOCKED_GRPC}: make setup")
@pytest.mark.parametrize("http2_error", [0, 11, 13, 70_007])
def test_a_connection_that_ends_with_whatever_code_ends_no_process_and_costs_no_call(http2_error: int):
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVES, str(http2_error)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "20 True\n"), done.stderr[-500:]


async def test_an_endpoint_reaches_no_unix_socket():
    with TemporaryDirectory() as folder:
        server = ModelServer()
        await server.start(f"unix:{folder}/s")
        async with connected(a_version(f"unix:{folder}/s")) as backend:
            with pytest.raises(BackendUnavailable):
                await backend.infer([ROW], LOAD_SECONDS)
        await server.stop()

    assert server.calls == 0


@pytest.mark.parametrize("endpoints", [(), ("no-such-host.invalid:1",)])
async def test_a_version_without_a_usable_endpoint_is_unavailable(endpoints: tuple[str, ...]):
    async with connected(a_version(*endpoints)) as backend:
        with pytest.raises(BackendUnavailable):
            await backend.infer([ROW], LOAD_SECONDS)

        assert not await backend.ready(0.1)
