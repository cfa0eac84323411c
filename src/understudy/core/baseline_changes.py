"""A version's metrics with some of its baselines replaced."""

from collections.abc import Mapping
from typing import Any

from understudy.core.drift.baseline import Baselines, baseline_of, baselines_to_json


def with_baselines(metrics: Any, new: Baselines, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics with new baselines; those of other subjects, and all other keys, stay.

    Stored baselines that nobody can read go: with one of them a version's drift is not judged at all.

    Args:
        metrics: Of the version, or ``None``.
        new: Replace the stored ones of the same subjects.
        changed: Who set them, when, from what and why; kept under ``baseline.changed``.

    Raises:
        ValueError: The metrics are no object.
    """
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ValueError(f"expected the version's metrics to be an object, got {metrics!r}")
    before = _object_of(metrics, "baseline")
    inputs = {name: entry for name, entry in _object_of(before, "inputs").items() if _is_readable(entry)}
    kept = {name: entry for name, entry in before.items() if name != "prediction" or _is_readable(entry)}
    written = baselines_to_json(new)
    inputs |= written.pop("inputs")
    return {**(metrics or {}), "baseline": {**kept, **written, "inputs": inputs, "changed": dict(changed)}}


def _object_of(holder: Any, name: str) -> Mapping[str, Any]:
    found = holder.get(name) if isinstance(holder, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _is_readable(entry: Any) -> bool:
    try:
        baseline_of(entry, "baseline")
    except ValueError:
        return False
    return True
