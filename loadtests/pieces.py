"""P11: the request's own computing beside the plain way, and how soon a person or a caller is served."""

import json
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import orjson
from builders import a_version

from loadtests import plain_body
from loadtests.checkouts import Checkout, Sides
from loadtests.machine import SERVER_CORE, cpu_seconds, ended_children_cpu_seconds, on_core
from loadtests.pairs import Pairs
from loadtests.plain_body import FEATURES, Body
from loadtests.result import say
from loadtests.scene import BENCH, INPUT_SCHEMA, Scene
from loadtests.section import Check, Compared, Effort, Findings, Section, Target
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.core.requests.predict import read_predict
from understudy.core.routing.route import bucket_of

BODIES, ROUNDS, STARTS = 1_000, 15, 5
_POLL_SECONDS = 0.005
_VERSION = a_version(model_name=BENCH, input_schema=INPUT_SCHEMA)
_PACKER = struct.Struct(f"<{len(FEATURES)}f")


def ours(body: bytes) -> tuple[int, str, bytes]:
    """Return the bucket, the digest and the tensor, by the product's own functions."""
    request = read_predict(body, _VERSION.input_schema.decoder)
    assembled = request.assemble(_VERSION, None)
    return bucket_of(BENCH, request.entity_id), assembled.digest, assembled.row[0]


def plain(body: bytes) -> tuple[int, str, bytes]:
    """Return the same with the standard library and pydantic, the hash of the sorted JSON as the seed takes it."""
    request = Body.model_validate(json.loads(body))
    values = request.inputs.model_dump()
    packed = _PACKER.pack(*(values[name] for name in FEATURES))
    return plain_body.bucket_of(BENCH, request.entity_id), plain_body.digest_of(values), packed


def run(scene: Scene, effort: Effort) -> Findings:
    """Measure the computing, the command line's start, and a proxy's."""
    ways = {"ours": ours, "plain": plain}
    bodies = _bodies()
    with on_core(SERVER_CORE):
        timed: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                timed[name].append(_microseconds(way, bodies))
    same = all(ours(body)[::2] == plain(body)[::2] for body in bodies)
    say("  the command line and the proxy, from exec")
    starts = 3 if effort.quick else STARTS
    commands = {
        "help": [str(Path(sys.executable).with_name("understudy")), "--help"],
        "imports": [sys.executable, "-c", "import typer, rich"],
    }
    started: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        _cpu_of(command)  # its bytecode is compiled once
    for _ in range(starts):
        for name, command in commands.items():
            started[name].append(_cpu_of(command))
    readied = [_until_ready(scene, number) for number in range(starts)]
    mine, theirs = median(timed["ours"]), median(timed["plain"])
    return Findings(
        targets=[
            Target("P11", "decode, validate, hash, bucket, pack", mine, "µs", 2.5),
            Target("P11", "the plain way ÷ ours", theirs, "µs", 4, mine, at_least=True),
            Target(
                "P11",
                "understudy --help ÷ import typer, rich",
                median(started["help"]),
                "s",
                2,
                median(started["imports"]),
            ),
            Target("P11", "proxy ready after exec", median(one.seconds for one in readied), "s", 1.5),
        ],
        checks=[Check("both ways find the same bucket and tensor", same, f"{len(bodies):,} bodies")],
        notes=[
            "--help by processor time, ready by the clock; the plain way packs with struct, not into a message",
            f"a proxy's processor time until it is ready: {median(one.cpu_seconds for one in readied):.2f} s",
        ],
        detail={"computing_us": timed, "start_cpu_seconds": started, "ready": [one._asdict() for one in readied]},
    )


def _bodies() -> list[bytes]:
    rng = random.Random(11)
    return [
        orjson.dumps({"entity_id": f"customer-{n:08d}", "inputs": {name: round(rng.random(), 5) for name in FEATURES}})
        for n in range(BODIES)
    ]


def _microseconds(way: Callable[[bytes], object], bodies: Sequence[bytes]) -> float:
    started = time.thread_time()
    for body in bodies:
        way(body)
    return (time.thread_time() - started) / len(bodies) * 1e6


def _cpu_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Return the processor time of a command that is run to its end."""
    before = ended_children_cpu_seconds()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**os.environ, **(environment or {})})
    return ended_children_cpu_seconds() - before


class Start(NamedTuple):
    """How long it took until a proxy was ready, by the clock and in processor time."""

    seconds: float
    cpu_seconds: float


def _until_ready(scene: Scene, number: int, checkout: Checkout | None = None) -> Start:
    """Start a proxy, and stop it when it is ready."""
    assert scene.versions
    name = f"starting-{number}" if checkout is None else f"starting-{number}-{checkout.name}"
    environment = None if checkout is None else checkout.environment
    port = free_port()
    started = time.monotonic()
    with on_core(SERVER_CORE):
        scene.stack.start_proxy(
            name, wait_ready=False, environment=environment, port=port, state_dir=scene.folder / f"state-{name}"
        )
    scene.stack.wait_ready(name, poll_seconds=_POLL_SECONDS)
    process = scene.stack.processes.pop(name)
    start = Start(time.monotonic() - started, cpu_seconds([process.pid]))
    process.stop()
    return start


def compare(scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Measure the start of both checkouts' command line and proxies in turns."""
    help_command = [sys.executable, "-m", "understudy.entrypoints.cli", "--help"]
    helped: Sides[list[float]] = Sides([], [])
    readied: Sides[list[Start]] = Sides([], [])
    for one in checkouts:
        _cpu_of(help_command, one.environment)  # its bytecode is compiled once
        _until_ready(scene, 0, one)
    for number in range(1, effort.rounds + 1):
        for one, found in zip(checkouts, helped, strict=True):
            found.append(_cpu_of(help_command, one.environment))
        for one, starts in zip(checkouts, readied, strict=True):
            starts.append(_until_ready(scene, number, one))
        say(f"  pair {number} of {effort.rounds}, s until ready: {', '.join(f'{x[-1].seconds:.2f}' for x in readied)}")
    return Compared(
        [
            Pairs("P11", "understudy --help, CPU", "s", helped),
            Pairs("P11", "proxy ready after exec", "s", readied.map(lambda starts: [one.seconds for one in starts])),
            Pairs(
                "P11",
                "proxy ready after exec, CPU",
                "s",
                readied.map(lambda starts: [one.cpu_seconds for one in starts]),
            ),
        ]
    )


SECTION = Section(
    "P11", "pieces", run, compare, left_out="decode, validate, hash, bucket, pack run in the benchmark's own process"
)
