"""What this process's calls of each version came to since its start, for callers that ask; others read metrics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from understudy.core.routing.policy import ModelVersion


@dataclass(slots=True)
class VersionStatistics:
    """Of one version."""

    succeeded: int = 0
    succeeded_seconds: float = 0.0
    """In all, from the route to the answer."""
    failed: int = 0
    failed_seconds: float = 0.0
    last_at: float = 0.0
    """When the last call ended, in seconds since the epoch; 0: there was none."""


class CallStatistics:
    """Adds up calls as they end.

    Args:
        unix: The clock, in seconds since the epoch.
    """

    def __init__(self, unix: Callable[[], float]) -> None:
        self._unix = unix
        self._by_version: dict[tuple[str, str], VersionStatistics] = {}

    def add(self, version: ModelVersion, *, is_good: bool, seconds: Sequence[float]) -> None:
        """Add calls of a version that ended alike, of any role."""
        name = version.model_name, version.version
        found = self._by_version.get(name)
        if found is None:
            found = self._by_version[name] = VersionStatistics()
        if is_good:
            found.succeeded += len(seconds)
            found.succeeded_seconds += sum(seconds)
        else:
            found.failed += len(seconds)
            found.failed_seconds += sum(seconds)
        found.last_at = self._unix()

    def of(self, version: ModelVersion) -> VersionStatistics:
        """Return a version's; zeros where it was never called."""
        return self._by_version.get((version.model_name, version.version)) or VersionStatistics()
