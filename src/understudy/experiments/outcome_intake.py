"""Outcomes come in: from a batch that a service sends, or from the rows of a file."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from understudy.core.experiments.outcome_events import (
    MAX_EVENTS,
    OutcomeEvent,
    event_of_row,
    read_event,
    unusable,
)
from understudy.errors import LoginNotAllowed, ScopeMissing, Violation
from understudy.ports.experiments.outcome_store import FileRow, OutcomeResult, OutcomeStore


class Added(NamedTuple):
    """An event and what became of it."""

    event_id: str
    result: OutcomeResult


MAX_AHEAD_SECONDS = 3_600.0
"""An event may lie so far in the future: clocks of senders differ."""


async def add_outcomes(
    store: OutcomeStore, outcomes: Sequence[OutcomeEvent], permitted: frozenset[str] | None = None, *, now: float
) -> list[Added]:
    """Store a batch that ``read_outcome_batch`` returned, and return what became of each of its events, in order.

    ``permitted`` are the models that events may be of; ``None``: all. ``now`` is in seconds since the epoch.

    Raises:
        ScopeMissing: An event is of another model than those ``permitted``; nothing was stored.
        BatchInvalid: Events are of no registered model, or lie in the future; nothing was stored.
        RegistryUnavailable: Nothing is promised; the same batch may be sent again.
        MigrationNeeded: The table is not there.
    """
    for index, outcome in enumerate(outcomes):
        if permitted is not None and outcome.model_name not in permitted:
            raise ScopeMissing(f"the key may not send outcomes of the model of /events/{index}; none was stored")
    wrong = await _implausible(store, outcomes, now)
    if wrong:
        places = [Violation(f"/events/{index}{found.pointer}", found.detail) for index, found in wrong.items()]
        raise unusable(f"{len(wrong):,}", len(outcomes), places)
    results = await store.add(outcomes)
    return [Added(outcome.event_id, result) for outcome, result in zip(outcomes, results, strict=True)]


async def _implausible(store: OutcomeStore, outcomes: Sequence[OutcomeEvent], now: float) -> dict[int, Violation]:
    """Return by its place what is wrong with each event that no report would ever count."""
    unknown = await store.unknown_models({outcome.model_name for outcome in outcomes}) if outcomes else frozenset()
    wrong: dict[int, Violation] = {}
    for index, outcome in enumerate(outcomes):
        if outcome.model_name in unknown:
            wrong[index] = Violation("/model", "no model of this name is registered")
        elif outcome.occurred_at > now + MAX_AHEAD_SECONDS:
            wrong[index] = Violation("/occurred_at", "lies more than an hour in the future")
    return wrong


class BadRow(NamedTuple):
    """A row that is no usable event, and everything wrong with it."""

    line: int
    event_id: str | None
    violations: tuple[Violation, ...]


class Imported(NamedTuple):
    """What became of the rows of a file so far."""

    rows: int = 0
    new: int = 0
    known: int = 0
    bad: int = 0


class OutcomeImport:
    """Stores the rows of a file in batches of :data:`MAX_EVENTS`; importing the file again adds nothing.

    A dry run looks at each row and stores none: then no row counts as new, and none as known.
    """

    def __init__(self, store: OutcomeStore, clock: Callable[[], float] = time.time, *, dry_run: bool = False) -> None:
        self._store = store
        self._dry_run = dry_run
        self._clock = clock
        self.total = Imported()
        self.new_metrics: set[tuple[str, str]] = set()
        """Models and names of outcomes that had no event before the file: one may be misspelt."""
        self._asked: set[tuple[str, str]] = set()
        self._forbidden: dict[str, bool] = {}
        """By model, whether the importer's key may not send its outcomes; asked once a batch was refused."""

    async def add(self, rows: Iterable[FileRow]) -> list[BadRow]:
        """Store one batch and return its rows that cannot be used; all others are stored.

        Raises:
            ScopeMissing: The importer's key may send outcomes of none of the first batch's models.
            RegistryUnavailable: Nothing of this batch is known to be stored; earlier ones are.
            MigrationNeeded: The table is not there.
        """
        read: list[tuple[int, OutcomeEvent]] = []
        bad_rows: list[BadRow] = []
        for row in rows:
            found = _read(row)
            if isinstance(found, OutcomeEvent):
                read.append((row.line, found))
            else:
                bad_rows.append(found)
        try:
            wrong = await _implausible(self._store, [outcome for _, outcome in read], self._clock())
        except ScopeMissing:  # of one model among several, perhaps
            read, refused = await self._permitted(read)
            bad_rows += refused
            wrong = await _implausible(self._store, [outcome for _, outcome in read], self._clock())
        for index, problem in wrong.items():
            line, outcome = read[index]
            bad_rows.append(BadRow(line, outcome.event_id, (problem,)))
        bad_rows.sort(key=lambda row: row.line)
        outcomes = [outcome for index, (_, outcome) in enumerate(read) if index not in wrong]
        await self._look_for_new_metrics(outcomes)
        results: Sequence[OutcomeResult] = [] if self._dry_run else await self._store.add(outcomes)
        new = sum(result is OutcomeResult.NEW for result in results)
        self.total = Imported(
            self.total.rows + len(outcomes) + len(bad_rows),
            self.total.new + new,
            self.total.known + len(results) - new,
            self.total.bad + len(bad_rows),
        )
        return bad_rows

    async def _permitted(
        self, read: Sequence[tuple[int, OutcomeEvent]]
    ) -> tuple[list[tuple[int, OutcomeEvent]], list[BadRow]]:
        """Divide rows by whether the importer's key may send outcomes of their model; raises as :meth:`add`."""
        for model in sorted({outcome.model_name for _, outcome in read} - self._forbidden.keys()):
            self._forbidden[model] = await self._is_forbidden(model)
        refused = [(line, outcome) for line, outcome in read if self._forbidden[outcome.model_name]]
        if len(refused) == len(read) and not self.total.rows:
            line, outcome = refused[0]
            raise ScopeMissing(f"line {line}: the key may not send outcomes of {outcome.model_name}")
        bad_rows = [
            BadRow(line, one.event_id, (Violation("/model", f"the key may not send outcomes of {one.model_name}"),))
            for line, one in refused
        ]
        return [one for one in read if not self._forbidden[one[1].model_name]], bad_rows

    async def _is_forbidden(self, model_name: str) -> bool:
        try:
            await self._store.unknown_models({model_name})
        except ScopeMissing:
            return True
        return False

    async def _look_for_new_metrics(self, outcomes: Sequence[OutcomeEvent]) -> None:
        named = {(outcome.model_name, outcome.name) for outcome in outcomes} - self._asked
        self._asked |= named
        with suppress(LoginNotAllowed):  # a login that may store, and nothing else
            self.new_metrics |= await self._store.new_metrics(named)


def batches(rows: Iterable[FileRow]) -> Iterator[list[FileRow]]:
    """Yield the rows in batches of :data:`MAX_EVENTS`; the last one may be shorter."""
    batch: list[FileRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) == MAX_EVENTS:
            yield batch
            batch = []
    if batch:
        yield batch


def _read(row: FileRow) -> OutcomeEvent | BadRow:
    if row.problem:
        return BadRow(row.line, None, (Violation("", row.problem),))
    found = read_event(event_of_row(row.cells), "")
    return found if isinstance(found, OutcomeEvent) else BadRow(row.line, found.event_id, found.violations)
