"""Findings about the prediction log: its spool, its months, its archive, its lake, and erasures in it."""

from shlex import quote

from understudy.core.durations import duration_words
from understudy.registry.findings.finding import Finding, State

MONTHS_AHEAD = 2
LAKE_LATE_SECONDS = 600.0
ARCHIVE_LATE_DAYS = 3
"""Runs that may fail, one a day, before doctor warns."""
DAY_SECONDS = 86_400.0
ERASURE_LATE_SECONDS = 1_800.0
"""An erasure that began so long ago and is not finished was stopped, or could not reach a month's files."""
MAX_ERASURES = 3
"""Unfinished erasures that are told one by one."""


def judge_spool(state_dir: str, waiting_bytes: int, problem: str) -> list[Finding]:
    """Judge the rows that wait on disk: at most so many bytes, or why that cannot be known here."""
    if problem:
        advice = "Run doctor as the user whom the proxy runs as."
        return [Finding("spool", State.WARNING, f"rows that wait in {state_dir} were not counted: {problem}", advice)]
    if not waiting_bytes:
        return []
    what = f"at most {waiting_bytes / 1_048_576:.1f} MiB of rows wait in {state_dir}; they are shipped later"
    return [Finding("spool", State.GOOD, what)]


def judge_partitions(last_month: str | None, this_month: str) -> Finding:
    """Judge how far ahead PredictionLog has partitions; both months are ``YYYY-MM``, in UTC."""
    make = "understudy db partitions makes them."
    if last_month is None:
        return Finding("partitions", State.PROBLEM, "PredictionLog has none: nothing can be logged", make)
    ahead = _months(last_month) - _months(this_month)
    what = f"PredictionLog to the end of {last_month}"
    if ahead < 0:
        return Finding("partitions", State.PROBLEM, f"{what}: nothing can be logged any more", make)
    if ahead < MONTHS_AHEAD:
        return Finding("partitions", State.WARNING, f"{what}: {ahead} months ahead", make)
    return Finding("partitions", State.GOOD, what)


def judge_archive(
    oldest_days: float | None, succeeded_seconds: float | None, after_days: float, *, is_set: bool
) -> Finding:
    """Judge whether old months go.

    Args:
        oldest_days: How long ago the oldest month ended that has rows in Postgres.
        succeeded_seconds: How long ago a run of the archiver came to its end.
        after_days: How long after its end a month has to go.
        is_set: Whether ``UNDERSTUDY_ARCHIVE_URL`` is set.
    """
    if not is_set and succeeded_seconds is None:
        return Finding("archive", State.GOOD, "not used: UNDERSTUDY_ARCHIVE_URL is not set, months stay in Postgres")
    ran = "it never ran" if succeeded_seconds is None else f"it ran {succeeded_seconds / DAY_SECONDS:.1f} days ago"
    if oldest_days is not None and oldest_days > after_days + ARCHIVE_LATE_DAYS:
        what = f"a month that ended {oldest_days:.0f} days ago has rows in Postgres; {ran}"
        return Finding("archive", State.WARNING, what, "understudy db archive moves it; run that once a day.")
    return Finding("archive", State.GOOD, f"no month is late, {ran}")


def judge_lake(files: int, oldest_seconds: float) -> Finding:
    """Judge whether files of the lake come into its table.

    Args:
        files: How many are stored and in no commit that has ended.
        oldest_seconds: How long the oldest of them has waited.
    """
    if oldest_seconds > LAKE_LATE_SECONDS:
        what = f"{files:,} stored files are not in the table yet, the oldest for {oldest_seconds / 60:.0f} minutes"
        step = (
            "The log of the monitor that leads has the reason, as monitor.job_failed of the job lake; without one, its "
            "UNDERSTUDY_LOG is neither postgres+lake nor lake."
        )
        return Finding("lake", State.WARNING, what, step, is_pressing=True)
    return Finding("lake", State.GOOD, f"{files:,} stored files wait for their commit")


def judge_erasure(model: str | None, age_seconds: float) -> Finding:
    """Judge an erasure of an entity that no run has finished; the id of the entity is nowhere.

    Args:
        model: Its model; ``None``: every model.
        age_seconds: Time since its first run began.
    """
    return Finding(
        f"erasure in {model or 'all models'}",
        State.WARNING,
        f"began {duration_words(age_seconds)} ago and is not finished: old rows or files may still name the entity",
        f"Run it again, it goes on: understudy entity forget {quote(model or 'all')} ID --reason '…'. Its row in "
        "EntityErasure, which has no finished_at, says who asked for it and why.",
        model,
    )


def _months(month: str) -> int:
    year, number = map(int, month.split("-"))
    return year * 12 + number
