"""What tracing costs a predict call: processor time of the fast path, from a request's bytes to its answer.

    python -m loadtests.tracing [--before FOLDER]

Everything is real but the spool (rows are thrown away), the model (in this process) and the collector (spans are
encoded as for one, and thrown away). ``--before`` names the ``src`` of another checkout, whose own copy of this module
measures it without traces: this one is written against parts that another checkout may not have, or call otherwise.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.telemetry.otel import OtelTracer, sampler_of
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.core.routing.policy import PolicySnapshot, Role, ServingPolicy
from understudy.core.routing.policy_document import version_from_row
from understudy.core.schema.tensors import Block, Datatype, Row, Tensor
from understudy.entrypoints.proxy.access.caller_access import CallerAccess
from understudy.entrypoints.proxy.predict.fast_path import FastPath
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.ports.telemetry.tracing import CURRENT
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.shadow_pool import ShadowPool
from understudy.serving.turn import Clocks, Limits, Predictor
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.cached_inference import CachedInference

ROUNDS = 7
CALLS = 12_000
AT_ONCE = 16
MODES = ("off", "not sampled", "1 in 100", "sampled")
BEFORE, UNTRACED = "before", "off"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
FEATURES = [f"f{number}" for number in range(16)]
BODY = b'{"entity_id":"customer-42","inputs":{%b}}' % b",".join(b'"%b":0.5' % name.encode() for name in FEATURES)


class NoSpool:
    """Takes rows and keeps none."""

    def append(self, _row: Any) -> bool:
        """Take a row."""
        return True

    def append_all(self, _rows: Any) -> tuple[int, ...]:
        """Take rows; none is dropped."""
        return ()


class Adding:
    """A model in this process; it makes a span of each call that is traced, as calls over gRPC do."""

    rows_per_call: int | None = None
    is_connected = True

    async def infer(self, rows: Sequence[Row], _timeout_seconds: float) -> Tensor:
        """Add up."""
        parent = CURRENT.get()
        step = parent.attempt("/inference.GRPCInferenceService/ModelInfer", "10.0.0.1:8500") if parent else None
        if step is not None:
            _ = step.headers
        await asyncio.sleep(0)
        if step is not None:
            step.tell({"rpc.grpc.status_code": 0})
            step.end()
        return Tensor(Datatype.FP32, (len(rows), 1), np.ones(len(rows), "<f4"))

    async def infer_block(self, _block: Block, _timeout_seconds: float) -> Tensor:
        """Answer no blocks."""
        raise NotImplementedError

    async def ready(self, _timeout_seconds: float) -> bool:
        """Serve."""
        return True

    async def close(self) -> None:
        """Have nothing to close."""


class Place:
    """Counts answers."""

    def __init__(self) -> None:
        self.answers = 0

    def answer(self, status: int, _lines: bytes, body: bytes) -> None:
        """Count a good answer, and refuse to go on after another: every call is a good one."""
        if status != HTTPStatus.OK:
            raise RuntimeError(f"{status}: {body!r}")
        self.answers += 1


def a_lane() -> tuple[FastPath, PredictHandler]:
    """Return a lane over one model."""
    row = {
        "id": 1, "version": "1", "status": "champion", "protocol": "oip", "endpoints": [], "backend": {},
        "input_schema": {
            "features": [{"name": name, "dtype": "float32"} for name in FEATURES],
            "tensors": [{"name": "x", "dtype": "float32", "features": FEATURES}],
            "batch": True,
        },
        "output_schema": {}, "deterministic": False, "cache_ttl_seconds": 0, "timeout_ms": 10_000,
    }  # fmt: skip
    version = version_from_row("m", row)
    policy = ServingPolicy(model_name="m", champion=version, versions={"1": version}, category_roles=dict[str, Role]())
    snapshot = PolicySnapshot(policies={"m": policy}, keys={})
    telemetry = PrometheusTelemetry()
    backends = BackendPool(
        lambda found: BatchingCaller(
            found, Adding(), concurrency=2, gap_seconds=0.0, batch_rows=128, queue_rows=4_096,
            now=time.monotonic,
        )
    )  # fmt: skip
    inference = CachedInference(backends, memory_cache=None, shared_cache=None, telemetry=telemetry, now=time.monotonic)
    log = GroupCommit(NoSpool())
    predictor = Predictor(
        snapshot=lambda: snapshot, inference=inference, features=None, log=log,
        shadows=ShadowPool(1, lambda _name: None), telemetry=telemetry, limits=Limits(0.05, 0.4, 0.5),
        clocks=Clocks(time.monotonic, time.time, os.urandom),
    )  # fmt: skip
    access = CallerAccess(snapshot=lambda: snapshot, needs_key=False, now=time.monotonic)
    door = PredictHandler(predictor, access, telemetry=telemetry, now=time.monotonic)
    return FastPath(door, lambda: "0" * 32, 1_000_000), door


async def microseconds(mode: str) -> float:
    """Return the processor time of one call."""
    headers = [(b"host", b"x"), (b"content-length", b"%d" % len(BODY))]
    tracer = None
    lane, door = a_lane()
    if mode != UNTRACED:
        tracer = _tracer("0.01" if mode == "1 in 100" else "1")
        door.tracer = tracer
    if mode in ("not sampled", "sampled"):
        flags = "01" if mode == "sampled" else "00"
        headers.append((b"traceparent", f"{CALLER}-{flags}".encode()))
    place = Place()
    for calls in (CALLS // 6, CALLS):
        place.answers, asked, began = 0, 0, time.process_time()
        while place.answers < calls:
            while asked < calls and asked - place.answers < AT_ONCE:
                asked += 1
                if not lane.offer(b"/v1/models/m/predict", headers, BODY, place):
                    raise RuntimeError("the lane did not take the call")
            await asyncio.sleep(0)
        took = time.process_time() - began
    if tracer is not None:
        await tracer.close(10)
    return took / CALLS * 1e6


def _tracer(ratio: str) -> Any:
    class Encoding(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            encode_spans(spans).SerializeToString()
            return SpanExportResult.SUCCESS

    telemetry = MemoryTelemetry()

    def count(outcome: str, spans: int) -> None:
        telemetry.count("trace_spans_total", outcome, by=spans)

    sampler = sampler_of("parentbased_traceidratio", float(ratio))
    return OtelTracer(Encoding(), count, sampler=sampler, resource={}, queue_spans=2_048)


def measured(mode: str, before: Path | None) -> float:
    """Return the processor time of one call, in a mode of this checkout or of the one before, in a process of its own.

    Raises:
        RuntimeError: A checkout cannot be measured.
    """
    root = Path.cwd() if mode != BEFORE or before is None else before.resolve().parent
    if not (root / "loadtests" / "tracing.py").exists():
        raise RuntimeError(f"{root} has no loadtests/tracing.py, so nothing there measures a call")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    arguments = [sys.executable, "-m", "loadtests.tracing", "--mode", UNTRACED if mode == BEFORE else mode]
    done = subprocess.run(arguments, cwd=root, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{root} cannot be measured: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    *said, figure = done.stdout.splitlines()
    if said:  # that spans were lost, say
        sys.stderr.write("\n".join([*said, ""]))
    return float(figure)


def main() -> None:
    """Measure each mode in turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--mode")
    given = parser.parse_args()
    if given.mode:
        sys.stdout.write(f"{asyncio.run(microseconds(given.mode))}\n")
        return
    modes = [*([BEFORE] if given.before else []), *MODES]
    found: dict[str, list[float]] = {mode: [] for mode in modes}
    for _ in range(ROUNDS):
        for mode in modes:
            found[mode].append(measured(mode, given.before))
    for mode, figures in found.items():
        spread = f"{ROUNDS} rounds: {min(figures):.2f} to {max(figures):.2f}"
        sys.stdout.write(f"{mode:12} {statistics.median(figures):7.2f} µs a call ({spread})\n")


if __name__ == "__main__":
    main()
