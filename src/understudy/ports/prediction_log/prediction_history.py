"""What a version was asked and answered, for reports."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from understudy.core.canary.entities.entity_tally import Before, EntityCalls
from understudy.core.prediction_log.call_slices import Slice
from understudy.core.prediction_log.input_sampling import InputSample


class LoggedScores(NamedTuple):
    """Scores of a version from the log."""

    groups: Sequence[Sequence[float]]
    """Each entity's are in one of them."""
    calls: int
    """How many there were; the groups may hold a sample."""


class LoggedCall(NamedTuple):
    """A call that was answered, with the inputs that were logged of it."""

    prediction_id: str
    predicted_at: float
    """In seconds since the epoch."""
    entity_id: str
    version_id: int
    """Who answered."""
    inputs: str
    """A JSON object: what may be logged of the inputs, as they were used."""
    answer: str | None
    """The prediction's JSON text without its list of scores; ``None`` when it is too long to be compared."""
    score: float | None
    latency_us: int | None
    """In the proxy; ``None`` where it says nothing of one model server: the cache answered, or a champion stood in."""


class TrialAsked(NamedTuple):
    """The calls of a rollout whose route named its challenger, in a stretch of time."""

    rollout_id: int
    champion_id: int
    """Whose rows those calls are under that it answered for the challenger."""
    challenger_id: int
    since: float
    """In seconds since the epoch, as ``until``."""
    until: float
    """Not included."""


class LoggedFailures(NamedTuple):
    """Failing calls from the log."""

    calls_by_code: Mapping[str, int]
    """By their error codes, the most frequent first."""
    is_whole: bool
    """Whether all calls of the time were looked at; else the newest of each version."""


class LoggedEntity(NamedTuple):
    """Whose call a row of the log is."""

    entity_id: str
    prediction_id: str | None


class PredictionHistory(Protocol):
    """What a version was asked and answered, for an operator's command.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def scores(self, version_id: int, since: float, until: float, at_most: int) -> LoggedScores:
        """Return the scores that drift is judged by: of a version's own answers in all roles.

        What the cache answered repeats a score that was counted, and a forced call is no traffic: neither is one.

        Args:
            version_id: The version.
            since: In seconds since the epoch, as ``until``.
            until: Not included.
            at_most: About how many are wanted; of more a sample is taken by the calls' hashes, always the same.
        """

    async def inputs(self, version_id: int, since: float, until: float, at_most: int) -> Sequence[InputSample]:
        """Return logged inputs of a version, by entity; of more than ``at_most`` those of entities chosen by hash."""


class CallFrequencies(Protocol):
    """How a version's calls are spread over entities, before a rollout starts.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def call_frequencies(self, version_id: int, since: float, until: float, at_most: int) -> Mapping[int, int]:
        """Return how many entities made so many calls each, of the newest ``at_most`` in ``[since, until)``.

        Only calls that a version got by its entities' buckets count: neither shadow nor forced ones.
        """


class CallHistory(Protocol):
    """Calls that were answered, to be made again.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def calls(self, version_ids: Sequence[int], since: float, until: float, at_most: int) -> Sequence[LoggedCall]:
        """Return the newest calls that these versions answered in ``[since, until)`` and whose inputs were logged.

        The newest one comes first.
        """


class Draw(NamedTuple):
    """Calls of entities that are chosen at random from a stretch of time."""

    since: float
    """In seconds since the epoch, as ``until``."""
    until: float
    """Not included."""
    key: int
    """Which ones: no caller can know it before. The same key chooses the same ones."""
    entities: int
    """At most, each with one call."""


class ScoreHistory(Protocol):
    """Calls of which a champion's score can be compared with another version's.

    A caller with many calls, or with the newest ones, has no more of them than others: a bounded number of calls is
    looked at, from all over the time. Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def drawn_calls(self, version_id: int, draw: Draw) -> Sequence[LoggedCall]:
        """Return calls that a version answered and whose inputs were logged, in a random order."""

    async def shadow_scores(self, champion_id: int, shadow_id: int, draw: Draw) -> Sequence[tuple[float, float]]:
        """Return both scores of calls that the champion answered and the shadow saw, in a random order.

        Answers with a class are left out.
        """


class FailureHistory(Protocol):
    """What a challenger's calls failed with, for an operator's command.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def failures(self, trial: TrialAsked, at_most: int) -> LoggedFailures:
        """Return what a challenger's calls failed with, those that the champion answered in its place too.

        The newest ``at_most`` rows of each version are looked at.

        A call that was forced, or sent by its category, is judged by no window and so is none of them, nor is one that
        ended at its caller's own deadline.
        """


class SliceHistory(Protocol):
    """Calls of a slice, as examples.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def slice_examples(self, trial: TrialAsked, one: Slice, slow_us: int | None) -> Sequence[str]:
        """Return the prediction ids of up to three calls of a slice that the challenger failed, the newest first.

        Args:
            trial: Whose calls; the newest rows of it are looked at, some hundred thousand at most.
            one: The slice.
            slow_us: Answers that took longer are wanted, in microseconds; ``None``: calls that failed.
        """


class EntityHistory(Protocol):
    """What became of the calls of single entities.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def entity_calls(
        self, trial: TrialAsked, unit_seconds: int, at_most: int
    ) -> Mapping[int, Sequence[EntityCalls]]:
        """Return what came of each entity's calls of the challenger, by the start of a stretch of ``unit_seconds``.

        Calls that were forced, sent by their category, answered by a cache or ended at their caller's deadline are
        left out, and so are inputs of which every call failed on the champion that stood in as well. Of more than
        ``at_most`` entities in all stretches together, the later ones are.
        """

    async def entities_before(
        self, champion_id: int, entity_ids: Sequence[str], since: float, until: float, at_most: int
    ) -> Mapping[str, Before]:
        """Return what came of entities' calls of the champion, of whose rows the newest ``at_most`` are looked at."""

    async def entities_of(self, rows: Sequence[tuple[int, int]]) -> Mapping[int, LoggedEntity]:
        """Return whose calls rows of the log are, by ``id``, given with ``predicted_at`` in microseconds.

        Rows that are not in the log any more are left out.
        """
