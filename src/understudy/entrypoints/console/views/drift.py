"""The page of a model's drift, in the words and figures of ``understudy drift report``."""

from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

from understudy.core.drift.report import Drift, DriftState
from understudy.entrypoints.charts.frame import Chart
from understudy.entrypoints.cli.drift.page import HEAD, charts_of, subject_row
from understudy.entrypoints.cli.drift.text import heading_line, lag_words, next_step, waiting_lines
from understudy.entrypoints.console.views.tone import Tone
from understudy.monitoring.drift_view import DriftVerdict, DriftView, VersionView

_TONES = {
    DriftState.DRIFT: (Tone.BAD, "✖"),
    DriftState.OK: (Tone.GOOD, "✔"),
    DriftState.TOO_EARLY: (Tone.CALM, "…"),
    DriftState.NO_BASELINE: (Tone.WAIT, "!"),
}
_OF_VERDICT = {DriftVerdict.DRIFT: Tone.BAD, DriftVerdict.NONE: Tone.GOOD, DriftVerdict.NO_BASELINE: Tone.WAIT}
_STATE = HEAD.index("state") + 1


class SubjectRow(NamedTuple):
    """What is compared of an input, or of the predictions."""

    tone: Tone
    mark: str
    state: str
    cells: tuple[str, ...]
    """Below the page's columns, without the state."""


class VersionDrift(NamedTuple):
    """One version."""

    version: str
    role: str
    rows: tuple[SubjectRow, ...]
    remarks: tuple[str, ...]


class DriftPage(NamedTuple):
    """A model's drift."""

    model: str
    heading: str
    sentence: str
    tone: Tone
    lines: tuple[str, ...]
    columns: tuple[str, ...]
    versions: tuple[VersionDrift, ...]
    next_command: str
    next_words: str
    commands: tuple[str, ...]


def drift_page(view: DriftView) -> DriftPage:
    """Return the page."""
    then = next_step(view)
    return DriftPage(
        view.model_name,
        ", ".join(part.strip() for part in heading_line(view).split("   ")),
        view.sentence,
        _OF_VERDICT.get(view.verdict, Tone.CALM),
        (*view.shared, *waiting_lines(view)),
        ("subject", *(name for name in HEAD if name != "state")),
        tuple(_version(one, view) for one in view.versions),
        then.command,
        " ".join(then.purpose.split()),
        tuple(dict.fromkeys((f"understudy drift report {quote(view.model_name)}", then.command))),
    )


def drift_charts(view: DriftView) -> list[str | Chart]:
    """Return what is drawn: of each version what drifts, or its predictions."""
    return [part for version in view.versions for part in charts_of(version, view)]


def _version(version: VersionView, view: DriftView) -> VersionDrift:
    drifts = [one.drift for one in version.subjects]
    role = version.role.value if version.role is not None else "in a rollout" if version.is_active else "not active"
    return VersionDrift(version.version, role, tuple(map(_row, drifts)), tuple(_remarks(version, view, drifts)))


def _remarks(version: VersionView, view: DriftView, drifts: Sequence[Drift]) -> list[str]:
    told = [one.words for one in drifts if one.state in (DriftState.DRIFT, DriftState.NO_BASELINE)]
    return [*told, *filter(None, [lag_words(version, view.until)])]


def _row(drift: Drift) -> SubjectRow:
    cells = subject_row(drift)
    tone, mark = _TONES[drift.state]
    return SubjectRow(tone, mark, cells[_STATE], cells[:_STATE] + cells[_STATE + 1 :])
