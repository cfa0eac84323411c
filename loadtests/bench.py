"""``make bench``: starts everything itself, measures, prints one table.

Exit status 0: measured (a target may still be short); 1: the figures mean nothing, a check failed; 2: cannot run here.
"""

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

import structlog

from loadtests import (
    cached,
    connections,
    flips,
    log_cost,
    monitor_tick,
    pieces,
    shadowed,
    whole_path,
)
from loadtests.machine import LOAD_CORE, a_folder, on_core, what_is_missing
from loadtests.report import as_json, table
from loadtests.result import about, say, write_result
from loadtests.scene import STUB_LATENCY_MS, a_scene
from loadtests.section import Effort, Findings
from loadtests.wrk import CONNECTIONS

SECTIONS = {
    module.SECTION.name: module.SECTION
    for module in (whole_path, shadowed, cached, connections, flips, log_cost, monitor_tick, pieces)
}
_QUICK = {"rounds": 2, "seconds": 2}


def main() -> int:
    """Run the benchmark and return the exit status."""
    asked = _arguments()
    problems = what_is_missing()
    if problems:
        print("the benchmark needs", *problems, sep="\n  ", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # the table alone is the output
    effort = Effort(asked.rounds, asked.seconds, asked.quick)
    found: dict[str, Findings] = {}
    with on_core(LOAD_CORE), a_folder("us-bench-") as folder, a_scene(folder, asked.protocol) as scene:
        for section in (SECTIONS[name] for name in asked.only):
            say(f"{section.name}: {section.title}")
            found[section.name] = section.run(scene, effort)
    print(table(found))
    write_result(as_json(found, _about(asked)), asked.json)
    return 0 if all(check.holds for findings in found.values() for check in findings.checks) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=tuple(SECTIONS), default=tuple(SECTIONS), metavar="P", help=_sections()
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each contender; medians are reported (5)")
    parser.add_argument("--seconds", type=int, default=4, help="of load in one round (4)")
    parser.add_argument("--quick", action="store_true", help="two short rounds: a look, not a measurement")
    parser.add_argument("--protocol", choices=("oip", "tfserving"), default="oip", help="to the model servers (oip)")
    parser.add_argument("--json", type=Path, help="where the result goes (a file of its own in loadtests/results)")
    asked = parser.parse_args()
    if asked.quick:
        vars(asked).update(_QUICK)
    return asked


def _sections() -> str:
    return "only these sections: " + "; ".join(f"{one.name} {one.title}" for one in SECTIONS.values())


def _about(asked: argparse.Namespace) -> dict[str, Any]:
    return {
        **about(),
        "rounds": asked.rounds,
        "seconds": asked.seconds,
        "protocol": asked.protocol,
        "connections": CONNECTIONS,
        "model_latency_ms": STUB_LATENCY_MS,
    }


if __name__ == "__main__":
    sys.exit(main())
