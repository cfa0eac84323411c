"""``make bench``: starts everything itself, measures, prints one table.

With ``--before`` (``make bench BEFORE=…``) the table compares this checkout's proxies with those of another one.

Exit status 0: measured (a target may still be short); 1: the figures mean nothing, a check failed, or a comparison
shows that something became worse; 2: cannot run here.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from loadtests import (
    cached,
    compare,
    connections,
    felt,
    flips,
    growth,
    log_cost,
    monitor_tick,
    pieces,
    shadowed,
    whole_path,
)
from loadtests.baseline import committed_baseline
from loadtests.checkouts import Checkout, Sides
from loadtests.machine import LOAD_CORE, a_folder, on_core, what_is_missing
from loadtests.pairs import MIN_PAIRS
from loadtests.report import as_json, table
from loadtests.result import ROOT, about, commit, say, source_digest, write_result
from loadtests.scene import STUB_LATENCY_MS, a_scene
from loadtests.section import Compared, Effort, Findings, Section
from loadtests.wrk import CONNECTIONS

SECTIONS = {
    module.SECTION.name: module.SECTION
    for module in (whole_path, shadowed, cached, connections, flips, log_cost, monitor_tick, pieces, felt, growth)
}
_ROUNDS, _PAIRS = 5, 15
_QUICK_ROUNDS, _QUICK_SECONDS = 2, 2


def main() -> int:
    """Run the benchmark and return the exit status."""
    asked = _arguments()
    checkouts = Sides(asked.before, Checkout("now", ROOT / "src")) if asked.before is not None else None
    problems = what_is_missing() if checkouts is None else _what_a_comparison_misses(checkouts)
    if problems:
        print("the benchmark needs", *problems, sep="\n  ", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # the table alone is the output
    sections = [SECTIONS[name] for name in asked.only]
    return _measure(sections, asked) if checkouts is None else _compare(sections, asked, checkouts)


def _measure(sections: Sequence[Section], asked: argparse.Namespace) -> int:
    effort = Effort(asked.rounds, asked.seconds, asked.quick)
    found: dict[str, Findings] = {}
    with on_core(LOAD_CORE), a_folder("us-bench-") as folder, a_scene(folder, asked.protocol) as scene:
        for section in sections:
            say(f"{section.name}: {section.title}")
            found[section.name] = section.run(scene, effort)
    print(table(found, committed_baseline()))
    write_result(as_json(found, _about(asked)), asked.json)
    return 0 if all(check.holds for findings in found.values() for check in findings.checks) else 1


def _compare(sections: Sequence[Section], asked: argparse.Namespace, checkouts: Sides[Checkout]) -> int:
    effort = Effort(asked.rounds, asked.seconds, asked.quick)
    found: dict[str, Compared] = {}
    with on_core(LOAD_CORE), a_folder("us-bench-") as folder, a_scene(folder, asked.protocol) as scene:
        for section in (one for one in sections if one.compare is not None):
            say(f"{section.name}: {section.title}, in pairs")
            found[section.name] = compare.compare(section, scene, effort, checkouts)
    print(compare.table(found, sections))
    before = {"commit": commit(checkouts.before.source), "source": source_digest(checkouts.before.source)}
    write_result(compare.as_json(found, {**_about(asked), "before": before}), asked.json, "compared-")
    return 1 if any(compared.fails for compared in found.values()) else 0


def _what_a_comparison_misses(checkouts: Sides[Checkout]) -> list[str]:
    return [*what_is_missing(("wrk",)), *(one.problem for one in checkouts if one.problem is not None)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=tuple(SECTIONS), default=tuple(SECTIONS), metavar="P", help=_sections()
    )
    parser.add_argument(
        "--before",
        type=lambda text: Checkout("before", Path(text).resolve()),
        metavar="SRC",
        help="the src folder of another checkout, to be compared with this one",
    )
    parser.add_argument(
        "--rounds", type=int, help=f"of each contender; medians are reported ({_ROUNDS}; with --before {_PAIRS} pairs)"
    )
    parser.add_argument("--seconds", type=int, default=4, help="of load in one round (4)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{_QUICK_ROUNDS} short rounds ({MIN_PAIRS} pairs): a look, not a measurement",
    )
    parser.add_argument("--protocol", choices=("oip", "tfserving"), default="oip", help="to the model servers (oip)")
    parser.add_argument("--json", type=Path, help="where the result goes (a file of its own in loadtests/results)")
    asked = parser.parse_args()
    in_pairs = asked.before is not None
    if asked.quick:
        asked.rounds, asked.seconds = MIN_PAIRS if in_pairs else _QUICK_ROUNDS, _QUICK_SECONDS
    asked.rounds = asked.rounds or (_PAIRS if in_pairs else _ROUNDS)
    if in_pairs and asked.rounds < MIN_PAIRS:
        parser.error(f"a comparison needs at least {MIN_PAIRS} pairs")
    if in_pairs and all(SECTIONS[name].compare is None for name in asked.only):
        parser.error("; ".join(f"{name} cannot be compared: {SECTIONS[name].left_out}" for name in asked.only))
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
