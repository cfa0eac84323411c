"""What ``understudy drift`` says: the verdict first, its evidence under it, the next command last."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from understudy.core.amounts import amount_words
from understudy.core.drift.baseline import Baseline, CategoricalBaseline
from understudy.core.drift.hours import HOUR_SECONDS
from understudy.core.drift.report import IN_POINTS, Drift, DriftState, Reading
from understudy.core.drift.subject_window import OF_ANSWERS, PREDICTION
from understudy.core.durations import duration_words
from understudy.entrypoints.cli.shared.rendering import Column, a_table, names_words
from understudy.entrypoints.cli.shared.times import moment_words, time_of_day
from understudy.monitoring.drift_view import DriftVerdict, DriftView, SubjectView, VersionView

_BLOCKS = "▁▂▃▄▅▆▇█"
_BARS = 14
_CENT = 100
_STYLES = {DriftVerdict.DRIFT: "bold red", DriftVerdict.NONE: "bold green"}
_SHOWN_CATEGORIES = 2


class NextStep(NamedTuple):
    """A command, and what it is for."""

    command: str
    purpose: str


# -- the report --------------------------------------------------------------------------------------------------------


def report_texts(view: DriftView) -> list[RenderableType]:
    """Return a report for people."""
    head = Text(heading_line(view), "dim")
    head.stylize("bold", 0, len(view.model_name))
    texts: list[RenderableType] = [head, "", Text(view.sentence, _STYLES.get(view.verdict, "bold")), *view.shared]
    texts += [Text(line) for line in waiting_lines(view)]
    for version in view.versions:
        texts += ["", _version_line(version), *_evidence(version, view)]
    then = next_step(view)
    return [*texts, "", Text(f"→ {then.command}\n  {then.purpose}", "cyan")]


def heading_line(view: DriftView) -> str:
    """Return what is judged, and until when."""
    return f"{view.model_name}   {duration_words(view.judged_seconds)} until {moment_words(view.until)} UTC"


def waiting_lines(view: DriftView) -> list[str]:
    """Return what a report without hours waits for, and why inputs have no values; nothing where there is no reason."""
    lines = []
    if any(one.is_active and one.is_unseen for one in view.versions):
        begun, at = time_of_day(view.until), time_of_day(view.next_hour_at)
        wait = duration_words(max(60.0, 60.0 * round((view.next_hour_at - view.now) / 60)))
        lines.append(f"Whole hours are judged: the one that began at {begun} UTC is summed up at {at}, in {wait}.")
    subjects = {subject.drift.subject for one in view.versions for subject in one.subjects if not subject.drift.rows}
    if view.input_sample_percent == 0 and subjects.difference(OF_ANSWERS):
        lines.append(
            f"Inputs are not logged, so predictions alone can be judged: "
            f"understudy model set {quote(view.model_name)} --input-sample-percent 5"
        )
    return lines


def lag_words(version: VersionView, until: float) -> str:
    """Say what the monitor has not summed up yet; nothing when all hours are."""
    if not version.is_active:
        return f"v{version.version} is not active: the monitor does not go on summing it up."
    if version.summed_until is None:
        return f"The monitor has not summed up an hour of v{version.version} yet."
    if version.summed_until < until:
        return f"The monitor last summed up v{version.version} until {moment_words(version.summed_until)}."
    return ""


def next_step(view: DriftView) -> NextStep:
    """Return what to do now."""
    model = view.model_name
    unknown = next((one for one in view.versions if _needs_baseline(one)), None)
    if view.verdict is DriftVerdict.DRIFT:
        version = next(one for one in view.versions if one.verdict is DriftVerdict.DRIFT)
        # The log would also replace the baselines of what does not drift; of a file --columns takes single inputs.
        is_input = all(one.drift.subject not in OF_ANSWERS for one in version.subjects if _drifts(one.drift))
        source = "--from training.csv" if is_input else "--from-log"
        stays = f"understudy drift baseline set {quote(model)} {quote(version.version)} {source}"
        purpose = f"draws what moved, and when; if it is to stay so:\n  {stays}"
        return NextStep(f"understudy drift report {quote(model)} --html drift.html", purpose)
    if unknown is not None:
        command = f"understudy drift baseline set {quote(model)} {quote(unknown.version)} --from training.csv"
        return NextStep(command, "says what it is compared with (or --from-log: what it answered)")
    if view.verdict is DriftVerdict.NOT_ACTIVE:
        return NextStep(f"understudy model show {quote(model)}", "shows who answers its calls")
    if any(one.is_active and one.summed_until is None for one in view.versions):
        return NextStep("understudy serve monitor", "sums each hour up, five minutes after its end")
    if view.verdict is DriftVerdict.TOO_EARLY:
        when = time_of_day(view.next_hour_at)
        return NextStep(
            f"understudy drift report {quote(model)}", f"from {when} UTC on, when the next hour is summed up"
        )
    return NextStep(f"understudy drift report {quote(model)} --html drift.html", "draws the distributions")


def _version_line(version: VersionView) -> Text:
    role = version.role.value if version.role is not None else "in a rollout" if version.is_active else "not active"
    line = Text(f"v{version.version}", "bold").append(f"  {role}", "cyan")
    return line.append("  reference rule (seed)", "dim") if version.rule.is_reference else line


def _evidence(version: VersionView, view: DriftView) -> list[RenderableType]:
    since, until = view.until - view.judged_seconds, view.until
    if version.is_unseen:
        unseen = ("No call of it is in the hours that are summed up.", lag_words(version, until))
        return [Padding(line, (0, 0, 0, 2)) for line in unseen if line]
    rows = [_row(subject, version, since, until) for subject in version.subjects]
    columns = [
        Column("subject"),
        Column("baseline", drop=1, right=True),
        Column("now", drop=1, right=True),
        Column("distance", right=True),
        Column("limit", right=True),
        Column(duration_words(view.judged_seconds), drop=2),
        Column("state"),
    ]
    said = [*_sentences(version), lag_words(version, until)]
    return [a_table(columns, rows), *(Padding(line, (0, 0, 0, 2)) for line in said if line)]


def _row(subject: SubjectView, version: VersionView, since: float, until: float) -> tuple[str | Text, ...]:
    drift, shown = subject.drift, subject.drift.shown
    if shown is None:
        return drift.subject, "", "", "", "", "", _state(drift, version, until)
    bars = history_bars(drift, since, until)
    distance, limit = shown.words, drift_limit_words(shown)
    return drift.subject, drift.baseline, drift.now, distance, limit, bars, _state(drift, version, until)


def _state(drift: Drift, version: VersionView, until: float) -> Text:
    if drift.state is DriftState.OK:
        return Text("✔", "green")
    if drift.state is DriftState.DRIFT:
        since = f"since {moment_words(drift.since_seconds, until)}" if drift.since_seconds is not None else "drifts"
        return Text(f"✖ {since}", "red")
    if drift.state is DriftState.NO_BASELINE:
        return Text("no baseline", "yellow")
    return Text(f"… {_missing_words(drift, version)}", "yellow")


def _missing_words(drift: Drift, version: VersionView) -> str:
    if not drift.rows:
        return "no traffic" if drift.subject in OF_ANSWERS else "no values"
    needed = version.rule.policy.minimum_rows
    return f"too early:\n{drift.rows:,} of {needed:,} rows" if drift.rows < needed else "too early:\ntoo few entities"


def _sentences(version: VersionView) -> list[str]:
    """Return what is to be said of the subjects: of drifts and missing baselines each, of all others once."""
    drifts = [subject.drift for subject in version.subjects]
    said = [drift.words for drift in drifts if drift.state in (DriftState.DRIFT, DriftState.NO_BASELINE)]
    if any(drift.state is DriftState.TOO_EARLY and drift.rows for drift in drifts):
        rows, buckets = version.rule.policy.minimum_rows, version.rule.policy.minimum_buckets
        said.append(f"Too early: {rows} rows are needed, of entities in {buckets} of 64 groups.")
    unseen = [one.subject for one in drifts if one.state is DriftState.TOO_EARLY and not one.rows]
    if inputs := [name for name in unseen if name not in OF_ANSWERS]:
        said.append(f"No values in these hours: {names_words(inputs)}.")
    return said


def _drifts(drift: Drift) -> bool:
    return drift.state is DriftState.DRIFT


def _needs_baseline(version: VersionView) -> bool:
    return any(
        subject.drift.state is DriftState.NO_BASELINE and subject.drift.subject == PREDICTION
        for subject in version.subjects
    )


def history_bars(drift: Drift, since: float, until: float) -> str:
    """Return the distance over time as bars of equal time: a full bar is the limit or, beyond it, the greatest.

    A stretch without a window is a gap.
    """
    bars = min(_BARS, max(1, round((until - since) / HOUR_SECONDS)))
    held: list[list[float]] = [[] for _ in range(bars)]
    for at, distance in zip(drift.history_seconds, drift.history, strict=True):
        held[min(max(int((at - since) / (until - since) * bars), 0), bars - 1)].append(distance)
    means = [sum(slot) / len(slot) if slot else None for slot in held]
    highest = max((mean for mean in means if mean is not None), default=0.0)
    top = max(highest, drift.shown.limit if drift.shown is not None else 0.0) or 1.0
    return "".join(" " if mean is None else _BLOCKS[_height(mean / top)] for mean in means)


def _height(ratio: float) -> int:
    # Of an infinite distance, the ratio to the greatest one is no number.
    return round(ratio * (len(_BLOCKS) - 1)) if ratio == ratio else len(_BLOCKS) - 1  # noqa: PLR0124  # NaN is not itself


def drift_limit_words(reading: Reading) -> str:
    """Return the limit of a drift reading in the unit of its distance."""
    return f"{reading.limit * _CENT:.1f}" if reading.measure in IN_POINTS else f"{reading.limit:.2f}"


# -- a baseline that was set -------------------------------------------------------------------------------------------


def baseline_change_rows(
    before: Mapping[str, Baseline | None], after: Mapping[str, Baseline | None]
) -> list[tuple[str, str, str, str, str]]:
    """Return for each subject its name, its baseline before and after, its rows and its share of nulls."""
    return [
        (
            subject,
            baseline_words(before.get(subject)),
            baseline_words(baseline),
            "" if baseline is None or baseline.rows is None else f"{baseline.rows:,}",
            "" if baseline is None or baseline.null_ratio is None else f"{_CENT * baseline.null_ratio:.2g} %",
        )
        for subject, baseline in after.items()
    ]


def baseline_change_table(rows: Sequence[tuple[str, str, str, str, str]]) -> Any:
    """Return the rows of changed baselines as a table."""
    columns = [
        Column("subject"),
        Column("was", drop=1, right=True),
        Column("is", right=True),
        Column("rows", drop=2, right=True),
        Column("nulls", drop=3, right=True),
    ]
    return a_table(columns, rows)


def baseline_words(baseline: Baseline | None) -> str:
    """Return a baseline in a few words: mean and standard deviation, or the most frequent categories."""
    if baseline is None:
        return "none"
    if not isinstance(baseline, CategoricalBaseline):
        return f"{amount_words(baseline.mean)} ± {amount_words(baseline.standard_deviation, 2)}".replace(
            "-", "\N{MINUS SIGN}"
        )
    most = sorted(baseline.shares.items(), key=lambda item: -item[1])
    shown = [f"{_CENT * share:.0f} % {name}" for name, share in most[:_SHOWN_CATEGORIES]]
    more = len(most) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])
