"""``make bench``: starts everything itself, measures, prints one table.

Exit status 0: measured (a target may still be short); 1: the figures mean nothing, a check failed; 2: cannot run here.
"""

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from loadtests.machine import LOAD_CORE, on_core, what_is_missing
from loadtests.report import as_json, checks, table, targets
from loadtests.rounds import LATENCY_PER_SECOND, contenders, measure_shadow
from loadtests.scene import STUB_LATENCY_MS, Scene, a_scene
from loadtests.stub_model import counts_of
from loadtests.wrk import CONNECTIONS
from understudy import __version__

RESULTS = Path(__file__).with_name("results")
_QUICK = {"rounds": 2, "seconds": 2}
_WARM_UP_SECONDS = 1
_SHADOW_SHARE = 0.75
"""Seconds of a steady round for one second of a round under load."""


def main() -> int:
    """Run the benchmark and return the exit status."""
    asked = _arguments()
    problems = what_is_missing()
    if problems:
        print("the benchmark needs", *problems, sep="\n  ", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    with on_core(LOAD_CORE), _folder() as folder, a_scene(folder, asked.protocol) as scene:
        return _measure(scene, asked)


def _measure(scene: Scene, asked: argparse.Namespace) -> int:
    measured = contenders(scene)
    for contender in measured:
        contender.prepare()
        contender.load(_WARM_UP_SECONDS)
    for number in range(1, asked.rounds + 1):
        for contender in measured:
            contender.measure(asked.seconds, scene.postgres_pid)
        _say(f"round {number} of {asked.rounds}: " + ", ".join(f"{one.rounds[-1].server_us:.1f}" for one in measured))
    calls, rows = counts_of(scene.champion_port)
    _say(f"the champion at {LATENCY_PER_SECOND} requests a second, without and with a shadow")
    shadows = measure_shadow(scene, asked.rounds, asked.seconds * _SHADOW_SHARE)
    bounds = targets(measured, shadows)
    found = checks(
        measured,
        shadows,
        scene.logged(),
        counted=int(scene.metric("predict_requests_total{")),
        dropped=int(
            scene.metric('prediction_log_rows_total{outcome="dropped"', 'prediction_log_rows_total{outcome="rejected"')
        ),
    )
    print(table(measured, bounds, found, rows / max(1, calls)))
    about = _about(asked, rows / max(1, calls))
    path = asked.json or RESULTS / f"{about['at'][:19].replace(':', '')}.json"
    path.write_bytes(orjson.dumps(as_json(measured, shadows, bounds, found, about), option=orjson.OPT_INDENT_2) + b"\n")
    _say(f"written to {os.path.relpath(path)}")
    return 0 if all(check.holds for check in found) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of each contender; medians are reported (5)")
    parser.add_argument("--seconds", type=int, default=4, help="of load in one round (4)")
    parser.add_argument("--quick", action="store_true", help="two short rounds: a look, not a measurement")
    parser.add_argument("--protocol", choices=("oip", "tfserving"), default="oip", help="to the model servers (oip)")
    parser.add_argument("--json", type=Path, help="where the result goes (a file of its own in loadtests/results)")
    asked = parser.parse_args()
    if asked.quick:
        vars(asked).update(_QUICK)
    return asked


def _about(asked: argparse.Namespace, rows_per_call: float) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "understudy": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "rounds": asked.rounds,
        "seconds": asked.seconds,
        "protocol": asked.protocol,
        "connections": CONNECTIONS,
        "model_latency_ms": STUB_LATENCY_MS,
        "rows_per_model_call": round(rows_per_call, 1),
        "steady_requests_per_second": LATENCY_PER_SECOND,
    }


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder that the servers' unprivileged accounts can reach."""
    folder = Path(tempfile.mkdtemp(prefix="us-bench-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
