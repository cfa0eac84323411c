"""What ``understudy log replay`` says: the verdict first, its evidence under it, the next command last."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isnan
from shlex import quote
from typing import Any

import orjson
from rich.text import Text

from understudy.core.amounts import amount_words
from understudy.core.durations import duration_words
from understudy.core.experiments.logged_calls import Answer, has_loggable_input
from understudy.core.experiments.replay_comparison import ReplayedCall, ReplayReport, ReplayState
from understudy.core.experiments.shadow_comparison import DEFAULT_THRESHOLD
from understudy.core.first_names import first_names
from understudy.entrypoints.cli.shared.rendering import Column, a_table, signed_number
from understudy.experiments.log_replay import ReplayFinding
from understudy.ports.registry.registry import STAGING

Row = tuple[str, str, str, str]
NOTHING_WRITTEN = "Nothing was written: a replay leaves no row in the log, and nothing in cache, metrics and windows."
_MAX_NAMED = 3
"""Versions that the first line names."""
_MAX_LABEL = 40
_MINUS = "\N{MINUS SIGN}"


def replay_texts(found: ReplayFinding) -> list[Any]:
    """Return a replay for people."""
    wanted, report = found.question.wanted, found.report
    head = Text(heading_line(found), "dim")
    head.stylize("bold", 0, len(wanted.model_name))
    texts: list[Any] = [head, "", Text(report.sentence, "bold")]
    rows = evidence_rows(report)
    if rows:
        titles = ("", "then", found.question.version.version, "difference")
        texts += ["", a_table([Column(title, right=place > 0) for place, title in enumerate(titles)], rows)]
    if report.failed or report.incomparable:
        columns = [Column("calls", right=True), Column("what became of them")]
        texts += ["", a_table(columns, _trouble_rows(report))]
    if report.examples:
        texts += ["", _examples_table(report, found.question.labels)]
    notes = ["", *(Text(note, "dim") for note in _notes(found))]
    return [*texts, *notes, Text(f"→ {next_step(found)}", "cyan")]


def heading_line(found: ReplayFinding) -> str:
    """Return what is compared, over which time, and how many calls that is."""
    question = found.question
    answered = [question.labels[version_id] for version_id in found.answered_by]
    by = first_names(answered, _MAX_NAMED)
    lasted = duration_words(question.wanted.until - question.wanted.since)
    against = f" against what {by} answered" if by else ""
    wanted = question.wanted
    return f"{wanted.model_name}  {question.version.version}{against}   last {lasted}   {found.report.calls:,} calls"


def evidence_rows(report: ReplayReport) -> list[Row]:
    """Return what the verdict rests on: a name, the figure of then, the version's, and how they differ."""
    if not report.replayed:
        return []
    failures = sum(one.calls for one in report.failed)
    rows: list[Row] = [("answered", f"{report.calls:,}", f"{_answered(report):,}", f"{failures:,} failed")]
    if report.latency is not None:
        latency = report.latency
        then = (latency.then_p50_seconds, latency.then_p99_seconds)
        rows.append(
            ("latency p50 / p99", _two_ms(*then), _two_ms(latency.p50_seconds, latency.p99_seconds), _longest(report))
        )
    if report.classes is not None:
        share = f"{report.classes.changed:,} of {report.classes.pairs:,} ({report.classes.changed_percent:.1f} %)"
        rows.append(("another class", "", "", share))
    return rows + _score_rows(report)


def next_step(found: ReplayFinding) -> str:
    """Return the next command, and what it is for."""
    question, report = found.question, found.report
    named = f"{quote(question.wanted.model_name)} {quote(question.version.version)}"
    if report.state is ReplayState.NO_INPUTS:
        return _how_to_have_inputs(found)
    if report.failed:
        return f"understudy explain {report.failed[0].code} says what that means, and what to do"
    if report.unsent:
        asks = f"understudy version check {named} says whether its model servers answer, and how fast"
        more = f"understudy log replay {named} --within 10m gives it more time, --concurrency sends faster"
        return more if report.replayed else asks
    if report.incomparable:
        return f"understudy version show {named} shows which inputs it takes, and what it answers"
    return _after_a_whole_replay(found)


def _after_a_whole_replay(found: ReplayFinding) -> str:
    question = found.question
    named = f"{quote(question.wanted.model_name)} {quote(question.version.version)}"
    if found.report.is_identical and question.version.id not in found.answered_by:
        then = question.labels[next(iter(found.answered_by))]
        both = f"{quote(question.wanted.model_name)} {quote(then)} {quote(question.version.version)}"
        return f"understudy version diff {both} shows whether they are two models"
    if question.version.status != STAGING:
        return f"understudy version show {named} shows what it is"
    return f"understudy plan {named} says how risky it is to roll it out, and how long that takes"


def _how_to_have_inputs(found: ReplayFinding) -> str:
    question = found.question
    name, version = question.wanted.model_name, question.version.version
    named = f"{quote(name)} {quote(version)}"
    if not question.input_schemas:
        return f"understudy log replay {named} --from-version {quote(version)} replays its own calls: it has no other"
    if not any(has_loggable_input(schema) for schema in question.input_schemas.values()):
        return (
            f"understudy shadow report {quote(name)} compares versions on live calls: these take nothing but lists and "
            "private values, which are never stored"
        )
    if not question.sample_percent:
        return (
            f"understudy model set {quote(name)} --input-sample-percent 5 --reason '…' stores the inputs of 5 % of the "
            "entities, of calls to come"
        )
    return (
        f"understudy log replay {named} --since 7d looks further back; inputs of {question.sample_percent} % "
        "of the entities are stored"
    )


def _answered(report: ReplayReport) -> int:
    return report.replayed - sum(one.calls for one in report.failed)


def _score_rows(report: ReplayReport) -> list[Row]:
    scores, distances = report.scores, report.distances
    if scores is None or distances is None:
        return []
    shift = signed_number(scores.shadow_mean - scores.champion_mean, 3)
    if not isnan(scores.difference_low):
        shift += f" ({signed_number(scores.difference_low, 3)} … {signed_number(scores.difference_high, 3)})"
    apart = " / ".join(map(amount_words, (distances.p50, distances.p95, distances.largest)))
    rows: list[Row] = [
        ("mean score", f"{scores.champion_mean:.3f}", f"{scores.shadow_mean:.3f}", shift),
        ("apart p50 / p95 / most", "", "", apart),
    ]
    if report.classes is None and scores.decides(DEFAULT_THRESHOLD):
        rows.append((f"same decision at {DEFAULT_THRESHOLD:g}", "", "", f"{scores.same_decision_percent:.1f} %"))
    if scores.spearman is not None:
        rows.append(("rank correlation", "", "", f"Spearman {scores.spearman:.3f}"))
    return rows


def _longest(report: ReplayReport) -> str:
    return "" if report.latency is None else f"longest {_ms(report.latency.longest_seconds)} ms"


def _two_ms(p50: float, p99: float) -> str:
    return "-" if isnan(p50) else f"{_ms(p50)} / {_ms(p99)} ms"


def _ms(seconds: float) -> str:
    return f"{1_000 * seconds:.2g}" if seconds < 0.01 else f"{1_000 * seconds:,.0f}"  # noqa: PLR2004 - 10 ms


def _trouble_rows(report: ReplayReport) -> list[tuple[str, str]]:
    failed = [(f"{one.calls:,}", f"{one.code} {one.detail}") for one in report.failed]
    unknown = [(f"{one.calls:,}", f"cannot be compared: {one.reason}") for one in report.incomparable]
    return [*failed, *unknown]


def _examples_table(report: ReplayReport, labels: Mapping[int, str]) -> Any:
    columns = [
        Column("differs most (UTC)"),
        Column("entity"),
        Column("by", drop=1),
        Column("then", right=True),
        Column("now", right=True),
        Column("difference", right=True),
        Column("prediction id", drop=2),
    ]
    return a_table(columns, [_example_row(call, labels) for call in report.examples])


def _example_row(call: ReplayedCall, labels: Mapping[int, str]) -> tuple[str, ...]:
    return (
        f"{datetime.fromtimestamp(call.predicted_at, UTC):%d %b %H:%M:%S}",
        call.entity_id,
        labels[call.version_id],
        _answer_text(call.then),
        _answer_text(call.now),
        "class" if call.has_other_class else f"{call.difference or 0.0:+.3g}".replace("-", _MINUS),
        call.prediction_id,
    )


def _answer_text(answer: Answer | None) -> str:
    if answer is None or answer.label is None:
        return "-" if answer is None or answer.score is None else amount_words(answer.score, 4)
    label = orjson.loads(answer.label)
    shown = label if isinstance(label, str) else answer.label
    return shown if len(shown) <= _MAX_LABEL else f"{shown[:_MAX_LABEL]}…"


def _notes(found: ReplayFinding) -> list[str]:
    version, notes = found.question.version.version, []
    if found.left_out:
        names = ", ".join(found.left_out)
        notes.append(f"Left out, because {version} does not take it (callers who send it get E101): {names}.")
    if found.defaulted:
        names = ", ".join(found.defaulted)
        notes.append(f"Not in these calls, so that the default of {version} stood in: {names}.")
    if found.report.latency is not None:
        notes.append("Latency then: in the proxy, with all that it does; now: at the model server alone, from here.")
    return [*notes, NOTHING_WRITTEN]
