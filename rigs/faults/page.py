"""The tables of docs/explanation/consistency-and-failure.md, from the committed results of a run and of the fuzzer.

``python -m rigs.faults.page`` writes them into the page; a test compares.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from loadtests.report import digits
from rigs.faults.figures import Judged, evidence_of, found_text, judge, pins

ROOT = Path(__file__).parents[2]
BASELINE = ROOT / "loadtests" / "results" / "baseline-faults.json"
FUZZ_BASELINE = BASELINE.with_name("baseline-fuzz.json")
PAGE = ROOT / "docs" / "explanation" / "consistency-and-failure.md"
LADDER, MATRIX, FIGURES = "ladder", "matrix", "figures"


class Rung(NamedTuple):
    """One thing that is down, and what that means; ``row`` and ``figures`` are where it was measured."""

    down: str
    answers: str
    stale: str
    lost: str
    row: str
    figures: tuple[str, ...]


RUNGS = (
    Rung("nothing", "everything", "nothing", "nothing", "BASE", ("failed", "p99_ms")),
    Rung(
        "the shadow",
        "everything",
        "nothing",
        "shadow rows beyond the bound, counted",
        "SH-01",
        ("failed", "p99_ms_delta", "dropped"),
    ),
    Rung(
        "the challenger",
        "the champion, and says so",
        "nothing",
        "nothing",
        "CL-01",
        ("failed", "rows_lost", "fallbacks_told"),
    ),
    Rung(
        "the challenger hangs",
        "the champion, after 40 % of the deadline",
        "nothing",
        "nothing",
        "CL-02",
        ("failed", "p99_ms", "rows_lost"),
    ),
    Rung("Redis", "everything; answers are computed", "nothing", "hits", "RD-01", ("failed", "p99_ms_delta")),
    Rung("Redis is silent", "everything; answers are computed", "nothing", "hits", "RD-02", ("failed", "p99_ms_delta")),
    Rung(
        "the feature store",
        "models whose stored features have defaults, flagged; others 503",
        "features",
        "nothing",
        "FS-01",
        ("optional_failed", "unflagged_defaults", "p99_ms"),
    ),
    Rung("one of two replicas, killed", "everything", "nothing", "nothing", "CH-09", ("failed", "p99_ms")),
    Rung(
        "one of two replicas, frozen",
        "everything; late calls are hedged",
        "nothing",
        "nothing",
        "CH-10",
        ("failed", "p99_ms"),
    ),
    Rung(
        "the only replica",
        "what is cached; the rest 503 with Retry-After",
        "cached answers, up to their TTL",
        "refused calls",
        "CH-01",
        ("cached_answered", "refusal_p99_ms", "recover_s"),
    ),
    Rung(
        "the only replica, frozen",
        "what is cached; the rest 504, then 503 at once",
        "cached answers, up to their TTL",
        "refused calls",
        "CH-02",
        ("cached_answered", "refusal_p99_ms_after_1s", "recover_s"),
    ),
    Rung(
        "Postgres",
        "everything",
        "the policy: a change waits; the log: rows wait in the spool",
        "nothing",
        "PG-03",
        ("failed", "rows_lost", "rows_dup", "drain_s"),
    ),
    Rung(
        "Postgres is silent",
        "everything",
        "as above",
        "nothing",
        "PG-04",
        ("failed", "rows_lost", "rows_dup", "listener_back_s"),
    ),
    Rung(
        "Postgres fails over",
        "everything",
        "as above, until then",
        "nothing",
        "PG-07",
        ("failed", "rows_lost", "recover_s"),
    ),
    Rung(
        "notifications",
        "everything",
        "the policy, until the next poll",
        "nothing",
        "PO-04",
        ("failed", "propagation_max_s"),
    ),
    Rung(
        "Postgres, and the spool is full",
        "everything",
        "as above",
        "rows beyond the bound, counted",
        "LG-01",
        ("failed", "lost", "lost_minus_counted"),
    ),
    Rung(
        "the proxy's process, with rows in its spool",
        "another proxy",
        "the log, until the next start",
        "calls under way",
        "LG-03",
        ("rows_lost", "rows_dup"),
    ),
    Rung(
        "one of two workers",
        "the other one",
        "nothing",
        "calls under way at it",
        "PR-02",
        ("failed", "recover_s", "rows_lost"),
    ),
    Rung(
        "the monitor that leads",
        "everything; the other one leads",
        "verdicts, until then",
        "nothing",
        "MO-02",
        ("takeover_s", "double_actions"),
    ),
    Rung(
        "the receiver of alerts",
        "everything",
        "what people on call know",
        "nothing",
        "AL-01",
        ("alerts_lost", "delivered_after_clear_s"),
    ),
)


def ladder(document: Mapping[str, Any]) -> str:
    """Return the ladder as a Markdown table with the figures of a run."""
    found = {row["id"]: row for row in document["rows"]}
    lines = ["| down | what answers | what is stale | what is lost | measured |", "|---|---|---|---|---|"]
    for rung in RUNGS:
        figures = found[rung.row]["figures"]
        said = ", ".join(f"`{name}` {digits(figures[name])}" for name in rung.figures if name in figures)
        lines.append(
            f"| {rung.down} | {rung.answers} | {rung.stale} | {rung.lost} | {rung.row}: {said or 'not measured'} |"
        )
    return "\n".join(lines)


def matrix(document: Mapping[str, Any]) -> str:
    """Return every row of the matrix as a Markdown table with its verdict and the figures that it is judged by."""
    lines = ["| row | fault | expected | verdict | figures |", "|---|---|---|---|---|"]
    for row in document["rows"]:
        bound = [text.split(" ")[0] for text in row["bounds"]]
        figures = ", ".join(
            f"`{name}` {digits(row['figures'][name])}" for name in dict.fromkeys(bound) if name in row["figures"]
        )
        again = f"run {row['runs']} times" if row["runs"] > 1 else ""
        reason = row["reason"] if row["verdict"] != "pass" else ""
        said = "; ".join(part for part in (figures, reason, again) if part)
        lines.append(f"| {row['id']} | {row['fault']} | {row['expected']} | {row['verdict']} | {said} |")
    return "\n".join(lines)


def summary(document: Mapping[str, Any]) -> str:
    """Return when and how it was measured, and how many rows there are of each verdict."""
    counts: dict[str, int] = {}
    for row in document["rows"]:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    before, during, after = (digits(document["seconds"][name]) for name in ("before", "during", "after"))
    return (
        f"Measured {document['at'][:10]} on {document['cores']} cores, {before} s before, {during} s in and {after} s"
        f" after each fault: {len(document['rows'])} rows, {verdicts}."
    )


def twelve(document: Mapping[str, Any]) -> str:
    """Return the twelve figures as a Markdown table, as this run and the fuzzer had them, whatever the code is now."""
    fuzzed = evidence_of(orjson.loads(FUZZ_BASELINE.read_bytes()))
    evidence = {one.id: one for one in (*evidence_of(document), *fuzzed, pins())}
    judged = judge(evidence, None)
    lines = ["| # | figure | measured (target) | verdict |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_figure_line(one) for one in judged)])


def _figure_line(one: Judged) -> str:
    parts = "; ".join(found_text(found) for found in one.found)
    return f"| {one.figure.number} | {one.figure.text} | {parts} | {one.verdict} |"


def tables(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what stands between the page's marks, by their name."""
    return {
        LADDER: ladder(document),
        FIGURES: twelve(document),
        MATRIX: f"{summary(document)}\n\n{matrix(document)}",
    }


def marked(page: str, name: str) -> str:
    """Return what stands between two marks of a page."""
    return _parts(page, name)[1]


def filled(page: str, document: Mapping[str, Any]) -> str:
    """Return the page with the figures of a run between its marks."""
    for name, text in tables(document).items():
        before, _, after = _parts(page, name)
        page = f"{before}{text}{after}"
    return page


def _parts(page: str, name: str) -> tuple[str, str, str]:
    """Return what stands before the first mark's end, between the marks, and from the second mark on."""
    first, second = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    before, found, rest = page.partition(first)
    between, also, after = rest.partition(second)
    if not found or not also:
        raise ValueError(f"{PAGE.name} has no marks {first.strip()} and {second.strip()}")
    return before + first, between, second + after


def main() -> None:
    document = orjson.loads(BASELINE.read_bytes())
    PAGE.write_text(filled(PAGE.read_text(), document))


if __name__ == "__main__":
    main()
