# mypy: ignore-errors
# (It runs in the clients' own venv, where there is one; that has no types, and ours has no Triton.)
"""Call a gRPC port by Triton's client, or by gRPC's own where there is none, until standard input ends.

python ask_steadily.py <address of the port> <file with rows> <calls a second>

It prints a line when it is answered for the first time, and at the end one line of JSON: how many calls were answered,
the ids of their rows, what failed, and when each failed one was sent and ended (of the clock that all processes share).
"""

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np

try:
    import tritonclient.grpc.aio as triton
except ImportError:
    triton = None

ADDRESS, ROWS = sys.argv[1], np.array(json.loads(Path(sys.argv[2]).read_text()), "<f4")
PER_SECOND = float(sys.argv[3])
PATIENCE_SECONDS = 10


class Refused(Exception):
    """A call that was not answered."""


@asynccontextmanager
async def by_triton():
    row = triton.InferInput("input", list(ROWS[:1].shape), "FP32")
    row.set_data_from_numpy(ROWS[:1])
    async with triton.InferenceServerClient(ADDRESS) as client:

        async def infer():
            try:
                return (await client.infer("visits", [row], client_timeout=PATIENCE_SECONDS)).get_response()
            except triton.InferenceServerException as refused:
                raise Refused(f"{refused.status()}: {str(refused.message())[:120]}") from None

        yield infer


@asynccontextmanager
async def by_grpc():
    from understudy.adapters._proto import understudy_oip_pb2 as pb  # noqa: PLC0415 - not in the clients' venv

    request = pb.ModelInferRequest(model_name="visits")
    request.inputs.add(name="input", datatype="FP32", shape=ROWS[:1].shape)
    request.raw_input_contents.append(ROWS[:1].tobytes())
    message = request.SerializeToString()
    async with grpc.aio.insecure_channel(ADDRESS) as channel:
        ask = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        async def infer():
            try:
                return pb.ModelInferResponse.FromString(await ask(message, timeout=PATIENCE_SECONDS))
            except grpc.aio.AioRpcError as refused:
                raise Refused(f"{refused.code()}: {str(refused.details())[:120]}") from None

        yield infer


async def main():
    failed, ids, when = Counter(), [], []
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with (by_triton if triton else by_grpc)() as infer, asyncio.TaskGroup() as calls:

        async def call():
            sent = time.monotonic()
            try:
                answer = await infer()
            except Refused as refused:
                failed[str(refused)] += 1
                when.append((sent, time.monotonic()))
            else:
                ids.append(answer.parameters["prediction_id"].string_param)

        await call()
        sys.stdout.write("answered\n")
        sys.stdout.flush()
        began, number = time.monotonic(), 0
        while not over.done():
            calls.create_task(call())
            number += 1
            await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
    sys.stdout.write(json.dumps({"answered": len(ids), "failed": failed, "ids": ids, "when": when}))


asyncio.run(main())
