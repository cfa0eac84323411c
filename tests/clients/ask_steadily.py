# mypy: ignore-errors
# (It runs in the clients' own venv; the libraries are not in ours.)
"""Runs in the clients' venv: call a gRPC port by Triton's client, until standard input ends, and print what came.

python ask_steadily.py <address of the port> <file with rows> <calls a second>

It prints a line when it is answered for the first time, and at the end one line of JSON.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import tritonclient.grpc.aio as triton

ADDRESS, ROWS = sys.argv[1], np.array(json.loads(Path(sys.argv[2]).read_text()), "<f4")
PER_SECOND = float(sys.argv[3])
PATIENCE_SECONDS = 10


async def main():
    answered, failed, ids = 0, Counter(), []
    row = triton.InferInput("input", list(ROWS[:1].shape), "FP32")
    row.set_data_from_numpy(ROWS[:1])
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with triton.InferenceServerClient(ADDRESS) as client, asyncio.TaskGroup() as calls:

        async def call():
            nonlocal answered
            try:
                answer = await client.infer("visits", [row], client_timeout=PATIENCE_SECONDS)
            except triton.InferenceServerException as refused:
                failed[f"{refused.status()}: {str(refused.message())[:120]}"] += 1
                return
            ids.append(answer.get_response().parameters["prediction_id"].string_param)
            answered += 1

        await call()
        sys.stdout.write("answered\n")
        sys.stdout.flush()
        began, number = time.monotonic(), 0
        while not over.done():
            calls.create_task(call())
            number += 1
            await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
    sys.stdout.write(json.dumps({"answered": answered, "failed": failed, "ids": ids}))


asyncio.run(main())
