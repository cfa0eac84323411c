"""``make faults``: starts the product's real processes, breaks what they depend on, and prints what it cost.

Exit status 0: every row that could be run passed; 1: one was short or broke; 2: cannot run here.
"""

import argparse
import asyncio
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import structlog

from loadtests.machine import a_folder
from loadtests.result import about, say, write_result
from rigs.faults.links import Links
from rigs.faults.matrix import ROWS, chosen
from rigs.faults.not_here import NotBuilt, NotHere
from rigs.faults.report import as_json, line, table
from rigs.faults.rest_callers import REST_DIALECTS
from rigs.faults.row import STAMP, Result, Row, Span, judge
from rigs.faults.world import DEADLINE_MS, Machine

QUICK = Span(2, 6, 4)
AGAIN = ("short", "broken")
MAX_SECONDS = 420.0
"""Of one row, beside three times its load."""


async def run_row(machine: Machine, row: Row, span: Span) -> Result:
    """Return what became of a row, whatever that is."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(MAX_SECONDS + 3 * span.total):
            figures = await row.run(machine, span)
    except NotHere as reason:
        return Result(row, "not here", {}, str(reason))
    except NotBuilt as reason:
        return Result(row, "not built", {}, str(reason))
    except Exception as problem:  # noqa: BLE001 - one row that breaks must not end the others
        text = str(problem).strip()[-500:].replace("\n", " / ")
        return Result(row, "broken", {}, f"{type(problem).__name__}: {text}", time.monotonic() - began)
    return judge(row, figures, time.monotonic() - began)


async def run_all(
    rows: Sequence[Row],
    span: Span,
    *,
    deadline_ms: int = DEADLINE_MS,
    volume: str | None = None,
    ulimit: str = "",
    protocol: str = "oip",
    dialect: str = "native",
) -> tuple[list[Result], list[str]]:
    """Run rows one after the other on one machine; returns what rows had to say, too."""
    results: list[Result] = []
    with a_folder("us-faults-") as folder, Links() as links:
        options: dict[str, Any] = {"deadline_ms": deadline_ms, "volume": volume, "ulimit": ulimit}
        async with Machine(folder, links, **options, protocol=protocol, dialect=dialect) as machine:
            for row in rows:
                result = await run_row(machine, row, span)
                results.append(replace(result, stamp=stamp_of(about())))
                say(line(results[-1]))
            return results, machine.notes


def main() -> int:
    """Run what was asked for and return the exit status."""
    asked = _arguments()
    rows = chosen(asked.only)
    earlier = _earlier(asked.again) if asked.again else {}
    kept = {row.id for row in rows if row.id in earlier and earlier[row.id].verdict not in AGAIN}
    rows_to_run = [row for row in rows if row.id not in kept]
    unknown = [name for name in asked.only if not chosen([name])]
    if unknown:
        print(f"no row is called {' '.join(unknown)}; there are {' '.join(row.id for row in ROWS)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # the table alone is the output
    span = QUICK if asked.quick else asked.seconds
    ulimit = f"-n {asked.descriptors}" if asked.descriptors else ""
    where = {"volume": asked.volume, "ulimit": ulimit}
    found, notes = asyncio.run(run_all(rows_to_run, span, **where, protocol=asked.protocol, dialect=asked.dialect))
    fresh = {result.row.id: _counted(result, earlier) for result in found}
    results = [fresh.get(row.id) or earlier[row.id] for row in rows]
    print(table(results, notes))
    options = {"quick": asked.quick, "volume": asked.volume, "descriptors": asked.descriptors}
    if asked.protocol != "oip":
        options["protocol"] = asked.protocol
    if asked.dialect != "native":
        options["dialect"] = asked.dialect
    document = as_json(results, {**about(), "seconds": span._asdict(), **options}, notes)
    write_result(document, asked.json, prefix="faults-")
    return int(any(result.verdict in ("short", "broken") for result in results))


def _earlier(path: Path) -> dict[str, Result]:
    """Return the results of an earlier run, by row."""
    known = {row.id: row for row in ROWS}
    document = orjson.loads(path.read_bytes())
    return {
        one["id"]: Result(
            known[one["id"]],
            one["verdict"],
            one["figures"],
            one["reason"],
            one["seconds"],
            one.get("runs", 1),
            stamp_of({**document, **one}),
        )
        for one in document["rows"]
        if one["id"] in known
    }


def stamp_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row keeps of what a result says about itself."""
    return {name: document[name] for name in STAMP if name in document}


def _counted(result: Result, earlier: Mapping[str, Result]) -> Result:
    before = earlier.get(result.row.id)
    return result if before is None else replace(result, runs=before.runs + 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m rigs.faults", description=__doc__)
    parser.add_argument("--only", nargs="+", default=(), metavar="ROW", help="rows (PG-03) or families (PG RD)")
    parser.add_argument(
        "--seconds", type=_span, default=Span(), metavar="B/D/A", help="of load before, during, after (5/15/10)"
    )
    parser.add_argument("--quick", action="store_true", help="2/6/4 seconds: a look, not a measurement")
    parser.add_argument(
        "--volume",
        type=_size,
        metavar="SIZE",
        help="the proxies' state on a tmpfs of this size, such as 32m; needs root",
    )
    parser.add_argument(
        "--protocol", choices=("oip", "oip-http"), default="oip", help="by which proxies ask the model servers"
    )
    parser.add_argument(
        "--dialect",
        choices=("native", "grpc", *REST_DIALECTS),
        default="native",
        help="by which the standard load asks the proxies",
    )
    parser.add_argument("--descriptors", type=int, help="limit of descriptors (ulimit -n) of proxies and monitors")
    parser.add_argument("--again", type=Path, help="an earlier result: run what did not pass once more, keep the rest")
    parser.add_argument("--json", type=Path, help="where the result goes (a file of its own in loadtests/results)")
    return parser.parse_args()


def _size(text: str) -> str:
    if re.fullmatch(r"[1-9]\d{0,8}[kmg]", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 32m")
    return text


def _span(text: str) -> Span:
    parts = [float(part) for part in text.split("/")]
    if len(parts) != len(Span._fields) or min(parts) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not three times in seconds, such as 10/30/20")
    return Span(*parts)


if __name__ == "__main__":
    sys.exit(main())
