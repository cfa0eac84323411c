"""Declares an A/B test: finds which two versions are compared, and stores the plan of their test."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from understudy.errors import NotRegistered
from understudy.experiments.ab_plan import PlanQuestion, plan_to_declare
from understudy.experiments.attribution import began
from understudy.experiments.declared_rows import declared_test
from understudy.experiments.declared_tests import SEEN_SECONDS, DeclaredTest, MetricChoice, Wanted
from understudy.ports.experiments.experiment_log import Allocation, ExperimentLog, Observed
from understudy.ports.experiments.experiment_store import ExperimentStore, NewExperiment


class Found(NamedTuple):
    """Which two versions a report is about, and their test if one was declared."""

    champion_id: int
    challenger_id: int
    allocations: Sequence[Allocation]
    test: DeclaredTest | None


class AbQuestion(NamedTuple):
    """What a report is to tell. Without a declared test ``wanted`` and ``choice`` hold, with one its own do."""

    model_name: str
    metric: str
    now: float
    """Seconds since the epoch."""
    since: float | None
    """When the counting begins; ``None``: with the test, or with the challenger's first share."""
    wanted: Wanted
    choice: MetricChoice
    version_id: int | None = None
    """B; ``None``: the only one of :func:`candidates`."""
    quantiles: Observed | None = None
    """What quantiles are compared of, beside the metric."""


def candidates(allocations: Sequence[Allocation]) -> list[int]:
    """Return the versions that may be meant as B when none is named: the challenger, if without a share every arm."""
    latest = allocations[-1] if allocations else None
    if latest is None or latest.champion_id is None:
        return []
    if latest.challenger_id is not None and (latest.challenger_weight or not latest.arms):
        return [latest.challenger_id]
    return list(latest.arms)


def named_b(allocations: Sequence[Allocation], labels: Mapping[int, str], model_name: str, version: str) -> int:
    """Return the id of a version that is named as B.

    Raises:
        NotRegistered: The model has no such version.
        ValueError: It is A.
    """
    found = next((version_id for version_id, label in labels.items() if label == version), None)
    if found is None:
        there_are = ", ".join(labels.values()) or "none"
        raise NotRegistered(f"{model_name} has no version {version!r}", hint=f"It has: {there_are}.")
    if allocations and allocations[-1].champion_id == found:
        raise ValueError(f"version {version} is the champion of {model_name}, which is A")
    return found


async def find_test(
    log: ExperimentLog, store: ExperimentStore, model_name: str, metric: str, version_id: int | None = None
) -> Found:
    """Return the two versions that share the calls now, else those of the latest test of the metric.

    Without ``version_id`` B is the only one of :func:`candidates`.

    Raises:
        NotRegistered: There is neither.
        RegistryUnavailable, MigrationNeeded: As the log and the store; also if the test's row is unreadable.
    """
    allocations = await log.allocations(model_name)
    latest = allocations[-1] if allocations else None
    named = candidates(allocations) if version_id is None else [version_id]
    if latest is not None and latest.champion_id is not None and len(named) == 1:
        versions = latest.champion_id, named[0]
        record = await store.latest(model_name, metric, versions)
        return Found(*versions, allocations, None if record is None else declared_test(record))
    record = await store.latest(model_name, metric)
    if record is None and len(named) > 1:
        raise NotRegistered(
            f"{model_name} has several further arms, and no test of {metric} was ever declared",
            hint=f"understudy ab report {quote(model_name)} --metric {quote(metric)} --version VERSION "
            "compares one of them.",
        )
    if record is None:
        raise NotRegistered(
            f"{model_name} has no challenger, and no test of {metric} was ever declared",
            hint=f"understudy model set {quote(model_name)} --challenger VERSION --weight 50 gives it one.",
        )
    return Found(record.champion_id, record.challenger_id, allocations, declared_test(record))


async def declare_test(
    log: ExperimentLog, store: ExperimentStore, found: Found, question: AbQuestion, *, looks: int, created_by: str
) -> Found:
    """Fix what a test is to see and how often it may be looked at, and return it; nothing of that changes any more.

    It counts from the question's ``since``; without that from the challenger's first share, or from now if an earlier
    test of the same was decided, because entities are not counted for two tests. A test that counts calls of long
    before its declaration says so (``Plan.declared_at``): reports on them may have led to it.

    Raises:
        ValueError: If nothing is known of the metric yet, so that no size can be computed.
        NotRegistered: As :func:`plan_ab`; also if another one is declared at this moment.
    """
    model_name, metric, wanted, choice = question.model_name, question.metric, question.wanted, question.choice
    asked = PlanQuestion(model_name, metric, wanted, choice, looks, question.now, found.challenger_id)
    plan = await plan_to_declare(log, asked)
    first_share = began(found.allocations, found.champion_id, found.challenger_id)
    usual = question.now if found.test is not None or first_share is None else first_share
    started_at = usual if question.since is None else question.since
    if question.now - started_at > SEEN_SECONDS:
        plan = plan._replace(declared_at=question.now)
    record = await store.declare(
        NewExperiment(
            model_name=question.model_name,
            metric=question.metric,
            champion_id=found.champion_id,
            challenger_id=found.challenger_id,
            started_at=started_at,
            plan=plan.to_json(),
            created_by=created_by,
        )
    )
    if record is None:
        return await find_test(log, store, question.model_name, question.metric, question.version_id)
    return found._replace(test=declared_test(record))
