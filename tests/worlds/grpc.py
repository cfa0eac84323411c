"""The proxy application with in-memory parts and a gRPC port, and a client of grpcio for it."""

import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from builders import a_version_row, policy_rows

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.core.schema.tensors import Datatype, Row, Tensor
from worlds.proxy import start

__all__ = ["start"]
ROWS = np.array([[40.1, 2.7], [30.3, 1e-3]], "<f4")
EXPECTED = ROWS * np.float32(0.1)
OUTPUT = {"tensor": "logits", "dtype": "float32", "shape": [2]}
KEY, VISITOR = (("authorization", f"Bearer {name}.secret") for name in ("ops", "visitor"))


def tenth(rows: Sequence[Row]) -> Tensor:
    values = np.array([one for row in rows for one in struct.unpack("<2f", row[0])], "<f4") * np.float32(0.1)
    return Tensor(Datatype.FP32, (len(rows), 2), values, "logits")


def with_more(rows: Sequence[Row]) -> Tensor:
    """Answer with outputs beside the judged one: a number that JSON has not, and bytes that are no text."""
    ranks = Tensor(Datatype.FP64, (len(rows), 1), np.full(len(rows), np.inf), "rank")
    words = np.array([b"\xff\x00%d" % place for place in range(len(rows))], object)
    return replace(tenth(rows), beside=(ranks, Tensor(Datatype.BYTES, (len(rows),), words, "raw")))


class Client:
    """Calls methods by their paths."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def ask(
        self, path: str, request: Any, answer: Any, *metadata: tuple[str, str | bytes], **options: Any
    ) -> Any:
        call: Any = self.channel.unary_unary(path)(request.SerializeToString(), metadata=metadata, **options)
        body = await call
        self.trailing = dict(tuple(await call.trailing_metadata() or ()))
        return answer.FromString(body)


async def refused(call: Any) -> tuple[grpc.StatusCode, str, dict[str, Any]]:
    with pytest.raises(grpc.aio.AioRpcError) as problem:
        await call
    return problem.value.code(), problem.value.details() or "", dict(tuple(problem.value.trailing_metadata() or ()))


@pytest.fixture
async def up(start: Any) -> AsyncIterator[Any]:
    clients: list[Client] = []

    async def run(also: Sequence[str] = (), function: Any = tenth, **options: Any) -> tuple[Any, Client]:
        port, output = free_port(), {**OUTPUT, **({"also": list(also)} if also else {})}
        versions = [a_version_row(label, output_schema=output, timeout_ms=10_000) for label in ("1", "2")]
        models = {"visits": policy_rows(versions=versions)}
        proxy = await start(grpc_port=port, functions={"1": function, "2": function}, models=models, **options)
        clients.append(Client(port))
        return proxy, clients[-1]

    yield run
    for client in clients:
        await client.channel.close()
