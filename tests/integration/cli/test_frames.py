"""Readers for notebooks, over a real Postgres: nothing is written, and an event loop that runs is no obstacle."""

import json
from datetime import UTC, datetime, timedelta

import pandas as pd
import polars as pl
import pytest
from worlds.archive import few_days, fill, month_ago, versions_of

from understudy.adapters.postgres.experiments.declarations import PostgresExperimentStore
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.canary.decision import CheckState, Evidence, Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.experiments.ab import AbState, AbVerdict, Interval
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.statistics.difference import Difference
from understudy.errors import NotRegistered, RegistryUnavailable
from understudy.experiments.declared_rows import result_to_json
from understudy.experiments.declared_tests import DeclaredTest, MetricChoice, Plan, Wanted, with_interim_analysis
from understudy.frames import Reader
from understudy.ports.experiments.experiment_store import NewExperiment
from understudy.ports.prediction_log.log_archive import QueryRefused
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout

ROWS = 60
_VERSION = """
    INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)
    VALUES ($1, $2, 'file:///m', 'sklearn', '{}') RETURNING id
"""
_EVENT = """
    INSERT INTO RolloutEvent (rollout_id, step, phase, verdict, reason, evidence, code_version, actor)
    VALUES ($1, 0, 'PROGRESSING', $2, 'bad', $3::jsonb, '0.1.0', 'monitor')
"""
NUMBERS = (0.01, 0.5, 9.0, 4.0, 20.0, 1.0, 99.0, 20.0, 2.0, 20.0, 1_000, 100)


@pytest.fixture
async def reader(database, database_url) -> Reader:
    await fill(database, [month_ago(1)], ROWS, await versions_of(database), few_days)
    return Reader(database_url)


async def test_the_log_is_read_the_newest_first_and_says_when_there_is_more(reader):
    whole = reader.log(since=datetime.now(UTC) - timedelta(days=80))
    some = reader.log("churn", since="80d", limit=5)

    assert (len(whole), whole.is_complete, whole.unseen_rows) == (ROWS, True, 0)
    moments = [row["predicted_at"] for row in whole.to_dicts()]
    assert moments == sorted(moments, reverse=True)
    assert (len(some), some.is_complete) == (5, False)
    assert {row["model"] for row in some.to_dicts()} == {"churn"}
    assert len(whole.to_pandas()) == len(whole.to_polars()) == ROWS
    assert len(reader.log(since=month_ago(0).start)) == 0


async def test_calls_are_joined_with_what_a_client_has_of_them_and_name_the_version_that_was_assigned(reader, database):
    """A client's prediction id is text."""
    second = await database.fetchval(_VERSION, "churn", "2")
    await database.execute("UPDATE predictionlog SET assigned_version_id = $1 WHERE id % 2 = 0", second)

    frame = reader.log(since="80d").to_pandas()
    answered = await database.fetch("SELECT prediction_id::text, id FROM predictionlog")
    mine = pd.DataFrame([dict(row) for row in answered]).merge(frame, on="prediction_id")

    assert len(mine) == ROWS
    assert set(frame[frame.id % 2 == 0].assigned_version) == {"2"}
    assert "2" not in set(frame.version)
    assert reader.log(since="80d", limit=1).to_polars().schema["prediction_id"] == pl.String


async def test_a_question_in_sql_can_only_read(reader, database):
    counted = reader.query("SELECT version, count(*) AS calls FROM predictionlog GROUP BY version ORDER BY version")

    assert counted.columns == ("version", "calls")
    assert sum(row["calls"] for row in counted.to_dicts()) == ROWS
    with pytest.raises(QueryRefused):
        reader.query("DELETE FROM predictionlog")
    assert await database.fetchval("SELECT count(*) FROM predictionlog") == ROWS


async def test_what_cannot_be_read_is_said(reader):
    with pytest.raises(NotRegistered, match="there are: churn"):
        reader.log("chrun")
    with pytest.raises(NotRegistered, match="never had a rollout"):
        reader.evidence("churn")
    with pytest.raises(ValueError, match="needs its zone"):
        reader.log(since=datetime(2026, 11, 1))  # noqa: DTZ001 - on purpose
    with pytest.raises(ValueError, match="at least 1"):
        reader.log(limit=0)
    with pytest.raises(TypeError, match="limit=None: expected a whole number"):
        reader.log(limit=None)  # as people write for "all"
    with pytest.raises(ValueError, match="since='1 hour': "):
        reader.log(since="1 hour")
    with pytest.raises(TypeError, match="until=7: expected so long ago"):
        reader.log(until=7)


async def test_evidence_and_experiments_are_read(reader, database, database_url):
    first = await database.fetchval("SELECT id FROM ModelVersion WHERE model_name = 'churn'")
    second = await database.fetchval(_VERSION, "churn", "2")
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", first)
    rollouts = PostgresRolloutStore(database_url, timeout_seconds=5)
    begun = await rollouts.start(NewRollout("churn", "2", NAMED_PLANS["fast"], None, None), Actor("dana", "cli", "new"))
    failing = Evidence(ERROR_RATE, CheckState.FAIL, *NUMBERS)
    await database.execute(_EVENT, begun.id, Verdict.ROLL_BACK, json.dumps([failing.to_json()]))
    plan = Plan(Wanted(0.05), MetricChoice(604_800.0), True, 0.002, 40_000, 2)
    declared = NewExperiment("churn", "converted", first, second, 1_795_000_000.0, plan.to_json(), "dana")
    await PostgresExperimentStore(database_url, timeout_seconds=5).declare(declared)

    evidence, tests = reader.evidence("churn").to_dicts(), reader.experiments("churn").to_dicts()

    assert [(row["verdict"], row["check"], row["change"]) for row in evidence] == [("ROLL_BACK", "error_rate", 9.0)]
    assert (evidence[0]["rollout_id"], evidence[0]["challenger_version"]) == (begun.id, "2")
    assert [(row["metric"], row["challenger_version"], row["look"]) for row in tests] == [("converted", "2", None)]
    assert reader.experiments().to_dicts() == tests
    assert len(reader.evidence("churn", begun.id).to_pandas()) == 1


async def test_what_a_look_found_is_read_as_numbers_and_times(reader, database, database_url):
    first = await database.fetchval("SELECT id FROM ModelVersion WHERE model_name = 'churn'")
    second = await database.fetchval(_VERSION, "churn", "2")
    plan = Plan(Wanted(0.05), MetricChoice(604_800.0), True, 0.002, 40_000, 2)
    store = PostgresExperimentStore(database_url, timeout_seconds=5)
    declared = await store.declare(
        NewExperiment("churn", "converted", first, second, 1_795_000_000.0, plan.to_json(), "dana")
    )
    assert declared is not None
    verdict = AbVerdict(AbState.UNDECIDED, "Not yet.", Interval(-0.01, 0.05, always_valid=False), fraction=0.5)
    difference = Difference(400, 390, 400.0, 390.0, 0.2, 0.22, 0.02, 0.16, 0.17)
    looked = with_interim_analysis(DeclaredTest(declared, plan, ()), verdict, difference, 1_795_100_000.0)
    assert await store.record(declared, result_to_json(looked), ends=False)

    rows = reader.experiments("churn")

    names = ["champion", "challenger", "change", "change_low", "change_high", "fraction", "champion_entities"]
    for frame in (rows.to_pandas(), rows.to_polars()):
        assert [frame[name][0] for name in names] == [0.2, 0.22, 0.02, -0.01, 0.05, 0.5, 400]
    pandas, polars = rows.to_pandas(), rows.to_polars()
    assert {pandas[name].dtype.kind for name in names} == {"f", "i"}
    assert (pandas["p_value"].dtype.kind, polars["p_value"].dtype) == ("f", pl.Float64), "of no row"
    assert (pandas["ended_at"].dtype.kind, polars["ended_at"].dtype) == ("M", pl.Datetime("us", "UTC")), "of no row"
    assert str(pandas["at"].dt.tz) == "UTC"


async def test_without_an_address_it_is_the_environments(reader, database_url, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", database_url)

    assert len(Reader().log(since="80d")) == ROWS


async def test_without_an_address_and_a_demo_it_says_where_it_has_looked(monkeypatch, tmp_path):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("UNDERSTUDY_STATE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(RegistryUnavailable, match=f"no DATABASE_URL, and no demo in {tmp_path}"):
        Reader()
