"""What drift is measured from: a version's baselines, from training data or from its own answers."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from understudy.core.drift.baseline import Baselines, CategoricalBaseline
from understudy.core.drift.logged_baseline import logged_baseline, logged_inputs
from understudy.core.drift.training_profile import CellRefused, TrainingColumns, TrainingProfile
from understudy.core.drift.version_drift import MAX_INPUTS
from understudy.core.schema.features import Feature
from understudy.ports.experiments.outcome_store import FileRow
from understudy.ports.prediction_log.prediction_history import PredictionHistory

MAX_SCORES = 200_000
"""Scores of the log that a baseline is made of; of more a sample is taken, always the same."""

MAX_LOGGED_INPUTS = 20_000
"""Calls whose logged inputs a baseline is made of."""


class TrainingRefused(ValueError):
    """Training data that cannot be used; the message begins after the name of the file."""


class Profile(NamedTuple):
    """The baselines of a table of training data, and what became of its columns."""

    baselines: Baselines
    rows: int
    unused: Sequence[str]
    """Columns of the table that were not read."""
    not_there: Sequence[str]
    """Features of the version without a column, or without any value in it."""
    lists: Sequence[str]
    """Features whose values are lists: they have no baseline."""


class LoggedProfile(NamedTuple):
    """The baselines of a version's own calls."""

    baselines: Baselines
    rows: int
    """Scores that they were made of."""
    calls: int
    """Of which these are all, or a sample."""
    inputs: int
    """Calls whose inputs were logged, and are in the baselines of inputs."""


def profile_training_rows(
    rows: Iterable[FileRow], columns: TrainingColumns, table: Sequence[str], features: Sequence[Feature]
) -> Profile:
    """Return a version's baselines from a table of training data, and what became of its columns; reads rows once.

    Raises:
        TrainingRefused: There are no rows, or one that cannot be used; the first one is named.
    """
    profile, line = TrainingProfile(columns), 0
    try:
        for row in rows:
            line = row.line
            if row.problem:
                raise TrainingRefused(f"row {line:,}: {row.problem}")
            profile.add(row.cells)
        baselines = profile.baselines()
    except CellRefused as problem:
        raise TrainingRefused(f"row {line:,}: {problem}") from None
    if not profile.rows:
        raise TrainingRefused("has no rows")
    return Profile(
        baselines,
        profile.rows,
        unused=[name for name in table if name not in columns.names],
        not_there=[one.name for one in features if not one.shape and one.name not in baselines.inputs],
        lists=[one.name for one in features if one.shape],
    )


async def profile_log(
    history: PredictionHistory,
    version_id: int,
    features: Sequence[Feature],
    since: float,
    until: float,
    *,
    threshold: float | None = None,
    classes: CategoricalBaseline | None = None,
) -> LoggedProfile:
    """Return the baselines of the scores that a version gave in a stretch of time, and of the inputs that were logged.

    ``classes`` is that of its classes, of a version that has any: it may have no scores.

    Raises:
        ValueError: There are too few.
        RegistryUnavailable, MigrationNeeded: As the history.
    """
    found = await history.scores(version_id, since, until, MAX_SCORES)
    try:
        baseline = logged_baseline(found.groups, threshold)
    except ValueError:
        if classes is None:
            raise
        baseline = None
    samples = await history.inputs(version_id, since, until, MAX_LOGGED_INPUTS)
    inputs = dict(sorted(logged_inputs(samples, features).items())[:MAX_INPUTS])
    return LoggedProfile(Baselines(baseline, inputs, classes), sum(map(len, found.groups)), found.calls, len(samples))
