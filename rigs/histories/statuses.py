"""Which versions are retired when: statuses have no audit of their own, so what is known is an interval of time."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import inf
from typing import NamedTuple

from rigs.histories.record import Ended, EventRow, Kind, Record, RolloutRow

COMMIT_SECONDS = 6.0
"""How long after its beginning a transaction of the monitor may commit at the latest: the fence ends it before."""


class StatusChange(NamedTuple):
    """A version retired, or brought back, at some moment between two."""

    version: str
    is_retired: bool
    earliest: float
    latest: float
    is_certain: bool = True


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
            if not any(other.is_certain and other.earliest >= change.latest for other in settled if other is not change)
        ]
        under_way = [change for change in own if change.latest > invoked and change.earliest <= returned]
        values = {change.is_retired for change in (*standing, *under_way)}
        if not any(change.is_certain for change in settled):
            values.add(False)
        return sorted(values)


def statuses_of(records: Sequence[Record], events: Sequence[EventRow], rollouts: Sequence[RolloutRow]) -> Statuses:
    """Return what clients and the monitor made of the versions' statuses."""
    champions = {rollout.id: rollout.champion for rollout in rollouts}
    return Statuses([*_by_clients(records), *_by_monitor(events, champions)])


def _by_clients(records: Sequence[Record]) -> Iterator[StatusChange]:
    for record in records:
        kind = record.operation.kind
        if kind not in (Kind.RETIRE, Kind.RESTORE) or record.ended is Ended.REFUSED:
            continue
        is_certain = record.ended is Ended.DONE
        latest = record.returned if is_certain else inf
        version = record.operation.asked["version"]
        yield StatusChange(version, kind is Kind.RETIRE, record.invoked, latest, is_certain)


def _by_monitor(events: Sequence[EventRow], champions: dict[int, str]) -> Iterator[StatusChange]:
    for rollout_id, champion in champions.items():
        ends = [event for event in events if event.rollout_id == rollout_id and event.phase == "SUCCEEDED"]
        if ends:
            # Not where the old champion has a role again by then, so it is not certain.
            yield StatusChange(champion, True, ends[0].at, ends[0].at + COMMIT_SECONDS, is_certain=False)
