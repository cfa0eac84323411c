"""The console beside its bounds: searches of a long log, 200 viewers, news, logins. ``make bench-console``.

Arguments: ``--only`` searches, index, viewers, news or logins; ``--rows`` of the log (3,000,000, at 1,000 a second),
``--viewers`` (200), ``--seconds`` of watching (30), ``--tries`` at the login (20,000). Postgres is durable, the console
a process of its own; both, and the viewers, share the machine with whatever else runs on it.
"""

import argparse
import asyncio
import os
import secrets
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import asyncpg
from httpx2 import AsyncClient, TransportError
from scipy.stats import mannwhitneyu
from worlds.console import SECRET, Visit
from worlds.report import SCHEMA
from worlds.rollout import TWINS, PastRollout

from loadtests.console_index import indexed
from loadtests.console_news import seconds_of_a_demo, seconds_of_changes
from loadtests.machine import cpu_seconds, resident_bytes
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.registry.key_lookup import PostgresKeyLookup
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.entrypoints.console.access.sessions import Sessions
from understudy.entrypoints.console.access.visitors import Visitors
from understudy.entrypoints.console.console import COOKIE
from understudy.entrypoints.console.pages.health import TROUBLE_SECONDS
from understudy.entrypoints.console.views.links import trouble_path
from understudy.errors import Unauthenticated
from understudy.ports.registry.registry import Actor
from understudy.registry.changes import create_key
from understudy.registry.console_link import signing_secret

COME_SECONDS, REPORTED_SECONDS = 8.0, 2.0
"""Until all viewers have come and are known; and how late backends report what they did."""
POLL_SECONDS = 2.0
"""How often a page without a stream asks."""
LOOKS = 20
OK, FAILED = 200, 500
UNREAD_SECONDS = 80.0
_INODE = 9
"""Column of ``/proc/net/tcp``: of the socket as a process has it; 0 once none does."""
LOGIN = b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
ROOT = Path(__file__).resolve().parents[1]
_FILL = """
    INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at,
        prediction_id, assigned_version_id, score, latency_us, role, reason, status, bucket, policy_generation,
        cache_hit)
    SELECT $1, 'customer-' || (place % 100000), repeat('0', 64), '{"score": 0.5}', 9, to_timestamp($2 - place / 1000.0),
           (substr(moment, 1, 8) || '-' || substr(moment, 9, 4) || '-7000-8000-' || lpad(to_hex(place), 12, '0'))::uuid,
           $1, 0.5, 9000, 'champion', 'bucket', 'ok', 37, 1, FALSE
    FROM (SELECT place, lpad(to_hex(((($2::float8) - place / 1000.0) * 1000)::bigint), 12, '0') AS moment
          FROM generate_series($3::int, $4::int) AS place) AS made
"""
_WORK = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"


class Scene(NamedTuple):
    """What is measured."""

    origin: str
    port: int
    pid: int
    """Of the console."""
    postgres: int
    """Its process id."""
    url: str
    rollout: PastRollout
    database: asyncpg.Connection
    key: str


async def fill(database: asyncpg.Connection, version_id: int, rows: int) -> None:
    """Log so many calls at 1,000 a second until now."""
    now, step = time.time(), 100_000
    for first in range(0, rows, step):
        await database.execute(_FILL, version_id, now, first, min(rows, first + step) - 1, timeout=600)
    await database.execute("ANALYZE PredictionLog", timeout=600)


@asynccontextmanager
async def scene(folder: Path, rows: int) -> AsyncIterator[Scene]:
    """Open a database with a rollout and a log, and a console over it."""
    with EmbeddedPostgres(folder / "pg") as server:
        await upgrade(server.url)
        database = await asyncpg.connect(server.url)
        past = PastRollout(database, server.url, TWINS, 600)
        await past.begin()
        await past.go_on(8)
        await database.execute("ALTER TABLE ModelVersion DISABLE TRIGGER USER")  # it has served: its schema would stay
        await database.execute("UPDATE ModelVersion SET input_schema = $1", SCHEMA)
        await fill(database, past.versions["6"], rows)
        made = await create_key(PostgresRegistry(server.url), ("read", "operate"), None, Actor("bench", "bench"))
        port = free_port()
        process = started(server.url, port)
        try:
            origin = f"http://127.0.0.1:{port}"
            await answering(origin)
            postgres = server.pid
            if postgres is None:
                raise RuntimeError("Postgres has ended")
            yield Scene(origin, port, process.pid, postgres, server.url, past, database, made.credential)
        finally:
            process.terminate()
            process.wait(20)
            database.terminate()


CONSOLE = ("-m", "understudy.entrypoints.cli", "serve", "console")
"""What Python runs."""


def started(url: str, port: int, program: Sequence[str] = CONSOLE) -> subprocess.Popen[bytes]:
    """Start a console."""
    own = {"DATABASE_URL": url, "UNDERSTUDY_CONSOLE_PORT": str(port), "UNDERSTUDY_CONSOLE_SECRET": SECRET}
    return subprocess.Popen(
        [sys.executable, *program],
        env={**os.environ, **own, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def answering(origin: str) -> None:
    """Wait until it answers."""
    async with asyncio.timeout(120), AsyncClient() as client:
        while True:
            with suppress(TransportError):  # it does not listen yet
                if (await client.get(f"{origin}/livez")).status_code == OK:
                    return
            await asyncio.sleep(0.1)


# -- searches ----------------------------------------------------------------------------------------------------------


async def searched(at: Scene) -> list[str]:
    """Return how long one call and one entity are looked for."""
    ids = await at.database.fetch("SELECT prediction_id::text FROM PredictionLog ORDER BY random() LIMIT $1", LOOKS)
    async with visiting(at) as visit:
        calls = [await timed(visit, f"/predictions/{row[0]}") for row in ids]
        entities = [await timed(visit, f"/models/churn/entities/customer-{place * 97}") for place in range(LOOKS // 4)]
        said = (await visit.get("/models/churn/entities/customer-97")).text
    told = said.partition("looked back ")[2].partition(";")[0]
    first, median = entities[0], statistics.median(entities[1:])
    return [
        f"a call by its id: median {1e3 * statistics.median(calls):.0f} ms, longest {1e3 * max(calls):.0f} ms",
        f"an entity: at first {1e3 * first:.0f} ms, then {1e3 * median:.0f} ms at the median; looked back {told}",
    ]


async def timed(visit: Visit, path: str) -> float:
    began = time.perf_counter()
    answer = await visit.get(path)
    if answer.status_code != OK:
        raise RuntimeError(f"{path}: {answer.status_code}; the figures would mean nothing")
    return time.perf_counter() - began


@asynccontextmanager
async def visiting(at: Scene) -> AsyncIterator[Visit]:
    """Open a session."""
    async with AsyncClient(base_url=at.origin, timeout=60) as client:
        visit = Visit(client, at.origin)
        await visit.sign_in(at.key)
        yield visit


# -- viewers -----------------------------------------------------------------------------------------------------------


class Watched(NamedTuple):
    """What viewers cost."""

    transactions: float
    """In a second."""
    core: float
    """Share of one core that the console used."""
    megabytes: float
    refused: int
    """Requests without an answer."""
    answers: int
    refused_streams: int


class Viewer:
    """A page of one rollout that is open in a browser: it fetches what its stream says is new, or asks by itself.

    What Health knows to be wrong it asks for at a period of its own.
    """

    def __init__(self, client: AsyncClient, path: str, counts: dict[str, int]) -> None:
        self._client, self._path, self._counts = client, path, counts
        self._digests: dict[str, str] = {}

    async def watch(self, delay: float, seconds: float) -> None:
        await asyncio.sleep(delay)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(self._watch_rollout(), self._poll(trouble_path("churn"), TROUBLE_SECONDS))

    async def _watch_rollout(self) -> None:
        while True:
            try:
                if not await self._is_told():
                    await self._poll(self._path, POLL_SECONDS)
            except TransportError:  # as in _fetch: a browser opens its stream again
                self._counts["refused"] += 1

    async def _poll(self, path: str, seconds: float) -> None:
        while True:
            await self._fetch(path)
            await asyncio.sleep(seconds)

    async def _is_told(self) -> bool:
        """Follow the stream to its end; ``False``: there is no place for it."""
        stream = self._client.stream("GET", f"{self._path}/stream", headers={"accept": "text/event-stream"})
        async with stream as answer:
            if answer.status_code != OK:
                self._counts["streams"] += 1
                return False
            async for line in answer.aiter_lines():
                if line == "event: news":
                    await self._fetch(self._path)
        return True

    async def _fetch(self, path: str) -> None:
        try:
            answer = await self._client.get(path, params={"seen": self._digests.get(path, "")})
        except TransportError:  # its connection, which was idle, gave way at this moment; a browser asks again
            self._counts["refused"] += 1
            return
        self._counts["answers"] += 1
        self._counts["refused"] += answer.status_code >= FAILED
        if answer.status_code == OK:
            self._digests[path] = answer.text.rpartition('value="')[2].partition('"')[0]


async def watched(at: Scene, viewers: int, seconds: float) -> Watched:
    """Have so many browsers keep the page of one rollout open."""
    counts = {"refused": 0, "answers": 0, "streams": 0}

    async with AsyncExitStack() as stack:
        tls = ssl.create_default_context()  # reading the machine's certificates for each of them takes seconds
        clients = [
            await stack.enter_async_context(
                AsyncClient(base_url=at.origin, timeout=60, verify=tls, cookies=await own_cookie(at))
            )
            for _ in range(viewers)
        ]
        pages = [Viewer(one, live_path(at), counts) for one in clients]
        delays = [POLL_SECONDS * place / viewers for place in range(viewers)]
        lasts = COME_SECONDS + seconds + REPORTED_SECONDS
        watching = asyncio.gather(*(one.watch(delay, lasts) for one, delay in zip(pages, delays, strict=True)))
        await asyncio.sleep(COME_SECONDS)  # a key that is new to the console is looked up by itself
        before, cpu, began = await at.database.fetchval(_WORK), cpu_seconds([at.pid]), time.monotonic()
        counts.update(refused=0, answers=0)
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        spent, memory = cpu_seconds([at.pid]) - cpu, resident_bytes(at.pid)
        work = await at.database.fetchval(_WORK) - before
        seen = dict(counts)
        await watching
    return Watched(work / took, spent / took, memory / 1e6, seen["refused"], seen["answers"], counts["streams"])


def live_path(at: Scene) -> str:
    """Return the address of the part that a rollout's page fetches again."""
    return f"/live/models/churn/rollouts/{at.rollout.id}"


async def own_cookie(at: Scene) -> dict[str, str]:
    """Return the cookie of a session with a key of its own: as many keys are looked up as people look on."""
    made = await create_key(PostgresRegistry(at.url), ("read",), None, Actor("bench", "bench"))
    sessions = Sessions(signing_secret(SECRET), time.time)
    return {COOKIE: sessions.cookie(sessions.start(made.credential.partition(".")[0]))}


async def viewed(at: Scene, viewers: int, seconds: float) -> list[str]:
    """Return what viewers cost beside one, what one more gets, and when those are dropped that do not read."""
    found = {count: await watched(at, count, seconds) for count in (1, viewers, viewers + 1)}
    lines = [
        f"{count} viewers: {one.transactions:.2f} transactions/s, {100 * one.core:.0f} % of a core,"
        f" {one.megabytes:.0f} MB, {one.answers} answers,"
        f" {one.refused} requests and {one.refused_streams} streams refused"
        for count, one in found.items()
    ]
    ratio = found[viewers].transactions / found[1].transactions
    stream = f"GET {live_path(at)}/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nCookie: "
    cookie = "; ".join(f"{name}={value}" for name, value in (await own_cookie(at)).items())
    answers = await asyncio.to_thread(unread_seconds, at.port, LOGIN, goes_on=True)
    news = await asyncio.to_thread(unread_seconds, at.port, f"{stream}{cookie}\r\n\r\n".encode(), goes_on=False)
    return [
        *lines,
        f"{ratio:.2f} times the transactions of one viewer (0.9 to 1.1); at most 30 % of a core and 250 MB are asked",
        f"dropped: who asks and takes no answer {dropped_words(answers)}, who reads no stream {dropped_words(news)}",
    ]


def dropped_words(seconds: float | None) -> str:
    """Say when a connection was ended by the console."""
    return f"after {seconds:.0f} s" if seconds is not None else f"not within {UNREAD_SECONDS:.0f} s"


def unread_seconds(port: int, asked: bytes, *, goes_on: bool) -> float | None:
    """Return when the console has ended a connection that asks and reads no answer; ``None``: not in time.

    With ``goes_on`` it asks again and again. What the kernel still holds for who does not read is no matter of the
    console: its end of the connection is looked at.
    """
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        one.connect(("127.0.0.1", port))
        one.sendall(asked)
        one.setblocking(False)
        own_port, began = one.getsockname()[1], time.monotonic()
        while time.monotonic() - began < UNREAD_SECONDS:
            with suppress(OSError):  # its end is full, or has gone
                one.send(asked * 50 if goes_on else b"")
            time.sleep(0.5)
            if not is_held(port, own_port):
                return time.monotonic() - began
    return None


def is_held(port: int, of_port: int) -> bool:
    """Whether a process of this machine holds the end at ``port`` of a connection on loopback from ``of_port``."""
    ends = f"0100007F:{port:04X} 0100007F:{of_port:04X}"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(f"{row[1]} {row[2]}" == ends and row[_INODE] != "0" for row in rows)


# -- news --------------------------------------------------------------------------------------------------------------


async def heard(at: Scene, folder: Path) -> list[str]:
    """Return how soon what happens is on an open page: changes by SQL, and what a demo does."""
    async with visiting(at) as visit:
        changes = await seconds_of_changes(at.database, visit, f"/models/churn/rollouts/{at.rollout.id}")
    return [changes, *await seconds_of_a_demo(folder / "demo")]


# -- logins ------------------------------------------------------------------------------------------------------------


async def tried(at: Scene, tries: int) -> list[str]:
    """Return whether the time of a try tells an id that exists from one that does not."""
    visitors = Visitors(PostgresKeyLookup(at.url, timeout_seconds=10))
    known = at.key.partition(".")[0]
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for place in range(tries):
        exists = bool(place % 2)
        key_id = known if exists else secrets.token_hex(6)
        seconds[exists].append(await refused(visitors.check, f"{key_id}.{sha256(bytes([place % 256])).hexdigest()}"))
    alike = mannwhitneyu(seconds[True], seconds[False]).pvalue
    medians = [1e6 * statistics.median(seconds[one]) for one in (True, False)]
    words = f"wrong secret {medians[0]:.0f} µs, unknown id {medians[1]:.0f} µs"
    return [f"{tries:,} tries at the login: medians {words}; Mann-Whitney p = {alike:.3g}"]


async def refused(check: Callable[[str], Awaitable[object]], credential: str) -> float:
    began = time.perf_counter()
    try:
        await check(credential)
    except Unauthenticated:
        return time.perf_counter() - began
    raise RuntimeError("a wrong key was taken; the figures would mean nothing")


async def measure(folder: Path, given: argparse.Namespace) -> None:
    """Print the figures of each part as soon as they are there."""
    async with scene(folder, given.rows) as at:
        say([f"{given.rows:,} calls in the log, 1,000 a second"])
        if given.only in ("", "searches"):
            say(await searched(at))
        if given.only in ("", "index"):
            say(await indexed(at.url, at.postgres, folder, at.rollout.versions["6"], partial(searched, at)))
        if given.only in ("", "viewers"):
            say(await viewed(at, given.viewers, given.seconds))
        if given.only in ("", "news"):
            say(await heard(at, folder))
        if given.only in ("", "logins"):
            say(await tried(at, given.tries))


def say(lines: Sequence[str]) -> None:
    """Print figures, with how busy the machine is, which they depend on."""
    print(*lines, f"  (load {os.getloadavg()[0]:.1f})", sep="\n", flush=True)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser()
    for name, usual in (("rows", 3_000_000), ("viewers", 200), ("seconds", 30), ("tries", 20_000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--only", choices=("", "searches", "index", "viewers", "news", "logins"), default="")
    folder = Path(tempfile.mkdtemp(prefix="us-console-"))
    folder.chmod(0o755)
    try:
        asyncio.run(measure(folder, parser.parse_args()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
