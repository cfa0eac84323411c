"""Calls by gRPC through real processes: each answered row is in the log once, over TLS and through an end."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from e2e.stack import a_stack, logged_ids, register, sql
from loopback.certificates import Authority

from understudy.adapters._proto import understudy_health_pb2 as health
from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.embedded.loopback_ports import free_port

INFER = "/inference.GRPCInferenceService/ModelInfer"
AT_THE_END = {grpc.StatusCode.UNAVAILABLE}
"""What a call ends with that finds the port closed."""
NAMES = [feature["name"] for feature in example_version("visits", 1).input_schema["features"]]
ROW = np.array([[example_rows("visits")[0].inputs[name] for name in NAMES]], "<f4")


def infer() -> bytes:
    request = pb.ModelInferRequest(model_name="visits")
    request.inputs.add(name="input", datatype="FP32", shape=ROW.shape)
    request.raw_input_contents.append(ROW.tobytes())
    return request.SerializeToString()


class Callers:
    """Some that call all the time, each until it is told to stop, or the port is gone."""

    def __init__(self, channel: Any) -> None:
        self.ids: list[str] = []
        self.failed: Counter[str] = Counter()
        self.is_over = False
        self._ask = channel.unary_unary(INFER)

    async def run(self, *, goes_on: bool) -> None:
        while not self.is_over:
            call = self._ask(infer(), wait_for_ready=goes_on, timeout=30)
            try:
                await call
            except grpc.aio.AioRpcError as refused:
                if refused.code() not in AT_THE_END:
                    raise
                self.failed[refused.code().name] += 1
                if not goes_on:
                    return
            else:
                self.ids.append(dict(tuple(await call.trailing_metadata()))["x-prediction-id"])
            await asyncio.sleep(0.02)


async def until_serving(channel: Any) -> None:
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    async with asyncio.timeout(90):
        while True:
            with suppress(grpc.aio.AioRpcError):
                found = health.HealthCheckResponse.FromString(await check(b"", wait_for_ready=True, timeout=10))
                if found.status == health.HealthCheckResponse.SERVING:
                    return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def calling(channel: Any, *, goes_on: bool) -> AsyncIterator[Callers]:
    """Have callers call, and begin when they are answered."""
    callers = Callers(channel)
    async with asyncio.TaskGroup() as group, asyncio.timeout(120):
        for _ in range(4):
            group.create_task(callers.run(goes_on=goes_on))
        while len(callers.ids) < 40:
            await asyncio.sleep(0.01)
        yield callers
        if goes_on:
            enough = len(callers.ids) + 40
            while len(callers.ids) < enough:
                await asyncio.sleep(0.01)
            callers.is_over = True


async def prepared(database_url: str, port: int) -> None:
    champion = await register(database_url, 1, [port])
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)


async def test_over_tls_no_call_that_was_begun_is_lost_when_the_proxy_ends(
    database_url: str, tmp_path: Path, model_port: Callable[[str], int]
) -> None:
    made, grpc_port = Authority(tmp_path / "authority").sign("127.0.0.1"), free_port()
    await prepared(database_url, model_port("visits:1"))
    credentials = grpc.ssl_channel_credentials((tmp_path / "authority" / "ca.pem").read_bytes())
    tls: dict[str, Any] = {"tls_cert": made.cert, "tls_key": made.key}

    with a_stack(tmp_path, database_url) as stack:
        stack.start_proxy(wait_ready=False, grpc_port=grpc_port, drain_seconds=1, **tls)
        async with grpc.aio.secure_channel(f"127.0.0.1:{grpc_port}", credentials) as channel:
            await until_serving(channel)
            async with calling(channel, goes_on=False) as callers:
                stack.processes["proxy"].signal(signal.SIGTERM)
        await asyncio.to_thread(stack.processes["proxy"].child.wait, 30)

    assert sorted(await logged_ids(database_url, set(callers.ids))) == sorted(callers.ids)
    assert "gRPC" not in stack.processes["proxy"].log.read_text()


async def test_workers_share_the_port_and_are_replaced_while_callers_call(
    database_url: str, tmp_path: Path, model_port: Callable[[str], int]
) -> None:
    grpc_port = free_port()
    await prepared(database_url, model_port("visits:1"))

    with a_stack(tmp_path, database_url) as stack:
        await asyncio.to_thread(lambda: stack.start_proxy(workers=2, grpc_port=grpc_port))
        proxy = stack.processes["proxy"]
        first = set(proxy.children())
        async with grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            await until_serving(channel)
            async with calling(channel, goes_on=True) as callers:
                proxy.signal(signal.SIGHUP)
                while first & set(proxy.children()):
                    await asyncio.sleep(0.05)

    assert not callers.failed
    assert sorted(await logged_ids(database_url, set(callers.ids))) == sorted(callers.ids)
