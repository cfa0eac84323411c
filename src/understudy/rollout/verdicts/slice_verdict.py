"""What a verdict stores of slices, which of them an operator was told of, and calls of theirs as examples."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from understudy.core.canary.decision import Decision
from understudy.core.canary.slices.failing_slices import (
    SliceCheck,
    SliceCount,
    SliceCounts,
    slice_counts_from_json,
    slice_counts_to_json,
)
from understudy.core.prediction_log.call_slices import CATEGORY, ROUTED
from understudy.core.rollout.state import Phase, RolloutState, WaitingFor
from understudy.ports.prediction_log.prediction_history import SliceHistory, TrialAsked
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutView

_SLICES, _NAMED = "slices", "named_slices"


class NamedSlice(NamedTuple):
    """A slice for which a challenger does worse."""

    prediction_ids: Sequence[str]
    """Of calls of it that failed, or were slow, up to three."""
    counted: SliceCount


def named_slices(decision: Decision | None, after: RolloutState) -> Sequence[str]:
    """Return the slices that a rollout waits because of; a change of the policy may be why it waits."""
    if decision is None or after.waiting_for is not WaitingFor.TIME:
        return ()
    return [str(found.counted.slice) for found in decision.slices]


def stored_slices(counts: SliceCounts | None, named: Sequence[str]) -> dict[str, Any]:
    """Return what is stored of slices with a verdict: their counts, and those that are told."""
    if counts is None or not counts.worst:
        return {}
    return {_SLICES: slice_counts_to_json(counts), _NAMED: list(named)}


def slice_counts_of(inputs: Mapping[str, Any]) -> SliceCounts | None:
    """Return the counts that a verdict rests on; ``None`` where no slice did worse, and in earlier releases.

    Raises:
        LookupError, TypeError, ValueError: They cannot be read.
    """
    return None if _SLICES not in inputs else slice_counts_from_json(inputs[_SLICES])


def told_slices(events: Sequence[RolloutEventRecord]) -> set[str]:
    """Return the slices that an operator was told of: a rollout has waited because of them."""
    return {
        named
        for event in events
        if event.phase == Phase.WAITING
        for named in _listed(event.inputs.get(_NAMED))
        if isinstance(named, str)
    }


def worse_counts(events: Sequence[RolloutEventRecord]) -> Sequence[SliceCount]:
    """Return the counts of the slices that a rollout waits because of; none if its newest verdict names none."""
    last = next((event for event in reversed(events) if event.verdict is not None), None)
    if last is None or last.phase != Phase.WAITING:
        return ()
    named = last.inputs.get(_NAMED)
    try:
        counts = slice_counts_of(last.inputs)
    except (LookupError, TypeError, ValueError):  # damaged, which judging it again reports
        return ()
    return [] if counts is None else [one for one in counts.worst if str(one.slice) in _listed(named)]


def _listed(named: Any) -> Sequence[Any]:
    return named if isinstance(named, list) else ()


async def named_with_examples(
    history: SliceHistory, view: RolloutView, counts: Sequence[SliceCount]
) -> Sequence[NamedSlice]:
    """Ask the log for calls of slices as examples.

    Raises:
        RegistryUnavailable, MigrationNeeded: As the history.
    """
    record = view.record
    found = []
    for one in counts:
        trial = TrialAsked(record.split_id, record.champion_id, record.challenger_id, one.since, view.read_at)
        slow_us = None if one.check is SliceCheck.ERRORS else record.slow_us
        # Rows of the log have the category alone; of one that is routed all calls are in the slice of its route.
        logged = one.slice._replace(feature=CATEGORY) if one.feature == ROUTED else one.slice
        found.append(NamedSlice(await history.slice_examples(trial, logged, slow_us), one))
    return found
