"""The gRPC port with real clients of grpcio: calls are what they are over REST, and end in statuses."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import numpy as np
import orjson
import pytest
from loopback.http2_server import DATA, END_STREAM, frame
from worlds.grpc import EXPECTED, KEY, ROWS, VISITOR, Client, refused, start, up, with_more
from worlds.http2_port import head, message_of, raw_caller

from understudy.adapters._proto import understudy_health_pb2 as health
from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.entrypoints.proxy.dialects.protobuf import INLINE_MESSAGE_BYTES
from understudy.entrypoints.proxy.overload.overload import OVERLOAD
from understudy.entrypoints.proxy.server.graceful_shutdown import BESIDE

__all__ = ["start", "up"]
OIP = "/inference.GRPCInferenceService/"
Status = health.HealthCheckResponse


def infer(rows: Any = ROWS, *, raw: bool = True, **changes: Any) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(**{"model_name": "visits", "id": "mine", **changes})
    tensor = request.inputs.add(name="input", datatype="FP32", shape=rows.shape)
    if raw:
        request.raw_input_contents.append(rows.tobytes())
    else:
        tensor.contents.fp32_contents.extend(rows.ravel().tolist())
    return request


async def ask_infer(client: Client, request: pb.ModelInferRequest, *metadata: Any, **options: Any) -> Any:
    return await client.ask(f"{OIP}ModelInfer", request, pb.ModelInferResponse, *metadata, **options)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - what is waited for are lists and counters
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("raw", [True, False])
async def test_a_call_is_answered_with_the_servers_own_bits_and_is_logged_once(up, raw):
    proxy, client = await up()

    answer = await ask_infer(client, infer(raw=raw), ("x-entity-id", "customer-42"))

    (output,) = answer.outputs
    found = answer.raw_output_contents[0] if raw else np.array(output.contents.fp32_contents, "<f4").tobytes()
    assert found == EXPECTED.tobytes()
    assert bool(answer.raw_output_contents) is raw is not bool(output.contents.fp32_contents)
    assert (output.name, output.datatype, list(output.shape)) == ("logits", "FP32", [2, 2])
    assert (answer.model_name, answer.model_version, answer.id) == ("visits", "1", "mine")
    rows = proxy.spool.rows
    assert [row.entity_id for row in rows] == ["customer-42"] * 2
    assert (
        answer.parameters["prediction_id"].string_param == rows[0].prediction_id == client.trailing["x-prediction-id"]
    )
    assert (client.trailing["x-model-version"], client.trailing["x-model-role"]) == ("1", "champion")
    page = proxy.telemetry.exposition()[0].decode()
    assert 'dialect_calls_total{dialect="oip_grpc",entity="call",model="visits"} 1.0' in page
    assert 'grpc_calls_total{code="OK",method="inference.GRPCInferenceService/ModelInfer"} 1.0' in page


@pytest.mark.parametrize("wanted", [(), ("rank", "understudy_version")])
async def test_outputs_beside_the_judged_one_are_the_servers_own_bits(up, wanted):
    proxy, client = await up(also=("rank", "raw"), function=with_more)
    request = infer(outputs=[{"name": name} for name in wanted])

    answers = [await ask_infer(client, request) for _ in range(2)]

    contents = dict(zip([one.name for one in answers[0].outputs], answers[0].raw_output_contents, strict=True))
    assert client.trailing["cache-status"] == "understudy; hit"
    assert list(answers[0].raw_output_contents) == list(answers[1].raw_output_contents)
    assert tuple(contents) == (wanted or ("logits", "rank", "raw"))
    assert np.frombuffer(contents["rank"], "<f8").tolist() == [np.inf, np.inf]
    if not wanted:
        assert contents["logits"] == EXPECTED.tobytes()
        assert contents["raw"] == b"\3\0\0\0\xff\x000\3\0\0\0\xff\x001"
        assert {row.error_code for row in proxy.spool.rows} == {None}


async def test_both_transports_share_the_cache_and_the_route(up):
    proxy, client = await up()
    body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2], "data": ROWS[0].tolist()}]}
    over_rest = await proxy.client.post("/v2/models/visits/infer", json=body, headers={"x-entity-id": "u"})
    over_grpc = await ask_infer(client, infer(ROWS[:1]), ("x-entity-id-bin", b"u"))

    assert client.trailing["cache-status"] == "understudy; hit"
    assert over_grpc.raw_output_contents[0] == np.array(over_rest.json()["outputs"][0]["data"], "<f4").tobytes()
    assert [row.entity_id for row in proxy.spool.rows] == ["u", "u"]


async def test_an_entity_for_each_row_and_parameters_are_as_over_rest(up):
    proxy, client = await up()
    request = infer()
    request.inputs.add(name="entity_id", datatype="BYTES", shape=[2, 1])
    request.raw_input_contents.append(b"".join(len(one).to_bytes(4, "little") + one for one in (b"a", b"b")))

    await ask_infer(client, request)
    by_parameter = infer(ROWS[:1])
    by_parameter.parameters["entity_id"].int64_param = 42
    by_parameter.parameters["priority"].uint64_param = 1
    await ask_infer(client, by_parameter)

    assert [row.entity_id for row in proxy.spool.rows] == ["a", "b", "42"]


REFUSED = {
    "unknown model": (infer(model_name="nope"), (), "NOT_FOUND", "E201"),
    "unknown version": (infer(model_version="77"), (KEY,), "NOT_FOUND", "E202"),
    "another's version": (infer(model_version="2"), (VISITOR,), "PERMISSION_DENIED", "E403"),
    "unknown key": (infer(), (("authorization", "Bearer nobody.x"),), "UNAUTHENTICATED", "E401"),
    "two keys": (infer(), (KEY, VISITOR), "INVALID_ARGUMENT", "E104"),
    "two entities": (infer(), (("x-entity-id", "a"), ("x-entity-id-bin", b"b")), "INVALID_ARGUMENT", "E104"),
    "no rows": (infer(ROWS[:0]), (), "INVALID_ARGUMENT", "E105"),
    "not finite": (infer(ROWS * np.float32("nan")), (), "INVALID_ARGUMENT", "E101"),
    "other output": (infer(outputs=[{"name": "y"}]), (), "INVALID_ARGUMENT", "E101"),
    "sequence": (infer(parameters={"sequence_id": {"int64_param": 7}}), (), "UNIMPLEMENTED", "E111"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_an_error_is_a_status_with_a_sentence_and_the_problem(up, name):
    proxy, client = await up()
    request, metadata, wanted, code = REFUSED[name]

    status, sentence, trailing = await refused(ask_infer(client, request, *metadata))

    assert (status.name, trailing["understudy-code"]) == (wanted, code)
    assert sentence.startswith(code)
    assert "Next: " in sentence
    problem = orjson.loads(trailing["understudy-errors-bin"])
    assert (problem["code"], problem["instance"]) == (code, f"{OIP}ModelInfer")
    assert proxy.spool.rows == []


async def test_an_error_with_a_thousand_places_fits_what_clients_take(up):
    _, client = await up()
    wide = np.full((200, 2), np.nan, "<f4")

    status, _, trailing = await refused(ask_infer(client, infer(wide)))

    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert orjson.loads(trailing["understudy-errors-bin"])["errors"][0]["pointer"] == "/inputs/0/data/0"


async def test_what_is_asked_of_server_and_models(up):
    proxy, client = await up()
    server = await client.ask(f"{OIP}ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse)
    model = await client.ask(f"{OIP}ModelMetadata", pb.ModelMetadataRequest(name="visits"), pb.ModelMetadataResponse)
    config = await client.ask(f"{OIP}ModelConfig", pb.ModelConfigRequest(name="visits"), pb.ModelConfigResponse)
    index = await client.ask(f"{OIP}RepositoryIndex", pb.RepositoryIndexRequest(), pb.RepositoryIndexResponse)
    ready = await client.ask(f"{OIP}ModelReady", pb.ModelReadyRequest(name="visits"), pb.ModelReadyResponse)

    assert server.name == "understudy"
    over_rest = (await proxy.client.get("/v2/models/visits")).json()
    assert [(one.name, one.datatype, list(one.shape)) for one in (*model.inputs, *model.outputs)] == [
        (one["name"], one["datatype"], one["shape"]) for one in over_rest["inputs"] + over_rest["outputs"]
    ]
    assert (config.config.max_batch_size, list(config.config.output[0].dims)) == (256, [2])
    assert {(one.name, one.state) for one in index.models} >= {("visits", "READY")}
    assert ready.ready


async def test_statistics_and_who_answered_each_row_are_as_over_rest(up):
    proxy, client = await up()
    wanted = [{"name": "logits"}, {"name": "understudy_version"}]
    for raw in (True, False):
        answer = await ask_infer(client, infer(raw=raw, outputs=wanted))
        _, versions = answer.outputs
        assert (versions.name, versions.datatype, list(versions.shape)) == ("understudy_version", "BYTES", [2])
        if raw:
            assert answer.raw_output_contents[1] == b"\x01\x00\x00\x001" * 2
        else:
            assert list(versions.contents.bytes_contents) == [b"1", b"1"]

    asked = [{"name": "visits"}, {"name": "visits", "version": "1"}, {}]
    model, version, every = [
        await client.ask(f"{OIP}ModelStatistics", pb.ModelStatisticsRequest(**one), pb.ModelStatisticsResponse)
        for one in asked
    ]

    over_rest = (await proxy.client.get("/v2/models/visits/stats")).json()["model_stats"]
    assert [(one.version, one.inference_count) for one in model.model_stats] == [
        (one["version"], one["inference_count"]) for one in over_rest
    ]
    assert model.model_stats[0].inference_stats.success.count == 4
    assert list(version.model_stats) == [model.model_stats[0]]
    assert {one.name for one in every.model_stats} >= {"visits"}


async def test_where_keys_are_asked_for_only_health_is_told_without_one(up):
    _, client = await up(auth=True)

    live = await client.ask(f"{OIP}ServerLive", pb.ServerLiveRequest(), pb.ServerLiveResponse)
    ready = await client.ask(f"{OIP}ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse)
    found = await client.ask("/grpc.health.v1.Health/Check", health.HealthCheckRequest(), Status)
    assert (live.live, ready.ready, found.status) == (True, True, Status.SERVING)
    model = pb.ModelMetadataRequest(name="visits")
    for metadata, wanted in (((), "UNAUTHENTICATED"), ((VISITOR,), "PERMISSION_DENIED")):
        asked = client.ask(f"{OIP}ModelMetadata", model, pb.ModelMetadataResponse, *metadata)
        assert (await refused(asked))[0].name == wanted
    assert (await ask_infer(client, infer(), VISITOR)).model_name == "visits"


async def test_no_message_is_awaited_of_a_caller_without_a_key_nor_for_longer_than_its_time(up):
    _, client = await up(auth=True, receive_seconds=0.2)
    silent = asyncio.Event()

    async def never() -> AsyncIterator[bytes]:
        await silent.wait()
        yield b""

    ask = client.channel.stream_unary(f"{OIP}ModelInfer")
    without = await refused(ask(never()))
    late = await refused(ask(never(), metadata=(VISITOR,)))

    assert (without[0].name, without[2]["understudy-code"]) == ("UNAUTHENTICATED", "E401")
    assert (late[0].name, late[2]["understudy-code"]) == ("DEADLINE_EXCEEDED", "E107")
    silent.set()


async def test_long_messages_are_refused_before_they_have_come_or_were_inflated(up):
    proxy, client = await up(body_limit_bytes=65_536)
    longer = np.zeros((8_500, 2), "<f4")

    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate):
        status, _, trailing = await refused(ask_infer(client, infer(longer), compression=compression))
        assert (status.name, trailing["understudy-code"]) == ("RESOURCE_EXHAUSTED", "E103")
    assert proxy.spool.rows == []


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("rows", [2, 200])
async def test_compressed_messages_are_inflated_and_answered_with_the_same_bits(up, compression, rows):
    proxy, client = await up()
    inputs = np.tile(ROWS, (rows // 2, 1))

    answer = await ask_infer(client, infer(inputs), compression=compression)

    assert answer.raw_output_contents[0] == np.tile(EXPECTED, (rows // 2, 1)).tobytes()
    assert len(proxy.spool.rows) == rows


async def test_a_long_message_is_answered_as_a_short_one_and_one_that_asks_of_a_model_has_bounds_of_its_own(up):
    proxy, client = await up()
    longer = infer()
    longer.parameters["note"].string_param = "x" * 2 * INLINE_MESSAGE_BYTES
    long_name = pb.ModelMetadataRequest(name="x" * 2 * INLINE_MESSAGE_BYTES)

    answer = await ask_infer(client, longer)
    status, _, trailing = await refused(client.ask(f"{OIP}ModelMetadata", long_name, pb.ModelMetadataResponse))

    assert answer.raw_output_contents[0] == EXPECTED.tobytes()
    assert len(proxy.spool.rows) == len(ROWS)
    assert (status.name, trailing["understudy-code"]) == ("RESOURCE_EXHAUSTED", "E103")


async def test_a_deadline_of_the_call_is_the_rows_own(up):
    proxy, client = await up()
    proxy.backends["1"].delay_seconds = 5

    status, _, _ = await refused(ask_infer(client, infer(ROWS[:1]), timeout=0.1))

    assert status is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: len(proxy.spool.rows) == 1)


async def test_a_call_with_two_deadlines_is_refused_as_over_rest(up):
    proxy, client = await up()
    deadlines = (("grpc-timeout", "1S"), ("grpc-timeout", "1H"))
    message = message_of(infer(ROWS[:1]).SerializeToString())
    async with raw_caller(client.port) as caller:
        caller.send(head(1, f"{OIP}ModelInfer", *deadlines), frame(DATA, END_STREAM, 1, message))
        await caller.until_whole(1)

    assert dict(caller.answers.fields[1])["understudy-code"] == "E104"
    assert proxy.spool.rows == []


async def test_a_caller_who_gives_up_ends_its_wait_and_not_its_row(up):
    proxy, client = await up()
    proxy.backends["1"].delay_seconds = 0.3

    calls = [client.channel.unary_unary(f"{OIP}ModelInfer")(infer(ROWS[:1]).SerializeToString()) for _ in range(20)]
    routed = 'dialect_calls_total{dialect="oip_grpc",entity="none",model="visits"} 20.0'
    await until(lambda: routed in proxy.telemetry.exposition()[0].decode())
    for call in calls:
        call.cancel()

    await until(lambda: len(proxy.spool.rows) == len(calls))


async def test_callers_who_send_nothing_and_give_up_are_no_defects(up):
    proxy, client = await up()
    silent = asyncio.Event()

    async def never() -> AsyncIterator[bytes]:
        await silent.wait()
        yield b""

    calls = [client.channel.stream_unary(f"{OIP}ModelInfer")(never()) for _ in range(20)]
    await asyncio.gather(*(call.wait_for_connection() for call in calls))
    for call in calls:
        call.cancel()

    def ended() -> dict[str, float]:
        page = proxy.telemetry.exposition()[0].decode()
        found = re.findall(r'^grpc_calls_total\{code="(\w+)",.*\} (\S+)$', page, re.MULTILINE)
        return {code: float(count) for code, count in found}

    await until(lambda: sum(ended().values()) == len(calls))
    assert ended().keys() == {"CANCELLED"}
    silent.set()


async def test_a_service_is_watched_until_the_port_has_drained(up):
    proxy, client = await up()
    watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch")
    asked = health.HealthCheckRequest(service="inference.GRPCInferenceService").SerializeToString()
    found: list[int] = []

    async def look() -> None:
        async for one in watch(asked):
            found.append(Status.FromString(one).status)
            if found == [Status.SERVING]:
                seen.set()

    seen = asyncio.Event()
    watching = asyncio.create_task(look())
    await seen.wait()
    proxy.backends["1"].delay_seconds = 1
    under_way = asyncio.create_task(ask_infer(client, infer(ROWS[:1])))
    await until(lambda: bool(proxy.backends["1"].in_flight))
    await proxy.state[BESIDE].drain(3, is_alone=True)

    assert (await under_way).raw_output_contents
    await watching
    assert found == [Status.SERVING, Status.NOT_SERVING]


async def test_rows_are_charged_to_the_key_and_its_caller_is_told_when_to_come_again(up):
    proxy, client = await up(auth=True, key_calls_per_second=0.2)
    await ask_infer(client, infer(), VISITOR)  # two rows: all that 10 s have

    status, _, trailing = await refused(ask_infer(client, infer(), VISITOR))

    assert (status.name, trailing["understudy-code"]) == ("RESOURCE_EXHAUSTED", "E429")
    assert int(trailing["retry-after"]) >= 1
    assert "grpc-retry-pushback-ms" not in trailing
    assert len(proxy.spool.rows) == 2


async def test_what_is_asked_of_a_model_is_charged_by_its_own_length(up):
    _, client = await up(auth=True, key_bytes_per_second=2_000)

    for _ in range(8):
        asked = pb.ModelReadyRequest(name="visits")
        assert (await client.ask(f"{OIP}ModelReady", asked, pb.ModelReadyResponse, KEY)).ready


async def test_a_process_that_is_short_of_time_takes_no_call(up):
    proxy, client = await up()
    for _ in range(4):
        proxy.state[OVERLOAD].pressure.observe(5.0)

    status, _, trailing = await refused(ask_infer(client, infer()))

    assert (status.name, trailing["understudy-code"]) == ("RESOURCE_EXHAUSTED", "E507")
    assert trailing["grpc-retry-pushback-ms"] == "-1"
    assert proxy.spool.rows == []


async def test_methods_that_are_not_offered_say_what_to_do(up):
    _, client = await up()
    for name, what in {
        "ModelStreamInfer": "send each call by ModelInfer",
        "RepositoryModelLoad": "understudy version load",
        "Unheard": "has no such method here",
    }.items():
        status, sentence, _ = await refused(client.ask(OIP + name, pb.ModelInferRequest(), pb.ModelInferResponse))
        assert status is grpc.StatusCode.UNIMPLEMENTED
        assert what in sentence


async def test_bytes_that_are_no_message_are_refused(up):
    _, client = await up()
    status, sentence, _ = await refused(client.channel.unary_unary(f"{OIP}ModelInfer")(b"\xff" * 40))

    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "no ModelInferRequest" in sentence


@pytest.mark.parametrize(("method", "code"), [("ServerLive", "OK"), ("ServerReady", "OK"), ("Nope", "UNIMPLEMENTED")])
async def test_what_needs_no_key_waits_for_no_message(up, method, code):
    _, client = await up(auth=True)
    silent = asyncio.Event()

    async def never() -> AsyncIterator[bytes]:
        await silent.wait()
        yield b""

    async with asyncio.timeout(5):
        found = await client.channel.stream_unary(OIP + method)(never()).code()

    assert found.name == code
    silent.set()


async def test_messages_on_their_way_give_way_when_memory_is_short(up):
    proxy, client = await up()
    silent = asyncio.Event()

    async def never() -> AsyncIterator[bytes]:
        await silent.wait()
        yield b""

    call = client.channel.stream_unary(f"{OIP}ModelInfer")(never())
    await call.wait_for_connection()
    asking = asyncio.create_task(refused(call))
    overload = proxy.state[OVERLOAD]
    while not asking.done():
        for give_back in overload.relief:
            give_back()
        await asyncio.sleep(0.01)

    status, _, trailing = await asking
    assert (status.name, trailing["understudy-code"]) == ("RESOURCE_EXHAUSTED", "E507")
    silent.set()


async def test_a_connection_that_says_nothing_is_closed(up):
    _, client = await up(receive_seconds=0.2)
    await client.channel.channel_ready()

    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)

    async with asyncio.timeout(10):
        while await reader.read(1_024):
            pass
    writer.close()


SERVICES = (
    "",
    "inference.GRPCInferenceService",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)


async def test_each_service_is_told_of_by_its_name_until_the_port_drains(up):
    proxy, client = await up()
    watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch")
    found: dict[str, list[int]] = {service: [] for service in SERVICES}

    async def look(service: str) -> None:
        async for one in watch(health.HealthCheckRequest(service=service).SerializeToString()):
            found[service].append(Status.FromString(one).status)

    watching = [asyncio.create_task(look(service)) for service in SERVICES]
    await until(lambda: all(found.values()))
    checked = [
        (await client.ask("/grpc.health.v1.Health/Check", health.HealthCheckRequest(service=service), Status)).status
        for service in SERVICES
    ]
    unheard = client.ask("/grpc.health.v1.Health/Check", health.HealthCheckRequest(service="inference.Unheard"), Status)
    status, _, _ = await refused(unheard)
    await proxy.state[BESIDE].drain(3, is_alone=True)
    await asyncio.gather(*watching)

    assert checked == [Status.SERVING] * len(SERVICES)
    assert status is grpc.StatusCode.NOT_FOUND
    assert found == {service: [Status.SERVING, Status.NOT_SERVING] for service in SERVICES}
