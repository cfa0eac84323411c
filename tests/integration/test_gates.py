"""Gates of a rollout, over a real Postgres: who may approve, what moves when, and verdicts that replay as before."""

from dataclasses import replace
from uuid import uuid4

import asyncpg
import orjson
import pytest
from command import CommandLine
from rollout_world import PLAN, TWINS, PastRollout

from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.rollout.plan import Approver, GatePlace
from understudy.core.rollout.state import Command, CommandKind, Phase, WaitingFor
from understudy.errors import PolicyRefused
from understudy.rollout.commands import run_command
from understudy.rollout.verdicts.replay import Replay, judged_again

pytestmark = pytest.mark.timeout(120)
STARTER = "dana@laptop"
"""As ``PastRollout`` starts them."""
GATED = replace(
    PLAN,
    steps=(PLAN.steps[0], PLAN.steps[-1]),
    gates={GatePlace.BEFORE_START: Approver.ANYONE, GatePlace.BEFORE_PROMOTION: Approver.ANOTHER},
)


@pytest.fixture
async def past(database: asyncpg.Connection, database_url: str) -> PastRollout:
    world = PastRollout(database, database_url, TWINS, seconds_ago=5_000)
    await world.begin(GATED)
    await world.go_on(1)
    return world


async def approve(world: PastRollout, actor: str, kind: CommandKind = CommandKind.APPROVE) -> str:
    result = await run_command(world.store, "churn", world.id, Command(kind, actor, "looked at it"))
    return result.event


async def until_it_waits(world: PastRollout) -> None:
    for _ in range(40):
        await world.go_on(1)
        if (await world.store.view(world.id)).record.state.phase is Phase.WAITING:
            return


async def test_a_rollout_waits_at_its_gates_and_its_starter_cannot_open_the_one_that_asks_for_another_person(
    past: PastRollout, database: asyncpg.Connection
):
    waits = await past.store.view(past.id)
    await approve(past, STARTER)
    not_yet = await past.store.view(past.id)
    await past.go_on(1)
    begun = await past.store.view(past.id)
    await until_it_waits(past)
    at_promotion = await past.store.view(past.id)
    with pytest.raises(PolicyRefused, match="was started by dana@laptop, and its plan asks for another") as refused:
        await approve(past, STARTER)
    said = [await approve(past, STARTER, kind) for kind in (CommandKind.RESUME, CommandKind.PROMOTE)]
    still = await past.store.view(past.id)
    await approve(past, "kim@desk")
    await past.go_on(1)
    promoted = await past.store.view(past.id)

    assert (waits.record.state.waiting_for, waits.record.state.weight_percent) == (WaitingFor.APPROVAL, 0)
    assert not_yet.policy is not None
    assert not_yet.policy.weight_percent == 0
    assert begun.record.state.weight_percent == 10
    assert at_promotion.record.state.waiting_for is still.record.state.waiting_for is WaitingFor.APPROVAL
    assert at_promotion.record.state.weight_percent == 10
    assert "understudy rollout approve churn" in (refused.value.next_step or "")
    assert all(words.endswith("is no approval") for words in said)
    assert promoted.record.state.phase is Phase.PROMOTING
    events = await past.store.events(past.id)
    approvals = [(event.actor, event.reason) for event in events if "approved by" in event.reason]
    assert approvals == [
        (STARTER, "version 7 goes from 0 to 10 %: approved by dana@laptop: looked at it"),
        ("kim@desk", "version 7 becomes champion in the place of 6: approved by kim@desk: looked at it"),
    ]
    again = [found.agrees for _, found in judged_again(events) if isinstance(found, Replay)]
    assert again
    assert all(again)
    alerts = await database.fetch(
        "SELECT payload ->> 'summary' AS said FROM AlertOutbox WHERE payload ->> 'kind' = 'rollout_needs_human'"
        " AND action = 'trigger' ORDER BY id"
    )
    assert [row["said"].partition(" once ")[2].partition(" approves")[0] for row in alerts] == [
        "a person",
        "another person than the one who started it",
    ]


async def test_a_person_sees_on_the_command_line_what_waits_and_approves_it_there(
    past: PastRollout, understudy: CommandLine, tmp_path
):
    shown = await understudy.beside("rollout", "show", "churn")
    await understudy.beside("rollout", "show", "churn", "--html", str(tmp_path / "page.html"))
    without_reason = await understudy.beside("rollout", "approve", "churn", "--yes")
    resumed = await understudy.beside("rollout", "resume", "churn", "--reason", "x", "--yes")
    approved = await understudy.beside("rollout", "approve", "churn", "--reason", "the charts are fine", "--yes")
    await past.go_on(1)
    ahead = await understudy.beside("rollout", "approve", "churn", "--reason", "the next one, too", "--yes")

    assert "version 7 goes from 0 to 10 % once a person approves it" in " ".join(shown.out.split())
    assert 'understudy rollout approve churn --reason "…"' in shown.out
    assert "once a person approves it" in (tmp_path / "page.html").read_text()
    assert without_reason.code == 2
    assert resumed.code == 5
    assert approved.code == 0, approved
    assert ahead.code == 0
    assert "the next one, too, ahead of its proof" in " ".join(ahead.out.split())


async def test_by_sql_under_the_role_of_engineers_the_starter_is_refused_as_well(
    database: asyncpg.Connection, database_url: str
):
    name, colleague = (f"e_{uuid4().hex[:12]}" for _ in range(2))
    for login in (name, colleague):
        await database.execute(f"CREATE ROLE {login} LOGIN PASSWORD 'secret' IN ROLE understudy_engineer")
    place = database_url.rpartition("@")[2]
    world = PastRollout(database, f"postgresql://{name}:secret@{place}", TWINS, seconds_ago=5_000)
    record = await world.begin(replace(PLAN, gates={GatePlace.BEFORE_START: Approver.ANOTHER}))
    theirs = PostgresRolloutStore(f"postgresql://{colleague}:secret@{place}", timeout_seconds=5)
    command = Command(CommandKind.APPROVE, "somebody@else", "a claim")
    try:
        with pytest.raises(PolicyRefused, match=f"was started by {name}"):
            await run_command(world.store, "churn", record.id, command)
        result = await run_command(theirs, "churn", record.id, command)
        state = orjson.loads(await database.fetchval("SELECT state FROM Rollout"))
        events = await theirs.events(record.id)
    finally:
        for login in (name, colleague):
            await database.execute(f"DROP OWNED BY {login}; DROP ROLE {login}")

    assert result.changed
    assert state["approved_step"] == 0
    assert events[-1].actor == colleague
