"""What an A/B report says of quantiles."""

from typing import Any

from rich.text import Text

from understudy.core.statistics.quantiles import QuantileDifference
from understudy.entrypoints.cli.ab.figures import Label, decimals_for
from understudy.entrypoints.cli.shared.rendering import MINUS, Column, a_table
from understudy.experiments.ab_quantiles import Quantiles
from understudy.experiments.ab_report import AbReport
from understudy.ports.experiments.experiment_log import Observed

Row = tuple[str, str, str, str, str]


def quantiles_texts(report: AbReport, metric: str, label: Label) -> list[Any]:
    """Return the quantiles for people; nothing where they were not asked for."""
    if report.quantiles is None:
        return []
    texts: list[Any] = ["", Text(quantiles_line(report.quantiles, metric), "bold")]
    rows = quantile_rows(report.quantiles)
    if not rows:
        return texts
    columns = [Column(title, right=place > 0) for place, title in enumerate(quantile_titles(report, label))]
    return [*texts, a_table(columns, rows)]


def quantiles_line(quantiles: Quantiles, metric: str) -> str:
    """Return what the quantiles are of, or why there are none."""
    name = "Latency in ms" if quantiles.of is Observed.LATENCY else f"Values of {metric}"
    if quantiles.gap:
        return f"{name}: no quantiles, because {quantiles.gap}"
    return f"{name}, of {quantiles.entities_a:,} and {quantiles.entities_b:,} entities"


def quantile_titles(report: AbReport, label: Label) -> list[str]:
    """Return the titles of the columns of :func:`quantile_rows`."""
    arms = f"A {label(report.found.champion_id)}", f"B {label(report.found.challenger_id)}"
    return ["", *arms, f"B {MINUS} A", "95 %, one look"]


def quantile_rows(quantiles: Quantiles) -> list[Row]:
    """Return for each quantile its name, both values, their difference, and its interval."""
    return [_row(found) for found in quantiles.differences]


def _row(found: QuantileDifference) -> Row:
    name = f"p{100 * found.probability:g}"
    if found.low is None or found.high is None:
        decimals = decimals_for(max(abs(found.value_a), abs(found.value_b)) / 10, is_share=False)
        return name, *_values(found, decimals), "too few beyond it"
    decimals = decimals_for((found.high - found.low) / 2, is_share=False)
    return name, *_values(found, decimals), f"{_signed(found.low, decimals)} … {_signed(found.high, decimals)}"


def _values(found: QuantileDifference, decimals: int) -> tuple[str, str, str]:
    a, b = (f"{value:,.{decimals}f}".replace("-", MINUS) for value in (found.value_a, found.value_b))
    return a, b, _signed(found.difference, decimals)


def _signed(value: float, decimals: int) -> str:
    return f"{value:+,.{decimals}f}".replace("-", MINUS)
