"""A rollout that really happened, as its page, its screen and its metrics show it."""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from command import CommandLine, Done
from contract.servers import TcpRelay
from traffic.logged import lead
from worlds.rollout import TWINS, WORSE, PastRollout

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.monitoring.retention import PostgresRetentionStore
from understudy.core.rollout.state import Phase
from understudy.ports.monitoring.retention_store import GrowingTable

COMMAND = (sys.executable, "-m", "understudy.entrypoints.cli")


async def begun(database_url: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start the command as a process, which Ctrl-C can end."""
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "DATABASE_URL": database_url, "COLUMNS": "80"},
        limit=1_000_000,
        # A shell that runs the tests in the background has them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


async def ended(process: asyncio.subprocess.Process) -> Done:
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return Done(process.returncode or 0, out.decode(), err.decode())


async def said_by(database_url: str, *arguments: str, columns: int = 80) -> Done:
    return await CommandLine(database_url).beside(*arguments, COLUMNS=str(columns))


@pytest.fixture
async def rolled_back(database: asyncpg.Connection, database_url: str) -> PastRollout:
    past = PastRollout(database, database_url, WORSE, 1_800)
    await past.begin()
    await past.go_on(12)
    return past


@pytest.fixture
async def under_way(database: asyncpg.Connection, database_url: str) -> PastRollout:
    past = PastRollout(database, database_url, TWINS, 240)
    await past.begin()
    await past.go_on(4)
    return past


async def test_the_page_of_a_rollback_is_drawn_from_its_windows_and_later_from_its_verdict(
    rolled_back: PastRollout, database: asyncpg.Connection, database_url: str, tmp_path: Path
):
    page, later = tmp_path / "rollout.html", tmp_path / "later.html"

    said = await said_by(database_url, "rollout", "show", "churn", "--html", str(page))
    await database.execute("DELETE FROM PredictionWindow")
    again = await said_by(database_url, "rollout", "show", "churn", "--html", str(later), "--json")

    assert (said.code, again.code) == (0, 0), said.err + again.err
    assert f"Written: {page}" in " ".join(said.err.split())
    drawn, redrawn = page.read_text(), later.read_text()
    assert drawn.index("rolled back at") < drawn.index("<svg")
    assert "scores of the calls" in drawn
    assert "deleted" not in drawn
    assert "Its windows were deleted since" in redrawn
    trace = re.compile(r'<polyline[^>]+points="([^"]+)"')
    assert trace.findall(redrawn) == trace.findall(drawn)
    assert all(event["replay"]["agrees"] for event in json.loads(again.out)["events"] if event["verdict"])


async def test_a_rollback_is_told_once_and_judged_again_to_the_same(rolled_back: PastRollout, database_url: str):
    said = await said_by(database_url, "rollout", "show", "churn")

    reason = (await rolled_back.store.view(rolled_back.id)).record.state.reason
    assert reason.startswith("version 7 rolled back at 10 %: error rate ")
    assert "ROLL BACK" not in said.out
    assert "ROLL_BACK  the same verdict" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


DAMAGE = {
    "inputs": ("inputs = '5'", "inputs is no object"),
    "the windows": ("inputs = jsonb_set(inputs, '{strata}', '\"abc\"')", "not stored strata"),
    "limits": ("thresholds = '[]'", "thresholds is no object"),
    "evidence": ("evidence = '[{}]'", "its evidence cannot be read: KeyError: 'check'"),
    "a figure": ("evidence = jsonb_set(evidence, '{0,champion}', '\"x\"')", "a figure is no number"),
    "the phase": ("phase = 'DANCING'", ""),
}


@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_damaged_event_is_named_and_the_rest_is_shown(
    rolled_back: PastRollout, database: asyncpg.Connection, database_url: str, tmp_path: Path, kind: str
):
    change, problem = DAMAGE[kind]
    last = await database.fetchval("SELECT max(id) FROM RolloutEvent WHERE verdict = 'ROLL_BACK'")
    await database.execute(f"UPDATE RolloutEvent SET {change} WHERE id = $1", last)
    await database.execute("DELETE FROM PredictionWindow")

    said = await said_by(database_url, "rollout", "show", "churn", "--html", str(tmp_path / "page.html"), columns=200)
    as_json = await said_by(database_url, "rollout", "show", "churn", "--json")

    assert (said.code, as_json.code) == (0, 0), said.err + as_json.err
    assert "version 7 rolled back at 10 %" in said.out
    events = {event["id"]: event for event in json.loads(as_json.out)["events"]}
    assert problem in events[last].get("damage", "")
    assert (f"event {last} is damaged, and what rests on it is left out" in said.out) == bool(problem)
    assert not any("damage" in event for number, event in events.items() if number != last)


async def test_a_rollout_whose_events_were_deleted_for_their_age_is_still_shown(
    rolled_back: PastRollout, database: asyncpg.Connection, database_url: str, tmp_path: Path
):
    await database.execute("UPDATE Rollout SET finished_at = finished_at - INTERVAL '91 days'")
    growing = PostgresRetentionStore(database_url, timeout_seconds=10)
    epoch = await lead(database_url)
    assert await growing.forget(GrowingTable.ROLLOUT_EVENTS, 90, 100, epoch=epoch) > 1
    await database.execute("DELETE FROM PredictionWindow")
    page = tmp_path / "page.html"

    said = await said_by(database_url, "rollout", "show", "churn", "--html", str(page))

    assert said.code == 0, said.err
    assert "version 7 rolled back at 10 %: error rate" in " ".join(said.out.split())
    assert "✖ fail" in said.out, "the checks of the last verdict"
    assert "judged again" not in said.out
    assert "what it rested on was deleted for its age" in page.read_text()


def series(past: PastRollout, name: str) -> dict[str, float]:
    """Return a metric's series by their labels."""
    lines = past.telemetry.exposition()[0].decode().splitlines()
    found = [re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line) for line in lines]
    return {match[1]: float(match[2]) for match in found if match}


async def test_the_monitor_shows_steps_and_checks_and_counts_the_rollback(rolled_back: PastRollout):
    assert series(rolled_back, "rollbacks_total")['model="churn",reason="error_rate",trigger="canary"'] == 1
    assert series(rolled_back, "rollout_transitions_total")['model="churn",reason="canary",to="FAILED"'] == 1
    assert series(rolled_back, "rollback_duration_seconds_count") == {'model="churn"': 1}
    assert series(rolled_back, "rollout_stage_ratio") == {}
    assert series(rolled_back, "canary_check_state") == {}


async def test_an_abort_is_counted_when_its_end_is_confirmed(under_way: PastRollout, database_url: str):
    open_now = series(under_way, "rollout_stage_ratio"), set(series(under_way, "canary_check_value"))

    said = await said_by(database_url, "rollout", "abort", "churn", "--yes", "--reason", "no")
    await under_way.go_on(2)

    assert said.code == 0, said.err
    assert open_now[0] == {'model="churn"': 0.1}
    assert 'check="error_rate",model="churn",version="7"' in open_now[1]
    assert series(under_way, "rollbacks_total")['model="churn",reason="none",trigger="order"'] == 1
    assert series(under_way, "rollout_stage_ratio") == {}


async def a_line_of(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        found: dict[str, Any] = json.loads(await process.stdout.readline())
    return found


async def test_watching_outlives_a_postgres_that_is_away_and_leaves_at_ctrl_c(
    under_way: PastRollout, database_url: str
):
    own = urlsplit(database_url)
    async with TcpRelay(own.port or 5432) as relay:
        through = own._replace(netloc=f"{own.username}@{relay.endpoint}").geturl()
        process = await begun(through, "rollout", "watch", "churn", "--json-lines")
        first = await a_line_of(process)
        relay.lead_to(free_port())
        relay.cut()
        assert process.stderr is not None
        async with asyncio.timeout(60):
            told = (await process.stderr.readline()).decode()
        relay.lead_to(own.port or 5432)
        second = await a_line_of(process)
        process.send_signal(signal.SIGINT)
        said = await ended(process)

    assert first["rollout"]["phase"] == second["rollout"]["phase"] == Phase.PROGRESSING
    assert "Postgres does not answer; it is asked again every second." in told
    assert said.code == 130
    assert said.err == "It goes on without you. → understudy rollout watch churn\n"


@pytest.mark.parametrize("columns", [80, 120])
async def test_watching_ends_with_the_rollout_and_its_exit_code(
    rolled_back: PastRollout, database_url: str, columns: int
):
    said = await said_by(database_url, "rollout", "watch", "churn", columns=columns)

    assert said.code == 3
    assert "churn  6 → 7   FAILED   step 1 of 3   10 %" in said.out
    assert "✖ fail" in said.out
    assert max(map(len, said.out.splitlines())) <= columns


async def test_the_split_shows_the_calls_of_the_last_minutes(under_way: PastRollout, database_url: str):
    said = await said_by(database_url, "rollout", "show", "churn", columns=120)

    assert re.search(r"champion 6 +█+░* +\d\d\.\d %  [\d.]+/s  set 90 %", said.out), said.out
    assert re.search(r"challenger 7 +█+░+ +\d+\.\d %  [\d.]+/s  set 10 %", said.out), said.out
    assert "last 1" in said.out or "last 2" in said.out
