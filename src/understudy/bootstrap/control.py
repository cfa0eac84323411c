"""What the control plane works with, opened for the length of one call."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import NamedTuple

from understudy.adapters.postgres.declarations import PostgresExperimentStore
from understudy.adapters.postgres.experiments import PostgresExperimentLog
from understudy.adapters.postgres.metrics import PostgresMetricStore
from understudy.adapters.postgres.policy import PostgresPolicySource
from understudy.adapters.postgres.rollouts import PostgresRolloutStore
from understudy.adapters.postgres.windows import PostgresWindowLog
from understudy.bootstrap.backends import connector_of
from understudy.bootstrap.outcomes import measure_outcomes
from understudy.ports.experiment_log import ExperimentLog
from understudy.ports.experiment_store import ExperimentStore
from understudy.ports.metric_store import MetricStore
from understudy.ports.registry import Registry
from understudy.ports.rollout_store import RolloutStore
from understudy.ports.window_log import WindowLog
from understudy.rollout.outcome_check import Measure
from understudy.rollout.warm_up import WarmUpProbe
from understudy.settings import Settings

ANSWER_SECONDS = 25.0
"""Longest time that Postgres has for one question to the log."""


class ControlParts(NamedTuple):
    """What a call works with; for one event loop."""

    registry: Registry
    rollouts: RolloutStore
    windows: WindowLog
    experiment_log: ExperimentLog
    experiments: ExperimentStore
    metrics: MetricStore
    measure_outcome: Measure


class Control(NamedTuple):
    """Opens what calls work with. Nothing is open between two calls, and nothing is shared by them."""

    parts: Callable[[], AbstractAsyncContextManager[ControlParts]]
    probe: Callable[[], AbstractAsyncContextManager[WarmUpProbe]]


def control_of(settings: Settings) -> Control:
    """Return the openers; they open nothing before they are called."""
    return Control(partial(_open_parts, settings), partial(_open_probe, settings))


@asynccontextmanager
async def _open_parts(settings: Settings) -> AsyncIterator[ControlParts]:
    from understudy.adapters.postgres.registry import PostgresRegistry  # noqa: PLC0415 - SQLAlchemy: 0.3 s of each start

    url, seconds = settings.control_url, settings.database_timeout_seconds
    registry = PostgresRegistry(url, timeout_seconds=seconds)
    try:
        yield ControlParts(
            registry,
            PostgresRolloutStore(url, timeout_seconds=seconds),
            PostgresWindowLog(url, timeout_seconds=seconds),
            PostgresExperimentLog(url, timeout_seconds=ANSWER_SECONDS),
            PostgresExperimentStore(url, timeout_seconds=seconds),
            PostgresMetricStore(url, timeout_seconds=ANSWER_SECONDS),
            measure_outcomes(url, ANSWER_SECONDS),
        )
    finally:
        await registry.close()


@asynccontextmanager
async def _open_probe(settings: Settings) -> AsyncIterator[WarmUpProbe]:
    policies = PostgresPolicySource(
        settings.control_url, timeout_seconds=settings.database_timeout_seconds, reads_keys=False
    )
    try:
        yield WarmUpProbe(policies, connector_of(settings))
    finally:
        await policies.close()
