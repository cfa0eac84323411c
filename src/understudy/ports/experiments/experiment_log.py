"""What the arms of a split were given, and what came of it."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias

MAX_ENTITIES = 1_000_000
"""With a share, whose entities form few groups."""
MAX_ENTITIES_WITH_SUMS = 200_000
"""With a sum, where each entity may be a group of its own."""
MAX_SCORES = 20_000
"""Entities of one arm whose mean scores are compared."""
MAX_OBSERVED_ENTITIES = 10_000
"""Entities of one arm whose single values are compared by quantiles."""
MAX_OBSERVED_VALUES = 50
"""Of one of them."""
MAX_PAIRS_READ = 100_000
SHADOW_SECONDS = 30.0
"""How much later than its call a shadow call may be stamped."""


class Allocation(NamedTuple):
    """Who a policy's generation gave the calls to; no champion when the policy was deleted with it."""

    generation: int
    since: float
    """When it was committed, seconds since the epoch."""
    champion_id: int | None
    challenger_id: int | None
    challenger_weight: int
    shadow_id: int | None
    shadow_percent: int
    bucket_key: str
    """What is hashed before the entity."""
    arms: Mapping[int, int] = {}
    """Percent of the entities of each further arm, by its version's id."""

    @property
    def champion_percent(self) -> int:
        """What the others leave."""
        return 100 - self.challenger_weight - sum(self.arms.values())

    def percent_of(self, version_id: int) -> int | None:
        """Return the challenger's or a further arm's share, ``None`` for a version that is neither."""
        return self.challenger_weight if version_id == self.challenger_id else self.arms.get(version_id)


class OutcomeFacts(NamedTuple):
    """What is known of the outcomes of one name."""

    events: int
    is_share: bool
    """Whether every value is 0 or 1: something that happens or does not."""
    known_names: Sequence[str]
    """The names of this model's outcomes, at most twenty."""


class EntityQuery(NamedTuple):
    """Entities that met one of two versions, and what happened to them. Times are seconds since the epoch."""

    model_name: str
    metric: str
    """Name of the outcomes."""
    champion_id: int
    challenger_id: int | None
    """The version compared with it, challenger or further arm. ``None``: only the champion's entities."""
    epochs: Mapping[int, int]
    """Generations of the policy in which an exposure counts, each with the number of its epoch."""
    since: float
    until: float
    within_seconds: float
    """An entity's outcomes count that long after its first exposure."""
    is_share: bool
    """Whether the largest outcome of an entity is its value, and not the sum of all."""
    per_call: bool = False
    """Whether the metric is per call, so that an entity's value is a sum over its calls."""
    slices: int = 1
    """Parts of equal length into which the time of entry is cut."""


class ArmEntries(NamedTuple):
    """How many entities came in one epoch whose first exposure was assigned to one version."""

    epoch: int
    version_id: int
    entities: int


class Entered(Protocol):
    """How many entities of one arm came in one epoch, or a part of them."""

    @property
    def is_b(self) -> bool:
        """Whether the arm is B."""

    @property
    def epoch(self) -> int:
        """The number of the epoch."""

    @property
    def entities(self) -> int:
        """How many."""


EpochOf: TypeAlias = Callable[[Sequence[Entered]], int]
"""Chooses an epoch by the entities that came in each."""


class EntityGroup(NamedTuple):
    """Entities of one arm that are alike in all that is compared; the counts are of all of them together.

    The arm is the one that an entity's first exposure was assigned to, whichever version answered.
    """

    is_b: bool
    epoch: int
    slice: int
    is_closed: bool
    """Whether the time for their outcomes is over."""
    numerator: float
    denominator: float
    covariate: float | None
    """The numerator of as long a time before the test; ``None`` where the entity was not there."""
    entities: int
    with_outcome: int
    calls: int
    own_calls: int
    """Calls that the arm's own version answered."""
    recent: int
    """Entities that came within the last day."""
    covariate_denominator: float | None = None
    """The calls of as long a time before the test, for a metric per call; ``None`` as the covariate."""


class Observed(StrEnum):
    """What the quantiles of a report are of."""

    LATENCY = "latency"
    """Of the answered calls that no cache answered."""
    VALUE = "value"
    """Of the outcomes."""


class EntityValues(NamedTuple):
    """What was observed of one entity: a random part of its ``total`` values, where it has very many."""

    is_b: bool
    epoch: int
    total: int
    values: Sequence[float]
    """Latencies in milliseconds, or outcomes."""


class EntityGroups(NamedTuple):
    """The groups of a query, made of ``entities`` of the ``total`` there are: beyond a bound a random sample."""

    groups: Sequence[EntityGroup]
    entities: int
    total: int


class ArmScores(NamedTuple):
    """One mean score for each of a sample of an arm's entities, over the calls that its own version answered."""

    a: Sequence[float]
    b: Sequence[float]


NO_SCORES = ArmScores((), ())


class ShadowQuery(NamedTuple):
    """Calls that the champion answered while a shadow was set. Times are seconds since the epoch."""

    champion_id: int
    shadow_id: int
    generations: Sequence[int]
    """Of the policy, in which the shadow was shown calls."""
    since: float
    until: float


class LoggedPair(NamedTuple):
    """One call as the champion answered it and, if the shadow was asked and has a row, what that made of it."""

    prediction_id: str
    predicted_at: float
    entity_id: str
    generation: int
    champion_status: str
    shadow_status: str | None
    champion_us: int | None
    """Latency in microseconds; ``None`` for an answer from the cache."""
    shadow_us: int | None
    champion_score: float | None
    shadow_score: float | None


class ExperimentLog(Protocol):
    """What the log, the outcomes and the audit say about versions. Results are bounded, and so is the time of a call.

    Raises ``RegistryUnavailable`` (also when a call takes too long; its next step says what to ask for instead) and
    ``MigrationNeeded``.
    """

    async def allocations(self, model_name: str) -> Sequence[Allocation]:
        """Return the latest generations of a model's policy, oldest first."""

    async def outcome_facts(self, model_name: str, metric: str, since: float, until: float) -> OutcomeFacts:
        """Return what is known of a metric's outcomes that occurred in ``[since, until)``."""

    async def entities(self, query: EntityQuery) -> EntityGroups:
        """Return the entities that entered in ``[since, until)``. Only calls routed by their bucket are exposures."""

    async def arm_entries(self, query: EntityQuery, version_ids: Sequence[int]) -> Sequence[ArmEntries]:
        """Return how the entities that entered in ``[since, until)`` are split over all of these versions.

        Other than in :meth:`entities`, an exposure to any of the versions is one; only the query's times and epochs
        matter.
        """

    async def entity_values(self, query: EntityQuery, of: Observed) -> Sequence[EntityValues]:
        """Return the single values of the entities that entered in ``[since, until)``; of a sample where many did.

        Latencies are of all calls so far within an entity's time for outcomes; outcomes of entities whose time is over.
        """

    async def entities_and_scores(self, query: EntityQuery, epoch_of: EpochOf) -> tuple[EntityGroups, ArmScores]:
        """Return what :meth:`entities` does, and the mean scores of those that came in one epoch.

        They are one question, since a log without an index has to be read from end to end for either. Scores are as if
        the query had that epoch alone, so an entity is in the arm that it met first in it.

        Args:
            query: As of :meth:`entities`.
            epoch_of: Chooses the epoch, by the entities that are counted.
        """

    async def count_calls(self, query: ShadowQuery) -> int:
        """Return how many calls a shadow query is about."""

    async def pairs(self, query: ShadowQuery, ratio: float) -> Sequence[LoggedPair]:
        """Return about this share (0-1] of the calls: chosen by their prediction ids, so that it is always the same."""

    async def disagreements(self, query: ShadowQuery, top: int) -> Sequence[LoggedPair]:
        """Return the pairs whose scores differ most, largest first."""


class ToldOutcome(NamedTuple):
    """One outcome event, of an entity or of a prediction."""

    event_id: str
    entity_id: str | None
    prediction_id: str | None
    at_us: int
    """When it occurred, in microseconds since the epoch."""
    value: float


class OutcomeEvents(Protocol):
    """The outcomes of a metric, for a log whose calls lie elsewhere.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    def told(self, model_name: str, metric: str, since: float, until: float) -> AsyncGenerator[Sequence[ToldOutcome]]:
        """Yield the outcomes that occurred in ``[since, until)``, some thousands at a time."""
