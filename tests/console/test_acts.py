"""Each act of the console through a browser, beside the command that does the same on a database like it."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import asyncpg
import orjson
import pytest
import pytest_asyncio
from command import CommandLine
from console.browser_world import signed_in
from loopback.server_statements import CONNECT_SECONDS, STATEMENT_SECONDS
from playwright.async_api import Browser, Page, expect
from worlds.console import running_console
from worlds.report import reported_world
from worlds.rollout import PLAN, TWINS, PastRollout, two_versions

from understudy.bootstrap import console as parts
from understudy.bootstrap import stored_rollouts
from understudy.core.rollout.plan import Approver, Gate, GatePlace

ACTS = "/models/churn/acts"
NAME, REASON = "The model's name, typed: churn", "Reason"
SIGNED = ("--reason", "as agreed", "--yes")
OWNER = "understudy"
"""The login of the tests' databases, by which commands are signed."""
OF_A_MOMENT = {"declared_at", "updated_at", "salt", "created_by", "started_at", "at", "rollout_id", "guard_id"}
"""What two databases cannot have alike: clocks, what is drawn at random, and ids, of which a dry run uses one up."""


class Act(NamedTuple):
    """One act, in both ways."""

    path: str
    """Of the page that asks, in which ``{}`` is the policy's generation."""
    button: str
    command: Sequence[str]
    has_reason: bool = True


SHARES = (
    Act(
        f"{ACTS}/set?generation={{}}&challenger=7&challenger_weight=20",
        "Change it",
        ("model", "set", "churn", "--challenger", "7", "--weight", "20", *SIGNED),
    ),
    Act(
        f"{ACTS}/set?generation={{}}&shadow=8&shadow_percent=40",
        "Change it",
        ("model", "set", "churn", "--shadow", "8", "--shadow-percent", "40", *SIGNED),
    ),
    Act(
        f"{ACTS}/set?generation={{}}&shadow=none&arms=8%3D10",
        "Change it",
        ("model", "set", "churn", "--shadow", "none", "--arm", "8=10", *SIGNED),
    ),
    Act(
        f"{ACTS}/set?generation={{}}&champion=7&challenger=none&challenger_weight=0&arms=",
        "Change it",
        ("model", "set", "churn", "--champion", "7", "--challenger", "none", "--weight", "0", "--arm", "none", *SIGNED),
    ),
    Act(f"{ACTS}/restore?from=2", "Change it", ("model", "restore", "churn", "2", *SIGNED)),
    Act(f"{ACTS}/rollback", "Roll back now", ("rollback", "churn", *SIGNED)),
)
"""Who gets which share, by hand."""
ROLLOUT = (
    Act(
        f"{ACTS}/start?version=7&plan=5,50,100",
        "Start it",
        ("rollout", "start", "churn", "7", "--plan", "5,50,100", *SIGNED),
    ),
    Act(f"{ACTS}/pause", "Pause", ("rollout", "pause", "churn", *SIGNED)),
    Act(f"{ACTS}/resume", "Resume", ("rollout", "resume", "churn", *SIGNED)),
    Act(f"{ACTS}/abort", "Stop it", ("rollout", "abort", "churn", *SIGNED)),
)
VERSIONS = (
    Act(f"{ACTS}/retire?version=8", "Retire", ("version", "retire", "churn", "8", *SIGNED[:2])),
    Act(f"{ACTS}/bring-back?version=8", "Bring back", ("version", "restore", "churn", "8", *SIGNED[:2])),
)
STEPS = (
    (
        replace(PLAN, gates={GatePlace.BEFORE_START: Gate(Approver.ANOTHER)}),
        Act(f"{ACTS}/approve", "Approve", ("rollout", "approve", "churn", *SIGNED)),
        "approved",
    ),
    (PLAN, Act(f"{ACTS}/promote", "Promote a step", ("rollout", "promote", "churn", *SIGNED)), "promoted"),
)
TESTS = (
    Act(
        f"{ACTS}/declare?metric=converted&effect=5%25&looks=2&within=1h",
        "Declare it",
        ("ab", "report", "churn", "--metric", "converted", "--effect", "5%", "--looks", "2", "--within", "1h"),
        has_reason=False,
    ),
    Act(f"{ACTS}/stop?test=1", "End it", ("ab", "stop", "churn", "1"), has_reason=False),
)


class Twin(NamedTuple):
    """The database on which commands do what the browser does on the test's own."""

    database: asyncpg.Connection
    url: str
    understudy: CommandLine


@pytest_asyncio.fixture(loop_scope="session")
async def twin(other_url: str) -> AsyncIterator[Twin]:
    connection = await asyncpg.connect(other_url, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS)
    yield Twin(connection, other_url, CommandLine(other_url))
    connection.terminate()


@asynccontextmanager
async def visiting(browser: Browser, database_url: str) -> AsyncIterator[tuple[Page, str]]:
    async with AsyncExitStack() as stack:
        console = await stack.enter_async_context(running_console(database_url))
        yield await stack.enter_async_context(signed_in(browser, console)), console.origin


async def click(page: Page, origin: str, act: Act, generation: int) -> None:
    await page.goto(origin + act.path.replace("{}", str(generation)))
    name = page.get_by_label(NAME)
    if await name.count():
        await name.fill("churn")
    if act.has_reason:
        await page.get_by_label(REASON).fill("as agreed")
    await page.get_by_role("button", name=act.button, exact=True).click()
    await expect(page.locator(".banner.good")).to_contain_text(re.compile("Done|Rolled back"))


async def both(act: Act, at: tuple[Page, str], database: asyncpg.Connection, twin: Twin) -> None:
    generation = await database.fetchval("SELECT generation FROM ServingPolicy")
    await click(*at, act, generation)
    done = await twin.understudy.beside(*act.command)
    assert done.code == 0, (act, done.said)


def plain(value: Any, names: Sequence[str]) -> Any:
    """Return a stored value without moments, and with one name for who acted."""
    if isinstance(value, Mapping):
        return {name: plain(one, names) for name, one in value.items() if name not in OF_A_MOMENT}
    if isinstance(value, list):
        return [plain(one, names) for one in value]
    if not isinstance(value, str):
        return value
    if value.startswith(("{", "[")):
        return plain(orjson.loads(value), names)
    for name in names:
        value = value.replace(name, "ACTOR")
    return value


async def kept(database: asyncpg.Connection, actor: str) -> list[Any]:
    """Return what the acts of an actor left: policies in the audit, and events of rollouts."""
    audit = await database.fetch(
        # The test's own first row is by SQL. What a command to a rollout does is via the rollout.
        "SELECT generation, reason, action, before, after FROM PolicyAudit WHERE actor = $1 AND via <> 'sql'"
        " ORDER BY id",
        actor,
    )
    events = await database.fetch(
        "SELECT step, phase, verdict, reason, evidence, inputs, thresholds FROM RolloutEvent"
        " WHERE actor = $1 ORDER BY id",
        actor,
    )
    return [plain(list(row.values()), (actor, OWNER)) for row in (*audit, *events)]


async def compared(database: asyncpg.Connection, twin: Twin) -> list[Any]:
    """Return what both left, once it is alike and signed by the key and by the login."""
    found = []
    for of, via in ((database, "console"), (twin.database, "cli")):
        actor = await of.fetchval("SELECT DISTINCT actor FROM PolicyAudit WHERE via = $1", via)
        found.append(await kept(of, actor))
    for one, other in zip(*found, strict=True):
        for value, beside in zip(one, other, strict=True):
            assert differing(value, beside) == []
    return found[0]


def differing(one: Any, other: Any) -> list[Any]:
    """Return what is not alike: of objects their members."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = sorted(set(one) | set(other))
        return [(name, one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)]
    return [] if one == other else [(one, other)]


async def three_versions(database: asyncpg.Connection) -> None:
    """Register churn 6, the champion, 7 and 8, and a proxy that acts on any policy at once."""
    await two_versions(database)
    await database.execute(
        "INSERT INTO ProxyInstance (instance, generations, seen_at)"
        " VALUES ('one:1', '{\"churn\": 1000000}', now() + INTERVAL '1 day')"
    )
    await database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, artifact_digest, framework, input_schema,"
        " metrics) SELECT model_name, '8', artifact_path, 'sha256:8', framework, input_schema, metrics"
        " FROM ModelVersion WHERE version = '7'"
    )


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every version answer that is called before a rollout starts."""
    for module in (parts, stored_rollouts):
        monkeypatch.setattr(module, "require_ready", answers)


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("acts", [SHARES, ROLLOUT], ids=["shares", "rollout"])
async def test_each_act_on_a_policy_and_a_rollout_leaves_what_its_command_leaves(
    browser, database, database_url, twin, acts
):
    for of in (database, twin.database):
        await three_versions(of)
    async with visiting(browser, database_url) as at:
        for act in acts:
            await both(act, at, database, twin)

    left = await compared(database, twin)
    assert len(left) >= len(acts)


async def test_a_version_is_retired_and_brought_back_as_its_commands_do(browser, database, database_url, twin):
    for of in (database, twin.database):
        await three_versions(of)
    async with visiting(browser, database_url) as at:
        for act in VERSIONS:
            await both(act, at, database, twin)

    query = "SELECT actor, action, before, after, reason FROM RegistryAudit WHERE action = 'update' ORDER BY id"
    found = [await of.fetch(query) for of in (database, twin.database)]
    rows = [[plain(list(row.values()), (row["actor"],)) for row in one] for one in found]
    assert rows[0] == rows[1]
    assert len(rows[0]) == len(VERSIONS)


@pytest.mark.parametrize("step", STEPS, ids=["approve", "promote"])
async def test_a_step_taken_by_hand_leaves_what_its_command_leaves(browser, database, database_url, twin, step):
    plan, act, word = step
    for of, url in ((database, database_url), (twin.database, twin.url)):
        past = PastRollout(of, url, TWINS, 600)
        await past.begin(plan)
        await past.go_on(1)
    async with visiting(browser, database_url) as at:
        await both(act, at, database, twin)

    query = "SELECT step, phase, reason, inputs, actor FROM RolloutEvent ORDER BY id DESC LIMIT 1"
    rows = [await of.fetchrow(query) for of in (database, twin.database)]
    one, other = (plain(list(row.values()), (row["actor"],)) for row in rows)
    assert one == other
    assert word in rows[0]["reason"]


async def test_a_declared_test_and_its_end_are_those_of_the_commands(browser, database, database_url, twin):
    for of in (database, twin.database):
        await reported_world(of)
    async with visiting(browser, database_url) as at:
        for act in TESTS:
            await both(act, at, database, twin)

    query = "SELECT metric, name, champion_version, challenger_version, plan, result, ended_at FROM Experiment"
    rows = [await of.fetchrow(query) for of in (database, twin.database)]
    one, other = (plain(list(row.values())[:-1], ()) for row in rows)
    assert one == other
    assert all(row["ended_at"] for row in rows)


async def answers(_probe: object, _model: str, _version: str) -> None:
    """Take any version to be ready."""
