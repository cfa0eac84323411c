"""A challenger's scores are compared with the champion's, over real model servers and Postgres, and later by windows.

The models are the demo's trained ones.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import numpy as np
import pytest
from command import CommandLine
from worlds.console import running_console, texts_of
from worlds.score import Change, Scores, WarmUps, scores_of, serving

from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.core.canary.decision import Verdict
from understudy.core.canary.scores.score_agreement import NO_INPUTS
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Phase, WaitingFor
from understudy.core.routing.policy import Role
from understudy.rollout.verdicts.replay import Replay, judged_again
from understudy.rollout.warm_up.warm_up import CALLS

pytestmark = pytest.mark.timeout(120)
OTHERS = np.random.default_rng(83).permutation(np.array(scores_of(2, 1_000), np.float32))
_next_other = iter(np.tile(OTHERS, 100))


def constant(scores: Scores) -> Scores:
    return np.full_like(scores, 0.42)


def inverted(scores: Scores) -> Scores:
    return 1 - scores


def shuffled(scores: Scores) -> Scores:
    """Answer each call with the score of another person."""
    return np.array([next(_next_other) for _ in scores], np.float32)


@pytest.fixture
async def warm_ups(database: asyncpg.Connection, database_url: str) -> AsyncIterator[WarmUps]:
    lease = PostgresLease(database_url)
    epoch = await lease.take_or_renew("here")
    assert epoch is not None
    world = WarmUps(database, database_url, epoch)
    await world.begin()
    yield world
    await world.close()
    await lease.close()


@pytest.mark.parametrize(
    ("version", "change", "said"),
    [
        (2, constant, "it gives 1 score where the champion gives"),
        (2, inverted, "rank correlation -0."),
        (2, shuffled, "rank correlation"),
        (3, np.asarray, "rank correlation 0."),
    ],
    ids=["constant", "inverted", "shuffled", "columns in the wrong order"],
)
async def test_scores_unlike_the_champions_hold_a_rollout_before_its_first_call_until_a_person_expects_them(
    warm_ups: WarmUps, understudy: CommandLine, tmp_path: Path, *, version: int, change: Change, said: str
):
    async with serving(version, change) as (model, port):
        await warm_ups.add(version, port)
        await warm_ups.log(200)
        logged = await warm_ups.logged()
        rollout_id = await warm_ups.start(version)

        held, event = await warm_ups.tick(), await warm_ups.last_event()
        calls = model.calls
        stays = await warm_ups.tick()
        shown = await understudy.beside("rollout", "show", "visits", "--html", str(tmp_path / "page.html"))
        resume = ("rollout", "resume", "visits", "--expect-different-scores", "--reason", "it ranks by profit")
        resumed = await understudy.beside(*resume)
        gone_on = await warm_ups.tick()
        again = judged_again(await warm_ups.store.events(rollout_id))

    state = held.record.state
    assert (state.phase, state.waiting_for, state.step_starts) == (Phase.WAITING, WaitingFor.WARM_UP, ())
    assert said in state.reason
    assert "200 logged calls that were sent again" in state.reason
    assert held.policy is not None
    assert held.policy.weight_percent == 0
    assert event.verdict is Verdict.HOLD
    assert calls == CALLS + 200
    assert stays.record.revision == held.record.revision
    assert "→ if meant so: understudy rollout resume visits --expect-different-scores" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert (tmp_path / "page.html").read_text().count("<circle") == 200
    assert resumed.code == 0
    assert "different scores are expected" in resumed.said
    assert gone_on.record.state.weight_percent == NAMED_PLANS["default"].steps[0].weight_percent
    assert "that was expected" in (await warm_ups.last_event()).reason
    verdicts = [(one.verdict, found.agrees) for one, found in again if isinstance(found, Replay)]
    assert verdicts == [(Verdict.HOLD, True), (Verdict.ADVANCE, True)]
    assert await warm_ups.told() == [("rollout_needs_human", "trigger"), ("rollout_needs_human", "resolve")]
    assert await warm_ups.logged() == logged


async def test_scores_that_are_meant_to_differ_are_expected_from_the_console_too(warm_ups: WarmUps):
    async with serving(2, inverted) as (_, port):
        await warm_ups.add(2, port)
        await warm_ups.log(200)
        rollout_id = await warm_ups.start(2)
        await warm_ups.tick()
        async with running_console(warm_ups.url) as console, console.visit("operate") as visit:
            page = await visit.get(f"/models/visits/rollouts/{rollout_id}")
            path = f"/models/visits/acts/resume?rollout={rollout_id}"
            as_it_is, meant = await visit.form(path), await visit.form(f"{path}&scores=expected")
            asked = await visit.get(f"{path}&scores=expected")
            done = await visit.post(path, {**meant, "reason": "it ranks by profit"})
        gone_on, event = await warm_ups.tick(), await warm_ups.last_event()

    assert {"Resume", "Resume, scores differ as meant"} <= set(texts_of(page.text))
    assert ("scores" in as_it_is, meant["scores"]) == (False, "expected")
    assert "understudy rollout resume visits --expect-different-scores --reason '…'" in texts_of(asked.text)
    assert done.status_code == 303
    assert gone_on.record.state.weight_percent == NAMED_PLANS["default"].steps[0].weight_percent
    assert "that was expected" in event.reason


async def test_a_better_model_that_ranks_alike_goes_on_and_the_event_says_how_alike(warm_ups: WarmUps):
    async with serving(2) as (_, port):
        await warm_ups.add(2, port)
        await warm_ups.log(200)
        await warm_ups.start(2)
        view, event = await warm_ups.tick(), await warm_ups.last_event()

    assert view.record.state.weight_percent == 2
    assert "the warm-up passed; rank correlation of its scores with the champion's 0." in event.reason
    assert event.verdict is Verdict.ADVANCE


async def test_what_it_said_as_a_shadow_is_compared_and_no_logged_call_is_sent(warm_ups: WarmUps):
    async with serving(2, inverted) as (model, port):
        await warm_ups.add(2, port)
        await warm_ups.log(200)
        await warm_ups.shadow(2, [1 - score for score in scores_of(2, 150)])
        await warm_ups.start(2)
        held = await warm_ups.tick()

    assert held.record.state.phase is Phase.WAITING
    assert "150 calls that it was shown as a shadow" in held.record.state.reason
    assert model.calls == CALLS


async def test_a_resume_compares_again_with_the_server_as_it_is_now_and_not_with_the_shadow_of_then(
    warm_ups: WarmUps, understudy: CommandLine
):
    resume = ("rollout", "resume", "visits", "--reason", "try again")
    async with serving(2, inverted) as (model, port):
        await warm_ups.add(2, port)
        await warm_ups.log(200)
        await warm_ups.shadow(2, [1 - score for score in scores_of(2, 150)])
        await warm_ups.start(2)
        await warm_ups.tick()
        await understudy.beside(*resume)
        still_held = await warm_ups.tick()
        model.change = np.asarray
        await understudy.beside(*resume)
        gone_on = await warm_ups.tick()

    assert "200 logged calls that were sent again" in still_held.record.state.reason
    assert gone_on.record.state.weight_percent == 2


async def test_a_plan_that_expects_different_scores_is_not_held_and_keeps_what_was_found(warm_ups: WarmUps):
    async with serving(2, inverted) as (_, port):
        await warm_ups.add(2, port)
        await warm_ups.log(200)
        await warm_ups.start(2, replace(NAMED_PLANS["default"], expect_different_scores=True))
        view, event = await warm_ups.tick(), await warm_ups.last_event()

    assert view.record.state.weight_percent == 2
    assert "that was expected" in event.reason
    assert event.inputs["agreement"]["correlation"] < -0.5


@pytest.mark.parametrize(
    ("calls", "kept", "said"),
    [
        (0, {}, "no inputs of the champion's calls are logged"),
        (200, {"with_inputs": False}, "no inputs of the champion's calls are logged"),
        (99, {}, "of logged calls of 99 entities those of 99 can be sent again"),
        (200, {"entities": 60}, "of logged calls of 60 entities those of 60 can be sent again"),
    ],
    ids=["none", "no inputs", "99 calls", "60 entities"],
)
async def test_with_too_few_pairs_it_says_that_nothing_was_compared_and_goes_on(
    warm_ups: WarmUps, understudy: CommandLine, calls, kept, said
):
    async with serving(2, inverted) as (model, port):
        await warm_ups.add(2, port)
        await warm_ups.log(calls, **kept)
        await warm_ups.start(2)
        view, event = await warm_ups.tick(), await warm_ups.last_event()
        shown = await understudy.beside("rollout", "show", "visits")

    assert view.record.state.weight_percent == 2
    assert event.reason.endswith(f": the warm-up passed; its scores were not compared: {said}")
    helps = "          → understudy model set visits --input-sample-percent 5"
    assert (helps in shown.out.splitlines()) == (said == NO_INPUTS)
    assert event.verdict is None
    assert model.calls == CALLS


async def test_classes_have_no_order_and_are_not_compared(warm_ups: WarmUps):
    classes = '{"tensor": "probabilities", "dtype": "float32", "shape": [2], "labels": ["no", "yes"]}'
    async with serving(2, inverted) as (model, port):
        await warm_ups.add(2, port, output_schema=classes)
        await warm_ups.log(200)
        await warm_ups.start(2)
        view, event = await warm_ups.tick(), await warm_ups.last_event()

    assert view.record.state.weight_percent == 2
    assert event.reason.endswith("the warm-up passed")
    assert model.calls == CALLS


CLASSES = '{"tensor": "probabilities", "dtype": "float32", "shape": [2], "labels": ["no", "yes"]}'


@pytest.mark.parametrize(
    ("scores", "columns", "waits"),
    [
        ([0.42] * 12, {}, True),
        ([0.42] * 12, {"output_schema": CLASSES}, False),
        (scores_of(2, 12), {}, False),
        ([0.42] * 3, {}, False),
    ],
    ids=["constant", "constant classes", "a good one", "three entities"],
)
async def test_a_version_that_gives_callers_one_score_for_all_waits_for_a_person(warm_ups, scores, columns, waits):
    async with serving(2) as (_, port):
        await warm_ups.add(2, port, **columns)
        rollout_id = await warm_ups.start(2)
        await warm_ups.tick()
        await warm_ups.serve(rollout_id, 1, scores_of(1, 300), Role.CHAMPION)
        await warm_ups.serve(rollout_id, 2, scores, Role.CHALLENGER)
        seen = await warm_ups.tick()

    assert (seen.record.state.phase is Phase.WAITING) == waits
    assert seen.record.state.weight_percent == 2
    if waits:
        assert "version 2 stops at 2 %: it gave 12 calls of" in seen.record.state.reason


async def test_one_score_for_all_that_a_person_expects_is_not_asked_about_again(warm_ups, understudy: CommandLine):
    resume = ("rollout", "resume", "visits", "--reason", "it is a baseline")
    async with serving(2) as (_, port):
        await warm_ups.add(2, port)
        rollout_id = await warm_ups.start(2)
        await warm_ups.tick()
        await warm_ups.serve(rollout_id, 1, scores_of(1, 300), Role.CHAMPION)
        await warm_ups.serve(rollout_id, 2, [0.42] * 12, Role.CHALLENGER)
        await warm_ups.tick()
        event = await warm_ups.last_event()
        shown = await understudy.beside("rollout", "show", "visits")
        phases = []
        for more in ((), ("--expect-different-scores",)):
            await understudy.beside(*resume, *more)
            warm_ups.executor = warm_ups.new_executor()
            phases.append((await warm_ups.tick()).record.state.phase)
        (_, replay), *_ = [one for one in judged_again(await warm_ups.store.events(rollout_id)) if one[1]]

    assert phases == [Phase.WAITING, Phase.PROGRESSING]
    assert event.verdict is Verdict.HOLD
    assert isinstance(replay, Replay)
    assert replay.agrees
    assert "→ if meant so: understudy rollout resume visits --expect-different-scores" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert [kind for kind, _ in await warm_ups.told()][:1] == ["rollout_needs_human"]
