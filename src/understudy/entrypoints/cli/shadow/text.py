"""What ``understudy shadow`` says: the verdict first, its evidence under it, the next command last."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import isnan
from shlex import quote
from typing import Any

from rich.text import Text

from understudy.core.amounts import amount_words
from understudy.core.durations import duration_words
from understudy.core.experiments.shadow_comparison import (
    NOTICEABLE_PERCENT,
    Fates,
    LatencyComparison,
    ScoreComparison,
    ShadowReport,
    ShadowState,
)
from understudy.entrypoints.cli.shared.rendering import Column, a_table, signed_number
from understudy.experiments.shadow_report import Disagreements, ShadowFinding
from understudy.ports.experiments.experiment_log import LoggedPair

Label = Callable[[int], str]
Row = tuple[str, str, str, str]
_WHY_FAILED = "SELECT error_code, count(*) FROM predictionlog WHERE role = 'shadow' GROUP BY ALL"
_BLOCKS = "▁▂▃▄▅▆▇█"


def report_texts(found: ShadowFinding, model_name: str, threshold: float, label: Label) -> list[Any]:
    """Return a report for people."""
    head = Text(heading_line(found, model_name, label), "dim")
    head.stylize("bold", 0, len(model_name))
    report = found.report
    texts: list[Any] = [head, "", Text(report.sentence, "bold")]
    rows = evidence_rows(report, threshold)
    if rows:
        titles = ("", *names_of(found, label), "difference")
        texts += ["", a_table([Column(title, right=place > 0) for place, title in enumerate(titles)], rows)]
    if report.scores is not None:
        texts += ["", *_drawn(report.scores)]
    then = next_step(report, model_name)
    if report.scores is not None and report.scores.is_identical:
        named = f"{quote(model_name)} {quote(label(found.champion_id))} {quote(label(found.shadow_id))}"
        then = f"understudy version diff {named} shows whether they are two models"
    return [*texts, "", Text(f"→ {then}", "cyan")]


def heading_line(found: ShadowFinding, model_name: str, label: Label) -> str:
    """Return what is compared, over which time, and how much of it."""
    champion, shadow = names_of(found, label)
    sampled = f" (a random {100 * found.sampled_ratio:.2g} %)" if found.sampled_ratio < 1 else ""
    lasted = duration_words(max(found.until - found.since, 0.0))
    return f"{model_name}  {shadow} against {champion}   last {lasted}   {found.report.pairs:,} pairs{sampled}"


def names_of(found: ShadowFinding | Disagreements, label: Label) -> tuple[str, str]:
    """Return how the two versions are called."""
    return f"champion {label(found.champion_id)}", f"shadow {label(found.shadow_id)}"


def evidence_rows(report: ShadowReport, threshold: float) -> list[Row]:
    """Return what the verdict rests on: a name, the champion's figure, the shadow's, and how they differ."""
    if report.champion is None or report.shadow is None:
        return []
    rows = [_answered_row(report.champion, report.shadow)]
    if report.latency is not None:
        rows.append(_latency_row(report.latency))
    rows.append(_error_row(report))
    return rows + (_score_rows(report.scores, threshold) if report.scores is not None else [])


def next_step(report: ShadowReport, model_name: str) -> str:
    """Return the next command, and what it is for."""
    if report.state is ShadowState.NO_PAIRS:
        return f"understudy model show {quote(model_name)} shows whether a shadow is set"
    if report.state is ShadowState.NO_SCORES:
        return "understudy doctor shows whether the shadow's model server answers"
    if report.shadow is not None and report.shadow.failed_percent >= NOTICEABLE_PERCENT:
        return f'understudy log query "{_WHY_FAILED}" --model {quote(model_name)} --since 24h says why its calls failed'
    return f"understudy shadow examples {quote(model_name)} --top 20 shows the largest disagreements"


def examples_texts(found: Disagreements, model_name: str, label: Label) -> list[Any]:
    """Return the largest disagreements for people."""
    champion, shadow = names_of(found, label)
    if not found.pairs:
        return [
            Text("No pairs with two scores: there is nothing to disagree about in this time.", "bold"),
            Text(f"→ understudy shadow report {quote(model_name)} shows what became of the shadow's calls", "cyan"),
        ]
    largest = _difference(found.pairs[0])
    head = Text(f"{model_name}  {shadow} differs from {champion} by up to {abs(largest):.3f}", "bold")
    columns = [
        Column("when (UTC)"),
        Column("entity"),
        Column(champion, right=True),
        Column(shadow, right=True),
        Column("difference", right=True),
        Column("prediction id", drop=1),
    ]
    rows = [
        (
            f"{datetime.fromtimestamp(pair.predicted_at, UTC):%d %b %H:%M:%S}",
            pair.entity_id,
            f"{pair.champion_score:.3f}",
            f"{pair.shadow_score:.3f}",
            signed_number(_difference(pair), 3),
            pair.prediction_id,
        )
        for pair in found.pairs
    ]
    then = f"→ understudy shadow examples {quote(model_name)} --json names their prediction ids"
    return [head, "", a_table(columns, rows), "", Text(then, "cyan")]


def histogram_line(cells: Sequence[int]) -> str:
    """Return a histogram of scores as bars on one line; a cell that holds something is never the lowest one."""
    highest = max(cells, default=0) or 1
    return "".join(_BLOCKS[0] if not count else _BLOCKS[max(1, round(count / highest * 7))] for count in cells)


def _difference(pair: LoggedPair) -> float:
    return (pair.shadow_score or 0.0) - (pair.champion_score or 0.0)


def _answered_row(champion: Fates, shadow: Fates) -> Row:
    lost = f"{shadow.timeout_percent:.2f} % timeout · {shadow.dropped_percent:.2f} % dropped"
    return "answered", f"{champion.answered_percent:.2f} %", f"{shadow.answered_percent:.2f} %", lost


def _latency_row(found: LatencyComparison) -> Row:
    champion, shadow = (
        f"{_ms(p50)} / {_ms(p99)} ms"
        for p50, p99 in (
            (found.champion_p50_seconds, found.champion_p99_seconds),
            (found.shadow_p50_seconds, found.shadow_p99_seconds),
        )
    )
    change = f"{signed_number(found.p50_change_percent, 0)} % / {signed_number(found.p99_change_percent, 0)} %"
    return "latency p50 / p99", champion, shadow, change


def _ms(seconds: float) -> str:
    return f"{1_000 * seconds:.2g}" if seconds < 0.01 else f"{1_000 * seconds:,.0f}"  # noqa: PLR2004 - 10 ms


def _error_row(report: ShadowReport) -> Row:
    champion, shadow = (
        "-" if fates is None or fates.error_percent is None else f"{fates.error_percent:.2f} %"
        for fates in (report.champion, report.shadow)
    )
    change = report.error_change_points
    return "errors", champion, shadow, "" if change is None else f"{signed_number(change, 2)} points"


def _score_rows(found: ScoreComparison, threshold: float) -> list[Row]:
    shift = signed_number(found.shadow_mean - found.champion_mean, 3)
    if not isnan(found.difference_low):
        shift += f" ({signed_number(found.difference_low, 3)} … {signed_number(found.difference_high, 3)})"
    kappa = "" if found.cohens_kappa is None else f" (Cohen κ {found.cohens_kappa:.2f})"
    rows: list[Row] = [("mean score", f"{found.champion_mean:.3f}", f"{found.shadow_mean:.3f}", shift)]
    if found.decides(threshold):
        rows.append((f"same decision at {threshold:g}", "", "", f"{found.same_decision_percent:.1f} %{kappa}"))
    else:
        rows.append(("largest difference", "", "", f"{found.largest_difference:.3f}"))
    if found.spearman is not None:
        rows.append(("rank correlation", "", "", f"Spearman {found.spearman:.3f}"))
    return rows


def _drawn(found: ScoreComparison) -> list[Text]:
    low, high = amount_words(found.edges[0]), amount_words(found.edges[-1])
    drawn = []
    for cells, name, style in ((found.champion_cells, "champion", "blue"), (found.shadow_cells, "shadow", "magenta")):
        drawn.append(Text(f"  scores  {low} ").append(histogram_line(cells), style).append(f" {high} {name}"))
    drawn[-1].append(f"      PSI {found.psi:.3f}   KS {found.ks:.3f}")
    return drawn
