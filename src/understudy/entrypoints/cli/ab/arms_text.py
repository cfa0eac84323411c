"""What an A/B report says of all arms together: their entities, and how each differs, corrected over all."""

from typing import Any

from rich.text import Text

from understudy.core.statistics.sample_size import ALPHA
from understudy.entrypoints.cli.ab.figures import Label, decimals_for, p_words, percent_words, signed, unit
from understudy.entrypoints.cli.shared.rendering import MINUS, Column, a_table
from understudy.experiments.ab_arms import MAX_COMPARED, ArmResult, Arms
from understudy.experiments.ab_report import AbReport

Row = tuple[str, str, str, str, str, str]


def arms_texts(report: AbReport, label: Label) -> list[Any]:
    """Return the arms for people; nothing where there is one version beside the champion."""
    if report.arms is None:
        return []
    columns = [Column(title, drop=drop, right=place > 0) for place, (title, drop) in enumerate(_titles(report.arms))]
    return ["", Text(arms_line(report), "bold"), a_table(columns, arm_rows(report, label)), *notes(report)]


def arms_line(report: AbReport) -> str:
    """Return whether all arms have their entities."""
    if report.arms is None:
        return ""
    ratio = report.arms.ratio
    mark = "✖" if ratio.is_mismatch else "✔"
    return f"All {len(ratio.entities)} arms: sample ratio p {p_words(ratio.p_value)} {mark}"


def arm_titles(report: AbReport) -> list[str]:
    """Return the titles of the columns of :func:`arm_rows`."""
    return [] if report.arms is None else [title for title, _ in _titles(report.arms)]


def arm_rows(report: AbReport, label: Label) -> list[Row]:
    """Return for each arm its name, new entities, those that the split gives, difference, interval, p-value."""
    if report.arms is None:
        return []
    ratio, results = report.arms.ratio, {result.version_id: result for result in report.arms.results}
    letters = {report.found.champion_id: "A", report.found.challenger_id: "B"}
    return [
        (
            f"{letters.get(version_id, ' ')} {label(version_id)}",
            f"{entities:,}",
            f"{expected:,.0f}",
            *_result_cells(report, results.get(version_id)),
        )
        for version_id, entities, expected in zip(report.arms.version_ids, ratio.entities, ratio.expected, strict=True)
    ]


def notes(report: AbReport) -> list[str]:
    """Return what the figures of the arms are corrected for, and which ones are not."""
    if report.arms is None:
        return []
    if len(report.arms.version_ids) - 1 > MAX_COMPARED:
        return [f"More than {MAX_COMPARED} arms are not compared together: figures of one are not corrected."]
    if not report.arms.results:
        return []
    alone, test = "the figures of B above are those of one comparison", report.found.test
    if report.alpha < ALPHA or (test is not None and test.plan.beside):
        alone = f"B's own test decides with its share of the {100 * ALPHA:.0f} %, {100 * report.alpha:.3g} %"
    return [f"Corrected over {report.arms.comparisons} comparisons (Holm) and for any number of looks; {alone}."]


def _titles(arms: Arms) -> list[tuple[str, int]]:
    together = f"{percent_words(ALPHA)} % together"
    titles = [("", 0), ("new entities", 1), ("as split", 2)]
    compared = [(f"{MINUS} A", 0), (together, 0), ("p (Holm)", 0)] if arms.results else [("", 3)] * 3
    return titles + compared


def _result_cells(report: AbReport, result: ArmResult | None) -> tuple[str, str, str]:
    if result is None:
        return "", "", ""
    found = result.comparison
    decimals = decimals_for((found.high - found.low) / 2, is_share=report.is_share)
    low, high = (signed(bound, report, decimals) for bound in (found.low, found.high))
    difference = signed(result.difference.difference, report, decimals)
    return difference, f"{low} … {high}{unit(report)}", p_words(found.adjusted_p_value)
