"""What an outcome of two versions comes to while one is rolled out against the other."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.statistics.difference import Difference, compare
from understudy.experiments.attribution import arms_of, counts_of, epochs_of, periods
from understudy.ports.experiments.experiment_log import EntityGroup, EntityQuery, ExperimentLog


class OutcomeQuestion(NamedTuple):
    """Whose outcomes, and of when; times are seconds since the epoch."""

    model_name: str
    metric: str
    champion_id: int
    challenger_id: int
    generations: frozenset[int]
    """Of the policy, that belong to the rollout."""
    since: float
    now: float
    within_seconds: float


class OutcomeWatch:
    """Asks the log and the outcomes."""

    def __init__(self, log: ExperimentLog) -> None:
        self._log = log

    async def difference(self, question: OutcomeQuestion) -> Difference | None:
        """Return challenger less champion; ``None`` while an arm has no two entities whose time for outcomes is over.

        An outcome whose every value is 0 or 1 is a share of the entities, any other a sum for each.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """
        allocations = await self._log.allocations(question.model_name)
        own = [allocation for allocation in allocations if allocation.generation in question.generations]
        split = periods(own, question.champion_id, question.challenger_id)
        if not split:
            return None
        facts = await self._log.outcome_facts(
            question.model_name, question.metric, question.since - question.within_seconds, question.now
        )
        query = EntityQuery(
            model_name=question.model_name,
            metric=question.metric,
            champion_id=question.champion_id,
            challenger_id=question.challenger_id,
            epochs=epochs_of(split),
            since=question.since,
            until=question.now,
            within_seconds=question.within_seconds,
            is_share=facts.is_share,
        )
        found = await self._log.entities(query)
        a, b = arms_of(found.groups, split)
        difference = compare(a._replace(covariate=None), b._replace(covariate=None))
        return None if difference is None else difference._replace(with_outcome_ratio=_with_outcome(found.groups))


def _with_outcome(groups: Sequence[EntityGroup]) -> float | None:
    """Return the share of the entities whose time for outcomes is over that have one."""
    arms = [counts_of(groups, is_b=is_b) for is_b in (False, True)]
    closed = sum(arm.closed for arm in arms)
    return sum(arm.with_outcome for arm in arms) / closed if closed else None
