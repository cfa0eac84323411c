"""Secrets that are planted everywhere come out nowhere: logs, metrics, errors, what ``doctor`` says, the outbox."""

import asyncio
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import asyncpg
import orjson
import pytest
from command import CommandLine
from e2e.stack import PREDICT_BODIES, Process, a_stack, register

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.monitoring.outbox import PostgresAlertOutbox
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.ports.registry.registry import Actor
from understudy.registry.changes import create_key

PASSWORD = "canary-dsn-password"
ENTITY = "canary-entity-id"
WEBHOOK = "canary-webhook-token"
BACKEND = "canary-backend-token"
REDIS = "canary-redis-password"
TOKEN_ENV = "UNDERSTUDY_BACKEND_TOKEN_CANARY"


ALERT = AlertEvent(AlertAction.TRIGGER, AlertKind.CANARY_ROLLED_BACK, "test", "visits", "it burns", time.time())
COPY_VERSION = """
    INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, output_schema, backend)
    SELECT 'deaf', version, artifact_path, framework, input_schema, output_schema, backend FROM ModelVersion
    RETURNING id
"""


class Receiver(BaseHTTPRequestHandler):
    """Refuses every alert, and repeats what it was sent."""

    asked: list[str]

    def do_POST(self) -> None:
        self.asked.append(self.path)
        said = f"no hook {self.path}".encode()
        self.send_response(400)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_said: Any) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Receiver,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook/{WEBHOOK}", asked
    server.shutdown()
    thread.join(10)
    server.server_close()


def call(port: int, path: str, body: bytes | None, authorization: str | None) -> tuple[int, str]:
    """Return the status, and everything that came back."""
    headers = {"content-type": "application/json"} | ({} if authorization is None else {"authorization": authorization})
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, f"{answer.headers}\n{answer.read().decode()}"
    except urllib.error.HTTPError as refused:
        return refused.code, f"{refused.headers}\n{refused.read().decode()}"


def predictions(secret: str, port: int) -> list[tuple[int, str]]:
    """Ask well and badly, always with a secret somewhere."""
    good = orjson.dumps({**orjson.loads(PREDICT_BODIES[0]), "entity_id": ENTITY})
    visits, key = "/v1/models/visits/predict", f"Bearer {secret}"
    wrong_inputs = orjson.dumps({"entity_id": ENTITY, "inputs": {"nothing": ENTITY}})
    key_id, _, hidden = secret.partition(".")
    return [
        call(port, visits, good, key),
        call(port, visits, good[:-1], key),
        call(port, visits, wrong_inputs, key),
        call(port, visits, orjson.dumps({"entity_id": ENTITY * 40, "inputs": {}}), key),
        call(port, visits, good, f"Bearer {key_id}x.{hidden}"),
        call(port, visits, good, f"Bearer {key_id}.{hidden}x"),
        call(port, visits, good, f"Basic {hidden}"),
        call(port, "/v1/models/nothing/predict", good, key),
        call(port, "/v1/models/deaf/predict", good, key),
        call(port, "/v1/outcomes", b'{"events": [{"entity_id": "%s"}]}' % ENTITY.encode(), key),
        call(port, "/v1/models/visits:rollback", b'{"reason": 1}', key),
        call(port, "/v1/audit?limit=wrong", None, key),
        call(port, "/readyz", None, None),
    ]


class Planted(NamedTuple):
    """Where the secrets are."""

    database: asyncpg.Connection
    login: str
    url: str
    """Of the database, with a password."""
    dead_url: str
    dead_redis: str
    credential: str
    asked: list[str]
    """Paths that the receiver of alerts was asked for."""

    async def waits_for(self, query: str) -> None:
        deadline = time.monotonic() + 40
        while not await self.database.fetch(query):
            assert time.monotonic() < deadline, query
            await asyncio.sleep(0.2)


@pytest.fixture
async def planted(
    database: asyncpg.Connection, database_url: str, model_port: Callable[[str], int], receiver: tuple[str, list[str]]
) -> AsyncIterator[Planted]:
    """Models ``visits``, which answers, and ``deaf``, which does not; an alert; and a secret in every place."""
    login = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {login} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    token = orjson.dumps({"token_env": TOKEN_ENV, "version": "1"}).decode()
    version = await register(database_url, 1, [model_port("visits:1")], backend=token)
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)
    deaf = await database.fetchval(COPY_VERSION)
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('deaf', $1)", deaf)
    await database.execute(
        "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", deaf, f"127.0.0.1:{free_port()}"
    )
    registry = PostgresRegistry(database_url)
    key = await create_key(registry, ["predict", "read", "outcomes", "operate"], None, Actor("dana", "cli"))
    webhook, asked = receiver
    outbox = PostgresAlertOutbox(database_url, ["webhook"])
    await outbox.add(ALERT)
    await outbox.close()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(TOKEN_ENV, BACKEND)
        environment.setenv("UNDERSTUDY_ALERT_WEBHOOK_URL", webhook)
        yield Planted(
            database,
            login,
            f"postgresql://{login}:{PASSWORD}@{database_url.rpartition('@')[2]}",
            f"postgresql://{login}:{PASSWORD}@127.0.0.1:1/x",
            f"redis://:{REDIS}@127.0.0.1:{free_port()}/0",
            key.credential,
            asked,
        )
    await database.execute(f"DROP ROLE {login}")


async def test_no_planted_secret_comes_out_anywhere(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, login = planted.database, planted.login
    metrics, monitor_metrics = free_port(), free_port()
    with a_stack(tmp_path, planted.url, planted.dead_redis) as stack:
        port = await asyncio.to_thread(stack.start_proxy, auth=True, metrics_port=metrics)
        stack.processes["monitor"] = a_monitor(tmp_path, planted.url, monitor_metrics)
        answers = await asyncio.to_thread(predictions, planted.credential, port)
        await planted.waits_for("SELECT FROM AlertOutbox WHERE last_error IS NOT NULL")
        await planted.waits_for(f"SELECT FROM PredictionLog WHERE entity_id = '{ENTITY}'")
        # The database goes away for this login, whose password the drivers hold.
        await database.execute(f"ALTER ROLE {login} NOLOGIN")
        await database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", login)
        await asyncio.sleep(3)
        answers += await asyncio.to_thread(predictions, planted.credential, port)
        said = {"answers": "\n".join(text for _, text in answers)}
        for name, at in (("metrics", metrics), ("monitor metrics", monitor_metrics)):
            said[name] = (await asyncio.to_thread(call, at, "/metrics", None, None))[1]
        said |= {f"log of {name}": process.log.read_text() for name, process in stack.processes.items()}
    monkeypatch.setenv("REDIS_URL", planted.dead_redis)
    said |= await asyncio.to_thread(said_by_commands, "shut out", planted.url)
    said |= await asyncio.to_thread(said_by_commands, "nobody there", planted.dead_url)
    await database.execute(f"ALTER ROLE {login} LOGIN")
    said |= await asyncio.to_thread(said_by_commands, "well", planted.url)
    said["outbox"] = str(await database.fetch("SELECT last_error FROM AlertOutbox"))

    secrets = (PASSWORD, ENTITY, WEBHOOK, BACKEND, REDIS, planted.credential.partition(".")[2])
    assert [(place, secret) for place, text in said.items() for secret in secrets if secret in text] == []
    assert planted.asked
    assert all(path.endswith(WEBHOOK) for path in planted.asked)
    assert [status for status, _ in answers[:9]] == [200, 400, 422, 422, 401, 401, 401, 404, 503]
    assert "no hook" in said["outbox"]
    assert len(said["log of proxy"]) > 0


def a_monitor(folder: Path, database_url: str, metrics_port: int) -> Process:
    env = {
        "DATABASE_URL": database_url, "UNDERSTUDY_MONITOR_METRICS_PORT": str(metrics_port),
        "UNDERSTUDY_MONITOR_TICK_SECONDS": "0.3", "UNDERSTUDY_STATE_DIR": str(folder / "monitor"),
    }  # fmt: skip
    return Process("monitor", ["-m", "understudy.entrypoints.cli", "serve", "monitor"], folder, env)


def said_by_commands(when: str, url: str) -> dict[str, str]:
    """Return what commands write that look at an installation."""
    commands = ("doctor", "doctor --json", "key list --json", "db check", "model list")
    return {f"{when}: {command}": "".join(CommandLine(url)(*command.split())[1:]) for command in commands}
