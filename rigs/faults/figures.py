"""``make figures``: the twelve figures of what is promised when something fails, each with its target and its runs.

They are read from the results of ``make faults`` and ``make fuzz``, the newest of each row. A result counts only for
the code that it was measured on: what is missing, or of other code than what lies here, is *not measured*, and never a
pass. ``--run`` measures that first.

Exit status 0: every figure passed; 1: one is short; 3: none is short, and one is not measured.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from loadtests.report import digits
from loadtests.result import RESULTS, ROOT, about, source_digest, write_result
from rigs.faults.matrix import ROWS
from rigs.faults.row import Row
from rigs.fuzz.cases import NAMED_FAILURES

FUZZ = "fuzz"
PINS = "pins"
PASS, SHORT, NOT_MEASURED = "pass", "short", "not measured"
NOT_HERE = "not here"
PASSED = "passed"
DIFFICULT = ("PG", "RD", "CL", "SH")
"""Families of faults of Postgres, Redis, challenger and shadow."""
SHOWN_ROWS = 4
_FUZZ_CLASSES = ("predict", "broken json", "batch", "rank", "outcomes", "control", "header fields", "wire")
_LINE = "{:>2}  {:<66}{:<15}{}"
_LOST = ("rows_lost", "innocent_rows_lost", "lost_minus_counted")


class Evidence(NamedTuple):
    """A result of one row, or of the fuzzer: its figures, and what it says of its run."""

    id: str
    verdict: str
    figures: Mapping[str, float]
    about: Mapping[str, Any]

    def is_of(self, source: str) -> bool:
        """Whether it was measured on this code."""
        return bool(source) and self.about.get("source") == source


Collect = Callable[[Iterable[float]], float]


def total(values: Iterable[float]) -> float:
    """Return the sum; of what may be below nothing only what is above."""
    return sum(max(0.0, value) for value in values)


@dataclass(frozen=True)
class Part:
    """One number of a figure, and what it may be.

    Args:
        text: What it is.
        rows: Whose figures it is made of; each must have been measured.
        names: Which of them; a row needs to have one.
        limit: What it may be at most, or must be at least.
        at_least: Which of the two.
        collect: Makes one number of many.
        unit: Behind it.
        counts: Whether it says how much was tried: a row that tells no such number adds nothing.
    """

    text: str
    rows: tuple[str, ...]
    names: tuple[str, ...]
    limit: float
    at_least: bool = False
    collect: Collect = total
    unit: str = ""
    counts: bool = False

    @property
    def target(self) -> str:
        """What it may be."""
        return f"{'≥' if self.at_least else '≤' if self.limit else '='} {digits(self.limit)}{self.unit}"

    def holds(self, value: float) -> bool:
        """Whether a value keeps to it."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Figure:
    """One of the twelve."""

    number: int
    text: str
    parts: tuple[Part, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The rows that it is made of."""
        return tuple(dict.fromkeys(row for part in self.parts for row in part.rows))


class Found(NamedTuple):
    """A part, its value (none when it was not measured) and what that rests on."""

    part: Part
    value: float | None
    missing: tuple[str, ...] = ()
    """Of its rows."""
    left_out: tuple[str, ...] = ()
    """Of its rows those for which the machine lacks something."""

    @property
    def verdict(self) -> str:
        """``pass``, ``short`` or ``not measured``."""
        if self.value is None:
            return NOT_MEASURED
        return PASS if self.part.holds(self.value) else SHORT


class Judged(NamedTuple):
    """A figure, its parts, and the results that they are of."""

    figure: Figure
    found: tuple[Found, ...]
    evidence: tuple[Evidence, ...]

    @property
    def verdict(self) -> str:
        """Short when one part is; else not measured when one is not."""
        verdicts = {found.verdict for found in self.found}
        return next((verdict for verdict in (SHORT, NOT_MEASURED) if verdict in verdicts), PASS)

    def as_json(self) -> dict[str, Any]:
        """Return everything."""
        return {
            "number": self.figure.number,
            "figure": self.figure.text,
            "verdict": self.verdict,
            "parts": [
                {
                    "part": found.part.text,
                    "target": found.part.target,
                    "value": None if found.value is None else round(found.value, 4),
                    "verdict": found.verdict,
                    "not_measured": list(found.missing),
                    "not_here": list(found.left_out),
                }
                for found in self.found
            ],
            "measured": [
                {"row": one.id, **{name: one.about.get(name) for name in ("at", "commit", "load_average")}}
                for one in self.evidence
            ],
        }


def _rows_with(families: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the rows of these families (all when none is named) that promise something about one of these figures."""
    return tuple(
        row.id for row in ROWS if (not families or row.family in families) and {b.figure for b in row.bounds} & {*names}
    )


_EVERY_ROW = tuple(row.id for row in ROWS)
_AT_FAULT = _rows_with(DIFFICULT, ("failed",))
_LOSING = _rows_with((), _LOST)
_DOUBLING = _rows_with((), ("rows_dup",))
_COMPARED = ("RD-06", "RD-07", "RD-08", "RD-09", "FS-04", "PO-03")
_WRONG = ("served_wrong", "wrong_values", "cross_entity_answers", "cross_version_answers")
_LED = ("MO-02", "MO-03", "MO-04")

FIGURES = (
    Figure(
        1,
        "failed while Postgres, Redis, challenger or shadow is at fault",
        (
            Part("failed", _AT_FAULT, ("failed",), 0),
            Part("of", _AT_FAULT, ("requests",), 40_000, at_least=True, counts=True),
        ),
    ),
    Figure(
        2,
        "answered predictions without a row / with two",
        (Part("without", _LOSING, _LOST, 0), Part("with two", _DOUBLING, ("rows_dup",), 0)),
    ),
    Figure(3, "fault matrix passed", (Part("rows", _EVERY_ROW, (PASSED,), len(_EVERY_ROW), at_least=True),)),
    Figure(
        4,
        "failed in 6 reloads, keep-alive, no retries",
        (Part("failed", ("PR-01",), ("failed",), 0), Part("of", ("PR-01",), ("requests",), 25_000, at_least=True)),
    ),
    Figure(
        5,
        "1 of 2 replicas hung",
        (
            Part("failed", ("CH-10",), ("failed",), 3),
            Part("p99", ("CH-10",), ("p99_ms",), 100, collect=max, unit=" ms"),
        ),
    ),
    Figure(
        6,
        "only champion down",
        (
            Part("p99 of refusals", ("CH-01",), ("refusal_p99_ms",), 50, collect=max, unit=" ms"),
            Part("time back", ("CH-01",), ("recover_s",), 1, collect=max, unit=" s"),
        ),
    ),
    Figure(
        7,
        "policy changes",
        (
            Part("propagation p99", ("PO-03",), ("propagation_p99_s",), 0.1, collect=max, unit=" s"),
            Part("with LISTEN dead", ("PO-04",), ("propagation_max_s",), 5, collect=max, unit=" s"),
            Part("failed in flips", ("PO-03",), ("failed",), 0),
            Part("cross-version answers", ("PO-03",), ("cross_version_answers",), 0),
        ),
    ),
    Figure(
        8,
        "overload, 10 x connections",
        (
            Part("goodput ÷ peak", ("PR-05",), ("goodput_vs_peak",), 0.8, at_least=True, collect=min),
            Part("p99 of accepted", ("PR-05",), ("p99_ms",), 300, collect=max, unit=" ms"),
        ),
    ),
    Figure(
        9,
        "hostile inputs",
        (
            Part("failed cases", ("SE-01",), ("failed_cases",), 0),
            Part("cases", ("SE-01",), ("cases",), 1, at_least=True),
            Part("5xx that no reference names", (FUZZ,), ("unnamed_5xx",), 0),
            Part("other findings", (FUZZ,), ("found",), 0),
            Part("generated", (FUZZ,), ("generated",), 50_000, at_least=True),
        ),
    ),
    Figure(
        10,
        "wrong answers: cancelled, poisoned, of another entity or version",
        (
            Part("wrong", _COMPARED, _WRONG, 0),
            Part("of", _COMPARED, ("requests", "compared"), 20_000, at_least=True, counts=True),
        ),
    ),
    Figure(
        11,
        "monitor and alerts",
        (
            Part("takeover", _LED, ("takeover_s",), 10, collect=max, unit=" s"),
            Part("stale-leader writes", _LED, ("stale_leader_writes",), 0),
            Part("alerts lost", ("AL-01", "AL-02"), ("alerts_lost",), 0),
            Part("incidents per fault", ("AL-01", "AL-04"), ("incidents_opened",), 1, collect=max),
            Part("at least", ("AL-01", "AL-04"), ("incidents_opened",), 1, at_least=True, collect=min),
        ),
    ),
    Figure(
        12,
        "kept out",
        (
            Part("forbidden database operations allowed", ("SE-03",), ("forbidden_ops_allowed",), 0),
            Part("connections to a planted address", ("PO-06",), ("connections_to_canary",), 0),
            Part("planted secrets found", ("SE-05",), ("hits",), 0),
            Part("unhashed packages", (PINS,), ("unhashed",), 0),
        ),
    ),
)


def judge(evidence: Mapping[str, Evidence], source: str | None) -> list[Judged]:
    """Return what became of each figure.

    Args:
        evidence: Results by row.
        source: Digest of the code that they must be of; ``None`` accepts them as they are.
    """
    fresh = {key: one for key, one in evidence.items() if source is None or one.is_of(source)}
    return [
        Judged(
            figure,
            tuple(_find(part, fresh) for part in figure.parts),
            tuple(fresh[row] for row in figure.sources if row in fresh),
        )
        for figure in FIGURES
    ]


def _find(part: Part, evidence: Mapping[str, Evidence]) -> Found:
    values: list[float] = []
    missing, left_out = [], []
    for row in part.rows:
        one = evidence.get(row)
        own = [_number(one.figures[name]) for name in part.names if name in one.figures] if one is not None else []
        if one is not None and one.verdict == NOT_HERE and PASSED not in part.names:
            left_out.append(row)
        elif (not own and not (part.counts and one is not None)) or any(isnan(value) for value in own):
            missing.append(row)
        else:
            values += own
    value = part.collect(values) if values and not missing else None
    return Found(part, value, tuple(missing), tuple(left_out))


def _number(value: float | None) -> float:
    return nan if value is None else float(value)


def evidence_of(document: Mapping[str, Any]) -> list[Evidence]:
    """Return what a result of ``make faults`` or ``make fuzz`` has to say; nothing of any other one."""
    if "rounds" in document:
        return [Evidence(FUZZ, "", _fuzz_figures(document), document)]
    if not all("verdict" in row for row in document.get("rows", [{}])):
        return []
    return [
        Evidence(
            row["id"], row["verdict"], {**row["figures"], PASSED: float(row["verdict"] == PASS)}, {**document, **row}
        )
        for row in document["rows"]
    ]


def _fuzz_figures(document: Mapping[str, Any]) -> dict[str, float]:
    tallies = [one for round_ in document["rounds"] for one in round_["classes"]] + [document["files"]]
    drawn = [one for one in tallies if one["class"] in (*_FUZZ_CLASSES, "files")]
    statuses = [(int(status), count) for one in drawn for status, count in one["statuses"].items() if status.isdigit()]
    named = {*NAMED_FAILURES}
    return {
        "generated": sum(one["sent"] for one in drawn),
        "found": sum(one["found"] for one in tallies),
        "unnamed_5xx": sum(count for status, count in statuses if status >= 500 and status not in named),
    }


def pins(folder: Path = ROOT / "requirements") -> Evidence:
    """Count what is pinned, and what of it has no hash; that is done here and now."""
    packages = unhashed = 0
    for path in sorted(folder.glob("*.txt")):
        lines = path.read_text().replace("\\\n", " ").splitlines()
        pinned = [line for line in lines if "==" in line and not line.lstrip().startswith("#")]
        packages += len(pinned)
        unhashed += sum("--hash=sha256:" not in line for line in pinned)
    return Evidence(PINS, PASS, {"unhashed": unhashed if packages else nan}, about())


def newest(documents: Iterable[Mapping[str, Any]], source: str) -> dict[str, Evidence]:
    """Return for each row the newest result of this code, or the newest of any other if there is none."""
    found: dict[str, Evidence] = {}
    for document in documents:
        for one in evidence_of(document):
            known = found.get(one.id)
            if known is None or _age(one, source) > _age(known, source):
                found[one.id] = one
    return found


def _age(evidence: Evidence, source: str) -> tuple[bool, str]:
    return evidence.is_of(source), str(evidence.about.get("at", ""))


def documents_in(folder: Path) -> list[dict[str, Any]]:
    """Return all results of faults and fuzzing that lie in a folder."""
    names = ("faults-*.json", "fuzz-*.json", "baseline-faults*.json", "baseline-fuzz*.json")
    return [orjson.loads(path.read_bytes()) for name in names for path in sorted(folder.glob(name))]


def table(judged: Sequence[Judged], stale: Mapping[str, Evidence]) -> str:
    """Return the figures, a line for each and one for each of its parts, and what was measured on other code."""
    lines = []
    for one in judged:
        lines.append(_LINE.format(one.figure.number, one.figure.text, one.verdict, _when(one.evidence)))
        lines += [f"      {found_text(found)}" for found in one.found]
    counts = [f"{sum(one.verdict == verdict for one in judged)} {verdict}" for verdict in (PASS, SHORT, NOT_MEASURED)]
    lines += ["", f"{len(judged)} figures: {', '.join(counts)}"]
    if stale:
        stamps = {
            f"{one.about.get('commit') or 'no commit'} of {str(one.about.get('at'))[:10]}" for one in stale.values()
        }
        lines.append(f"{len(stale)} results are of other code and do not count: {', '.join(sorted(stamps))}")
    return "\n".join(lines)


def found_text(found: Found) -> str:
    """Return ``failed 3 (= 0)``, or what of it is not measured."""
    if found.value is None:
        return f"{found.part.text} ({found.part.target}): not measured: {_some(found.missing or found.left_out)}"
    mark = "" if found.verdict == PASS else ", short"
    without = f", without {_some(found.left_out)}" if found.left_out else ""
    return f"{found.part.text} {digits(found.value)}{found.part.unit} ({found.part.target}{mark}{without})"


def _some(rows: Sequence[str]) -> str:
    rest = len(rows) - SHOWN_ROWS
    return ", ".join(rows[:SHOWN_ROWS]) + (f" and {rest} more" if rest > 0 else "")


def _when(evidence: Sequence[Evidence]) -> str:
    if not evidence:
        return ""
    days = sorted(str(one.about.get("at", "?"))[:16].replace("T", " ") for one in evidence)
    commits = sorted({str(one.about.get("commit") or "no commit") for one in evidence})
    loads = [one.about["load_average"][0] for one in evidence if one.about.get("load_average")]
    load = f", load {digits(min(loads, default=inf))} to {digits(max(loads, default=inf))}" if loads else ""
    span = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return f"{span}, {', '.join(commits)}{load}"


def to_run(figures: Sequence[Figure], evidence: Mapping[str, Evidence], source: str) -> tuple[list[Row], bool]:
    """Return the rows that have to be run for these figures, and whether the fuzzer has to."""
    known = {key for key, one in evidence.items() if one.is_of(source)}
    wanted = {row for figure in figures for row in figure.sources} - known
    return [row for row in ROWS if row.id in wanted], FUZZ in wanted


def _run(figures: Sequence[Figure], evidence: Mapping[str, Evidence], asked: argparse.Namespace, source: str) -> None:
    rows, fuzzes = to_run(figures, evidence, source)
    if rows:
        quick = ["--quick"] if asked.quick else []
        subprocess.run([sys.executable, "-m", "rigs.faults", *quick, "--only", *(row.id for row in rows)], check=False)
    if fuzzes:
        subprocess.run([sys.executable, "-m", "rigs.fuzz.run"], check=False)


def main() -> int:
    """Print the figures, write them beside, and return the exit status."""
    asked = _arguments()
    chosen = [figure for figure in FIGURES if not asked.only or figure.number in asked.only]
    source = source_digest()
    if asked.run:
        _run(chosen, newest(documents_in(asked.results), source), asked, source)
    evidence = {**newest(documents_in(asked.results), source), PINS: pins()}
    judged = [one for one in judge(evidence, source) if one.figure in chosen]
    stale = {key: one for key, one in evidence.items() if not one.is_of(source)}
    print(table(judged, stale))
    write_result({**about(), "figures": [one.as_json() for one in judged]}, asked.json, prefix="figures-")
    verdicts = {one.verdict for one in judged}
    return 1 if SHORT in verdicts else 3 if NOT_MEASURED in verdicts else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m rigs.faults.figures", description=__doc__)
    parser.add_argument("--only", nargs="+", type=int, default=(), metavar="N", help="these figures (1 to 12)")
    parser.add_argument("--run", action="store_true", help="first measure what is missing, or of other code")
    parser.add_argument(
        "--quick", action="store_true", help="with --run: short loads, which some targets do not accept"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results lie (loadtests/results)")
    parser.add_argument("--json", type=Path, help="where this goes (a file of its own in loadtests/results)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
