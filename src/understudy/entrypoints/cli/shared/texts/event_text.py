"""A rollout's events and checks in words, as the demo and `understudy rollout` alike show them."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from rich.table import Table
from rich.text import Text

from understudy.core.canary.checks import evidence_from_json
from understudy.core.canary.decision import CheckState, Evidence
from understudy.core.canary.messages import comparison_of
from understudy.core.rollout.state import Phase
from understudy.entrypoints.cli.shared.rendering import Column, a_table
from understudy.entrypoints.cli.shared.times import event_time
from understudy.ports.rollout.rollout_store import RolloutEventRecord

WIDTH, INDENT, _TIME = 78, 10, 6
_MARKS: Mapping[str, tuple[str, str]] = {
    Phase.FAILED: ("✖", "bold red"),
    Phase.WAITING: ("!", "bold yellow"),
    Phase.PROMOTING: ("✔", "bold green"),
    Phase.SUCCEEDED: ("✔", "bold green"),
}
_STATES = {
    CheckState.OK: Text("✔ pass", "green"),
    CheckState.FAIL: Text("✖ fail", "bold red"),
    CheckState.INVALID: Text("✖ invalid", "bold red"),
    CheckState.TOO_EARLY: Text("… too early", "dim"),
    CheckState.UNPROVEN: Text("… worse, not\n  proven yet", "yellow"),
    CheckState.WARMING: Text("… warming", "yellow"),
    CheckState.SHARED: Text("! champion\n  failed too", "yellow"),
}
_MAX_EVIDENCE = 1_000_000
EVIDENCE_TITLE = "evidence /\nenough"
"""How much there is, and from how much on a check fails."""


def event_text(event: RolloutEventRecord, began_at: float | None, *, is_news: bool) -> Text:
    """Return what happened and when, counted from the rollout's start; marked when it ``is_news`` of the phase.

    Without ``began_at`` the time is in UTC.
    """
    mark, style = _MARKS.get(event.phase, ("", "")) if is_news else ("", "")
    at = event_time(event.at, began_at)
    indent = len(at) + INDENT - _TIME
    first, *others = wrap(event.reason, WIDTH - indent) or [""]
    text = Text(at, "dim").append(f" {mark:<2} ", style).append(first, style)
    for line in others:
        text.append(f"\n{' ' * indent}{line}")
    return text


def evidence_table(evidence: Sequence[Mapping[str, Any]]) -> Table:
    """Return the checks of a verdict, as its event stores them."""
    rows = [evidence_from_json(row) for row in evidence]
    columns = [Column("check: challenger vs champion"), Column(EVIDENCE_TITLE, right=True), Column("verdict")]
    cells = [(comparison_of(row), check_evidence_words(row), check_state_words(row)) for row in rows]
    return a_table(columns, cells, WIDTH - INDENT)


def check_state_words(row: Evidence) -> Text:
    """Return the state of a check in words; one whose whole interval is worse never passes, whatever was stored."""
    is_unproven = row.state is CheckState.OK and row.is_beyond_limit
    return _STATES[CheckState.UNPROVEN if is_unproven else row.state]


def check_evidence_words(row: Evidence) -> str:
    """Return how much evidence against chance a check has, and how much proves it, below :data:`EVIDENCE_TITLE`."""
    found, needed = row.evidence or 0.0, row.evidence_needed or 0.0
    return f"{found:,.0f} / {needed:,.0f}" if found < _MAX_EVIDENCE else f">{_MAX_EVIDENCE:,} / {needed:,.0f}"
