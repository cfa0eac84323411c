"""Who retired a version, or brought it back, and why: kept in its metrics, where ``version show`` reads it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

KEY = "status_changed"
"""Of ``ModelVersion.metrics``."""


class StatusChange(NamedTuple):
    """The last change of a version's status by a command; SQL leaves none."""

    status: str
    """What the version became."""
    at: str
    """ISO 8601."""
    by: str
    reason: str | None


def with_status_change(metrics: Any, change: StatusChange) -> dict[str, Any]:
    """Return the metrics with a change noted in the place of the one before; everything else stays.

    Raises:
        ValueError: The metrics are no object, so they have no place for it.
    """
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ValueError(f"expected the version's metrics to be an object, got {metrics!r}")
    return {**(metrics or {}), KEY: change._asdict()}


def status_change_of(metrics: Any) -> StatusChange | None:
    """Return the change that the metrics note; ``None`` where there is none that can be read."""
    noted = metrics.get(KEY) if isinstance(metrics, Mapping) else None
    if not isinstance(noted, Mapping):
        return None
    status, at, by, reason = (noted.get(field) for field in StatusChange._fields)
    if not (isinstance(status, str) and isinstance(at, str) and isinstance(by, str)):
        return None
    return StatusChange(status, at, by, reason if isinstance(reason, str) else None)
