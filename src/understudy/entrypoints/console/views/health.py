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
RUNBOOK_OF_FINDINGS = {
    "archive": "ArchiveLate.md",
    "guards": "GuardFailed.md",
    "lake": "LakeBehind.md",
    "loading": "VersionNotLoaded.md",
    "monitor": "MonitorStalled.md",
    "partitions": "PartitionMissing.md",
    "proxies": "ProxiesGone.md",
    "redis": "SharedCacheOff.md",
}
"""In ``docs/runbooks``, of the alert that is about the same."""


class HealthRow(NamedTuple):
    """One finding."""

    name: str
    tone: Tone
    mark: str
    word: str
    what: str
    next_step: str
    runbook: str = ""
    """Its page in ``docs/runbooks``, where it has one of its own."""


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
    is_good = finding.state is State.GOOD
    next_step, runbook = ("", "") if is_good else (finding.next_step, RUNBOOK_OF_FINDINGS.get(finding.name, ""))
    return HealthRow(finding.name, *_TONES[finding.state], finding.what, next_step, runbook)
