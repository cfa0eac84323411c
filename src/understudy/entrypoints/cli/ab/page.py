"""An A/B report as a page with charts."""

from datetime import UTC, datetime

from understudy import __version__
from understudy.entrypoints.charts.distributions import Distribution, distributions
from understudy.entrypoints.charts.frame import Chart, Point, Tone
from understudy.entrypoints.charts.over_time import interval_over_time
from understudy.entrypoints.charts.report import page, table
from understudy.entrypoints.cli.ab.arms_text import arm_rows, arm_titles, arms_line, notes
from understudy.entrypoints.cli.ab.figures import Label, percent_words
from understudy.entrypoints.cli.ab.quantiles_text import quantile_rows, quantile_titles, quantiles_line
from understudy.entrypoints.cli.ab.text import DIFFERENCE, evidence_rows, heading_lines, verdict_lines
from understudy.entrypoints.cli.shared.times import time_axis_marks
from understudy.experiments.ab_report import AbReport


def report_page(report: AbReport, model_name: str, metric: str, label: Label) -> str:
    """Return the whole page; without data it is the sentence that says so."""
    a, b = sides_of(report, label)
    versions, measured = heading_lines(report, model_name, metric, label)
    parts: list[str | Chart] = [*charts_of(report, metric, label)]
    rows = evidence_rows(report, metric)
    if rows:
        parts.append(table(["", a, b, DIFFERENCE], rows))
    lines = verdict_lines(report)
    if report.arms is not None:
        parts.append(table(arm_titles(report), arm_rows(report, label)))
        lines += [arms_line(report), *notes(report)]
    if report.quantiles is not None:
        parts.append(table(quantile_titles(report, label), quantile_rows(report.quantiles)))
        lines.append(quantiles_line(report.quantiles, metric))
    written = datetime.fromtimestamp(report.until, UTC)
    note = f"{versions}. Understudy {__version__}, {written:%Y-%m-%d %H:%M} UTC."
    return page(f"{model_name}: {measured.replace('   ', ' · ')}", lines, parts, note)


def sides_of(report: AbReport, label: Label) -> tuple[str, str]:
    """Return how the two sides are called."""
    return f"A {label(report.found.champion_id)}", f"B {label(report.found.challenger_id)}"


def charts_of(report: AbReport, metric: str, label: Label) -> list[Chart]:
    """Return the interval over time, and the scores of both; nothing without data."""
    a, b = sides_of(report, label)
    parts = []
    if report.timeline:
        scale, unit = (100, "points") if report.is_share else (1, "its own unit")
        points = [
            Point(point.at, scale * point.difference, scale * point.low, scale * point.high)
            for point in report.timeline
        ]
        title = f"{metric}: {DIFFERENCE}, {percent_words(report.alpha)} % at any time"
        times = time_axis_marks(points[0].at, points[-1].at)
        parts.append(interval_over_time(title, report.sentence, points, times, unit=unit))
    if report.scores is not None:
        arms = [
            Distribution(a, Tone.CHAMPION, report.scores.a_cells),
            Distribution(b, Tone.CHALLENGER, report.scores.b_cells),
        ]
        parts.append(distributions("mean score of an entity", arms, report.scores.edges))
    return parts
