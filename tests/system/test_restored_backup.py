"""Postgres is lost under load, and a backup restored into a new server, by the commands of the page about it."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from e2e.load import Connection, Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, Stack, a_stack, logged_ids, register, sql
from traffic.clusters import put_new_cluster

from understudy.adapters.embedded.installations import find_installations
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade

PAGE = Path(__file__).parents[2] / "docs/how-to/back-up-and-restore.md"
ENOUGH_SECONDS = 60.0
MAX_LOAD_SECONDS = 200.0
PER_SECOND = 50.0
OLDER_ROWS = int(os.environ.get("UNDERSTUDY_TEST_RESTORED_ROWS", "20000"))
"""In the log before the first call, without a role; the page has figures of this many and of a million."""
FILL = """
    INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, score, latency_ms, predicted_at,
                               prediction_id)
    SELECT $1::bigint, 'customer-' || n % 5000, encode(sha256(n::text::bytea), 'hex'), '{"score": 0.5}', 0.5, 4,
           now() - n * INTERVAL '1 millisecond', gen_random_uuid()
    FROM generate_series(1, $2::int) AS n
"""
KEPT = {
    "policies": "SELECT p::text AS row FROM ServingPolicy p ORDER BY 1",
    "versions": "SELECT v::text AS row FROM ModelVersion v ORDER BY 1",
    "endpoints": "SELECT e::text AS row FROM ModelEndpoint e ORDER BY 1",
    "policy audit": "SELECT a::text AS row FROM PolicyAudit a ORDER BY 1",
    "registry audit": "SELECT a::text AS row FROM RegistryAudit a ORDER BY 1",
    "outcomes": "SELECT o::text AS row FROM OutcomeEvent o ORDER BY 1",
    "older log": "SELECT count(*) || ' ' || count(DISTINCT prediction_id) || ' '"
    " || sum(hashtextextended(prediction_id::text, 0)) AS row FROM PredictionLog WHERE role IS NULL",
    "rights": "SELECT relname || ' ' || ARRAY(SELECT unnest(coalesce(relacl, acldefault("
    "   CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", relowner)))::text ORDER BY 1)::text AS row FROM pg_class"
    " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'S') ORDER BY 1",
    "logins": "SELECT rolname || ' ' || rolcanlogin || ' ' || coalesce(("
    "   SELECT string_agg(roleid::regrole::text, ' ' ORDER BY roleid::regrole::text)"
    "   FROM pg_auth_members WHERE member = pg_roles.oid), '') AS row FROM pg_roles WHERE rolname !~ '^pg_' ORDER BY 1",
}
"""What is to be after the restore as it was at the backup."""


class Blocks:
    """The page's blocks of commands, run one after the other, each once."""

    def __init__(self, tools: Path, folder: Path, environment: Mapping[str, str]) -> None:
        text = PAGE.read_text(encoding="utf-8")
        found = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        self._left = [block for block in found if not block.startswith("export ")]
        self._folder = folder
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, **environment, "PATH": path}

    async def run(self, beginning: str) -> str:
        """Run the next block, which is the one that begins like this; return what it says."""
        block = self._left.pop(0)
        assert block.startswith(beginning), block
        began = time.monotonic()
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        print(f"{beginning}: {time.monotonic() - began:.1f} s")
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def is_empty(self) -> bool:
        return not self._left


@contextmanager
def a_server(folder: Path, port: int) -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, durable as in production."""
    put_new_cluster(folder)
    server = EmbeddedPostgres(folder, port)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def url(port: int, database: str, login: str = "understudy") -> str:
    return f"postgresql://{login}@127.0.0.1:{port}/{database}"


async def kept(database_url: str) -> dict[str, list[str]]:
    return {what: [row["row"] for row in await sql(database_url, query)] for what, query in KEPT.items()}


async def until_answered_by(load: Load, version: str, generation: int) -> None:
    """Wait for a call that is sent from now on and answered by this version of this generation."""
    began, give_up = time.monotonic(), time.monotonic() + ENOUGH_SECONDS
    while not any(
        (answer.json["version"], answer.json["generation"]) == (version, generation)
        for answer in list(load.answers)
        if answer.sent > began and answer.status == 200
    ):
        assert time.monotonic() < give_up, f"no answer of version {version} by generation {generation}"
        await asyncio.sleep(0.1)


async def until_shipped(database_url: str, load: Load) -> set[str]:
    """Wait until what is answered by now is in the log; returns its ids."""
    expected = set(load.prediction_ids())
    logged = set(await logged_ids(database_url, expected))
    assert expected <= logged
    return logged


async def prepare(database_url: str, stack: Stack) -> int:
    """Register a champion and a version that is returned, a login for the proxy, outcomes and an old log."""
    await upgrade(database_url)
    port = stack.start_model("visits:1", "visits:2")
    first, second = [await register(database_url, label, [port]) for label in (1, 2)]
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", first)
    await sql(database_url, "CREATE ROLE proxy_1 LOGIN")
    await sql(database_url, "GRANT understudy_proxy TO proxy_1")
    await sql(database_url, FILL, first, OLDER_ROWS)
    await sql(
        database_url,
        "INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at)"
        " SELECT 'o-' || n, 'visits', 'customer-' || n, 'bought', 1, now() FROM generate_series(1, 100) AS n",
    )
    return second


async def give(database_url: str, challenger: int, weight: int) -> int:
    """Give a challenger a share; returns the policy's generation."""
    (row,) = await sql(
        database_url,
        "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = $2, guard = 'off' RETURNING generation",
        challenger,
        weight,
    )
    return int(row["generation"])


async def generation_of(database_url: str) -> int:
    (row,) = await sql(database_url, "SELECT generation FROM ServingPolicy")
    return int(row["generation"])


async def counted(database_url: str) -> Any:
    """Return how many calls the windows count, how many of the proxies' rows are theirs, and how many were refused."""
    (row,) = await sql(
        database_url,
        "SELECT (SELECT sum(calls) FROM PredictionWindow)::bigint AS in_windows,"
        " (SELECT count(*) FROM PredictionLog WHERE role IS NOT NULL AND NOT cache_hit) AS in_log,"
        " (SELECT count(*) FROM PredictionDeadLetter) AS dead",
    )
    return tuple(row)


def stop_and_read(stack: Stack) -> str:
    """Stop everything, and return the first proxy's log."""
    stack.stop()
    return stack.processes["proxy"].log.read_text()


@asynccontextmanager
async def called(port: int, load: Load) -> AsyncIterator[None]:
    """Call the proxy until the block is over."""
    running = asyncio.create_task(
        run_load(
            port,
            VISITS,
            lambda number: PREDICT_BODIES[number % len(PREDICT_BODIES)],
            per_second=PER_SECOND,
            seconds=MAX_LOAD_SECONDS,
            load=load,
        )
    )
    try:
        yield
    finally:
        load.is_over = True
        await running


async def each_answer_is_logged_and_counted_once(database_url: str, load: Load) -> None:
    logged = Counter(await logged_ids(database_url, set(load.prediction_ids())))
    assert Counter(answer.status for answer in load.answers) == {200: len(load.answers)}
    assert set(load.prediction_ids()) <= set(logged)
    assert max(logged.values()) == 1
    in_windows, in_log, dead = await counted(database_url)
    assert (in_windows, dead) == (in_log, 0)


async def is_called_without_postgres(stack: Stack, load: Load) -> Any:
    """Start another proxy, which finds the policies of the first one on the disk, and return what it answers."""
    port = await asyncio.to_thread(stack.start_proxy, "late")
    caller = Connection("127.0.0.1", port)
    load.answers.append(await caller.post(VISITS, PREDICT_BODIES[0]))
    caller.close()
    await asyncio.sleep(0)  # the connection ends in a task, which begins now
    return load.answers[-1].json


async def test_proxies_answer_through_a_restore_follow_the_older_policy_and_log_each_call_once(short_path: Path):
    port, tools = free_port(), Path(find_installations()[0].binary("pg_dump")).parent
    server, own = f"postgresql://understudy@127.0.0.1:{port}", url(port, "understudy")
    blocks = Blocks(tools, short_path, {"SERVER": server, "NEW_SERVER": server, "BACKUP": str(short_path / "backup")})
    load = Load()
    with a_stack(short_path, url(port, "understudy", "proxy_1")) as stack, ExitStack() as servers:
        old = servers.enter_context(a_server(short_path / "old", port))
        second = await prepare(own, stack)
        async with called(await asyncio.to_thread(stack.start_proxy), load):
            at_backup, generation = await kept(own), await generation_of(own)
            await until_answered_by(load, "1", generation)
            await until_shipped(own, load)
            await blocks.run("umask 077")

            newer = await give(own, second, 100)
            await until_answered_by(load, "2", newer)
            shipped = await until_shipped(own, load)
            await asyncio.to_thread(old.kill)
            answer = await is_called_without_postgres(stack, load)
            assert (answer["version"], answer["generation"]) == ("2", newer)

            servers.enter_context(a_server(short_path / "new", port))
            await sql(url(port, "postgres"), "DROP DATABASE understudy WITH (FORCE)")
            await blocks.run("psql")
            await blocks.run("psql")
            beside = url(port, "understudy_restored")
            restored = await kept(beside)
            assert [(what, row) for what, rows in restored.items() for row in set(rows) ^ set(at_backup[what])] == []
            lacking = len(shipped - set(await logged_ids(beside, set())))
            print(f"{lacking} rows of the lost server are not in the backup")
            assert lacking > 0
            await until_answered_by(load, "2", newer)

            await blocks.run("psql")
            renamed = time.monotonic()
            await until_answered_by(load, "1", generation)
            print(f"followed after {time.monotonic() - renamed:.1f} s")
            await blocks.run("DATABASE_URL")
            again = await give(own, second, 100)
            await until_answered_by(load, "2", again)
        await each_answer_is_logged_and_counted_once(own, load)
        log = await asyncio.to_thread(stop_and_read, stack)

    assert again == newer, "the number is used twice, as the page says"
    assert blocks.is_empty
    told = Counter(re.findall(r'"event": "([a-z_.]+)"', log))
    assert (told["postgres.away"], told["postgres.back"]) == (1, 1), told
    assert "cannot switch to state" not in log
