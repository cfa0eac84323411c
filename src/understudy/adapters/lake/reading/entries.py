"""Entities that met the arms of a test, as tables of a question: their first exposure, their calls, their outcomes."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.adapters.lake.reading import statements as sql
from understudy.adapters.lake.reading.question import Question, ids_of, micros, span_us
from understudy.adapters.lake.reading.snapshot import Wanted
from understudy.ports.experiments.experiment_log import NO_SCORES, ArmScores, EntityQuery, EpochOf


def exposures_of(query: EntityQuery, columns: Sequence[str], version_ids: Sequence[int] | None = None) -> Wanted:
    """Return which rows are exposures to these versions, by default to the two that a query compares."""
    versions = ids_of((query.champion_id, query.challenger_id)) if version_ids is None else version_ids
    return Wanted(
        columns,
        micros(query.since),
        micros(query.until),
        version_ids=versions,
        assigned_ids=versions,
        equal=(("reason", "bucket"),),
    )


class Met(NamedTuple):
    """What the table ``met`` has of an entity's calls by arm, beside when the first of them was."""

    made: str
    added: str
    folded: str
    columns: Sequence[str] = sql.EXPOSURE_COLUMNS


NOTHING_ELSE = Met(sql.MET, sql.ADD_MET, sql.FOLD_MET)
CALLS = Met(sql.MET_CALLS, sql.ADD_MET_CALLS, sql.FOLD_MET_CALLS)
CALLS_AND_SCORES = Met(sql.MET_ALL, sql.ADD_MET_ALL, sql.FOLD_MET_ALL, sql.SCORED_COLUMNS)


class _Chosen(NamedTuple):
    """Implements ``ports.Entered``."""

    is_b: bool
    epoch: int
    entities: int


def load_entries(
    question: Question, query: EntityQuery, met: Met = NOTHING_ELSE, version_ids: Sequence[int] | None = None
) -> None:
    """Make the tables ``met`` and ``entry``, which has an entity's first exposure."""
    question.run(sql.EPOCHS)
    question.run(sql.ADD_EPOCHS, {"generations": list(query.epochs.keys()), "numbers": list(query.epochs.values())})
    question.run(met.made)
    question.add_up(exposures_of(query, met.columns, version_ids), met.added, met.folded)
    _find_first(question, exposures_of(query, sql.TIED_COLUMNS, version_ids))


def _find_first(question: Question, exposures: Wanted, epoch: int | None = None) -> None:
    """Make ``entry`` of ``met``; where that has one epoch alone, it is named."""
    question.run(sql.ENTRY)
    question.run(sql.TIED)
    ((first, last),) = question.run(sql.TIMES_OF_TIED)
    if first is not None:
        tied = exposures._replace(since_us=first, until_us=last + 1)
        question.gather(tied, sql.FIRST_OF_TIED, {"epoch": epoch})
        question.run(sql.SETTLE_TIED)


def load_sample(question: Question, query: EntityQuery, most: int) -> None:
    """Make ``chosen``, of so many entities of each arm at most, and what :func:`load_entries` makes."""
    load_entries(question, query)
    question.run(sql.CHOOSE_OF_ARMS, {"within_us": span_us(query.within_seconds), "most": most})


def load_chosen(question: Question, query: EntityQuery, most: int) -> int:
    """Make ``chosen``, ``called`` and ``stayed`` of what was met; return of how many entities they are."""
    ((total,),) = question.run(sql.COUNT_ENTRIES)
    within: dict[str, object] = {"within_us": span_us(query.within_seconds)}
    if total > most:
        question.run(sql.CHOOSE_SOME, within | {"most": most})
    else:
        question.run(sql.CHOOSE_ALL, within)
    question.run(sql.CALLED)
    question.run(sql.STAYED)
    return int(total)


def mean_scores(question: Question, query: EntityQuery, epoch_of: EpochOf, most: int) -> ArmScores:
    """Return the mean scores of so many entities of each arm at most; what was met in other epochs goes."""
    counted = question.run(sql.COUNT_CHOSEN, {"challenger": query.challenger_id})
    if not counted:
        return NO_SCORES
    if len(set(query.epochs.values())) > 1:
        epoch = epoch_of([_Chosen(*row) for row in counted])
        question.run(sql.KEEP_EPOCH, {"epoch": epoch})
        _find_first(question, exposures_of(query, sql.TIED_COLUMNS), epoch)
    rows = question.run(sql.MEAN_SCORES, {"most": most})
    a, b = (
        [score for assigned, score in rows if assigned == version_id]
        for version_id in (query.champion_id, query.challenger_id)
    )
    return ArmScores(a, b)


def load_calls(question: Question, query: EntityQuery) -> None:
    """Complete ``called``, of those that stayed, and make ``known_before`` and ``event``."""
    question.run(sql.DROP_MET)
    ((last,),) = question.run(sql.LAST_END)
    if last is not None:
        wanted = exposures_of(query, sql.EXPOSURE_COLUMNS)
        question.add_up(wanted._replace(until_us=min(last, wanted.until_us)), sql.ADD_CALLED, sql.FOLD_CALLED)
    since = micros(query.since)
    before = Wanted(sql.BEFORE_COLUMNS, micros(query.since - query.within_seconds), since, models=[query.model_name])
    question.run(sql.BEFORE)
    question.add_up(before, sql.ADD_BEFORE, sql.FOLD_BEFORE)
    load_events(question, query)


def load_events(question: Question, query: EntityQuery) -> None:
    """Make ``event``, of the outcomes with their entities: those of a call are its entity's."""
    question.run(sql.EVENT)
    ((of_calls,),) = question.run(sql.COUNT_TOLD_OF_CALLS)
    if of_calls:
        question.gather(exposures_of(query, sql.EVENT_COLUMNS), sql.ADD_EVENTS)
