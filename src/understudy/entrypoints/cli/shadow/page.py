"""A shadow report as a page with its chart."""

from datetime import UTC, datetime

from understudy import __version__
from understudy.entrypoints.charts import report
from understudy.entrypoints.charts.distributions import Distribution, distributions
from understudy.entrypoints.charts.frame import Chart, Tone
from understudy.entrypoints.cli.shadow.text import Label, Row, evidence_rows, heading_line, names_of
from understudy.experiments.shadow_report import ShadowFinding


def report_page(found: ShadowFinding, model_name: str, threshold: float, label: Label) -> str:
    """Return a shadow report as a page with its chart; without pairs it is the sentence that says so."""
    champion, shadow = names_of(found, label)
    parts: list[str | Chart] = [*charts_of(found, label)]
    rows = figures_of(found, threshold)
    if rows:
        parts.append(report.table(["", champion, shadow, "difference"], rows))
    largest = disagreement_rows(found)
    if largest:
        parts.append(report.table(["largest disagreements: prediction id", champion, shadow], largest))
    until = datetime.fromtimestamp(found.until, UTC)
    note = f"Understudy {__version__}, calls until {until:%Y-%m-%d %H:%M} UTC."
    title = heading_line(found, model_name, label).replace("   ", " · ")
    return report.page(title, [found.report.sentence], parts, note)


def charts_of(found: ShadowFinding, label: Label) -> list[Chart]:
    """Return the scores of both as one chart; nothing without scores."""
    champion, shadow = names_of(found, label)
    scores = found.report.scores
    if scores is None:
        return []
    arms = [
        Distribution(champion, Tone.CHAMPION, scores.champion_cells),
        Distribution(shadow, Tone.SHADOW, scores.shadow_cells),
    ]
    return [distributions("score of a call", arms, scores.edges)]


def figures_of(found: ShadowFinding, threshold: float) -> list[Row]:
    """Return what the verdict rests on, and how far the scores are apart."""
    rows, scores = evidence_rows(found.report, threshold), found.report.scores
    if scores is not None:
        rows.append(("distance of the scores", "", "", f"PSI {scores.psi:.3f}, KS {scores.ks:.3f}"))
    return rows


def disagreement_rows(found: ShadowFinding) -> list[tuple[str, str, str]]:
    """Return the largest disagreements: prediction id, and both scores."""
    return [
        (one.prediction_id, f"{one.champion_score:.3f}", f"{one.shadow_score:.3f}")
        for one in found.report.disagreements
    ]
