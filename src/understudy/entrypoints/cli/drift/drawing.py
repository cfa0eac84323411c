"""A drift report, drawn here or by a proxy."""

from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.drift.text import next_step, report_texts
from understudy.entrypoints.cli.shared.screens import Drawn
from understudy.entrypoints.documents.drift import drift_document
from understudy.monitoring.drift_view import DriftQuestion, DriftView, view_drift


def drawn_view(view: DriftView) -> Drawn:
    """Return a report for programs and for people."""
    return Drawn({"report": {**drift_document(view), "next": next_step(view).command}}, report_texts(view))


async def drawn_drift(session: Session, question: DriftQuestion) -> Drawn:
    """Return what has drifted from its baseline; raises as :func:`view_drift`."""
    return drawn_view(await view_drift(session.metrics, session.registry, question))
