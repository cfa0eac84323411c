"""What the logged inputs of a version were like in one hour, for each input that has a baseline."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np
import orjson

from understudy.core.drift.baseline import Baseline, CategoricalBaseline, category_of
from understudy.core.drift.running_sums import RARE_RATIO
from understudy.core.drift.subject_window import (
    IntArray,
    SubjectWindow,
    categorical_window,
    input_subject,
    numeric_window,
)
from understudy.core.prediction_log.input_sampling import InputSample
from understudy.core.windows.analysis_buckets import analysis_bucket

MAX_ROWS = 20_000
MAX_VALUES = 100_000
"""Of an hour of a version (about 1 µs each): with ten inputs 10,000 rows are looked at, with a hundred 1,000."""
MAX_OTHER_CATEGORIES = 20
"""Categories that the baseline hardly has and that keep their name, so that a later baseline may have them."""
MIN_BUCKETS = 10
"""Of the 64 analysis buckets must such a category be in: a name that ten entities share says nothing about one."""
_MAX_CATEGORY = 100

_MISSING = object()


def rows_of_hour(watched: int) -> int:
    """Return how many rows of an hour are looked at for so many inputs."""
    return min(MAX_ROWS, MAX_VALUES // max(watched, 1))


def input_hours(
    start_seconds: float, samples: Sequence[InputSample], watched: Mapping[str, Baseline]
) -> dict[str, SubjectWindow]:
    """Return the hour of each watched input by its name; inputs that no call had are left out.

    An input that is not in a call's object was not logged, which is not the same as null. A number under a baseline of
    categories counts by its text; a text under a baseline of numbers is not counted.
    """
    documents = [orjson.loads(sample.inputs) for sample in samples]
    homes = np.array([analysis_bucket(sample.entity_id) for sample in samples], dtype=np.int64)
    found = {}
    for name, baseline in watched.items():
        hour = _hour(start_seconds, [document.get(name, _MISSING) for document in documents], homes, baseline)
        if hour is not None:
            found[input_subject(name)] = hour
    return found


def _hour(start_seconds: float, values: Sequence[Any], homes: IntArray, baseline: Baseline) -> SubjectWindow | None:
    is_categorical = isinstance(baseline, CategoricalBaseline)
    usable = (str, int, float, type(None)) if is_categorical else (int, float, type(None))
    places = [place for place, value in enumerate(values) if isinstance(value, usable)]
    if not places:
        return None
    kept, buckets = [values[place] for place in places], homes[places]
    if isinstance(baseline, CategoricalBaseline):
        categories = [None if value is None else category_of(value) for value in kept]
        return _without_rare(categorical_window(start_seconds, categories, buckets), baseline)
    numbers = np.array([nan if value is None else value for value in kept], dtype=np.float64)
    return numeric_window(start_seconds, numbers, buckets)


def _without_rare(hour: SubjectWindow, baseline: CategoricalBaseline) -> SubjectWindow:
    """Return the hour without the names of rare categories, whose rows still count.

    Callers must not make it grow, and what only one of them sends must not stay when their inputs are erased.
    """
    known = {name for name, share in baseline.shares.items() if share >= RARE_RATIO}
    others = [
        name
        for name, rows in hour.categories.items()
        if name not in known and len(name) <= _MAX_CATEGORY and np.count_nonzero(rows) >= MIN_BUCKETS
    ]
    most = sorted(others, key=lambda name: (-sum(hour.categories[name]), name))[:MAX_OTHER_CATEGORIES]
    kept = known.union(most)
    return hour._replace(categories={name: rows for name, rows in hour.categories.items() if name in kept})
