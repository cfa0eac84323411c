"""Scores out of the log: the right ones, no more than wanted, and always the same."""

import time
from statistics import mean
from typing import Any

import asyncpg
import numpy as np
import pytest
from traffic.logged import LoggedTraffic, register, scored_rows
from traffic.spooled_rows import a_row

from understudy.adapters.postgres.prediction_log.history import PostgresPredictionHistory
from understudy.core.canary.entities.entity_tally import Before, EntityCalls
from understudy.core.prediction_log.row import PredictionRow, Status
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.errors import RegistryUnavailable
from understudy.ports.prediction_log.prediction_history import Draw, LoggedFailures, LoggedScores, TrialAsked

NOW = float(int(time.time())) - 3_600.0
"""A whole second: of a fraction, Postgres and Python may differ in the last microsecond, at which a time ends."""


@pytest.fixture
async def history(database: asyncpg.Connection, database_url: str) -> PostgresPredictionHistory:
    """The history of version 1, which gave the scores 0 to 1,999."""
    assert await register(database, "churn", "6") == 1
    traffic = LoggedTraffic(database_url)
    await traffic.ship(scored_rows(np.arange(2_000, dtype=np.float64), NOW))
    await traffic.close()
    return PostgresPredictionHistory(database_url, timeout_seconds=20)


def flat(found: LoggedScores) -> list[float]:
    return sorted(score for group in found.groups for score in group)


async def test_all_scores_of_the_time_come_each_once_with_an_entity_in_one_group(history):
    found = await history.scores(1, NOW - 60, NOW + 3_600, 10_000)
    later = await history.scores(1, NOW + 30, NOW + 3_600, 10_000)
    nobody = await history.scores(2, NOW - 60, NOW + 3_600, 10_000)

    assert flat(found) == list(range(2_000))
    assert found.calls == 2_000
    homes = {(score % 400, place) for place, group in enumerate(found.groups) for score in group}
    assert len(homes) == 400  # entities
    assert len(found.groups) == pytest.approx(64, abs=2)
    assert 0 < later.calls < 2_000
    assert nobody == LoggedScores([], 0)


async def test_of_more_than_are_wanted_a_sample_is_taken_always_the_same(history):
    one = await history.scores(1, NOW - 60, NOW + 3_600, 500)
    other = await history.scores(1, NOW - 60, NOW + 3_600, 500)
    larger = await history.scores(1, NOW - 60, NOW + 3_600, 1_000)

    assert one.calls == 2_000
    assert len(flat(one)) == pytest.approx(500, abs=100)
    assert flat(one) == flat(other)
    assert set(flat(one)) < set(flat(larger))


async def test_scores_that_are_no_numbers_are_left_out(history, database):
    await database.execute("UPDATE PredictionLog SET score = 'NaN' WHERE score < 10")
    await database.execute("UPDATE PredictionLog SET score = 'Infinity' WHERE score BETWEEN 10 AND 19")

    found = await history.scores(1, NOW - 60, NOW + 3_600, 10_000)

    assert flat(found) == list(range(20, 2_000))


async def test_the_newest_calls_are_counted_by_the_entity_that_made_them(history):
    everything = await history.call_frequencies(1, NOW - 60, NOW + 3_600, 10_000)
    some = await history.call_frequencies(1, NOW - 60, NOW + 3_600, 500)
    nobody = await history.call_frequencies(2, NOW - 60, NOW + 3_600, 500)

    assert everything == {5: 400}
    assert sum(calls * entities for calls, entities in some.items()) == 500
    assert nobody == {}


async def test_a_log_that_does_not_answer_in_time_is_unreachable(database, database_url):
    await database.execute("BEGIN; LOCK TABLE PredictionLog IN ACCESS EXCLUSIVE MODE")

    with pytest.raises(RegistryUnavailable) as raised:
        await PostgresPredictionHistory(database_url, timeout_seconds=2).scores(1, 0.0, NOW, 10)

    assert "later --since" in raised.value.next_step


async def test_logged_inputs_come_by_entity_and_of_more_than_are_wanted_those_of_some(history, database):
    await database.execute("UPDATE PredictionLog SET inputs = jsonb_build_object('age', score) WHERE score < 1200")

    everything = await history.inputs(1, NOW - 60, NOW + 3_600, 10_000)
    some = await history.inputs(1, NOW - 60, NOW + 3_600, 300)

    assert len(everything) == 1_200
    assert some == everything[:300]
    assert len({sample.entity_id for sample in some}) == 100
    assert await history.inputs(2, NOW - 60, NOW + 3_600, 10_000) == []


async def test_calls_with_inputs_come_newest_first_with_as_much_of_the_answer_as_can_be_compared(history, database):
    await database.execute("UPDATE PredictionLog SET inputs = '{\"age\": 41.0}' WHERE score < 1200")
    for score, change in {
        0: """prediction = '{"score": 0.5}'""",
        1: """prediction = '{"label": "b", "scores": [0.1, 0.9]}'""",
        2: """prediction = jsonb_build_object('label', repeat('b', 5000))""",
        3: "cache_hit = TRUE",
        4: "status = 'fallback'",
        5: "status = 'timeout'",
        6: "prediction_id = NULL",
        7: "prediction = 'null'",
    }.items():
        await database.execute(f"UPDATE PredictionLog SET {change} WHERE score = {score}")

    everything = await history.calls([1, 2], NOW - 60, NOW + 3_600, 10_000)
    newest = await history.calls([1, 2], NOW - 60, NOW + 3_600, 300)

    found = {call.score: call for call in everything}
    assert found.keys() == set(range(1_200)) - {5, 6}
    assert [call.predicted_at for call in everything] == sorted(
        (call.predicted_at for call in everything), reverse=True
    )
    assert newest == everything[:300]
    assert (found[0].version_id, found[0].inputs, found[0].answer) == (1, '{"age": 41.0}', '{"score": 0.5}')
    assert found[0].latency_us == 10_000
    assert found[0].entity_id == "user-0"
    assert (found[1].answer, found[2].answer, found[7].answer) == ('{"label": "b"}', None, None)
    assert (found[3].latency_us, found[4].latency_us) == (None, None)
    assert await history.calls([2], NOW - 60, NOW + 3_600, 10_000) == []
    assert await history.calls([1], NOW + 100, NOW + 3_600, 10_000) == []


CHAMPION, CHALLENGER, ROLLOUT = 1, 2, 7
TRIAL = TrialAsked(ROLLOUT, CHAMPION, CHALLENGER, NOW - 60, NOW + 3_600)


def a_call(number: int, **changes: Any) -> PredictionRow:
    """Return a call of the rollout that the challenger failed, and the champion answered."""
    return a_row(number, version_id=CHAMPION)._replace(
        **{
            "assigned_version_id": CHALLENGER,
            "rollout_id": ROLLOUT,
            "predicted_at": NOW + number,
            "status": Status.FALLBACK,
            "error_code": "E503",
            **changes,
        }
    )


@pytest.fixture
async def trial(database: asyncpg.Connection, database_url: str) -> PostgresPredictionHistory:
    """The history of a rollout whose challenger failed six calls of ten that count."""
    for version in ("6", "7"):
        await register(database, "churn", version)
    own = {"model_version_id": CHALLENGER, "role": Role.CHALLENGER, "status": Status.TIMEOUT, "error_code": "E504"}
    answered = {"model_version_id": CHALLENGER, "role": Role.CHALLENGER, "status": Status.OK, "error_code": None}
    elsewhere = {"assigned_version_id": CHAMPION, "status": Status.ERROR, "error_code": "E502"}
    traffic = LoggedTraffic(database_url)
    await traffic.ship(
        [
            *(a_call(number) for number in range(4)),
            *(a_call(number, **own) for number in range(4, 6)),
            *(a_call(number, **answered) for number in range(6, 10)),
            a_call(10, **elsewhere),  # the champion's own failure
            a_call(11, rollout_id=ROLLOUT - 1),
            a_call(12, reason=Reason.FORCED),
            a_call(13, reason=Reason.CATEGORY),
            a_call(14, **{**own, "role": Role.SHADOW}),
            a_call(15, predicted_at=NOW - 61),
            a_call(16, error_code="E504", deadline_us=140_000),
        ]
    )
    await traffic.close()
    return PostgresPredictionHistory(database_url, timeout_seconds=20)


async def test_what_a_challengers_calls_failed_with_is_counted_also_where_the_champion_answered(trial):
    found = await trial.failures(TRIAL, 1_000)
    nobodys = await trial.failures(TRIAL._replace(rollout_id=99), 1_000)

    assert found == LoggedFailures({"E503": 4, "E504": 2}, is_whole=True)
    assert list(found.calls_by_code) == ["E503", "E504"]
    assert nobodys == LoggedFailures({}, is_whole=True)


async def test_of_more_calls_than_are_looked_at_the_newest_are_and_it_is_said(trial):
    newest = TRIAL._replace(until=NOW + 4)

    found = await trial.failures(newest, 3)

    assert found == LoggedFailures({"E503": 3}, is_whole=False)


UNIT = 120
START = int(NOW) // UNIT * UNIT


@pytest.fixture
async def entities(database: asyncpg.Connection, database_url: str) -> PostgresPredictionHistory:
    """The history of a challenger's calls in two stretches, and of three of the champion's own before."""
    for version in ("6", "7"):
        await register(database, "churn", version)
    good = {"model_version_id": CHALLENGER, "role": Role.CHALLENGER, "status": Status.OK, "error_code": None}
    before = {"assigned_version_id": CHAMPION, "rollout_id": None, "role": Role.CHAMPION, "entity_id": "acme"}
    traffic = LoggedTraffic(database_url)
    await traffic.ship(
        [
            *(
                a_call(number, entity_id="acme", input_hash="a" * 64, predicted_at=START + number)
                for number in range(3)
            ),
            a_call(3, entity_id="acme", input_hash="b" * 64, predicted_at=START + 3, **good),
            a_call(4, entity_id="hit", predicted_at=START + 4, cache_hit=True, **good),
            a_call(5, entity_id="forced", predicted_at=START + 5, reason=Reason.FORCED),
            a_call(6, entity_id="late", predicted_at=START + 6, error_code="E504", deadline_us=140_000),
            a_call(7, entity_id="next", predicted_at=START + UNIT, **good),
            *(
                a_call(number, entity_id="both", input_hash=kind * 64, predicted_at=START + number - 20, status=status)
                for number, kind, status in (
                    (30, "c", Status.BAD_ANSWER),
                    (31, "c", Status.TIMEOUT),
                    (32, "d", Status.BAD_ANSWER),
                    (33, "d", Status.FALLBACK),
                )
            ),
            a_call(34, entity_id="bad inputs", predicted_at=START + 14, status=Status.BAD_ANSWER),
            a_call(8, predicted_at=START - 9, status=Status.OK, **{**before, "error_code": None}),
            a_call(9, predicted_at=START - 8, **{**before, "status": Status.ERROR}),
            a_call(10, predicted_at=START - 7, **{**before, "status": Status.ERROR}),
            a_call(11, predicted_at=START - 6, entity_id="acme"),  # the challenger's failure of an earlier rollout
        ]
    )
    await traffic.close()
    return PostgresPredictionHistory(database_url, timeout_seconds=20)


async def test_calls_of_single_entities_are_counted_where_they_are_judged_and_retries_are_one(entities):
    both = TRIAL._replace(since=START, until=START + 2 * UNIT)

    found = await entities.entity_calls(both, UNIT, 100)
    first = await entities.entity_calls(both, UNIT, 1)
    acme, both_fail = found[START]
    (known,) = (await entities.entities_of(acme.rows)).values()

    assert acme[:-1] == ("acme", 4, 3, 2, 1)
    assert both_fail[:-1] == ("both", 2, 2, 1, 1)
    assert [moment for _, moment in acme.rows] == [START * 1_000_000]
    assert known.entity_id == "acme"
    assert known.prediction_id is not None
    assert found[START + UNIT] == [EntityCalls("next", 1, 0, 1, 0)]
    assert list(first) == [START]


async def test_an_entitys_own_calls_of_the_champion_are_counted_within_its_newest_rows(entities):
    whole = await entities.entities_before(CHAMPION, ["acme", "nobody"], START - 60, START, 100)
    newest = await entities.entities_before(CHAMPION, ["acme"], START - 60, START, 2)

    assert whole == {"acme": Before(3, 2)}
    assert newest == {"acme": Before(2, 2)}


async def test_rows_that_the_log_does_not_have_are_left_out(entities):
    assert await entities.entities_of([]) == {}
    assert await entities.entities_of([(999_999, int(NOW * 1e6))]) == {}


DAY = 86_400.0
WEEK = Draw(NOW - 6 * DAY, NOW + DAY, 91, 200)


async def of_regulars_and_the_newest(database: asyncpg.Connection, database_url: str) -> PostgresPredictionHistory:
    """Log calls of 300 entities in two hours of the last days, and then 1,400 of one and 250 of as many others."""
    for version in ("6", "7"):
        await register(database, "churn", version)
    inputs = b'{"age":41.0}'
    calls = [(f"regular-{number}", NOW - 5 * DAY + 120 * (number % 60) + number / 100) for number in range(300)]
    calls += [("busy", NOW - 600 + number / 10) for number in range(1_400)]
    calls += [(f"new-{number}", NOW - 200 + number / 10) for number in range(250)]
    rows = [
        a_row(number)._replace(entity_id=entity, predicted_at=at, inputs=inputs, score=number / 2_000)
        for number, (entity, at) in enumerate(calls)
    ]
    traffic = LoggedTraffic(database_url)
    await traffic.ship(rows)
    await traffic.close()
    await database.execute(
        """INSERT INTO PredictionLog (model_version_id, assigned_version_id, entity_id, input_hash, prediction,
                                      latency_ms, predicted_at, prediction_id, score, role, reason, status)
           SELECT 2, 2, entity_id, input_hash, prediction, 1, predicted_at + INTERVAL '50 ms', prediction_id,
                  score + 1, 'shadow', 'bucket', 'ok' FROM PredictionLog"""
    )
    return PostgresPredictionHistory(database_url, timeout_seconds=20)


async def test_who_calls_most_or_last_does_not_decide_which_calls_are_drawn(database, database_url):
    history = await of_regulars_and_the_newest(database, database_url)

    drawn = await history.drawn_calls(1, WEEK)
    again = await history.drawn_calls(1, WEEK)
    others = [await history.drawn_calls(1, WEEK._replace(key=key)) for key in range(92, 112)]
    seen = await history.shadow_scores(1, 2, WEEK)

    names = [call.entity_id for call in drawn]
    assert drawn == again
    assert len(set(names)) == len(names) == 200
    # Where a draw begins in an hour decides how many of the new ones come before the busy one: any number, each as
    # likely. So one draw has 110 to 200 of the regular ones, and 145 on the average.
    assert 60 <= mean(sum(call.entity_id.startswith("regular") for call in other) for other in others) <= 170
    assert all(len(set(names) & {call.entity_id for call in other}) < 180 for other in others)
    assert (drawn[0].inputs, drawn[0].answer) == ('{"age": 41.0}', '{"score": 0.5}')
    assert len(seen) == 200
    assert all(shadow == champion + 1 for champion, shadow in seen)
    assert sum(champion < 300 / 2_000 for champion, _ in seen) >= 60
    assert await history.drawn_calls(1, Draw(NOW + DAY, NOW + 2 * DAY, 91, 200)) == []
    assert await history.shadow_scores(1, 2, Draw(NOW + DAY, NOW + 2 * DAY, 91, 200)) == []
