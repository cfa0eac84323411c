"""A shadow report as a page with its chart."""

from datetime import UTC, datetime

from understudy import __version__
from understudy.entrypoints import charts
from understudy.entrypoints.charts import Distribution, Tone
from understudy.entrypoints.cli.shadow.text import Label, evidence_rows, heading_line, names_of
from understudy.experiments.shadow_report import ShadowFinding


def report_page(found: ShadowFinding, model_name: str, threshold: float, label: Label) -> str:
    """Return a shadow report as a page with its chart; without pairs it is the sentence that says so."""
    champion, shadow = names_of(found, label)
    scores, parts = found.report.scores, []
    if scores is not None:
        arms = [
            Distribution(champion, Tone.CHAMPION, scores.champion_cells),
            Distribution(shadow, Tone.SHADOW, scores.shadow_cells),
        ]
        parts.append(charts.distributions("score of a call", arms, scores.edges))
    rows = evidence_rows(found.report, threshold)
    if scores is not None:
        rows.append(("distance of the scores", "", "", f"PSI {scores.psi:.3f}, KS {scores.ks:.3f}"))
    if rows:
        parts.append(charts.table(["", champion, shadow, "difference"], rows))
    largest = [
        (one.prediction_id, f"{one.champion_score:.3f}", f"{one.shadow_score:.3f}")
        for one in found.report.disagreements
    ]
    if largest:
        parts.append(charts.table(["largest disagreements: prediction id", champion, shadow], largest))
    until = datetime.fromtimestamp(found.until, UTC)
    note = f"Understudy {__version__}, calls until {until:%Y-%m-%d %H:%M} UTC."
    title = heading_line(found, model_name, label).replace("   ", " · ")
    return charts.page(title, [found.report.sentence], parts, note)
