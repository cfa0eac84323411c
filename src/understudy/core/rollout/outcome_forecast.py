"""When outcomes that hold each step can be shown to be within their margins, given the entities that come."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.canary.outcomes.held_outcomes import bound_words, equal_entities_to_show
from understudy.core.canary.outcomes.outcome_check import tolerated_of
from understudy.core.durations import duration_words
from understudy.core.rollout.expected_traffic import EntityCalls
from understudy.core.statistics.difference import Difference


class OutcomeBefore(NamedTuple):
    """What an outcome came to for the champion's entities of late."""

    value: float
    variance: float
    """Of one entity's contribution."""


class NeededOutcome(NamedTuple):
    """An outcome that holds each step until it is shown to be within its margin."""

    name: str
    bound: str
    """What is to be shown: ``at least 0.9x``."""
    within_seconds: float
    """An entity counts that long after its first call."""
    entities: int | None
    """That each of two equal arms needs; ``None`` where no number is enough."""

    @property
    def words(self) -> str:
        """What is waited for."""
        return f"outcome {self.name} to be shown {self.bound}"


def needed_outcome(limit: OutcomeLimit, before: OutcomeBefore) -> NeededOutcome:
    """Return what it takes to show an equal version to be within a margin."""
    alike = Difference(1, 1, 1.0, 1.0, before.value, before.value, 0.0, before.variance, before.variance)
    asked = equal_entities_to_show(before.value, before.variance, limit)
    return NeededOutcome(limit.name, bound_words(tolerated_of(limit, alike)), limit.within_seconds, asked)


class Counted(NamedTuple):
    """The entities that count by a moment."""

    champion: float
    challenger: float
    equal_arms: float
    """The entities of each of two equal arms that would tell as much."""


def counted_by(
    parts: Sequence[tuple[float, float]], known: EntityCalls, requests_per_second: float, within_seconds: float
) -> Counted:
    """Return which entities count after steps, each a share of the entities and its seconds.

    An entity is of the version that it meets first in the rollout, whatever share comes later. One of a step in which
    the other version has little of the calls weighs less, as where outcomes are compared
    (:mod:`understudy.experiments.attribution`): ``n`` new entities at a share ``s`` tell as much as ``2 s (1 - s) n``
    in each of two equal arms.
    """
    ended = sum(seconds for _, seconds in parts) - within_seconds
    champion = challenger = equal = begun = 0.0
    for share, seconds in parts:
        first, last = (min(max(0.0, ended), moment) for moment in (begun, begun + seconds))
        new = known.met_anew_in(last * requests_per_second) - known.met_anew_in(first * requests_per_second)
        champion += (1 - share) * new
        challenger += share * new
        equal += 2 * share * (1 - share) * new
        begun += seconds
    return Counted(champion, challenger, equal)


def is_shown(outcome: NeededOutcome, counted: Counted) -> bool:
    """Whether so many entities show an equal version to be within the margin, 95 % of them."""
    return outcome.entities is not None and counted.equal_arms >= outcome.entities


def never_words(outcome: NeededOutcome, share: float, known: EntityCalls, horizon_seconds: float) -> str:
    """Say why a step would never end because of an outcome."""
    if outcome.entities is None:
        return f"waits for {outcome.words}, which no number of entities shows"
    asked = outcome.entities / (2 * (1 - share))
    waits = f"waits more than {duration_words(horizon_seconds)} for {outcome.words}"
    return (
        f"{waits}: that takes about {asked:,.0f} challenger entities, and the last day's calls have {known.entities:,}"
    )
