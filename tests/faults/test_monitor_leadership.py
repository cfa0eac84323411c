"""Two monitors, and what may happen to the one that leads: the other goes on, and nothing is written twice."""

import asyncio
import re
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from e2e.stack import Process
from failing.writing_monitor import TABLES

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.monitoring.lease import require_epoch
from understudy.adapters.postgres.monitoring.outbox import add_alert
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.errors import LeadershipLost
from understudy.monitoring.worker import STANDBY_SECONDS
from understudy.ports.monitoring.lease import LEASE_SECONDS

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "failing" / "writing_monitor.py"
TAKEOVER_SECONDS = 10.0
RELEASE_SECONDS = 3.0
LATEST = "SELECT pid, epoch FROM Step ORDER BY written_at DESC LIMIT 1"


class Pair:
    """Two monitors with a login each, and the rows that they write."""

    def __init__(self, database: asyncpg.Connection, monitors: dict[str, Process]) -> None:
        self.database = database
        self.monitors = monitors
        """By login."""

    async def leader(self) -> tuple[str, int]:
        """Return the login of the one that wrote last, and its epoch."""
        latest = await self.database.fetchrow(LATEST)
        assert latest is not None
        pid, epoch = latest
        return next(login for login, process in self.monitors.items() if process.pid == pid), epoch

    def pid_of(self, login: str) -> int:
        return self.monitors[login].pid

    def other_than(self, login: str) -> str:
        return next(other for other in self.monitors if other != login)

    async def wait_for_step_of(self, login: str, after_epoch: int = 0) -> int:
        """Wait until this one writes in a later epoch, and return that."""

        query = "SELECT max(epoch) FROM Step WHERE pid = $1 AND epoch > $2"
        epoch: int = await self.wait_for(lambda: self.database.fetchval(query, self.pid_of(login), after_epoch))
        return epoch

    async def wait_for(self, ask, seconds: float = 30):
        deadline = time.monotonic() + seconds
        while not (answer := await ask()):
            logs = "\n".join(process.log.read_text()[-2000:] for process in self.monitors.values())
            assert time.monotonic() < deadline, logs
            await asyncio.sleep(0.02)
        return answer

    async def pause_between(self, first_epoch: int) -> float:
        """Return for how long nobody wrote between this epoch and what followed."""
        return float(
            await self.database.fetchval(
                "SELECT extract(epoch FROM min(written_at) FILTER (WHERE epoch > $1)"
                " - max(written_at) FILTER (WHERE epoch <= $1)) FROM Step",
                first_epoch,
            )
        )

    async def assert_one_leader_per_epoch_and_one_after_the_other(self) -> None:
        rows = await self.database.fetch("SELECT epoch, pid FROM Step ORDER BY written_at")
        epochs = [row["epoch"] for row in rows]
        assert epochs == sorted(epochs)
        assert len({tuple(row) for row in rows}) == len(set(epochs))

    async def cut(self, login: str) -> None:
        """End this one's connections, and let it open no other."""
        await self.database.execute(f"ALTER ROLE {login} NOLOGIN")
        await self.end_connections(login)

    async def end_connections(self, login: str) -> int:
        ended: int = await self.database.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1", login
        )
        return ended

    async def mend(self, login: str) -> None:
        await self.database.execute(f"ALTER ROLE {login} LOGIN")


@asynccontextmanager
async def two_logins(database: asyncpg.Connection) -> AsyncIterator[list[str]]:
    logins = [f"monitor_{uuid4().hex[:12]}" for _ in range(2)]
    for login in logins:
        await database.execute(f"CREATE ROLE {login} LOGIN PASSWORD 'known'")
        await database.execute(f"GRANT SELECT, INSERT, UPDATE ON MonitorLease, Step, Refused TO {login}")
    try:
        yield logins
    finally:
        for login in logins:
            await database.execute(f"DROP OWNED BY {login}")
            await database.execute(f"DROP ROLE {login}")


def url_for(database_url: str, login: str) -> str:
    parts = urlsplit(database_url)
    return parts._replace(netloc=f"{login}:known@{parts.netloc.rpartition('@')[2]}").geturl()


def start_monitor(
    name: str, database_url: str, folder: Path, arguments: list[str], port: int | None = None, **variables: str
) -> Process:
    env = {
        "DATABASE_URL": database_url,
        "UNDERSTUDY_MONITOR_METRICS_PORT": str(port or free_port()),
        **variables,
    }
    return Process(name, arguments, folder, env)


@pytest.fixture
async def pair(database: asyncpg.Connection, database_url: str, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two monitors of which one leads."""
    await database.execute(TABLES)
    async with two_logins(database) as logins:
        monitors = {
            login: start_monitor(login, url_for(database_url, login), tmp_path, [str(SCRIPT)]) for login in logins
        }
        started = Pair(database, monitors)
        try:
            await started.wait_for(lambda: database.fetchrow(LATEST))
            yield started
        finally:
            for process in monitors.values():
                process.stop()


def report(what: str, seconds: float, bound: float) -> None:
    print(f"{what}: nobody wrote for {seconds:.1f} s (bound {bound:g} s)")


async def test_a_leader_that_is_killed_is_followed_in_time(pair):
    leader, epoch = await pair.leader()

    pair.monitors[leader].signal(signal.SIGKILL)
    later = await pair.wait_for_step_of(pair.other_than(leader), epoch)

    pause = await pair.pause_between(epoch)
    report("kill -9", pause, TAKEOVER_SECONDS)
    assert later > epoch
    assert pause <= TAKEOVER_SECONDS
    await pair.assert_one_leader_per_epoch_and_one_after_the_other()


async def test_a_leader_that_was_frozen_is_followed_in_time_and_its_writes_are_refused_when_it_wakes(pair):
    leader, epoch = await pair.leader()

    pair.monitors[leader].signal(signal.SIGSTOP)
    later = await pair.wait_for_step_of(pair.other_than(leader), epoch)
    pair.monitors[leader].signal(signal.SIGCONT)
    refused = await pair.wait_for(
        lambda: pair.database.fetch("SELECT epoch FROM Refused WHERE pid = $1", pair.pid_of(leader))
    )
    await asyncio.sleep(3)

    pause = await pair.pause_between(epoch)
    report("SIGSTOP", pause, TAKEOVER_SECONDS)
    assert later > epoch
    assert pause <= TAKEOVER_SECONDS
    assert {row["epoch"] for row in refused} == {epoch}
    assert await pair.leader() == (pair.other_than(leader), later)
    await pair.assert_one_leader_per_epoch_and_one_after_the_other()
    with pytest.raises(LeadershipLost):
        async with pair.database.transaction():
            await require_epoch(pair.database, epoch)


async def test_a_leader_that_is_cut_off_from_postgres_is_followed_in_time_and_can_lead_again_later(pair):
    leader, epoch = await pair.leader()
    standby = pair.other_than(leader)

    await pair.cut(leader)
    later = await pair.wait_for_step_of(standby, epoch)
    pause = await pair.pause_between(epoch)
    await pair.mend(leader)
    await asyncio.sleep(3)
    still = await pair.leader()
    pair.monitors[standby].signal(signal.SIGKILL)
    again = await pair.wait_for_step_of(leader, later)

    report("cut off", pause, TAKEOVER_SECONDS)
    assert pause <= TAKEOVER_SECONDS
    assert still == (standby, later)
    assert again > later > epoch
    assert await pair.pause_between(later) <= TAKEOVER_SECONDS
    await pair.assert_one_leader_per_epoch_and_one_after_the_other()


async def test_connections_that_are_cut_once_are_opened_again_and_the_leader_stays(pair):
    leader, epoch = await pair.leader()

    ended = await pair.end_connections(leader)
    await asyncio.sleep(LEASE_SECONDS + STANDBY_SECONDS)

    assert ended >= 1
    assert await pair.leader() == (leader, epoch)
    gap = await pair.database.fetchval(
        "SELECT extract(epoch FROM max(gap)) FROM"
        " (SELECT written_at - lag(written_at) OVER (ORDER BY written_at) AS gap FROM Step) AS gaps"
    )
    report("connections cut once", gap, TAKEOVER_SECONDS)
    assert gap <= TAKEOVER_SECONDS
    await pair.assert_one_leader_per_epoch_and_one_after_the_other()


async def test_a_leader_that_is_told_to_stop_frees_the_lease_at_once(pair):
    leader, epoch = await pair.leader()

    pair.monitors[leader].signal(signal.SIGTERM)
    status = await asyncio.to_thread(pair.monitors[leader].child.wait, 10)
    later = await pair.wait_for_step_of(pair.other_than(leader), epoch)

    pause = await pair.pause_between(epoch)
    report("SIGTERM", pause, RELEASE_SECONDS)
    assert status == 0
    assert later == epoch + 1
    assert pause <= RELEASE_SECONDS
    await pair.assert_one_leader_per_epoch_and_one_after_the_other()


# -- the command -------------------------------------------------------------------------------------------------------

COMMAND = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]


def metric(port: int, name: str) -> float | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
            found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else float(found.group(1))


async def wait_until(holds: Callable[[], bool], process: Process) -> None:
    deadline = time.monotonic() + 30
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, process.log.read_text()[-2000:]
        await asyncio.sleep(0.05)


async def test_the_command_leads_says_so_and_ends_with_0(database, database_url, tmp_path):
    port = free_port()
    process = start_monitor("monitor", database_url, tmp_path, COMMAND, port)
    second = None
    try:
        await wait_until(lambda: metric(port, "monitor_leader") == 1, process)
        second = start_monitor("second", database_url, tmp_path, COMMAND, port)
        refused = await asyncio.to_thread(second.child.wait, 30)
        held = await database.fetchval("SELECT holder FROM MonitorLease")
        process.signal(signal.SIGTERM)
        status = await asyncio.to_thread(process.child.wait, 10)
    finally:
        process.stop()
        if second is not None:
            second.stop()

    assert f":{process.pid}:" in held
    assert refused == 1
    assert "UNDERSTUDY_MONITOR_METRICS_PORT" in second.log.read_text()
    assert status == 0
    assert await database.fetchval("SELECT holder FROM MonitorLease") == ""


class Receiver(BaseHTTPRequestHandler):
    """Takes every alert."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


async def test_the_command_delivers_an_alert_that_waits(database, database_url, tmp_path):
    event = AlertEvent(AlertAction.TRIGGER, AlertKind.DRIFT, "prod", "visits", "the scores moved", time.time())
    await add_alert(database, event)
    port = free_port()
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/hook?token=known"
        process = start_monitor("monitor", database_url, tmp_path, COMMAND, port, UNDERSTUDY_ALERT_WEBHOOK_URL=url)
        counted = re.escape('alert_deliveries_total{channel="webhook",outcome="delivered"}')
        try:
            await wait_until(lambda: metric(port, counted) == 1, process)
        finally:
            process.stop()
            server.shutdown()

    (body,) = Receiver.bodies
    assert event.dedup_key.encode() in body
    assert "known" not in process.log.read_text()
    assert await database.fetchval("SELECT count(*) FROM AlertOutbox WHERE delivered_at IS NULL") == 0


async def test_without_postgres_the_command_waits_for_it_and_can_be_stopped(tmp_path):
    port = free_port()
    process = start_monitor("monitor", "postgresql://127.0.0.1:1/nowhere", tmp_path, COMMAND, port)
    try:
        await wait_until(lambda: "monitor.lease_unreachable" in process.log.read_text(), process)
        leads = await asyncio.to_thread(metric, port, "monitor_leader")
        process.signal(signal.SIGTERM)
        status = await asyncio.to_thread(process.child.wait, 10)
    finally:
        process.stop()

    assert leads == 0
    assert status == 0
