"""A shadow report, drawn here or by a proxy."""

from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.shadow.text import Label, report_texts
from understudy.entrypoints.cli.shared.screens import Drawn
from understudy.entrypoints.cli.shared.session import experiments_of
from understudy.entrypoints.documents.experiments import shadow_document
from understudy.experiments.shadow_report import ShadowFinding, ShadowQuestion, report_shadow


def drawn_finding(found: ShadowFinding, question: ShadowQuestion, label: Label) -> Drawn:
    """Return a report for programs and for people."""
    model = question.model_name
    return Drawn(shadow_document(found, model, label), report_texts(found, model, question.threshold, label))


async def drawn_shadow(session: Session, question: ShadowQuestion) -> Drawn:
    """Return how the shadow compares with the champion; raises as :func:`report_shadow`."""
    given = await experiments_of(session, question.model_name)
    return drawn_finding(await report_shadow(given.log, question, given.versions), question, given.label)
