"""The Health page: what ``understudy doctor`` finds, those in trouble first."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.entrypoints.cli.shared.texts.findings_text import findings_verdict
from understudy.entrypoints.console.views.tone import Tone
from understudy.lifecycle.server_findings import Finding, State

_TONES = {
    State.PROBLEM: (Tone.BAD, "✖", "problem"),
    State.WARNING: (Tone.WAIT, "!", "warning"),
    State.GOOD: (Tone.GOOD, "✔", "good"),
}
_ORDER = tuple(_TONES)


class HealthRow(NamedTuple):
    """One finding."""

    name: str
    tone: Tone
    mark: str
    word: str
    what: str
    next_step: str


class HealthPage(NamedTuple):
    """Everything that an installation depends on."""

    sentence: str
    tone: Tone
    troubled: tuple[HealthRow, ...]
    good: tuple[HealthRow, ...]


def health_page(findings: Sequence[Finding]) -> HealthPage:
    """Return the page; its words are those of ``understudy doctor``."""
    rows = [_row(one) for one in sorted(findings, key=lambda one: _ORDER.index(one.state))]
    troubled = tuple(row for row in rows if row.tone is not Tone.GOOD)
    tone = troubled[0].tone if troubled else Tone.GOOD
    return HealthPage(
        findings_verdict(findings).plain, tone, troubled, tuple(row for row in rows if row.tone is Tone.GOOD)
    )


def _row(finding: Finding) -> HealthRow:
    next_step = "" if finding.state is State.GOOD else finding.next_step
    return HealthRow(finding.name, *_TONES[finding.state], finding.what, next_step)
