"""``make bench-treatments``: what a rank call of 1,000 treatments costs the proxy, beside the least that it could.

The least is what nobody who takes JSON and sends a tensor can leave out: orjson's parse of the same bytes, the values
as one numpy array, and that array as the ``tensor_content`` of a serialised message. Both are processor time. The proxy
is the real one with all its parts, a process on a core of its own; model server, Postgres and caller share the other.

Exit status 0: measured (the target may still be short); 1: an answer was not as it should be; 2: cannot run here.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
from e2e.stack import Stack, a_stack, sql

from loadtests.machine import LOAD_CORE, SERVER_CORE, a_folder, cpu_seconds, on_core, what_is_missing
from loadtests.result import about, write_result
from loadtests.scene import start_stub
from loadtests.stub_model import OUTPUT
from understudy.adapters._proto import understudy_tfserving_pb2 as tfserving
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade

TREATMENTS, FEATURES = 1_000, 16
P8 = 2.5
"""Times the least."""
TOP_K = 10
CONNECTIONS = 8
_OWN = [f"feature_{number:02d}" for number in range(1, FEATURES + 1)]
_ENTITY = ["age", "visits"]
_SCORES = {"tensor": OUTPUT, "dtype": "float32", "shape": [2], "score_index": 1, "min": 0, "max": 1}
_MIN_CALLS = 100
_REST_SECONDS = 0.002


def _schema(*, nested: bool) -> dict[str, Any]:
    features = [{"name": name, "dtype": "float32", "min": 0} for name in _ENTITY]
    features += [{"name": name, "dtype": "float32", "min": 0, "max": 1, "per": "treatment"} for name in _OWN]
    if nested:
        tensors = [{"name": "entity", "features": _ENTITY}, {"name": "treatments", "features": _OWN}]
        return {"features": features, "tensors": tensors, "treatments": {"layout": "nested", "counts": "counts"}}
    return {"features": features, "tensors": [{"name": "input", "features": [*_ENTITY, *_OWN]}]}


@dataclass
class Contender:
    """One way to ask, with the time of each round per call, in microseconds."""

    name: str
    model: str
    body: bytes
    least: Callable[[], bytes]
    proxy_us: list[float] = field(default_factory=list)
    least_us: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How many times the least the proxy needs; of each round's pair, and then the median."""
        return median(ours / least for ours, least in zip(self.proxy_us, self.least_us, strict=True))


def main() -> int:
    """Run the benchmark and return the exit status."""
    asked = _arguments()
    problems = what_is_missing(())
    if problems:
        print("the benchmark needs", *problems, sep="\n  ", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    contenders = _contenders()
    with on_core(LOAD_CORE), a_folder("us-rank-") as folder, _proxy(folder, asked.protocol) as stack:
        good = _measure(stack, contenders, asked.rounds, asked.calls)
    print(_table(contenders))
    write_result(_as_json(contenders, asked), asked.json, "treatments-")
    return 0 if good else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="of each contender; medians are reported (7)")
    parser.add_argument("--calls", type=int, default=320, help="in one round (320)")
    parser.add_argument(
        "--protocol", choices=("oip", "tfserving"), default="tfserving", help="to the model (tfserving)"
    )
    parser.add_argument("--json", type=Path, help="where the result goes (a file of its own in loadtests/results)")
    return parser.parse_args()


def _contenders() -> list[Contender]:
    values = np.random.default_rng(7).random((FEATURES, TREATMENTS), dtype=np.float32)
    columns = dict(zip(_OWN, values, strict=True))
    ids = [f"treatment-{number}" for number in range(TREATMENTS)]
    envelope = {"entity_id": "customer-42", "inputs": {"age": 41.0, "visits": 3}, "top_k": TOP_K}
    by_column = _json({**envelope, "treatments": {"ids": ids, "inputs": columns}})
    # Through JSON, so that both forms carry the same digits.
    plain = orjson.loads(by_column)["treatments"]["inputs"]
    listed = [{"id": one, "inputs": {name: plain[name][n] for name in _OWN}} for n, one in enumerate(ids)]
    by_row = _json({**envelope, "treatments": listed})
    return [
        Contender("columns, a row for each treatment", "rows", by_column, lambda: _least_of_columns(by_column)),
        Contender("columns, nested", "nested", by_column, lambda: _least_of_columns(by_column)),
        Contender("objects, a row for each treatment", "rows", by_row, lambda: _least_of_rows(by_row)),
    ]


def _json(document: Any) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def _least_of_columns(body: bytes) -> bytes:
    columns = orjson.loads(body)["treatments"]["inputs"]
    return _least_tensor([columns[name] for name in _OWN])


def _least_of_rows(body: bytes) -> bytes:
    inputs = list(map(itemgetter("inputs"), orjson.loads(body)["treatments"]))
    return _least_tensor([list(map(itemgetter(name), inputs)) for name in _OWN])


def _least_tensor(columns: list[list[float]]) -> bytes:
    matrix = np.array(columns, dtype="<f4").T
    tensor = tfserving.TensorProto(dtype=tfserving.DT_FLOAT, tensor_content=matrix.tobytes())
    tensor.tensor_shape.dim.add(size=TREATMENTS)
    tensor.tensor_shape.dim.add(size=FEATURES)
    return tfserving.PredictRequest(inputs={"input": tensor}).SerializeToString()


@contextmanager
def _proxy(folder: Path, protocol: str) -> Iterator[Stack]:
    """Start Postgres, a stub model server and the proxy, with a model for each layout."""
    with ExitStack() as opened:
        postgres = opened.enter_context(EmbeddedPostgres(folder / "pg"))
        opened.callback(postgres.remove)
        stack = opened.enter_context(a_stack(folder, postgres.url))
        port = start_stub(stack, "model", [])
        asyncio.run(_register(postgres.url, protocol, port))
        with on_core(SERVER_CORE):
            stack.start_proxy()
        yield stack


async def _register(database_url: str, protocol: str, port: int) -> None:
    await upgrade(database_url)
    for model in ("rows", "nested"):
        schemas = [orjson.dumps(one).decode() for one in (_schema(nested=model == "nested"), _SCORES)]
        columns = "(model_name, version, artifact_path, framework, protocol, input_schema, output_schema, timeout_ms)"
        added = f"INSERT INTO ModelVersion {columns} VALUES ($1, '1', 'none', 'none', $2, $3, $4, 5000) RETURNING id"
        (row,) = await sql(database_url, added, model, protocol, *schemas)
        target = "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)"
        await sql(database_url, target, row["id"], f"127.0.0.1:{port}")
        await sql(
            database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", model, row["id"]
        )


def _measure(stack: Stack, contenders: list[Contender], rounds: int, calls: int) -> bool:
    good = True
    with ThreadPoolExecutor(CONNECTIONS) as callers:
        for number in range(rounds + 1):  # the first warms up
            for contender in contenders:
                before, started = cpu_seconds([stack.processes["proxy"].pid]), time.perf_counter()
                asked = [
                    callers.submit(_ask, stack.proxy_port, contender, calls // CONNECTIONS) for _ in range(CONNECTIONS)
                ]
                good &= all(one.result() for one in asked)
                taken = time.perf_counter() - started
                used = cpu_seconds([stack.processes["proxy"].pid]) - before
                if number:
                    answered = calls // CONNECTIONS * CONNECTIONS
                    contender.proxy_us.append(used / answered * 1e6)
                    contender.per_second.append(answered / taken)
                    contender.least_us.append(_least_us(contender))
    return good


def _ask(port: int, contender: Contender, calls: int) -> bool:
    """Ask one after another over one connection; return whether every answer was as it should be."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    good = True
    for _ in range(calls):
        connection.request("POST", f"/v1/models/{contender.model}/rank", contender.body)
        answer = connection.getresponse()
        content = answer.read()
        good &= answer.status == 200 and len(orjson.loads(content)["prediction"]["best"]) == TOP_K
    connection.close()
    return good


def _least_us(contender: Contender) -> float:
    """Return the processor time of the least, on the core where the proxy runs and rests now.

    One call at a time with a rest between, as the proxy rests while it waits for its model server: in a tight loop the
    caches stay warm, and on a busy machine that alone makes it half as dear.
    """
    used = 0.0
    with on_core(SERVER_CORE):
        for _ in range(_MIN_CALLS):
            time.sleep(_REST_SECONDS)
            started = time.process_time()
            contender.least()
            used += time.process_time() - started
    return used / _MIN_CALLS * 1e6


def _table(contenders: list[Contender]) -> str:
    line = "{:<36}{:>9}{:>10}{:>10}{:>8}{:>7}"
    lines = [
        f"{TREATMENTS:,} treatments of {FEATURES} features, top_k {TOP_K}; P8: at most {P8:g} times the least",
        line.format("", "bytes", "µs CPU", "least µs", "ratio", ""),
        *(
            line.format(
                one.name,
                f"{len(one.body):,}",
                f"{median(one.proxy_us):,.0f}",
                f"{median(one.least_us):,.0f}",
                f"{one.ratio:.2f}",
                _verdict(one),
            )
            for one in contenders
        ),
    ]
    return "\n".join(lines)


def _verdict(contender: Contender) -> str:
    return "pass" if contender.ratio <= P8 else "short"


def _as_json(contenders: list[Contender], asked: argparse.Namespace) -> dict[str, Any]:
    return {
        **about(),
        "rounds": asked.rounds,
        "calls": asked.calls,
        "protocol": asked.protocol,
        "connections": CONNECTIONS,
        "treatments": TREATMENTS,
        "features": FEATURES,
        "target": {"text": "proxy CPU ÷ (orjson parse + numpy pack + tensor_content)", "bound": P8, "source": "P8"},
        "contenders": {
            one.name: {
                "body_bytes": len(one.body),
                "cpu_us": round(median(one.proxy_us), 1),
                "least_cpu_us": round(median(one.least_us), 1),
                "ratio": round(one.ratio, 3),
                "verdict": _verdict(one),
                "calls_per_second": round(median(one.per_second)),
                "rounds_cpu_us": [round(value, 1) for value in one.proxy_us],
                "rounds_least_cpu_us": [round(value, 1) for value in one.least_us],
            }
            for one in contenders
        },
    }


if __name__ == "__main__":
    sys.exit(main())
