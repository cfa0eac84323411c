"""Shadow reports against a real Postgres, compared with what plain Python counts in the same rows."""

import time
from typing import Any, NamedTuple

import numpy as np
import pytest
from worlds.experiment import DAY, HOUR, MODEL, Call, World

from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog
from understudy.core.experiments.shadow_comparison import ShadowState
from understudy.core.routing.route import bucket_of
from understudy.errors import NotRegistered
from understudy.experiments.shadow_report import ShadowQuestion, largest_disagreements, report_shadow
from understudy.ports.experiments.experiment_log import ShadowQuery

CALLS = 1_000


class Parts(NamedTuple):
    world: World
    log: PostgresExperimentLog


class Shown(NamedTuple):
    """Calls of the champion, and the shadow's rows of those that it answered at all."""

    calls: list[Call]
    answers: dict[str | None, Call]
    began: float


@pytest.fixture
async def parts(database, database_url) -> Parts:
    world = World(database)
    await world.add_versions("6", "7", "8")
    return Parts(world, PostgresExperimentLog(database_url, timeout_seconds=30))


def a_question(began: float, **changes: Any) -> ShadowQuestion:
    return ShadowQuestion(MODEL, began + DAY, began - HOUR)._replace(**changes)


async def a_shadow_at(world: World, percent: int) -> Shown:
    """Write calls of which the shadow sees a share of the entities; it loses, fails and times some out."""
    generation = await world.set_policy("6", "7", 20, shadow="8", percent=percent)
    champion, challenger, shadow = (world.versions[label] for label in ("6", "7", "8"))
    began = time.time() + 1
    rng = np.random.default_rng(4)
    calls = []
    for number in range(CALLS):
        score = float(rng.uniform())
        calls.append(
            Call(
                f"cust-{number % 300}",
                began + number,
                champion,
                generation,
                score=score,
                latency_us=int(rng.integers(5_000, 20_000)),
                cache_hit=number % 5 == 0,
                status="error" if number % 50 == 7 else "ok",
            )
        )
    named = await world.call(calls)
    answers = []
    for number, call in enumerate(named):
        if bucket_of(f"shadow:{MODEL}", call.entity_id) >= percent or number % 25 == 3:
            continue
        late = number % 20 == 1
        answers.append(
            call._replace(
                at=call.at + 0.1,
                assigned=shadow,
                role="shadow",
                cache_hit=False,
                status="timeout" if late else "ok",
                score=None if late else min(1.0, (call.score or 0) + float(rng.normal(0.01, 0.05))),
                latency_us=call.latency_us * 2,
            )
        )
    await world.call(answers)
    # None of these is a pair: a challenger's call, a fallback, a forced one, one that is too new to judge.
    others = [
        Call("cust-1", began + 1, challenger, generation, role="challenger", score=0.5),
        Call("cust-1", began + 2, challenger, generation, served=champion, status="fallback", score=0.5),
        Call("cust-1", began + 3, champion, generation, reason="forced", score=0.5),
        Call("cust-1", began + DAY - 1, champion, generation, score=0.5),
    ]
    await world.call(others)
    return Shown(named, {answer.prediction_id: answer for answer in answers}, began)


@pytest.mark.parametrize("percent", [100, 40])
async def test_a_report_has_the_figures_that_plain_python_counts(parts, percent):
    shown = await a_shadow_at(parts.world, percent)

    found = await report_shadow(parts.log, a_question(shown.began))

    pairs = [
        (call, shown.answers.get(call.prediction_id))
        for call in shown.calls
        if bucket_of(f"shadow:{MODEL}", call.entity_id) < percent
    ]
    report = found.report
    dropped = sum(answer is None for _, answer in pairs)
    late = sum(answer is not None and answer.status == "timeout" for _, answer in pairs)
    scored = [
        (call.score, answer.score)
        for call, answer in pairs
        if call.status != "error" and answer is not None and answer.score is not None
    ]
    champion, shadow = np.array(scored).T
    seconds = [(call.latency_us, answer.latency_us) for call, answer in pairs if answer and not call.cache_hit]
    assert (found.calls, report.pairs, report.state) == (CALLS, len(pairs), ShadowState.COMPARED)
    assert report.shadow is not None
    assert report.champion is not None
    assert report.scores is not None
    assert report.latency is not None
    assert report.shadow.dropped_percent == pytest.approx(100 * dropped / len(pairs))
    assert report.shadow.timeout_percent == pytest.approx(100 * late / len(pairs))
    assert report.champion.error_percent == pytest.approx(
        100 * sum(call.status == "error" for call, _ in pairs) / len(pairs)
    )
    assert report.scores.pairs == len(scored)
    assert report.scores.shadow_mean - report.scores.champion_mean == pytest.approx((shadow - champion).mean())
    assert report.scores.same_decision_percent == pytest.approx(100 * ((champion >= 0.5) == (shadow >= 0.5)).mean())
    assert report.latency.pairs == len(seconds)
    assert report.latency.champion_p50_seconds == pytest.approx(np.median([one for one, _ in seconds]) / 1e6)
    assert report.latency.p50_change_percent == pytest.approx(100)


async def test_the_largest_disagreements_are_those_of_all_pairs(parts):
    shown = await a_shadow_at(parts.world, 100)

    found = await largest_disagreements(parts.log, a_question(shown.began), 7)

    sizes = {
        call.prediction_id: abs(answer.score - call.score)
        for call in shown.calls
        if (answer := shown.answers.get(call.prediction_id)) is not None
        and answer.score is not None
        and call.score is not None
    }
    expected = sorted(sizes, key=lambda one: (-sizes[one], str(one)))[:7]
    assert [pair.prediction_id for pair in found.pairs] == expected
    assert found.pairs[0].entity_id.startswith("cust-")


async def test_of_many_calls_a_fixed_random_share_is_compared(parts):
    shown = await a_shadow_at(parts.world, 100)
    query = ShadowQuery(
        parts.world.versions["6"], parts.world.versions["8"], [1], shown.began - HOUR, shown.began + HOUR
    )

    some, again, all_of_them = [await parts.log.pairs(query, ratio) for ratio in (0.3, 0.3, 1.0)]

    # 1,000 ids, which are others in each run, are kept with a chance of 0.3 each: 300 ± 87 (six standard deviations).
    assert 213 < len(some) < 387
    assert sorted(some) == sorted(again)
    assert set(some) < set(all_of_them)
    assert len(all_of_them) == CALLS


async def test_without_calls_there_are_no_pairs_and_without_a_shadow_it_says_how_to_get_one(parts):
    await parts.world.set_policy("6")
    with pytest.raises(NotRegistered) as refused:
        await report_shadow(parts.log, a_question(time.time()))
    await parts.world.set_policy("6", shadow="8")

    found = await report_shadow(parts.log, a_question(time.time()))

    assert "--shadow" in refused.value.next_step
    assert found.report.state is ShadowState.NO_PAIRS


async def test_a_shadow_that_was_taken_away_is_still_reported_on(parts):
    shown = await a_shadow_at(parts.world, 100)
    await parts.world.set_policy("6")

    found = await report_shadow(parts.log, a_question(shown.began))

    assert found.report.pairs == CALLS


async def test_a_shadow_that_is_the_champions_call_is_named_with_its_pairs_that_differ_in_no_bit(
    parts, database, understudy
):
    world = parts.world
    for version in ("6", "8"):
        told = "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, '127.0.0.1:8611')"
        await database.execute(told, world.versions[version])
    generation = await world.set_policy("6", shadow="8")
    await world.backdate(DAY)
    began = time.time() - HOUR
    calls = [
        Call(f"cust-{number}", began + number, world.versions["6"], generation, score=number / 64)
        for number in range(50)
    ]
    answered = await world.call(calls)
    await world.call([call._replace(role="shadow", assigned=world.versions["8"]) for call in answered])

    said = (await understudy.beside("shadow", "report", MODEL)).said
    document = (await understudy.beside("shadow", "report", MODEL, "--json")).document

    assert "Every score is the same to the last bit: is the shadow really another model?" in said
    assert "6 and 8 are the same call at 127.0.0.1:8611: one model there answers both" in said
    assert f"understudy version diff {MODEL} 6 8 shows whether they are two models" in said
    assert "the same call at 127.0.0.1:8611" in document["report"]["report"]["sentence"]
