"""What an outcome came to for the champion's entities of late, by which a rollout's start forecasts it."""

from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.canary.outcomes.outcome_check import is_countable
from understudy.core.rollout.outcome_forecast import OutcomeBefore
from understudy.core.statistics.difference import compare
from understudy.experiments.attribution import Period, arms_of
from understudy.ports.experiments.experiment_log import EntityQuery, ExperimentLog

DAY_SECONDS = 86_400.0


async def outcome_before(
    log: ExperimentLog, model_name: str, champion_id: int, limit: OutcomeLimit, now: float
) -> OutcomeBefore | None:
    """Return what an outcome came to for those who met the champion in a day, once their time for it was over.

    ``None`` while these are too few for the analysis as well, or the outcome never came.

    Raises:
        RegistryUnavailable, MigrationNeeded: As the log.
    """
    own = [one for one in await log.allocations(model_name) if one.champion_id == champion_id]
    if not own:
        return None
    since = max(now - DAY_SECONDS - limit.within_seconds, own[0].since)
    facts = await log.outcome_facts(model_name, limit.name, since, now)
    if not facts.events:
        return None
    generations = tuple(one.generation for one in own)
    query = EntityQuery(
        model_name=model_name,
        metric=limit.name,
        champion_id=champion_id,
        challenger_id=None,
        epochs=dict.fromkeys(generations, 0),
        since=since,
        until=now,
        within_seconds=limit.within_seconds,
        is_share=facts.is_share,
    )
    found = await log.entities(query)
    champion, _ = arms_of(found.groups, [Period(since, 0.5, generations)])
    alike = compare(champion, champion)
    if not is_countable(alike) or alike is None or not alike.value_a:
        return None
    return OutcomeBefore(alike.value_a, alike.variance_a)
