"""Windows of a challenger that a caller sends calls which fail, on the champion that stands in too or on it alone."""

from collections.abc import Sequence
from dataclasses import replace

from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import BucketColumn, Window


def with_failures(windows: Sequence[Window], failing: Sequence[int], *, both: bool = True) -> list[Window]:
    """Let a caller send the challenger calls that fail, on the champion that stands in too if ``both``.

    Each window gets one call of an entity in each of the analysis buckets of ``failing``.
    """
    changed = []
    for window in windows:
        if window.key.role is not Role.CHALLENGER:
            changed.append(window)
            continue
        buckets, count = window.buckets.copy(), len(failing)
        for bucket in failing:
            buckets[bucket, [BucketColumn.CALLS, BucketColumn.ERRORS]] += 1
        sums = {name: getattr(window, name) + count for name in ("calls", "errors", "entities", "error_entities")}
        shared = {bucket: failing.count(bucket) for bucket in failing} if both else {}
        changed.append(
            replace(
                window,
                **sums,
                buckets=buckets,
                shared_error_entities=count if both else 0,
                shared_errors=Histogram(shared),
            )
        )
    return changed
