"""A rollout that is judged by what happened afterwards, against a real Postgres."""

import re
import time
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from worlds.experiment import HOUR, MODEL, Call, Told, World, arm_by_bucket
from worlds.rollout import TWINS, PastRollout

from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.bootstrap.prediction_log.outcomes import measure_outcomes_before, outcome_log
from understudy.core.canary.decision import Verdict
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.canary.outcomes.outcome_check import OUTCOME
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Phase
from understudy.core.statistics.difference import ArmEntities, Difference, compare
from understudy.entrypoints.cli.rollout.page import rollout_page
from understudy.entrypoints.cli.rollout.status import status_view
from understudy.experiments.outcome_watch import OutcomeQuestion, OutcomeWatch
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.checks.outcome_check import Measure
from understudy.rollout.history import RolloutHistory
from understudy.rollout.status import StatusReader
from understudy.rollout.verdicts.replay import replayed

ENTITIES = 2_000
PLAN = RolloutPlan(
    (Step(10, 300, 1_000), Step(50, 300, 2_000), Step(100, 0, 0)),
    canary_limits={"detectable_ratio": 3, "outcome": "converted"},
)


def half_as_many() -> Difference | None:
    a, b = np.zeros(20_000), np.zeros(5_000)
    a[:1_000] = b[:125] = 1
    return compare(ArmEntities(a, np.ones(20_000)), ArmEntities(b, np.ones(5_000)))


async def test_an_outcome_is_known_before_a_start_from_the_champions_entities_of_the_last_day(database, database_url):
    world, now = World(database), time.time()
    await world.add_versions("6", "7")
    generation = await world.set_policy("6")
    await world.backdate(30 * HOUR)
    measure = measure_outcomes_before(outcome_log(database_url, 10, None))
    old, own = ([f"{name}-{number}" for number in range(400)] for name in ("old", "cust"))
    before = await measure(MODEL, world.versions["6"], OutcomeLimit("converted", 0.1), now)
    await world.call(Call(entity, now - 29 * HOUR, world.versions["6"], generation) for entity in old)
    await world.call(Call(entity, now - 5 * HOUR, world.versions["6"], generation) for entity in own)
    await world.tell(Told(now - 4.9 * HOUR, entity) for entity in own[:120])
    await world.tell(Told(now - 2 * HOUR, entity) for entity in own[200:])  # too late to count

    found = await measure(MODEL, world.versions["6"], OutcomeLimit("converted", 0.1), now)

    assert before is None
    assert found is not None
    assert found.value == pytest.approx(0.3)
    assert found.variance == pytest.approx(0.21, rel=0.02)
    assert await measure(MODEL, world.versions["6"], OutcomeLimit("refunds", 0.1), now) is None
    assert await measure(MODEL, world.versions["7"], OutcomeLimit("converted", 0.1), now) is None


async def test_outcomes_are_counted_by_entity_once_their_time_is_over(database, database_url):
    world = World(database)
    await world.add_versions("6", "7")
    generation = await world.set_policy("6", "7", 20)
    began = time.time() - 10 * HOUR
    rng = np.random.default_rng(5)
    entities = [f"cust-{number}" for number in range(ENTITIES)]
    firsts = began + rng.uniform(0, 10 * HOUR, ENTITIES)
    assigned = [arm_by_bucket(world.versions, entity, 20, ("6", "7")) for entity in entities]
    await world.call(Call(*row, generation) for row in zip(entities, firsts.tolist(), assigned, strict=True))
    converts = rng.random(ENTITIES) < 0.3
    await world.tell(
        Told(first + 60, entity)
        for entity, first, does in zip(entities, firsts.tolist(), converts, strict=True)
        if does
    )
    now = began + 9 * HOUR

    found = await OutcomeWatch(PostgresExperimentLog(database_url, timeout_seconds=30)).difference(
        OutcomeQuestion(
            MODEL,
            "converted",
            world.versions["6"],
            world.versions["7"],
            frozenset({generation}),
            began,
            now,
            HOUR,
        )
    )

    is_closed = firsts + HOUR <= now
    is_b = np.array(assigned) == world.versions["7"]
    assert found is not None
    assert found.entities_a == (is_closed & ~is_b).sum()
    assert found.entities_b == (is_closed & is_b).sum()
    assert found.with_outcome_ratio == pytest.approx(converts[is_closed].mean())
    assert found.value_a == pytest.approx(converts[is_closed & ~is_b].mean())
    assert found.value_b == pytest.approx(converts[is_closed & is_b].mean())


async def test_a_challenger_whose_callers_buy_less_is_taken_back_and_the_verdict_can_be_replayed(
    database, database_url
):
    rollout = PastRollout(database, database_url, TWINS, seconds_ago=7_200)
    record = await rollout.begin(PLAN)
    await rollout.go_on(3)
    before = (await rollout.store.view(record.id)).record.state
    measured = half_as_many()
    assert measured is not None
    rollout.outcomes[record.id] = (measured,)

    await rollout.go_on(1)

    state = (await rollout.store.view(record.id)).record.state
    verdicts = [event for event in await rollout.store.events(record.id) if event.verdict is Verdict.ROLL_BACK]
    assert before.phase is Phase.PROGRESSING
    assert state.phase is Phase.FAILED
    assert "outcome 0.025 vs 0.05 = 0.5x" in state.reason
    assert [row["state"] for row in verdicts[0].evidence if row["check"] == OUTCOME.name] == ["fail"]
    again = replayed(verdicts[0])
    assert again is not None
    assert again.agrees


async def test_the_outcome_counts_before_anybody_knows_what_a_slow_answer_is(database, database_url):
    rollout = PastRollout(database, database_url, TWINS, seconds_ago=7_200)
    record = await rollout.begin(PLAN)
    await rollout.go_on(3)
    await database.execute("UPDATE Rollout SET slow_us = NULL WHERE id = $1", record.id)
    measured = half_as_many()
    assert measured is not None
    rollout.outcomes[record.id] = (measured,)

    await rollout.go_on(1)

    assert (await rollout.store.view(record.id)).record.state.phase is Phase.FAILED


async def test_outcomes_that_are_alike_let_the_challenger_through(database, database_url):
    rollout = PastRollout(database, database_url, TWINS, seconds_ago=7_200)
    record = await rollout.begin(PLAN)
    same = compare(*(ArmEntities(np.arange(4_000) % 20 == 0, np.ones(4_000)) for _ in range(2)))
    assert same is not None
    rollout.outcomes[record.id] = (same,)

    await rollout.go_on(40)

    assert (await rollout.store.view(record.id)).record.state.promoted_at is not None


async def test_a_step_that_an_outcome_holds_waits_until_it_is_within_its_margin(database, database_url):
    held = {"name": "converted", "limit_ratio": 0.1, "within_seconds": 60, "holds_step": True}
    limits = {"detectable_ratio": 3, "outcomes": [held, {"name": "refunds", "lower_is_better": True}]}
    rollout = PastRollout(database, database_url, TWINS, seconds_ago=7_200)
    record = await rollout.begin(replace(PLAN, canary_limits=limits))
    rollout.outcomes[record.id] = (alike(4_000), None)
    await rollout.go_on(20)
    during = await StatusReader(
        rollout.store, PostgresWindowLog(database_url, timeout_seconds=5), alike_of(4_000), "churn"
    ).read()

    rollout.outcomes[record.id] = (alike(400_000), None)
    await rollout.go_on(20)

    page = rollout_page(during, RolloutHistory((), (), None, windows_are_gone=False))
    assert len(during.view.record.state.step_starts) == 1
    assert during.decision is not None
    assert during.decision.verdict is Verdict.HOLD
    assert "not shown yet to be at least 0.9x: outcome converted 0.05 vs 0.05 = 1x (" in during.decision.reason
    assert "holds the step; an equal version takes about" in during.decision.reason
    assert "outcome converted" in page
    assert "outcome refunds" in page
    assert (await rollout.store.view(record.id)).record.state.promoted_at is not None
    events = [event for event in await rollout.store.events(record.id) if event.verdict is Verdict.ADVANCE]
    again = replayed(events[-1])
    assert again is not None
    assert again.agrees


def alike(entities: int) -> Difference:
    found = compare(*(ArmEntities(np.arange(entities) % 20 == 0, np.ones(entities)) for _ in range(2)))
    assert found is not None
    return found


def alike_of(entities: int) -> Measure:
    async def measure(_view: RolloutView, _limit: OutcomeLimit) -> Difference | None:
        return alike(entities)

    return measure


async def test_whoever_looks_on_sees_the_outcome_beside_the_other_checks(database, database_url):
    rollout = PastRollout(database, database_url, TWINS, seconds_ago=7_200)
    record = await rollout.begin(PLAN)
    await rollout.go_on(3)

    async def measure(view: RolloutView, _limit: OutcomeLimit) -> Difference | None:
        return half_as_many() if view.record.id == record.id else None

    status = await StatusReader(
        rollout.store, PostgresWindowLog(database_url, timeout_seconds=5), measure, "churn"
    ).read()
    screen = StringIO()
    Console(width=100, file=screen).print(*status_view(status), sep="\n")
    page = rollout_page(status, RolloutHistory((), (), None, windows_are_gone=False))

    shown = screen.getvalue()
    assert status.decision is not None
    assert status.decision.verdict is Verdict.ROLL_BACK
    assert any(line.split()[:4] == ["outcome", "0.05", "0.025", "0.5x"] for line in shown.splitlines()), shown
    cells = re.findall(r"<td[^>]*>([^<]*)", page)
    assert "0.05,0.025,0.5x" in ",".join(cells)
