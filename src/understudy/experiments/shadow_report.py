"""What the shadow made of the calls that the champion answered."""

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from shlex import quote
from typing import NamedTuple

import numpy as np

from understudy.core.experiments.shadow_comparison import DROPPED, ShadowPairs, ShadowReport, compare_shadow
from understudy.core.routing.route import bucket_of
from understudy.core.statistics.sample_size import FloatArray
from understudy.core.upstream.same_call import CalledVersion, same_call
from understudy.errors import NotRegistered
from understudy.ports.experiments.experiment_log import Allocation, ExperimentLog, LoggedPair, ShadowQuery
from understudy.ports.registry.registry import VersionRecord

MAX_PAIRS = 50_000
"""Pairs that are compared at most; of more a random sample is."""
PATIENCE_SECONDS = 30.0
"""The newest calls are left out: their shadow's rows may still be on their way to the log."""


class ShadowQuestion(NamedTuple):
    """What a report is about. Times are seconds since the epoch."""

    model_name: str
    now: float
    since: float
    threshold: float = 0.5
    """Scores from here on are a yes."""


class ShadowFinding(NamedTuple):
    """The comparison and what it is of."""

    champion_id: int
    shadow_id: int
    since: float
    until: float
    calls: int
    """That the champion answered; of a shadow that sees only some entities, more than there are pairs."""
    sampled_ratio: float
    """Share of the calls that was looked at."""
    report: ShadowReport


class Disagreements(NamedTuple):
    """The pairs whose scores differ most, largest first."""

    champion_id: int
    shadow_id: int
    since: float
    until: float
    pairs: Sequence[LoggedPair]


async def report_shadow(
    log: ExperimentLog, question: ShadowQuestion, versions: Iterable[VersionRecord] = ()
) -> ShadowFinding:
    """Return how the shadow compares with the champion.

    Of ``versions``, the model's, it is said when a model server does not tell the two apart.

    Raises:
        NotRegistered: The model never had a shadow.
        RegistryUnavailable, MigrationNeeded: As the log.
    """
    allocations = await log.allocations(question.model_name)
    query = _query(allocations, question)
    calls = await log.count_calls(query)
    ratio = min(1.0, MAX_PAIRS / calls) if calls else 1.0
    pairs = await log.pairs(query, ratio) if calls else []
    of_generation = {allocation.generation: allocation for allocation in allocations}
    shown = [pair for pair in pairs if was_shown(pair, of_generation)]
    report = compare_shadow(_arrays(shown), question.threshold)
    by_id = {version.id: version for version in versions}
    same = _same_call_words(by_id.get(query.champion_id), by_id.get(query.shadow_id))
    report = report._replace(sentence=report.sentence + same)
    return ShadowFinding(query.champion_id, query.shadow_id, query.since, query.until, calls, ratio, report)


async def largest_disagreements(log: ExperimentLog, question: ShadowQuestion, top: int) -> Disagreements:
    """Return the calls that the two saw most differently; raises as :func:`report_shadow`."""
    query = _query(await log.allocations(question.model_name), question)
    pairs = await log.disagreements(query, top)
    return Disagreements(query.champion_id, query.shadow_id, query.since, query.until, pairs)


def was_shown(pair: LoggedPair, of_generation: Mapping[int, Allocation]) -> bool:
    """Whether the shadow was to see a call: it has a row, or the policy of that time says so."""
    if pair.shadow_status is not None:
        return True
    allocation = of_generation[pair.generation]
    # As core.routing.is_shadowed, for a policy that is no more.
    return bucket_of(f"shadow:{allocation.bucket_key}", pair.entity_id) < allocation.shadow_percent


def _same_call_words(champion: CalledVersion | None, shadow: CalledVersion | None) -> str:
    """Return that one model may answer for both, to follow a sentence; empty where it does not, or one is unknown."""
    found = None if champion is None or shadow is None else same_call(shadow, champion)
    return "" if found is None else f" But version {found.words}. {found.advice}"


def _query(allocations: Sequence[Allocation], question: ShadowQuestion) -> ShadowQuery:
    """Return the calls of the latest champion and shadow."""
    latest = next((row for row in reversed(allocations) if row.shadow_id is not None and row.champion_id), None)
    if latest is None or latest.champion_id is None or latest.shadow_id is None:
        raise NotRegistered(
            f"{question.model_name} has no shadow and never had one",
            hint=f"understudy model set {quote(question.model_name)} --shadow VERSION shows it the calls.",
        )
    versions = latest.champion_id, latest.shadow_id
    generations = [
        row.generation for row in allocations if (row.champion_id, row.shadow_id) == versions and row.shadow_percent > 0
    ]
    return ShadowQuery(*versions, generations, question.since, question.now - PATIENCE_SECONDS)


def _arrays(pairs: Sequence[LoggedPair]) -> ShadowPairs:
    _, entities = np.unique(np.array([pair.entity_id for pair in pairs], dtype=np.str_), return_inverse=True)
    return ShadowPairs(
        prediction_ids=np.array([pair.prediction_id for pair in pairs], dtype=np.str_),
        entities=entities.astype(np.int64),
        champion_statuses=np.array([pair.champion_status for pair in pairs], dtype=np.str_),
        shadow_statuses=np.array([pair.shadow_status or DROPPED for pair in pairs], dtype=np.str_),
        champion_seconds=_seconds([pair.champion_us for pair in pairs]),
        shadow_seconds=_seconds([pair.shadow_us for pair in pairs]),
        champion_scores=_floats([pair.champion_score for pair in pairs]),
        shadow_scores=_floats([pair.shadow_score for pair in pairs]),
    )


def _seconds(latencies_us: Sequence[int | None]) -> FloatArray:
    return _floats(latencies_us) / 1_000_000


def _floats(values: Sequence[float | None]) -> FloatArray:
    return np.array([nan if value is None else value for value in values], dtype=np.float64)
