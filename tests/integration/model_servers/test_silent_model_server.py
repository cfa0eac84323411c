"""The only model server of a version freezes: callers are refused at once, and served as soon as it is back."""

import asyncio
import signal
import time

import pytest
from e2e.stack import a_stack

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.model_servers.oip import OipBackend
from understudy.adapters.model_servers.replicas.probes import HALF_OPEN_SECONDS
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.policy_document import version_from_row
from understudy.core.upstream.replicas import LATE_TO_SUSPECT
from understudy.errors import BackendUnavailable, DeadlineExceeded

DEADLINE_SECONDS = 0.3
PATIENT_SECONDS = 30.0


def a_version(*endpoints: str) -> ModelVersion:
    example = example_version("visits", 1)
    row = {
        "id": 1,
        "version": "1",
        "status": "champion",
        "protocol": "oip",
        "endpoints": list(endpoints),
        "input_schema": example.input_schema,
        "output_schema": example.output_schema,
        "backend": {},
        "deterministic": True,
        "cache_ttl_seconds": 0,
        "timeout_ms": 300,
    }
    return version_from_row("visits", row)


async def test_a_frozen_only_model_server_is_not_waited_for_again_until_it_says_that_it_serves(tmp_path):
    with a_stack(tmp_path, "") as stack:
        port = stack.start_model("visits:1", name="frozen")
        version = a_version(f"127.0.0.1:{port}")
        backend = OipBackend(version)
        rows = [version.input_schema.assemble(example_rows()[0].inputs).row]
        await backend.infer(rows, PATIENT_SECONDS)
        stack.processes["frozen"].signal(signal.SIGSTOP)
        for _ in range(LATE_TO_SUSPECT):
            with pytest.raises(DeadlineExceeded):
                await backend.infer(rows, DEADLINE_SECONDS)
        began = time.monotonic()
        refusals = await asyncio.gather(
            *(backend.infer(rows, PATIENT_SECONDS) for _ in range(20)), return_exceptions=True
        )
        told_seconds = time.monotonic() - began
        stack.processes["frozen"].signal(signal.SIGCONT)
        give_up = time.monotonic() + PATIENT_SECONDS
        while True:
            try:
                await backend.infer(rows, PATIENT_SECONDS)
                break
            except BackendUnavailable:
                assert time.monotonic() < give_up
                await asyncio.sleep(HALF_OPEN_SECONDS)
        await backend.close()

    assert {type(refusal) for refusal in refusals} == {BackendUnavailable}
    # If the replica were not suspect each call would have waited for its deadline.
    assert told_seconds < PATIENT_SECONDS / 2


async def test_an_ejected_model_server_that_is_back_takes_the_call_that_no_other_one_takes(tmp_path):
    with a_stack(tmp_path, "") as stack:
        ports = [stack.start_model("visits:1", name=name) for name in ("first", "second")]
        version = a_version(*(f"127.0.0.1:{port}" for port in ports))
        backend = OipBackend(version)
        rows = [version.input_schema.assemble(example_rows()[0].inputs).row]
        await backend.infer(rows, PATIENT_SECONDS)
        stack.processes.pop("first").stop()
        while backend.replicas.ejected == 0:
            await backend.infer(rows, PATIENT_SECONDS)
        stack.start_model("visits:1", name="first again", port=ports[0])
        # Connected again, but not probed: an ejection that has just begun lasts a second.
        await backend.replicas.ready(PATIENT_SECONDS)
        stack.processes.pop("second").stop()
        tensor = await backend.infer(rows, PATIENT_SECONDS)
        ejected = backend.replicas.ejected
        await backend.close()

    assert tensor.values.size > 0
    assert ejected <= 1
