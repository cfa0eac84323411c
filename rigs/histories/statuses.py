"""Which versions are retired when: a status changes beside the policy, so what is known is an interval of time."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from rigs.histories.finding import Finding
from rigs.histories.record import Ended, History, Kind, Record, tag_of

COMMIT_SECONDS = 6.0
"""How long after its beginning a transaction commits at the latest where no client knows: the monitor's fence."""


class StatusChange(NamedTuple):
    """A version retired, or brought back, at some moment between two."""

    version: str
    is_retired: bool
    earliest: float
    latest: float


class Statuses:
    """What versions may have been at a time."""

    def __init__(self, changes: Iterable[StatusChange]) -> None:
        self._changes = list(changes)

    def possible(self, record: Record) -> list[frozenset[str]]:
        """Return every set of versions that may have been retired together while an operation was under way."""
        versions = sorted({change.version for change in self._changes})
        choices = [self._values(version, record.invoked, record.returned) for version in versions]
        return [
            frozenset(version for version, is_retired in zip(versions, chosen, strict=True) if is_retired)
            for chosen in product(*choices)
        ]

    def _values(self, version: str, invoked: float, returned: float) -> list[bool]:
        own = [change for change in self._changes if change.version == version]
        settled = [change for change in own if change.latest <= invoked]
        standing = [
            change
            for change in settled
            if not any(other.earliest >= change.latest for other in settled if other is not change)
        ]
        under_way = [change for change in own if change.latest > invoked and change.earliest <= returned]
        values = {change.is_retired for change in (*standing, *under_way)}
        if not settled:
            values.add(False)
        return sorted(values)


def statuses_of(history: History) -> Statuses:
    """Return what became of the versions' statuses, by the audit of the registry."""
    returned = {record.operation.tag: record.returned for record in history.records}
    return Statuses(
        StatusChange(
            row.version,
            row.is_retired,
            row.at,
            min(returned.get(tag_of(row.reason) or "", row.at + COMMIT_SECONDS), row.at + COMMIT_SECONDS),
        )
        for row in history.statuses
    )


def wrong_statuses(history: History) -> Iterator[Finding]:
    """Yield retirements and returns that are in the audit of the registry otherwise than they were asked for."""
    counts = Counter(tag_of(row.reason) for row in history.statuses)
    for record in history.records:
        if record.operation.kind not in (Kind.RETIRE, Kind.RESTORE):
            continue
        count = counts[record.operation.tag]
        expected = [0, 1] if record.ended is Ended.UNKNOWN else [int(bool(record.answer.get("changed")))]
        if count not in expected:
            yield Finding("audit", f"it has {count} rows in the audit of versions: {record}")
