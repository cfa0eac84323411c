"""Expected traffic of a rollout: calls, entities and errors as they come today, and what a share of them meets."""

from collections.abc import Mapping
from math import expm1, sqrt
from typing import NamedTuple


class EntityCalls(NamedTuple):
    """How a stretch of a model's calls is spread over entities, from the log."""

    entities_by_calls: Mapping[int, int]
    """How many entities made so many calls each."""

    @property
    def calls(self) -> int:
        """All calls of the stretch."""
        return sum(calls * entities for calls, entities in self.entities_by_calls.items())

    @property
    def entities(self) -> int:
        """Different entities in the stretch."""
        return sum(self.entities_by_calls.values())

    def met_in(self, calls: float) -> float:
        """Return how many different entities so many of the calls, drawn at random, come from on average.

        More calls than there are come from the same entities: those that come anew later are not counted on.

        Source:
            Rarefaction: Hurlbert, "The nonconcept of species diversity", Ecology 52 (1971).
        """
        left_out = 1 - min(1.0, calls / max(1, self.calls))
        return sum(count * (1 - left_out**number) for number, count in self.entities_by_calls.items())

    def met_anew_in(self, calls: float) -> float:
        """Return the same of calls that go on after the stretch, with entities that it does not have.

        How many these are is told by those that called once and twice in it. Where none called once, there are none.

        Source:
            Shen, Chao & Lin, "Predicting the number of new species in further taxonomic sampling", Ecology 84 (2003),
            with Chao's estimate of the unseen ones (Biometrics 43, 1987), bias-corrected.
        """
        seen = self.calls
        once, twice = (self.entities_by_calls.get(number, 0) for number in (1, 2))
        if calls <= seen or not once:
            return self.met_in(calls)
        unseen = once * (once - 1) / (2 * (twice + 1)) or 1.0
        return self.entities - unseen * expm1(-(calls / seen - 1) * once / unseen)

    @property
    def heaviest_share(self) -> float:
        """Share (0-1) of the calls that one entity makes, the heaviest."""
        return max(self.entities_by_calls, default=0) / max(1, self.calls)

    @property
    def concentration(self) -> float:
        """The chance (0-1) that two calls are of one entity: 1 where all are, 0 where none comes twice."""
        pairs = sum(count * number * (number - 1) for number, count in self.entities_by_calls.items())
        return pairs / max(1, self.calls * (self.calls - 1))


class Traffic(NamedTuple):
    """What the model gets today."""

    requests_per_second: float
    entities: EntityCalls | None = None
    """``None`` where they could not be counted."""
    error_rate: float = 0.0
    """Share (0-1) of the champion's entities of 15 seconds that had an error in them."""
    entities_per_request: float = 1.0
    """Entities of 15 seconds for each judged call, 0-1: what the error rate is a share of."""
    log_latency_deviation: float | None = None
    """Standard deviation of the logarithm of the champion's latency; ``None`` where there are no answers."""


def share_of_calls(share: float, concentration: float, z: float) -> float:
    """Return which share of the calls a share of the entities makes, at ``z`` standard deviations.

    With a few heavy entities it is rarely the mean: half of the rollouts get less than at ``z`` = 0.

    Source:
        Mean ``w`` and variance ``w (1 - w)`` times the concentration, as a gamma distribution's quantile: Wilson &
        Hilferty, "The distribution of chi-square", PNAS 17 (1931).
    """
    shape = share / ((1 - share) * concentration) if concentration > 0 and share < 1 else 0.0
    if not shape:
        return share
    return share * max(0.0, 1 - 1 / (9 * shape) + z / (3 * sqrt(shape))) ** 3


def entities_of(share: float, entities: float, z: float) -> float:
    """Return how many of some entities a share of them is, at ``z`` standard deviations of a fair draw."""
    return max(0.0, entities * share + z * sqrt(entities * share * (1 - share)))
