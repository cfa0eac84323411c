"""The Health page: what ``understudy doctor`` finds, those in trouble first; and what of it pages of models tell."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from understudy.entrypoints.cli.shared.texts.findings_text import findings_verdict
from understudy.entrypoints.console.views.tone import Tone
from understudy.registry.findings.finding import Finding, State

_TONES = {
    State.PROBLEM: (Tone.BAD, "✖", "problem"),
    State.WARNING: (Tone.WAIT, "!", "warning"),
    State.UNKNOWN: (Tone.CALM, "?", "not known"),
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
MAX_TOLD = 3
"""Findings that a page of a model has in words; the others are counted."""


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
    unknown: tuple[HealthRow, ...]
    """What this process cannot see."""
    good: tuple[HealthRow, ...]


class Trouble(NamedTuple):
    """What Health knows to be wrong at this moment, for a page that is about something else."""

    rows: tuple[HealthRow, ...] = ()
    more: int = 0
    """Findings that did not fit."""
    tone: Tone = Tone.CALM
    named: str = ""
    """What is in trouble: changes with that, and not with the seconds in its words."""
    may_see_health: bool = False
    remark: str = ""
    """Why nothing is known; empty where something is."""


def trouble_of(findings: Sequence[Finding], may_read: Collection[str] | None, model_name: str | None) -> Trouble:
    """Return what a page tells of Health.

    Args:
        findings: Those of the last examination.
        may_read: The models that the visitor may see; ``None``: all. Words about others name none to who may not.
        model_name: The model that the page is of; ``None``: of all.
    """
    visible = [one for one in findings if _is_told(one) and _is_of(one, may_read, model_name)]
    rows = [
        row if may_read is None or one.model_name is not None else row._replace(what="", next_step="")
        for one in sorted(visible, key=lambda one: _ORDER.index(one.state))
        for row in (_row(one),)
    ]
    return Trouble(
        tuple(rows[:MAX_TOLD]),
        max(0, len(rows) - MAX_TOLD),
        rows[0].tone if rows else Tone.CALM,
        ", ".join(row.name for row in rows),
        may_read is None,
    )


def _is_told(finding: Finding) -> bool:
    """Whether pages of models tell of a finding; a guard's and a gate's are on their own pages anyway."""
    is_shown = finding.name in {f"guard {finding.model_name}", f"gate {finding.model_name}"}
    is_wrong = finding.state is State.PROBLEM or (finding.state is State.WARNING and finding.is_pressing)
    return is_wrong and not is_shown


def _is_of(finding: Finding, may_read: Collection[str] | None, model_name: str | None) -> bool:
    if finding.model_name is None:
        return True
    is_here = model_name in (None, finding.model_name)
    return is_here and (may_read is None or finding.model_name in may_read)


def health_page(findings: Sequence[Finding]) -> HealthPage:
    """Return the page; its words are those of ``understudy doctor``."""
    rows = [_row(one) for one in sorted(findings, key=lambda one: _ORDER.index(one.state))]
    troubled = tuple(row for row in rows if row.tone in (Tone.BAD, Tone.WAIT))
    unknown, good = (tuple(row for row in rows if row.tone is tone) for tone in (Tone.CALM, Tone.GOOD))
    return HealthPage(
        findings_verdict(findings).plain, troubled[0].tone if troubled else Tone.GOOD, troubled, unknown, good
    )


def _row(finding: Finding) -> HealthRow:
    is_good = finding.state is State.GOOD
    next_step, runbook = ("", "") if is_good else (finding.next_step, RUNBOOK_OF_FINDINGS.get(finding.name, ""))
    return HealthRow(finding.name, *_TONES[finding.state], finding.what, next_step, runbook)
