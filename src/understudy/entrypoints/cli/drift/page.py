"""A drift report as a page with charts."""

from itertools import pairwise

from understudy import __version__
from understudy.core.drift.baseline import Baseline, CategoricalBaseline, NumericBaseline
from understudy.core.drift.distributions import shapes_of, shares_of
from understudy.core.drift.hours import HOUR_SECONDS
from understudy.core.drift.report import Drift, DriftState
from understudy.core.drift.subject_window import CLASSES, PREDICTION
from understudy.entrypoints.charts import report
from understudy.entrypoints.charts.distributions import Distribution, distributions
from understudy.entrypoints.charts.frame import Chart, Mark, Tone
from understudy.entrypoints.charts.over_time import level_over_time
from understudy.entrypoints.cli.drift.text import drift_limit_words, heading_line, lag_words
from understudy.entrypoints.cli.shared.times import moment_words, time_axis_marks
from understudy.monitoring.drift_view import DriftView, SubjectView, VersionView

_MAX_CATEGORIES = 12
_MAX_LIMITS = 20
"""A distance is drawn up to so many limits; the reference rule has infinite ones."""
_MISSING_HOURS = 1.5
"""From how many hours between two points on one between them had nothing to compare."""
_CENT = 100
HEAD = ("baseline", "now", "distance", "limit", "state", "KS p", "chi² p")


def report_page(view: DriftView) -> str:
    """Return the whole page; where nothing can be compared it is the sentences that say so."""
    parts: list[str | Chart] = []
    said = [view.sentence, *view.shared]
    for version in view.versions:
        drifts = [one.drift for one in version.subjects]
        said += [f"v{version.version}: {drift.words}" for drift in drifts if drift.state is DriftState.DRIFT]
        parts += charts_of(version, view)
        role = "" if version.role is None else f" {version.role}"
        parts.append(report.table((f"v{version.version}{role}", *HEAD), list(map(subject_row, drifts))))
        if words := lag_words(version, view.until):
            said.append(words)
    note = f"Understudy {__version__}, hours until {moment_words(view.until)} UTC."
    return report.page(f"{heading_line(view).replace('   ', ' · ')}: drift", said, parts, note)


def charts_of(version: VersionView, view: DriftView) -> list[str | Chart]:
    """Return what is drawn of a version: its distributions and its distance over time."""
    return [part for subject in _drawn(version) for part in _charts(subject, version, view)]


def _drawn(version: VersionView) -> list[SubjectView]:
    """Return what drifts, or the predictions when nothing does."""
    told = [one for one in version.subjects if one.drift.shown is not None]
    drifting = [one for one in told if one.drift.state is DriftState.DRIFT]
    return drifting or [one for one in told if one.drift.subject == PREDICTION]


def _charts(subject: SubjectView, version: VersionView, view: DriftView) -> list[str | Chart]:
    drift = subject.drift
    baselines = version.baselines
    of_answers = {PREDICTION: baselines.prediction, CLASSES: baselines.classes}
    baseline = of_answers.get(drift.subject) or baselines.inputs.get(drift.subject)
    return [*_distributions(subject, version, baseline), _distance(drift, version, view)]


def _distributions(subject: SubjectView, version: VersionView, baseline: Baseline | None) -> list[str | Chart]:
    title = f"v{version.version}: {subject.drift.subject}"
    if isinstance(baseline, CategoricalBaseline):
        shares = shares_of(baseline, subject.recent)[:_MAX_CATEGORIES]
        rows = [(one.name, f"{_CENT * one.baseline:.1f} %", f"{_CENT * one.now:.1f} %") for one in shares]
        return [report.table((title, "baseline", "now"), rows)]
    shapes = shapes_of(baseline, subject.recent) if isinstance(baseline, NumericBaseline) else None
    if shapes is None:
        return []
    arms = [
        Distribution("baseline", Tone.CHAMPION, shapes.baseline),
        Distribution(_now_words(subject), Tone.CHALLENGER, shapes.now),
    ]
    return [distributions(title, arms, shapes.edges)]


def _now_words(subject: SubjectView) -> str:
    since = subject.drift.since_seconds
    return f"now: {len(subject.recent)} hours" if since is None else f"since {moment_words(since)}"


def _distance(drift: Drift, version: VersionView, view: DriftView) -> Chart:
    shown = drift.shown
    assert shown is not None, "only what is compared is drawn"
    points = [
        (at, min(distance, _MAX_LIMITS * shown.limit))
        for at, distance in zip(drift.history_seconds, drift.history, strict=True)
    ]
    since = drift.since_seconds
    return level_over_time(
        f"v{version.version}: {drift.subject}, distance of each hour ({shown.measure.value})",
        drift.words,
        points,
        time_axis_marks(drift.history_seconds[0], view.until),
        level_at=Mark(shown.limit, f"limit {drift_limit_words(shown)}"),
        moments=[] if since is None else [Mark(since, f"since {moment_words(since)}")],
        breaks=[
            (before + after) / 2
            for before, after in pairwise(drift.history_seconds)
            if after - before > _MISSING_HOURS * HOUR_SECONDS
        ],
    )


def subject_row(drift: Drift) -> tuple[str, ...]:
    """Return what is compared of a subject, below :data:`HEAD`."""
    shown, tests = drift.shown, drift.tests
    return (
        drift.subject,
        drift.baseline,
        drift.now,
        "" if shown is None else shown.words,
        "" if shown is None else drift_limit_words(shown),
        drift.state.value.replace("_", " "),
        "" if tests is None or tests.ks_p_value is None else f"{tests.ks_p_value:.2g}",
        "" if tests is None else f"{tests.chi2_p_value:.2g}",
    )
