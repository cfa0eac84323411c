"""What changed around a champion within an hour: in the details of its alert, and from the command line."""

import pytest
from worlds.rollout import two_versions

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.monitoring.changes import PostgresChangeHistory
from understudy.adapters.postgres.monitoring.metrics import PostgresMetricStore
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.core.alerts.recent_changes import RecentChanges
from understudy.core.drift.report import Drift, DriftState
from understudy.core.drift.version_drift import ModelDrift
from understudy.core.routing.policy import Role
from understudy.errors import RegistryUnavailable
from understudy.monitoring.drift_job import DriftJob
from understudy.ports.monitoring.metric_store import ActiveVersion

WINDOW = """
    INSERT INTO PredictionWindow (model_version_id, window_start, role, policy_generation, shipper, calls, errors,
                                  counts)
    VALUES ($1, date_trunc('minute', now()) - make_interval(mins => $2), 'champion', 2, 'proxy', $3, 0, '{}')
"""
EVENT = AlertEvent(AlertAction.TRIGGER, AlertKind.DRIFT, "test", "churn", "churn v6 drifts", 1.0, {"drifts": []})
CHAMPION = ActiveVersion(1, "churn", "6", Role.CHAMPION, "", None, None)
DRIFTS = ModelDrift({"6": [Drift("age", DriftState.DRIFT, "age: 36")]}, [])


async def test_policy_endpoints_traffic_and_drift_of_the_last_hour_are_told(database, database_url):
    versions = await two_versions(database)
    await database.execute("UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10", versions["7"])
    await database.execute(
        "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, '10.0.0.9:8001')", versions["6"]
    )
    for minutes, calls in ((5, 3_000), (90, 600)):
        await database.execute(WINDOW, versions["6"], minutes, calls)
    await database.execute(
        "INSERT INTO PredictionMetric (model_version_id, metric_name, value, computed_at) VALUES"
        " ($1, 'drift_state/age', 1, now()), ($1, 'drift_state', 0, now())",
        versions["6"],
    )

    found = await PostgresChangeHistory(database_url, timeout_seconds=5).recent("churn")

    said = [change.what for change in found.changes]
    assert any("challenger none → 7, challenger_weight 0 → 10" in what for what in said), said
    assert any(what.startswith("endpoint of version 6 10.0.0.9:8001 registered") for what in said), said
    assert (found.traffic.now, found.traffic.before) == (50.0, 10.0)
    assert found.drifting == ("age",)
    assert found.total == len(found.changes)


async def test_a_model_that_there_is_not_has_no_changes(database_url):
    found = await PostgresChangeHistory(database_url, timeout_seconds=5).recent("nothing")

    assert (found.changes, found.total, found.drifting) == ((), 0, ())


class Away:
    async def recent(self, model_name: str) -> RecentChanges:
        raise RegistryUnavailable(f"the changes of {model_name} cannot be read")


@pytest.mark.parametrize("is_away", [False, True])
async def test_an_alert_about_a_champion_has_what_changed_or_goes_without(database_url, is_away):
    changes = Away() if is_away else PostgresChangeHistory(database_url, timeout_seconds=5)
    store = PostgresMetricStore(database_url, timeout_seconds=5)
    windows = PostgresWindowLog(database_url, timeout_seconds=5)
    job = DriftJob(store, windows, MemoryTelemetry(), environment="test", changes=changes)

    told = await job._with_changes(EVENT, [CHAMPION], DRIFTS)  # noqa: SLF001 - what a whole hour of drift leads to

    assert ("changed_within_an_hour" in told.details) is not is_away
    assert told.summary == EVENT.summary
    beside = await job._with_changes(EVENT, [CHAMPION._replace(role=Role.CHALLENGER)], DRIFTS)  # noqa: SLF001
    assert beside == EVENT
