"""Proxy, monitor and people at work, each under a login that has its own role and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx2
import orjson
import pytest
from asgi import lifespan
from command import CommandLine
from e2e.stack import PREDICT_BODIES, VISITS, register
from worlds.archive import fill, ids_seen, month_ago, versions_of
from worlds.console import running_console
from worlds.rollout import TWINS, PastRollout

from rigs.faults.archive_worker import Moments, archive
from understudy.adapters.archive.folder import FolderArchive
from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.adapters.postgres.rollout.warm_ups import PostgresWarmUpRequests
from understudy.bootstrap.monitor import open_monitor
from understudy.core.connection_urls import postgres_user
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Command, CommandKind, Observation, WarmUpResult
from understudy.core.rollout.state_machine import next_step
from understudy.entrypoints.proxy.api.app import create_app
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, NewRolloutEvent
from understudy.ports.rollout.warm_up import LoggedId, NewWarmUp
from understudy.registry.changes import create_key
from understudy.settings import Settings

ACTOR = Actor("dana", "cli", "weekly retrain")
FIRST = {"if-match": '"1"'}
JOBS = (
    "rollouts",
    "outcomes",
    "metric_checks",
    "metrics",
    "outcome_lag",
    "drift",
    "retention",
    "partitions",
    "alerts",
    "notifications",
    "notification_backlog",
    "placement",
    "replicas",
    "silent_servers",
)
Login = Callable[..., Awaitable[str]]


@pytest.fixture
async def login(database: asyncpg.Connection, database_url: str) -> AsyncIterator[Login]:
    """Makes a login that has these roles and nothing else, and returns its URL."""
    made = []

    async def make(*roles: str) -> str:
        made.append(f"test_{uuid4().hex[:12]}")
        await database.execute(f"CREATE ROLE {made[-1]} LOGIN PASSWORD 'secret' IN ROLE {', '.join(roles)}")
        return f"postgresql://{made[-1]}:secret@{database_url.rpartition('@')[2]}"

    yield make
    for name in made:
        await database.execute(f"DROP ROLE {name}")


async def until(is_so: Callable[[], Awaitable[object]], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not await is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.1)


async def test_a_console_under_a_proxys_and_an_engineers_role_shows_and_acts(database, database_url, login):
    past = PastRollout(database, database_url, TWINS, 600)
    await past.begin()
    await past.go_on(1)
    acting = await login("understudy_engineer")
    async with (
        running_console(
            database_url, database_url=await login("understudy_proxy"), control_database_url=acting
        ) as console,
        console.visit("operate") as visit,
    ):
        path = f"/models/churn/acts/rollback?rollout={past.id}"
        pages = [await visit.get(one) for one in ("/", f"/models/churn/rollouts/{past.id}", path)]
        done = await visit.post(path, await visit.form(path))
        await database.execute(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, artifact_digest, framework, input_schema)"
            " VALUES ('churn', '8', 'file:///m', 'sha256:8', 'sklearn', '{}')"
        )
        plan = "/models/churn/acts/start?version=8"
        others = [await visit.get(one) for one in ("/models/churn/policy", "/models/churn/audit", plan, "/health")]
        change = f"/models/churn/acts/set?generation={await database.fetchval('SELECT generation FROM ServingPolicy')}"
        form = {**await visit.form(f"{change}&guard=off"), "reason": "calm"}
        changed = await visit.post("/models/churn/acts/set", form)

    assert [page.status_code for page in (*others, changed)] == [200, 200, 200, 200, 303], [one.text for one in others]
    assert "permission denied" not in "".join(page.text for page in others)
    assert await database.fetchval("SELECT guard FROM ServingPolicy") == "off"
    assert [page.status_code for page in (*pages, done)] == [200, 200, 200, 303], [page.text for page in pages]
    assert await database.fetchval("SELECT via FROM PolicyAudit ORDER BY id DESC LIMIT 1") == "console"
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0


async def test_a_proxy_under_its_own_role_answers_logs_takes_outcomes_and_signs_off(
    database, database_url, login, model_port, tmp_path
):
    champion = await register(database_url, 1, [model_port("visits:1")])
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)
    registry = PostgresRegistry(database_url)
    key = await create_key(registry, ["predict", "outcomes", "operate", "read"], None, ACTOR)
    settings = Settings(
        database_url=await login("understudy_proxy"), control_database_url=await login("understudy_engineer"),
        state_dir=tmp_path, metrics_port=0, auth=True,
    )  # fmt: skip
    app = create_app(settings)
    headers = {"authorization": f"Bearer {key.credential}", "content-type": "application/json"}
    outcome = {
        "event_id": "o-1",
        "model": "visits",
        "entity_id": "u",
        "name": "bought",
        "value": 1,
        "occurred_at": "2026-11-20T13:02:11Z",
    }

    async with (
        lifespan(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://proxy", headers=headers) as client,
    ):
        answered = await client.post(VISITS, content=PREDICT_BODIES[0])
        taken = await client.post("/v1/outcomes", content=orjson.dumps({"events": [outcome]}))
        changed = await client.patch("/v1/models/visits/policy", content=b'{"shadow_percent": 50}', headers=FIRST)
        rolled_back = await client.post("/v1/models/visits:rollback", content=b"{}")
        assert (answered.status_code, taken.status_code) == (200, 202), (answered.text, taken.text)
        assert (changed.status_code, rolled_back.status_code) == (200, 200), (changed.text, rolled_back.text)
        await until(lambda: database.fetchval("SELECT count(*) FROM PredictionLog"))
        await until(lambda: database.fetchval("SELECT count(*) FROM ProxyInstance"))
        await database.execute("UPDATE ServingPolicy SET shadow_percent = 51")
        await until(lambda: database.fetchval("SELECT bool_and(generations ->> 'visits' = '3') FROM ProxyInstance"))

    assert await database.fetchval("SELECT count(*) FROM OutcomeEvent") == 1
    assert await database.fetchval("SELECT count(*) FROM ProxyInstance") == 0
    assert await database.fetchval("SELECT sum(calls) FROM PredictionWindow") == 1
    assert await database.fetchval("SELECT count(*) FROM PredictionDeadLetter") == 0


async def test_a_proxy_under_its_own_role_answers_the_warm_ups_that_the_monitor_and_an_engineer_ask_for(
    database, database_url, login, model_port, tmp_path
):
    champion = await register(database_url, 1, [model_port("visits:1")])
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, input_sample_percent) VALUES ('visits', $1, 100)",
        champion,
    )
    app = create_app(Settings(database_url=await login("understudy_proxy"), state_dir=tmp_path, metrics_port=0))
    headers = {"content-type": "application/json"}

    async with (
        lifespan(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://proxy", headers=headers) as client,
    ):
        score = (await client.post(VISITS, content=PREDICT_BODIES[0])).json()["prediction"]["score"]
        await until(lambda: database.fetchval("SELECT count(*) FROM PredictionLog"))
        await until(lambda: database.fetchval("SELECT count(*) FROM ProxyInstance"))
        call = await database.fetchrow(
            "SELECT prediction_id::text, extract(epoch FROM predicted_at)::float8 FROM PredictionLog"
        )
        engineer = PostgresWarmUpRequests(await login("understudy_engineer"), timeout_seconds=5)
        monitor = PostgresWarmUpRequests(await login("understudy_monitor"), timeout_seconds=5)
        (proxy,) = await monitor.live_proxies() or ()
        example = NewWarmUp(champion, [proxy.instance], 30, example_calls=5)
        again = NewWarmUp(champion, [proxy.instance], 30, champion_id=champion, logged=[LoggedId(*call)])
        answers = []
        for requests, asked in ((engineer, example), (monitor, again)):
            request_id = await requests.ask(asked)
            await until(partial(requests.count_answers, request_id))
            found = (await requests.answers(request_id))[proxy.instance]
            assert found is not None
            answers.append(found)

    assert proxy.answers_warm_ups
    assert [answer.problem for answer in answers] == ["", ""]
    assert answers[0].answered == 5
    assert list(answers[1].scores) == pytest.approx([score])
    assert await database.fetchval("SELECT count(*) FROM PredictionLog") == 1


async def test_a_proxy_under_its_own_role_alone_changes_no_policy(database, database_url, login, model_port, tmp_path):
    champion = await register(database_url, 1, [model_port("visits:1")])
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)
    key = await create_key(PostgresRegistry(database_url), ["operate"], None, ACTOR)
    app = create_app(
        Settings(database_url=await login("understudy_proxy"), state_dir=tmp_path, metrics_port=0, auth=True)
    )
    headers = {"authorization": f"Bearer {key.credential}"}

    async with (
        lifespan(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://proxy", headers=headers) as client,
    ):
        refused = await client.patch("/v1/models/visits/policy", content=b'{"shadow_percent": 50}', headers=FIRST)

    assert (refused.status_code, refused.json()["code"]) == (503, "E514")
    assert "retry-after" not in refused.headers
    assert "Grant the login the role" in refused.json()["next"]
    assert await database.fetchval("SELECT generation FROM ServingPolicy") == 1


@pytest.fixture
async def engineer_file(
    database: asyncpg.Connection, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    """A file with the URL of an engineer who is believed who they are, as installations make that login."""
    monkeypatch.delenv("DATABASE_URL", raising=False)  # both at once would be refused
    await database.execute("CREATE ROLE understudy_trusted NOLOGIN")
    (tmp_path / "url").write_text(await login("understudy_engineer", "understudy_trusted"))
    yield tmp_path / "url"
    await database.execute("DROP ROLE understudy_trusted")


async def test_what_runbooks_tell_people_to_type_works_under_the_role_of_an_engineer_whose_url_is_in_a_file(
    database, database_url, engineer_file, model_port
):
    ids = [await register(database_url, label, [model_port(f"visits:{label}")]) for label in (1, 2)]
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight)"
        " VALUES ('visits', $1, $2, 10)", *ids,
    )  # fmt: skip
    environment = {"DATABASE_URL_FILE": str(engineer_file), "LOGNAME": "dana"}

    for command in (
        "doctor", "db check", "db partitions", "model list", "model show visits", "version show visits 1",
        "audit list visits", "rollout list", "drift report visits", "explain visits customer-42",
    ):  # fmt: skip
        done = await CommandLine(None).beside(*command.split(), **environment)
        assert done.code in (0, 1), (command, done.said)
        # No monitor runs here, which the doctor calls a problem of a split.
        assert done.said.count("✖") == done.said.count("✖ guard visits no monitor leads"), (command, done.said)
    back = await CommandLine(None).beside("rollback", "visits", "--reason", "slow", "--yes", **environment)
    audit = (await CommandLine(None).beside("audit", "list", "visits", "--json", **environment)).json

    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0
    assert back.code == 3, back.said  # no proxy lives that could confirm it
    login = postgres_user(engineer_file.read_text().strip())
    assert login is not None
    assert audit["audit"][0]["actor"] == login, audit


async def test_a_poison_row_is_buried_by_the_proxys_role(database, login):
    connection = await asyncpg.connect(await login("understudy_proxy"), timeout=10)
    await connection.execute(
        "INSERT INTO PredictionDeadLetter (spool_id, segment, byte_offset, row, why) VALUES ('s', 1, 0, 'x', 'y')"
        " ON CONFLICT (spool_id, segment, byte_offset) DO NOTHING"
    )
    made = await connection.fetchval("SELECT understudy_ensure_partitions(5)")
    await connection.close(timeout=5)

    assert await database.fetchval("SELECT count(*) FROM PredictionDeadLetter") == 1
    assert made == 2


async def test_every_job_of_a_monitor_under_its_own_role_succeeds(database, database_url, login, model_port, tmp_path):
    versions = [await register(database_url, label, [model_port(f"visits:{label}")]) for label in (1, 2)]
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", versions[0]
    )
    await database.execute(
        """INSERT INTO PredictionWindow SELECT $1, now() - INTERVAL '99 days', 'champion', 0, 1, 's', 0, 1, 0, '{}';""",
        versions[0],
    )
    await database.execute(
        """INSERT INTO OutcomeEvent VALUES ('o', 'visits', 'u', NULL, 'bought', 1, now(), now() - INTERVAL '999 days');
           INSERT INTO SpoolOffset VALUES ('s', 1, 9, now() - INTERVAL '9 years');
           INSERT INTO PredictionDeadLetter (spool_id, segment, byte_offset, row, why, at)
           VALUES ('s', 1, 0, 'x', 'y', now() - INTERVAL '999 days')"""
    )
    settings = Settings(
        database_url=await login("understudy_monitor"), retention_database_url=await login("understudy_retention"),
        monitor_tick_seconds=0.3, state_dir=tmp_path,
    )  # fmt: skip

    def ran() -> list[str]:
        page = parts.telemetry.exposition()[0].decode()
        return [job for job in JOBS if f'monitor_tick_duration_seconds_count{{job="{job}"}}' in page]

    async def all_ran() -> bool:
        return len(ran()) == len(JOBS)

    # One that is on more or fewer servers by its calls.
    await database.execute(
        "INSERT INTO VersionLoading (model_version_id, group_name, wanted_until, replicas_min, replicas_max)"
        " SELECT id, 'onnx', 'infinity', 1, 4 FROM ModelVersion LIMIT 1"
    )
    async with open_monitor(settings) as parts:
        running = asyncio.create_task(parts.worker.run())
        await until(all_ran)
        parts.worker.stop()
        await running
        page = parts.telemetry.exposition()[0].decode()

    assert "monitor_failures_total{" not in page
    for table in ("PredictionWindow", "OutcomeEvent", "SpoolOffset", "PredictionDeadLetter"):
        assert await database.fetchval(f"SELECT count(*) FROM {table}") == 0, table


async def test_the_archiver_works_under_the_retention_role_and_a_reader_asks_about_all_rows(
    database, database_url, login, tmp_path
):
    await fill(database, [month_ago(3)], 40, await versions_of(database))
    store, retention = FolderArchive(tmp_path / "archive"), await login("understudy_retention")
    with pytest.raises(InterruptedError):
        await archive(retention, store, Moments("after:detach", interrupt))
    for key in await store.keys():
        (store.root / key).unlink()  # what is left has to be read where the month was detached to

    moved = await archive(retention, store, Moments("never", interrupt))

    assert sum(month.rows for month in moved) == 40
    for role in ("understudy_reader", "understudy_engineer"):
        assert set((await ids_seen(await login(role))).values()) == {1}


async def test_a_reader_may_replay_logged_inputs_and_a_proxys_login_may_not(database, database_url, login, model_port):
    before = await register(database_url, 1, [])
    await register(database_url, 2, [model_port("visits:2")])
    await database.execute(
        "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, score, latency_ms,"
        " predicted_at, prediction_id, inputs) VALUES ($1, 'cust-1', repeat('0', 64), '{}', 0.5, 5,"
        " now() - INTERVAL '1 minute', gen_random_uuid(), $2)",
        before,
        orjson.dumps(orjson.loads(PREDICT_BODIES[0])["inputs"]).decode(),
    )

    reader, proxy = [
        await CommandLine(await login(role)).beside("log", "replay", "visits", "2", "--json")
        for role in ("understudy_reader", "understudy_proxy")
    ]

    assert (reader.code, reader.document["replay"]["replayed"]) == (0, 1), reader.err
    assert proxy.code == 7


def interrupt() -> None:
    raise InterruptedError


async def test_a_rollout_that_an_engineer_starts_is_advanced_and_rolled_back_by_the_monitors_role(
    database, database_url, login
):
    champion, _ = [await register(database_url, label, []) for label in (1, 2)]
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)
    engineer = PostgresRolloutStore(await login("understudy_engineer"), timeout_seconds=10)
    url = await login("understudy_monitor")
    monitor, lease = PostgresRolloutStore(url, timeout_seconds=10), PostgresLease(url)
    epoch = await lease.take_or_renew("m")

    record = await engineer.start(NewRollout("visits", "2", NAMED_PLANS["default"], "salt", 12_000), ACTOR)
    for seen in ({"warm_up": WarmUpResult(passed=True)}, {"command": Command(CommandKind.ABORT, "dana", "it burns")}):
        view = await monitor.view(record.id)
        step = next_step(view.record.state, Observation(now=view.read_at, policy=view.policy, **seen))
        assert await monitor.apply(view, step, NewRolloutEvent("monitor"), epoch=epoch)
    await lease.close()

    weight, actors = (
        await database.fetchval("SELECT challenger_weight FROM ServingPolicy"),
        await database.fetch("SELECT actor FROM PolicyAudit ORDER BY id"),
    )
    assert weight == 0
    assert len(actors) >= 3
    assert actors[-1]["actor"].startswith("test_")
