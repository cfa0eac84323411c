"""Hours of drift: what a version's subjects did in one hour, each as one row of ``DriftHour``, and their windows."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from understudy.core.drift.baseline import MAX_CATEGORIES
from understudy.core.drift.seasonality import MAX_WEEKS, WEEK_SECONDS
from understudy.core.drift.subject_window import SubjectWindow, categorical_window
from understudy.core.windows.analysis_buckets import analysis_bucket
from understudy.core.windows.histogram import merged
from understudy.core.windows.window import BucketColumn, Window, no_buckets

HOUR_SECONDS = 3_600.0
MAX_SUBJECT = 255
"""Characters of ``DriftHour.subject``."""
MAX_CLASSES_READ = 18_000
"""Answers whose class is read of a version in an hour, the last 300 of each minute."""
MIN_CLASS_BUCKETS = 3
"""Of the 64 analysis buckets must a class be in to keep its name, unless it is known to be one."""
_MAX_CLASS = 100
SETTLE_SECONDS = 300.0
"""After this long an hour is closed: shippers are seconds behind, and one that lost Postgres some minutes."""
JUDGED_SECONDS = 14 * 86_400.0
"""Hours that may be called a drift; experience page, §1: fourteen days."""
KEPT_SECONDS = JUDGED_SECONDS + (MAX_WEEKS + 0.5) * WEEK_SECONDS
"""The hours before them tell what the hours of the week are like: the level of a week is that of three and a half days
to each side."""


def closed_until(now: float) -> float:
    """Return the end of the last closed hour, in seconds since the epoch."""
    return (now - SETTLE_SECONDS) // HOUR_SECONDS * HOUR_SECONDS


def prediction_hour(start_seconds: float, windows: Sequence[Window]) -> SubjectWindow:
    """Return the scores of a version in an hour, from its windows in all roles; no score leaves an empty hour.

    Calls that the cache answered are not in the windows: they repeat a prediction that was counted.
    """
    buckets = sum((window.buckets for window in windows), no_buckets())
    return SubjectWindow(
        start_seconds,
        bucket_rows=buckets[:, BucketColumn.SCORE_CALLS].tolist(),
        bucket_sums=buckets[:, BucketColumn.SCORE].tolist(),
        square_sum=sum(window.score_squares for window in windows),
        cells=merged(window.scores for window in windows).counts,
    )


def class_hour(
    start_seconds: float, answered: Sequence[tuple[str, str | None]], known: Collection[str] = ()
) -> SubjectWindow:
    """Return the classes of an hour from answers, each with its entity; ``None`` is an answer without a class.

    A version that answers with free text has no classes: kept by name are the most frequent ones that are not what one
    entity alone was told. All rows count.

    Args:
        start_seconds: Of the hour.
        answered: In any order.
        known: Classes that keep their name however few entities got one: in an hour of fifty answers a class of five
            percent would lose it by chance, and be missed as if it were not answered any more.
    """
    homes = np.array([analysis_bucket(entity) for entity, _ in answered], dtype=np.int64)
    window = categorical_window(start_seconds, [label for _, label in answered], homes)
    usable = [
        name
        for name, rows in window.categories.items()
        if len(name) <= _MAX_CLASS and (name in known or np.count_nonzero(rows) >= MIN_CLASS_BUCKETS)
    ]
    most = sorted(usable, key=lambda name: (-sum(window.categories[name]), name))[:MAX_CATEGORIES]
    return window._replace(categories={name: window.categories[name] for name in most})


def hour_to_json(hour: SubjectWindow) -> str:
    """Return everything but the start as JSON text; what is empty is left out.

    ``cells`` is a list ``[cell, count, cell, count, …]``. The sum of squares is a string, and a sum is a number of any
    length: both may need more than 64 bits.
    """
    document: dict[str, Any] = {
        "rows": list(hour.bucket_rows),
        "sums": orjson.Fragment(f"[{','.join(map(str, hour.bucket_sums))}]") if hour.bucket_sums else None,
        "squares": str(hour.square_sum),
        "cells": list(chain.from_iterable(sorted(hour.cells.items()))),
        "categories": {name: list(rows) for name, rows in hour.categories.items()},
        "nulls": list(hour.bucket_nulls),
    }
    return orjson.dumps({name: value for name, value in document.items() if value and value != "0"}).decode()


def hour_from_json(start_seconds: float, text: str | bytes) -> SubjectWindow:
    """Return the hour that :func:`hour_to_json` wrote.

    Raises:
        ValueError: It is not one.
    """
    try:
        document: Mapping[str, Any] = orjson.loads(text)
        pairs = document.get("cells", ())
        return SubjectWindow(
            start_seconds,
            bucket_rows=document["rows"],
            bucket_sums=document.get("sums", ()),
            square_sum=int(document.get("squares", 0)),
            cells=dict(zip(pairs[::2], pairs[1::2], strict=True)),
            categories=document.get("categories", {}),
            bucket_nulls=document.get("nulls", ()),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"not an hour: {problem}") from problem
