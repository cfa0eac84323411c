"""``make bench-dialects``: calls in other servers' protocols (D1 to D8) beside native ones, a gRPC echo and MLServer.

Exit status 0: measured (a target may still be short); 1: a check failed, and the figures mean nothing; 2: cannot run
here, or not all of it.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import orjson
import structlog
from e2e.stack import sql

from loadtests.baseline import committed_baseline
from loadtests.grpc_load import run_grpc_load
from loadtests.machine import LOAD_CORE, a_folder, giving_way, on_core, what_is_missing
from loadtests.open_loop import GrpcCaller, Heard, HttpCaller, call_on_time, due_times
from loadtests.peers import MLSERVER, PeerDidNotStart, running
from loadtests.report import as_json, table
from loadtests.result import about, say, write_result
from loadtests.rounds import Contender, answered_checks, details, take_turns
from loadtests.scene import BENCH, INPUT_SCHEMA, OUTPUT_SCHEMA, REGISTER, Proxy, Scene, a_scene, path_of
from loadtests.section import Check, Effort, Findings, Target
from loadtests.steady import body_of
from loadtests.wrk import FULL, Form
from understudy.adapters._proto.methods import TFSERVING_PREDICT
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.http2.header_fields import field

UNBOUNDED = "unbounded"
"""A model whose features have no bounds."""
_ROWS = 64
_RATE = 200
_GRPC = "grpc-proxy"
_GOOD_TRAILERS = field(b"grpc-status", b"0")
"""How the proxy's trailers of a good answer begin; ids follow."""
Part = Callable[[Scene, Effort], Findings]


def over_http(scene: Scene, effort: Effort) -> Findings:
    """Measure D1 to D4: the Open Inference Protocol's REST and KServe V1's, beside native calls and nginx."""
    proxy = scene.proxy()
    asyncio.run(_register_unbounded(scene))
    native = _http("native", proxy, path_of(BENCH), "native")
    json_tensor = _http("oip", proxy, f"/v2/models/{BENCH}/infer", "oip")
    binary = _http("oip, binary", proxy, f"/v2/models/{UNBOUNDED}/infer", "binary")
    v1 = _http("v1", proxy, f"/v1/models/{BENCH}:predict", "v1")
    rows = _http("oip, 64 rows", proxy, f"/v2/models/{BENCH}/infer", "rows")
    split = Contender("nginx A/B (split_clients)", scene.nginx_url(0), scene.nginx.pid)
    contenders = [native, json_tensor, binary, v1, rows, split]
    take_turns(scene, contenders, effort)
    to_nginx = native.server_us / split.server_us * 1.35
    return Findings(
        targets=[
            Target("D1", "oip, JSON, 1 row ÷ native", json_tensor.server_us, "µs", 1.35, native.server_us),
            Target("D1", "oip, JSON, 1 row ÷ nginx A/B", json_tensor.server_us, "µs", to_nginx, split.server_us),
            Target("D2", "oip, binary, no bounds ÷ native", binary.server_us, "µs", 1.0, native.server_us),
            Target("D3", "v1, 1 row ÷ native", v1.server_us, "µs", 1.3, native.server_us),
            Target("D4", "oip, 64 rows, each ÷ native", rows.server_us / _ROWS, "µs", 0.6, native.server_us),
        ],
        checks=answered_checks(contenders),
        detail=details(contenders),
    )


def over_grpc(scene: Scene, effort: Effort) -> Findings:
    """Measure D5: gRPC beside an empty echo by the same library."""
    proxy, address = _with_grpc(scene)
    echo = scene.serve("grpc-echo", "loadtests.grpc_echo", [])
    infer = Contender("ModelInfer", address, proxy.pid, settle=proxy.await_log, send=run_grpc_load)
    by_method = partial(run_grpc_load, method=TFSERVING_PREDICT)
    predict = Contender("Predict", address, proxy.pid, settle=proxy.await_log, send=by_method)
    least = Contender("grpc.aio echo", f"127.0.0.1:{_port_of(echo.url)}", echo.pid, send=run_grpc_load)
    contenders = [infer, predict, least]
    take_turns(scene, contenders, effort)
    return Findings(
        targets=[
            Target("D5", "ModelInfer, 1 row ÷ grpc.aio echo", infer.server_us, "µs", 1.7, least.server_us),
            Target("D5", "Predict, 1 row ÷ grpc.aio echo", predict.server_us, "µs", 1.9, least.server_us),
        ],
        checks=answered_checks(contenders),
        detail=details(contenders),
    )


def beside_mlserver(scene: Scene, effort: Effort) -> Findings:
    """Measure D6: both transports beside MLServer with a model in its own process that answers a constant."""
    found = Findings()
    if not MLSERVER.python.exists():
        found.notes.append(f"D6 not measured: there is no {MLSERVER.python}; make .venv-servers/mlserver/.done")
        return found
    proxy, address = _with_grpc(scene)
    with ExitStack() as opened:
        grpc_port = free_port()
        try:
            served = opened.enter_context(running(MLSERVER, scene.folder / "mlserver", str(grpc_port)))
        except PeerDidNotStart as problem:
            found.notes.append(f"D6 not measured: {problem}")
            return found
        by_rest = Contender("MLServer REST", served.url, served.pid, what=FULL._replace(form="oip"))
        by_grpc = Contender("MLServer gRPC", f"127.0.0.1:{grpc_port}", served.pid, send=run_grpc_load)
        rest = _http("oip, beside MLServer", proxy, f"/v2/models/{BENCH}/infer", "oip")
        infer = Contender("ModelInfer, beside MLServer", address, proxy.pid, settle=proxy.await_log, send=run_grpc_load)
        take_turns(scene, [by_rest, rest, by_grpc, infer], effort)
    found.targets += [
        Target("D6", "ModelInfer ÷ MLServer's gRPC echo", infer.server_us, "µs", 1 / 2, by_grpc.server_us),
        Target("D6", "oip, JSON ÷ MLServer's REST echo", rest.server_us, "µs", 1 / 3, by_rest.server_us),
    ]
    found.checks += answered_checks([rest, infer])
    found.detail |= details([by_rest, rest, by_grpc, infer])
    return found


def idle_port(scene: Scene, effort: Effort) -> Findings:
    """Measure D7: native calls of a proxy whose gRPC port is open and idle, beside one that has none."""
    without, (beside, _) = scene.proxy(), _with_grpc(scene)
    pair = [_http("port 0", without, path_of(BENCH), "native"), _http("port open", beside, path_of(BENCH), "native")]
    take_turns(scene, pair, effort)
    ratios = [b.server_us / a.server_us for a, b in zip(pair[0].rounds, pair[1].rounds, strict=True)]
    return Findings(
        targets=[Target("D7", "native, gRPC port idle ÷ port 0 (rounds' median)", median(ratios), "", 1.02)],
        checks=answered_checks(pair),
        notes=[f"D7: the rounds' ratios are {min(ratios):.3f} to {max(ratios):.3f}"],
        detail=details(pair),
    )


def added_latency(scene: Scene, effort: Effort) -> Findings:
    """Measure D8: what callers over gRPC wait beyond native ones, at the same times.

    Both callers do the least that makes a call: what a client's own HTTP/2 costs in Python is none of the proxy's.
    """
    proxy, address = _with_grpc(scene)
    native = HttpCaller(proxy.port, path_of(BENCH), body_of)
    by_grpc = GrpcCaller(int(address.rpartition(":")[2]), _GOOD_TRAILERS)
    heard: dict[str, list[Heard]] = {"native": [], "gRPC": []}
    with giving_way(scene.postgres_pid):
        for number in range(effort.rounds + 1):
            due = due_times(_RATE, effort.seconds, seed=number)
            for name, caller in (("native", native), ("gRPC", by_grpc)):
                heard[name].append(call_on_time(caller, due))
            proxy.await_log()
    rounds = list(zip(heard["native"][1:], heard["gRPC"][1:], strict=True))
    added = [theirs.latency.p50_ms - ours.latency.p50_ms for ours, theirs in rounds]
    failed = sum(one.failed for found in heard.values() for one in found)
    whole = ", ".join(f"{name} {median(one.latency.p50_ms for one in found[1:]):.2f}" for name, found in heard.items())
    return Findings(
        targets=[Target("D8", f"p50 of ModelInfer beyond native, {_RATE} a second", median(added), "ms", 0.5)],
        checks=[Check("every call was answered well", not failed, f"{failed:,} not")],
        notes=[f"D8: p50 in ms: {whole}"],
    )


PARTS: dict[str, Part] = {
    "http": over_http,
    "grpc": over_grpc,
    "mlserver": beside_mlserver,
    "idle": idle_port,
    "latency": added_latency,
}

MEASURES: dict[str, tuple[str, ...]] = {
    "http": ("D1", "D2", "D3", "D4"),
    "grpc": ("D5",),
    "mlserver": ("D6",),
    "idle": ("D7",),
    "latency": ("D8",),
}
"""Whose figures each part has."""


def not_measured(found: Mapping[str, Findings]) -> list[str]:
    """Return the figures that parts that were run ought to have, and have not."""
    return [
        source
        for name, one in found.items()
        for source in MEASURES[name]
        if not any(target.source == source for target in one.targets)
    ]


def main() -> int:
    """Run the parts and return the exit status."""
    asked = _arguments()
    problems = what_is_missing()
    if problems:
        print("the comparison needs", *problems, sep="\n  ", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    effort = Effort(2, 2, quick=True) if asked.quick else Effort(asked.rounds, asked.seconds)
    with on_core(LOAD_CORE), a_folder("us-") as folder, a_scene(folder, "oip") as scene:
        found = {name: _run(name, scene, effort) for name in asked.only}
    print(table(found, committed_baseline()))
    write_result(as_json(found, {**about(), **effort._asdict()}), asked.json, "dialects-")
    missing = not_measured(found)
    if missing:
        print(f"not measured: {', '.join(missing)}", file=sys.stderr)
        return 2
    return 0 if all(check.holds for one in found.values() for check in one.checks) else 1


def _run(name: str, scene: Scene, effort: Effort) -> Findings:
    say(name)
    return PARTS[name](scene, effort)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), help="only these parts")
    parser.add_argument("--rounds", type=int, default=5, help="of each contender; medians are reported (5)")
    parser.add_argument("--seconds", type=int, default=4, help="of load in one round (4)")
    parser.add_argument("--quick", action="store_true", help="two short rounds: a look, not a measurement")
    parser.add_argument("--json", type=Path, help="where the result goes (a file of its own in loadtests/results)")
    return parser.parse_args()


def _http(name: str, proxy: Proxy, path: str, form: Form) -> Contender:
    url = f"http://127.0.0.1:{proxy.port}{path}"
    return Contender(name, url, proxy.pid, settle=proxy.await_log, what=FULL._replace(form=form))


def _with_grpc(scene: Scene) -> tuple[Proxy, str]:
    """Return the proxy that has a gRPC port, and that port's address."""
    address = scene.folder / "grpc-port"
    if not address.exists():
        address.write_text(f"127.0.0.1:{free_port()}")
    port = int(address.read_text().rpartition(":")[2])
    return scene.proxy(_GRPC, grpc_port=port), address.read_text()


async def _register_unbounded(scene: Scene) -> None:
    assert scene.versions
    features = [{"name": one["name"], "dtype": one["dtype"]} for one in INPUT_SCHEMA["features"]]
    schemas = [orjson.dumps(one).decode() for one in ({**INPUT_SCHEMA, "features": features}, OUTPUT_SCHEMA)]
    (row,) = await sql(scene.postgres.url, REGISTER, UNBOUNDED, "1", scene.protocol, *schemas, 0)
    endpoint = "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)"
    await sql(scene.postgres.url, endpoint, row["id"], f"127.0.0.1:{scene.stubs['champion']}")
    policy = "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)"
    await sql(scene.postgres.url, policy, UNBOUNDED, row["id"])


def _port_of(url: str) -> str:
    return url.partition("//")[2].partition("/")[0].rpartition(":")[2]


if __name__ == "__main__":
    sys.exit(main())
