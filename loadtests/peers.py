"""``make bench-peers`` (P4): a predict call beside other servers' own, each in a venv of its own.

The peers do less than the proxy does: nothing is logged, and the model is a constant in their own process. Each runs at
its best settings, in turns with the proxy on the same core, and the processor time of all its processes counts.

Exit status 0: measured (a target may still be short); 1: the figures mean nothing, a check failed; 2: cannot run here.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import orjson
import structlog

from loadtests.baseline import committed_baseline
from loadtests.machine import LOAD_CORE, SERVER_CORE, a_folder, on_core, tree_of, what_is_missing
from loadtests.plain_body import FEATURES
from loadtests.report import as_json, table
from loadtests.result import about, say, write_result
from loadtests.rounds import Contender, answered_checks, details, take_turns
from loadtests.scene import BENCH, Scene, a_scene, path_of
from loadtests.section import Effort, Findings, Target
from loadtests.wrk import FULL, Form
from understudy.adapters.embedded.loopback_ports import free_port

_ROOT = Path(__file__).resolve().parents[1]
_SCRIPTS = Path(__file__).with_name("peer_servers")
_START_SECONDS, _STOP_SECONDS = 150.0, 30.0
_SHOWN_LINES = 30
_VALUES = [number / 16 for number in range(1, len(FEATURES) + 1)]
_FIRST: dict[Form, object] = {
    "native": {"entity_id": "first", "inputs": dict(zip(FEATURES, _VALUES, strict=True))},
    "oip": {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, len(_VALUES)], "data": _VALUES}]},
    "chat": {"model": BENCH, "messages": [{"role": "user", "content": "first"}]},
}
_MARK: dict[Form, bytes] = {"native": b'"input_hash"', "oip": b'"probabilities"', "chat": b'"choices"'}
"""What stands in every answer of the peer's model, and in no other 200."""


class Peer(NamedTuple):
    """Another server; ``bound`` is of our processor time over its, if there is one."""

    title: str
    python: Path
    script: str
    form: Form
    path: str
    bound: float | None


PEERS = {
    "mlserver": Peer(
        "MLServer echo",
        _ROOT / ".venv-servers/mlserver/bin/python",
        "mlserver_echo.py",
        "oip",
        "/v2/models/bench/infer",
        1 / 10,
    ),
    "bentoml": Peer(
        "BentoML in process",
        _ROOT / ".venv-peers/bentoml/bin/python",
        "bentoml_in_process.py",
        "native",
        path_of(BENCH),
        1 / 33,
    ),
    "ray": Peer(
        "Ray Serve, for throughput, HAProxy",
        _ROOT / ".venv-peers/ray/bin/python",
        "ray_serve.py",
        "native",
        path_of(BENCH),
        1 / 10,
    ),
    "litellm": Peer(
        "LiteLLM proxy, mock answer",
        _ROOT / ".venv-peers/litellm/bin/python",
        "litellm_proxy.py",
        "chat",
        "/v1/chat/completions",
        None,
    ),
}


def main() -> int:
    """Run the comparison and return the exit status."""
    asked = _arguments()
    problems = what_is_missing()
    if problems:
        print("the comparison needs", *problems, sep="\n  ", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    effort = Effort(2, 2, quick=True) if asked.quick else Effort(asked.rounds, asked.seconds)
    with on_core(LOAD_CORE), a_folder("us-") as folder, a_scene(folder, "oip") as scene:
        found = {"P4": _measure(scene, effort, asked.only)}
    print(table(found, committed_baseline()))
    write_result(as_json(found, {**about(), **effort._asdict()}), asked.json, "peers-")
    return 0 if all(check.holds for check in found["P4"].checks) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(PEERS), default=tuple(PEERS), help="only these peers")
    parser.add_argument("--rounds", type=int, default=5, help="of each contender; medians are reported (5)")
    parser.add_argument("--seconds", type=int, default=4, help="of load in one round (4)")
    parser.add_argument("--quick", action="store_true", help="two short rounds: a look, not a measurement")
    parser.add_argument("--json", type=Path, help="where the result goes (a file of its own in loadtests/results)")
    return parser.parse_args()


def _measure(scene: Scene, effort: Effort, names: Sequence[str]) -> Findings:
    found = Findings()
    for name in names:
        peer = PEERS[name]
        say(peer.title)
        if not peer.python.exists():
            found.notes.append(f"{peer.title}: not measured, there is no {peer.python.relative_to(_ROOT)}")
            continue
        try:
            with running(peer, scene.folder / name) as served:
                proxy = scene.proxy()
                ours = Contender(f"understudy beside {peer.title}", proxy.url(), proxy.pid, settle=proxy.await_log)
                theirs = Contender(peer.title, served.url, served.pid, what=FULL._replace(form=peer.form))
                take_turns(scene, [theirs, ours], effort)
        except PeerDidNotStart as problem:
            found.notes.append(f"{peer.title}: not measured, {problem}")
            continue
        found.checks += answered_checks([ours])
        # A peer that breaks under the load is part of the comparison, and no defect of ours.
        broken = [check.found for check in answered_checks([theirs]) if not check.holds]
        found.notes += [f"{peer.title}: of its own answers {what}" for what in broken]
        found.detail |= details([theirs, ours])
        if peer.bound is not None:
            found.targets.append(
                Target("P4", f"CPU ÷ {peer.title}", ours.server_us, "µs", peer.bound, theirs.server_us)
            )
        else:
            ratio = ours.server_us / theirs.server_us
            found.notes.append(f"{peer.title}: {theirs.server_us:,.0f} µs, {ratio:.3f} of it ours; no target")
    return found


MLSERVER = PEERS["mlserver"]


class PeerDidNotStart(Exception):
    """It ended, or did not answer its first call with 200 in time; says why."""


class Running(NamedTuple):
    """A peer that answers: where its calls go, and its first process."""

    url: str
    pid: int


@contextmanager
def running(peer: Peer, folder: Path, *further: str) -> Iterator[Running]:
    """Start a peer on the core of the servers under test, and end all its processes; its script is given ``further``.

    The folder's path is short, since Ray has sockets in it, 70 characters further down.
    """
    folder.mkdir()
    port = free_port()
    log = folder / "log.txt"
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(peer.python.parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(_SCRIPTS), str(_ROOT)]),
    }
    with on_core(SERVER_CORE), log.open("wb") as output:
        child = subprocess.Popen(
            [peer.python, _SCRIPTS / peer.script, folder, str(port), *further],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    running = Running(f"http://127.0.0.1:{port}{peer.path}", child.pid)
    try:
        _await_answer(running.url, orjson.dumps(_FIRST[peer.form]), _MARK[peer.form], child, log)
        yield running
        _await_answer(running.url, orjson.dumps(_FIRST[peer.form]), _MARK[peer.form], child, log)
    finally:
        _end(child)


def _await_answer(url: str, body: bytes, mark: bytes, child: "subprocess.Popen[bytes]", log: Path) -> None:
    give_up = time.monotonic() + _START_SECONDS
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    why = ""
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                if mark in answer.read():
                    return
                why = "it answers 200, but not what its model does"
        except OSError as problem:
            why = str(problem)
        if child.poll() is not None or time.monotonic() > give_up:
            lines = log.read_text(errors="replace").strip().splitlines()
            say("\n".join(lines[-_SHOWN_LINES:]))
            raise PeerDidNotStart(f"{why}; {lines[-1] if lines else 'it said nothing'}")
        time.sleep(0.2)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Ask it to end, and end whatever it started that is still there."""
    started = tree_of(child.pid)
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_STOP_SECONDS)
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait()


if __name__ == "__main__":
    sys.exit(main())
