"""The demo's first predict call and its answer."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from understudy.adapters.dev_server.example_models import example_rows
from understudy.adapters.embedded.loopback_ports import LOOPBACK
from understudy.entrypoints.demo.keep_alive import OK, KeepAliveClient
from understudy.entrypoints.demo.places import Demo
from understudy.entrypoints.demo.refusal import DemoRefused

CUSTOMER = 42
TRIES, PAUSE_SECONDS = 20, 0.5
CALL_SECONDS = 2.0


def first_request() -> Mapping[str, Any]:
    """Return the body of the first predict call: a held-out row of the example data."""
    return {"entity_id": f"customer-{CUSTOMER}", "inputs": example_rows("visits")[CUSTOMER].inputs}


async def first_prediction(demo: Demo) -> bytes:
    """Return the answer to the first predict call.

    Raises:
        DemoRefused: There was none within 10 seconds.
    """
    client = KeepAliveClient(LOOPBACK, demo.proxy_port, demo.credential)
    said = "nothing"
    try:
        for _ in range(TRIES):
            try:
                answer = await client.post("/v1/models/visits/predict", orjson.dumps(first_request()), CALL_SECONDS)
            except OSError as problem:
                said = str(problem) or type(problem).__name__
            else:
                if answer.status == OK:
                    return answer.body
                said = answer.body.decode(errors="replace")
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await client.close()
    raise DemoRefused(f"the proxy gave no prediction: {said}", f"Read {demo.state_dir / 'logs' / 'proxy.log'}.")
