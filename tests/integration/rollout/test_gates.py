"""Gates of a rollout, over a real Postgres: who may approve, what moves when, and verdicts that replay as before."""

import hmac
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import asyncpg
import orjson
import pytest
from command import CommandLine
from loopback.receiver import HANG, ReceiverServer
from worlds.rollout import PLAN, TWINS, WORSE, PastRollout

from understudy.adapters import migrations
from understudy.adapters.http.gates import HttpGates
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.connections.checkup import examine_gates
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.rollout.gates import answer_of
from understudy.core.rollout.plan import Approver, Gate, GatePlace, Strategy
from understudy.core.rollout.state import Command, CommandKind, Phase, RolloutState, WaitingFor
from understudy.errors import DataWouldBeLost, PolicyRefused
from understudy.rollout.commands import run_command
from understudy.rollout.gate_asks import GateAsks
from understudy.rollout.verdicts.replay import Replay, judged_again

pytestmark = pytest.mark.timeout(120)
STARTER = "dana@laptop"
"""As ``PastRollout`` starts them."""
GATED = replace(
    PLAN,
    steps=(PLAN.steps[0], PLAN.steps[-1]),
    gates={GatePlace.BEFORE_START: Gate(Approver.ANYONE), GatePlace.BEFORE_PROMOTION: Gate(Approver.ANOTHER)},
)


@pytest.fixture
async def past(database: asyncpg.Connection, database_url: str) -> PastRollout:
    world = PastRollout(database, database_url, TWINS, seconds_ago=5_000)
    await world.begin(GATED)
    await world.go_on(1)
    return world


async def approve(world: PastRollout, actor: str, kind: CommandKind = CommandKind.APPROVE) -> str:
    command = Command(kind, actor, "looked at it", is_ahead=kind is CommandKind.APPROVE)
    return (await run_command(world.store, "churn", world.id, command)).event


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
    past: PastRollout, understudy: CommandLine, database_url: str, tmp_path
):
    shown = await understudy.beside("rollout", "show", "churn")
    await understudy.beside("rollout", "show", "churn", "--html", str(tmp_path / "page.html"))
    explained = await understudy.beside("explain", "churn")
    (found,) = await examine_gates(database_url)
    without_reason = await understudy.beside("rollout", "approve", "churn", "--yes")
    resumed = await understudy.beside("rollout", "resume", "churn", "--reason", "x", "--yes")
    fine = ("rollout", "approve", "churn", "--reason", "the charts are fine", "--yes")
    stale, approved = [await understudy.beside(*fine, "--to", to) for to in ("50", "10")]
    await past.go_on(1)
    next_one = ("rollout", "approve", "churn", "--reason", "the next one, too", "--yes")
    unmeant = await understudy.beside(*next_one)
    ahead, again, another_step = [
        await understudy.beside(*next_one, "--ahead", "--to", to) for to in ("100", "100", "50")
    ]

    assert "version 7 goes from 0 to 10 % once a person approves it" in " ".join(shown.out.split())
    assert 'understudy rollout approve churn --to 10 --reason "…"' in " ".join(shown.out.split())
    assert (stale.code, approved.code) == (5, 0)
    assert "not approved: version 7 goes from 0 to 10 % next" in stale.out
    assert "once a person approves it" in (tmp_path / "page.html").read_text()
    assert "Waits for a person: version 7 goes from 0 to 10 % once a person approves it" in " ".join(
        explained.out.split()
    )
    assert (found.model_name, found.waiting_for) == ("churn", "approval")
    assert found.waited_seconds > 4_000
    assert without_reason.code == 2
    assert resumed.code == 5
    assert unmeant.code == 5
    assert "not at a gate" in unmeant.out
    assert (ahead.code, again.code, another_step.code) == (0, 0, 5)
    assert "the next one, too, ahead of its proof" in " ".join(ahead.out.split())


async def test_by_sql_under_the_role_of_engineers_the_starter_is_refused_as_well(
    database: asyncpg.Connection, database_url: str
):
    name, colleague = (f"e_{uuid4().hex[:12]}" for _ in range(2))
    for login in (name, colleague):
        await database.execute(f"CREATE ROLE {login} LOGIN PASSWORD 'secret' IN ROLE understudy_engineer")
    place = database_url.rpartition("@")[2]
    world = PastRollout(database, f"postgresql://{name}:secret@{place}", TWINS, seconds_ago=5_000)
    record = await world.begin(replace(PLAN, gates={GatePlace.BEFORE_START: Gate(Approver.ANOTHER)}))
    theirs = PostgresRolloutStore(f"postgresql://{colleague}:secret@{place}", timeout_seconds=5)
    command = Command(CommandKind.APPROVE, "somebody@else", "a claim", is_ahead=True)
    begun = """INSERT INTO Rollout (id, model_name, champion_version, challenger_version, plan, state)
        SELECT nextval('rollout_id_seq'), model_name, champion_version, challenger_version, plan,
               state || '{"approved_step": 0}' FROM Rollout"""
    renamed = (
        """UPDATE Rollout SET started_by = 'x', state = state || '{"approved_step": 0}', revision = revision + 1"""
    )
    own = await asyncpg.connect(f"postgresql://{name}:secret@{place}")
    try:
        with pytest.raises(PolicyRefused, match=f"was started by {name}"):
            await run_command(world.store, "churn", record.id, command)
        with pytest.raises(asyncpg.CheckViolationError, match=f"was started by {name}"):
            await own.execute(renamed)
        with pytest.raises(asyncpg.CheckViolationError, match="begins with an approval"):
            await own.execute(begun)
        result = await run_command(theirs, "churn", record.id, command)
        state = orjson.loads(await database.fetchval("SELECT state FROM Rollout"))
        events = await theirs.events(record.id)
    finally:
        await own.close()
        for login in (name, colleague):
            await database.execute(f"DROP OWNED BY {login}; DROP ROLE {login}")

    assert result.changed
    assert state["approved_step"] == 0
    assert events[-1].actor == colleague


@pytest.mark.old_schema
@pytest.mark.parametrize("minutes", [0, 1])
async def test_the_release_before_reads_a_rollout_whose_gates_went_with_the_migration_and_it_waits_paused(
    database: asyncpg.Connection, database_url: str, minutes
):
    past = PastRollout(database, database_url, TWINS, seconds_ago=5_000)
    await past.begin(GATED)
    await past.go_on(minutes)

    with pytest.raises(DataWouldBeLost, match="1 gates of rollouts"):
        await migrations.downgrade(database_url, "0032")
    await migrations.downgrade(database_url, "0032", lose_data=True)
    # What this release asks beside it, and that one did not.
    await database.execute("CREATE FUNCTION understudy_unvalidated(BIGINT) RETURNS TEXT LANGUAGE sql AS 'SELECT NULL'")
    await past.go_on(2)
    plan = orjson.loads(await database.fetchval("SELECT plan FROM Rollout"))
    state = (await past.store.view(past.id)).record.state
    await run_command(past.store, "churn", past.id, Command(CommandKind.RESUME, "kim", "without its gates"))
    await past.go_on(2)

    assert "gates" not in plan
    assert (state.waiting_for, state.weight_percent) == (WaitingFor.PAUSE, 0)
    assert (await past.store.view(past.id)).record.state.weight_percent == 10


# -- gates over HTTP ---------------------------------------------------------------------------------------------------

SECRET = "whsec_" + b64encode(b"k" * 32).decode()
TOKEN = "T0K3N-of-the-gate"
SERVED = replace(GATED, gates={GatePlace.BEFORE_START: Gate(http="quality")})
PASS, REFUSE = (200, "", b"fine"), (403, "", f"recall fell, says {TOKEN}".encode())


class Served:
    """A rollout whose first step asks a service over real HTTP; ``tick`` is the monitor that leads."""

    def __init__(self, past: PastRollout, database: asyncpg.Connection, service: ReceiverServer) -> None:
        self.past, self.database, self.service = past, database, service
        self.telemetry = MemoryTelemetry()
        self.addresses = {"quality": f"{service.url}/ask/{TOKEN}"}
        self._opened: list[HttpGates] = []
        self.lead()

    def lead(self, timeout_seconds: float = 5.0) -> None:
        """Let another monitor lead, which remembers nothing."""
        gates = HttpGates(self.addresses, SECRET, timeout_seconds=timeout_seconds)
        self._opened.append(gates)
        self.asks = GateAsks(gates, self.telemetry, "test", now=lambda: self.past.store.now)
        self.past.starts_anew(self.asks)

    async def close(self) -> None:
        await self.asks.stop()
        for gates in self._opened:
            await gates.close()

    async def tick(self, seconds: float = 60.0) -> RolloutState:
        """Tick, wait for what the tick asked, and return the state."""
        self.past.store.now += seconds
        await self.past.executor.tick(epoch=None)  # type: ignore[arg-type]  # no other process leads
        await self.asks.settle()
        return (await self.past.store.view(self.past.id)).record.state

    async def ticks(self, times: int) -> RolloutState:
        for _ in range(times):
            state = await self.tick()
        return state

    async def alerts(self) -> list[str]:
        rows = await self.database.fetch(
            "SELECT payload ->> 'summary' AS said FROM AlertOutbox WHERE payload ->> 'kind' = 'rollout_needs_human'"
            " AND action = 'trigger' ORDER BY id"
        )
        return [row["said"] for row in rows]


@pytest.fixture
async def served(database: asyncpg.Connection, database_url: str) -> AsyncIterator[Served]:
    past = PastRollout(database, database_url, TWINS, seconds_ago=20_000)
    await past.begin(SERVED)
    async with ReceiverServer() as service:
        world = Served(past, database, service)
        yield world
        await world.close()


async def test_a_service_that_passes_lets_the_step_be_taken_and_was_asked_once_with_a_signature(served: Served):
    served.service.script = [PASS]

    states = [await served.tick(1) for _ in range(5)]

    assert [(state.waiting_for, state.weight_percent) for state in states] == [
        (WaitingFor.GATE, 0), (WaitingFor.GATE, 0), (None, 0), (None, 10), (None, 10),
    ]  # fmt: skip
    ((headers, body),) = served.service.requests
    key, moment = headers["webhook-id"], headers["webhook-timestamp"]
    signed = hmac.digest(b"k" * 32, f"{key}.{moment}.".encode() + body, "sha256")
    assert headers["webhook-signature"] == f"v1,{b64encode(signed).decode()}"
    assert headers["idempotency-key"] == key == orjson.loads(body)["id"]
    assert orjson.loads(body)["next_weight_percent"] == 10
    assert await served.alerts() == []
    events = [event.reason for event in await served.past.store.events(served.past.id)]
    assert "version 7 goes from 0 to 10 %: quality lets it pass" in events


async def test_a_refusal_is_told_with_its_words_and_without_the_token_and_answering_twice_changes_nothing(
    served: Served,
):
    served.service.script = [REFUSE, PASS, PASS]

    state = await served.ticks(8)

    assert (state.waiting_for, state.weight_percent) == (WaitingFor.APPROVAL, 0)
    assert state.reason == (
        "version 7 goes from 0 to 10 % once a person approves it in the place of quality, which refused: "
        "recall fell, says ***"
    )
    assert len(served.service.requests) == 1
    assert await served.alerts() == [f"churn: {state.reason}"]
    served.service.script = [PASS]
    await run_command(served.past.store, "churn", served.past.id, Command(CommandKind.RESUME, "kim", "mended"))
    assert (await served.ticks(4)).weight_percent == 10
    first, second = (headers["webhook-id"] for headers, _ in served.service.requests)
    assert first != second


@pytest.mark.parametrize(
    ("more", "words", "passes", "said"),
    [
        ("content-length: 99\r\n", b"recall fell", False, "recall fell"),
        ("transfer-encoding: chunked\r\n", b"no chunk", False, ""),
        ("content-length: 10000000\r\n", b"x" * 10_000_000, False, "x" * 300),
        ("content-length: 99\r\n", b"", True, ""),
    ],
)
async def test_a_status_counts_whatever_becomes_of_the_body(more, words, passes, said):
    async with ReceiverServer() as service:
        service.script = [(200 if passes else 403, more, words)]
        gates = HttpGates({"quality": service.url}, SECRET, timeout_seconds=5)
        answer = answer_of(await gates.ask("quality", "gate_1", b"{}"))
        await gates.close()

    assert answer == (passes, said)
    assert service.requests[0][0]["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([(302, "location: /login\r\n", b"")], "302"),
        ([(503, "", b"busy")], "503 busy"),
        ([(404, "", b"")], "404"),
        ([(202, "", b"")], "it has not decided"),
    ],
)
async def test_a_service_that_gives_no_answer_never_passes_is_asked_on_with_one_key_and_passes_once_it_does(
    served: Served, answers, said
):
    served.service.script = answers * 20

    waits = await served.ticks(10)
    told = await served.alerts()
    asked = len(served.service.requests)
    served.service.script = [PASS]
    passed = await served.ticks(4)

    assert (waits.waiting_for, waits.weight_percent) == (WaitingFor.APPROVAL, 0)
    assert waits.reason.endswith(f"no answer of quality for 5 m: {said}")
    assert len(told) == 1
    assert asked > 3
    assert passed.weight_percent == 10
    assert len({headers["webhook-id"] for headers, _ in served.service.requests}) == 1
    assert len({body for _, body in served.service.requests}) == 1


async def test_a_service_that_hangs_or_is_down_delays_no_tick_and_never_passes(served: Served):
    served.lead(timeout_seconds=0.2)
    served.service.script = [HANG]

    await served.ticks(2)
    hung = served.asks.answers((await served.past.store.view(served.past.id)).record.state)
    await served.asks.stop()
    served.addresses = {"quality": "http://127.0.0.1:1/ask"}
    served.lead()
    down = await served.ticks(8)

    assert [answer.detail for answer in hung.values()] == ["no answer within 0.2 s"]
    assert (down.waiting_for, down.weight_percent) == (WaitingFor.APPROVAL, 0)
    assert "no answer of quality for 5 m: ConnectError" in down.reason


async def test_the_next_leader_asks_with_the_same_key_and_a_gate_it_does_not_know_stays_closed(served: Served):
    served.service.script = [(503, "", b"")]
    await served.ticks(2)
    await served.asks.stop()
    served.addresses = {}
    served.lead()
    unknown = await served.ticks(8)
    served.addresses = {"quality": served.service.url}
    served.lead()
    served.service.script = [PASS]
    passed = await served.ticks(4)

    assert unknown.reason.endswith("UNDERSTUDY_GATES of the monitor that leads has no gate quality")
    assert passed.weight_percent == 10
    assert len({headers["webhook-id"] for headers, _ in served.service.requests}) == 1


async def test_a_version_that_gets_worse_while_its_service_hangs_is_rolled_back(
    database: asyncpg.Connection, database_url: str
):
    past = PastRollout(database, database_url, WORSE, seconds_ago=20_000)
    plan = replace(
        GATED, steps=(PLAN.steps[0], PLAN.steps[-1]), gates={GatePlace.BEFORE_PROMOTION: Gate(http="quality")}
    )
    await past.begin(replace(plan, strategy=Strategy.ROLLING))
    async with ReceiverServer() as service:
        service.script = [HANG] * 99
        world = Served(past, database, service)
        seen = []
        for _ in range(60):
            await past.go_on(1)
            state = (await past.store.view(past.id)).record.state
            seen.append(state.waiting_for)
            if state.phase.is_final:
                break
        await world.close()

    assert WaitingFor.GATE in seen
    assert state.phase is Phase.FAILED
    assert state.policy.weight_percent == 0


# -- by SQL, and who is told -------------------------------------------------------------------------------------------


async def test_a_person_approves_by_sql_with_a_reason_and_subscribers_hear_who_and_why(
    past: PastRollout, database: asyncpg.Connection
):
    await database.execute("INSERT INTO Subscription (name, receiver, kinds) VALUES ('all', 'bus', '{rollout}')")

    for why in ("", " ", "x" * 1_001):
        with pytest.raises(asyncpg.CheckViolationError, match="a reason of 1 to 1,000 characters"):
            await database.fetchval("SELECT understudy_approve('churn', $1)", why)
    with pytest.raises(asyncpg.CheckViolationError, match="no rollout of visits has a gate"):
        await database.fetchval("SELECT understudy_approve('visits', 'x')")
    async with database.transaction():
        await database.execute("SET LOCAL understudy.actor = 'kim'; SET LOCAL understudy.reason = 'my own'")
        said = await database.fetchval("SELECT understudy_approve('churn', 'the charts are fine')")
        reason_after = await database.fetchval("SELECT current_setting('understudy.reason')")
    await past.go_on(2)

    for unmeant in ("'x'", "'x', ahead => NULL"):
        with pytest.raises(asyncpg.CheckViolationError, match="is not at a gate"):
            await database.fetchval(f"SELECT understudy_approve('churn', {unmeant})")
    assert await database.fetchval("SELECT understudy_approve('churn', 'x', ahead => TRUE)")
    assert said == "approved by kim: the charts are fine"
    assert reason_after == "my own"
    assert (await past.store.view(past.id)).record.state.weight_percent == 10
    events = [(event.actor, event.reason) for event in await past.store.events(past.id)]
    assert ("kim", said) in events
    told = await database.fetch("SELECT kind, payload ->> 'reason' AS why FROM Notification ORDER BY id")
    assert ("rollout.waiting", said) in [(row["kind"], row["why"]) for row in told]


async def test_subscribers_hear_what_waits_for_whom_who_approved_and_why(
    past: PastRollout, database: asyncpg.Connection
):
    await database.execute("INSERT INTO Subscription (name, receiver, kinds) VALUES ('all', 'bus', '{rollout}')")

    await approve(past, STARTER)
    await past.go_on(1)
    await approve(past, "kim@desk")
    ahead = await database.fetch("SELECT kind, payload ->> 'reason' AS why FROM Notification ORDER BY id")

    assert [(row["kind"], row["why"]) for row in ahead if "approved" in (row["why"] or "")] == [
        ("rollout.progressing", "version 7 goes from 0 to 10 %: approved by dana@laptop: looked at it"),
        (
            "rollout.progressing",
            "version 7 becomes champion in the place of 6: approved by kim@desk: looked at it, ahead of its proof",
        ),
    ]


async def test_what_a_service_said_is_written_by_a_monitor_alone(database: asyncpg.Connection, database_url: str):
    past = PastRollout(database, database_url, TWINS, seconds_ago=5_000)
    await past.begin(SERVED)
    await past.go_on(1)
    engineer = f"e_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {engineer} LOGIN PASSWORD 'secret' IN ROLE understudy_engineer")
    forged = "UPDATE Rollout SET state = jsonb_set(state, '{gate,passed}', $1), revision = revision + 1"
    try:
        theirs = await asyncpg.connect(f"postgresql://{engineer}:secret@{database_url.rpartition('@')[2]}")
        try:
            with pytest.raises(asyncpg.CheckViolationError, match="is written by a monitor alone"):
                await theirs.execute(forged, '["before_start"]')
        finally:
            await theirs.close()
        with pytest.raises(asyncpg.CheckViolationError, match="is written by a monitor alone"):
            await database.execute(forged, '["before_promotion"]')  # where the plan names no service
    finally:
        await database.execute(f"DROP OWNED BY {engineer}; DROP ROLE {engineer}")
    assert (await past.store.view(past.id)).record.state.weight_percent == 0
