"""Rank calls take the same way as predict calls; here is what differs, and that the rest does not."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from builders import a_policy, a_version

from understudy.core.prediction_log.row import Status
from understudy.core.requests.predict import LONG_BYTES
from understudy.core.requests.rank import RankRequest, parse_rank
from understudy.core.schema.tensors import Row, Tensor
from understudy.errors import (
    BackendUnavailable,
    BadAnswer,
    DeadlineExceeded,
    FeaturesUnavailable,
    InputInvalid,
    NotRankable,
)
from understudy.serving.call import Call
from understudy.serving.upstream.cached_inference import CacheResult

from .test_turn import Stage, Stored, entity_in, sums

SCHEMA: dict[str, Any] = {
    "features": [
        {"name": "age", "dtype": "float32"},
        {"name": "visits", "dtype": "float32", "source": "store", "default": 0},
        {"name": "price", "dtype": "float32", "per": "treatment"},
    ],
    "tensors": [{"name": "input", "features": ["age", "visits", "price"]}],
}
PRICES = [1.0, 3.0, 2.0]


def rankable(version: str = "1", **changes: Any) -> Any:
    return a_version(version, **{"input_schema": SCHEMA, **changes})


def a_request(entity_id: str = "customer-1", top_k: int | None = None, **changes: Any) -> RankRequest:
    treatments = {"ids": ["a", "b", "c"], "inputs": {"price": PRICES}}
    document = {"entity_id": entity_id, "inputs": {"age": 40}, "treatments": treatments, "top_k": top_k, **changes}
    return parse_rank(orjson.dumps(document))


async def rank(stage: Stage, request: RankRequest | None = None, **options: Any) -> Call:
    return await stage.predictor.predict("visits", request or a_request(), **options)


def answer_of(outcome: Call) -> Any:
    assert outcome.error is None
    assert outcome.prediction is not None
    return orjson.loads(outcome.prediction.json)


async def test_all_treatments_are_one_call_and_one_row_of_the_log():
    stage = Stage(a_policy(champion=rankable(), generation=41))

    outcome = await rank(stage)

    assert answer_of(outcome) == {"treatments": 3, "scores": [41.0, 43.0, 42.0]}
    (call,) = stage.backends["1"].calls
    assert len(call) == 3
    (row,) = stage.rows
    assert orjson.loads(row.prediction) == {
        "treatments": 3,
        "best": [{"id": "b", "score": 43.0}, {"id": "c", "score": 42.0}, {"id": "a", "score": 41.0}],
    }
    assert (row.score, row.status, row.entity_id, row.policy_generation) == (43.0, Status.OK, "customer-1", 41)
    assert len(row.input_hash) == 64


async def test_a_default_stands_in_for_a_stored_value_that_no_ranking_can_use():
    stage = Stage(a_policy(champion=rankable()), Stored({"visits": "many"}))

    outcome = await rank(stage)

    assert answer_of(outcome) == {"treatments": 3, "scores": [41.0, 43.0, 42.0]}
    assert stage.rows[0].defaulted == ("visits",)


async def test_a_required_stored_value_that_no_ranking_can_use_is_not_the_callers_to_correct():
    age, visits, price = SCHEMA["features"]
    schema = {**SCHEMA, "features": [age, {"name": "visits", "dtype": "float32", "source": "store"}, price]}
    stage = Stage(a_policy(champion=rankable(input_schema=schema)), Stored({"visits": 1e300}))

    outcome = await rank(stage)
    wrong = await rank(stage, a_request(inputs={"age": "x"}))

    assert visits["name"] in str(outcome.error)
    assert isinstance(outcome.error, FeaturesUnavailable)
    assert (stage.rows[0].status, len(stage.rows)) == (Status.UNAVAILABLE, 1)
    assert isinstance(wrong.error, InputInvalid)
    assert [one.pointer for one in wrong.error.violations] == ["/inputs/age"]


async def test_the_best_are_what_was_asked_for():
    stage = Stage(a_policy(champion=rankable()))

    outcome = await rank(stage, a_request(top_k=2))

    assert answer_of(outcome)["best"] == [{"id": "b", "score": 43.0}, {"id": "c", "score": 42.0}]


async def test_the_same_call_is_asked_again_since_rankings_are_not_cached():
    stage = Stage(a_policy(champion=rankable()))

    outcomes = [await rank(stage), await rank(stage)]

    assert [outcome.cache for outcome in outcomes] == [CacheResult.BYPASS] * 2
    assert len(stage.backends["1"].calls) == 2


async def test_the_entitys_stored_features_are_fetched_once_for_all_treatments():
    stage = Stage(a_policy(champion=rankable()), Stored({"visits": 100.0}))

    outcome = await rank(stage)

    assert answer_of(outcome)["scores"] == [141.0, 143.0, 142.0]


async def test_the_bucket_is_that_of_a_predict_call():
    champion, challenger = rankable("1"), rankable("2")
    stage = Stage(a_policy(champion=champion, challenger=challenger, challenger_weight=50))

    routes = [(await rank(stage, a_request(f"e{n}"))).route for n in range(40)]
    predicted = [(await stage.ask(f"e{n}", {"age": 1, "price": 1})).route for n in range(40)]

    assert [route.version for route in routes] == [route.version for route in predicted]


@pytest.mark.parametrize(
    ("error", "code"), [(BackendUnavailable(), "E503"), (BadAnswer("the answer is no good"), "E502")]
)
async def test_a_failing_challengers_treatments_are_ranked_by_the_champion(error, code):
    stage = Stage(a_policy(champion=rankable("1"), challenger=rankable("2"), challenger_weight=50))
    stage.backends["2"].error = error

    outcome = await rank(stage, a_request(entity_in(0, 50)))

    assert answer_of(outcome)["scores"] == [41.0, 43.0, 42.0]
    (row,) = stage.rows
    assert (row.status, row.error_code, row.assigned_version_id, row.model_version_id) == (Status.FALLBACK, code, 2, 1)


async def test_a_challenger_that_ranks_nothing_leaves_it_to_the_champion():
    stage = Stage(a_policy(champion=rankable("1"), challenger=a_version("2"), challenger_weight=50))

    outcome = await rank(stage, a_request(entity_in(0, 50)))

    assert answer_of(outcome)["treatments"] == 3
    assert isinstance(outcome.fallback_from, NotRankable)


async def test_a_model_without_treatments_says_what_to_register_and_logs_nothing():
    stage = Stage(a_policy())

    outcome = await rank(stage)

    assert isinstance(outcome.error, NotRankable)
    assert '"per": "treatment"' in outcome.error.next_step
    assert stage.rows == []


async def test_a_feature_store_that_fails_is_not_blamed_for_a_version_that_ranks_nothing():
    schema = {"features": [{"name": "visits", "dtype": "float32", "source": "store"}]}
    stage = Stage(a_policy(champion=a_version("1", input_schema=schema)))

    outcome = await rank(stage, a_request(inputs={}))

    assert isinstance(outcome.error, NotRankable)


async def test_the_shadow_ranks_the_same_treatments_after_the_answer():
    stage = Stage(a_policy(champion=rankable("1"), shadow=rankable("3")))

    await rank(stage, a_request(top_k=1))
    await stage.shadows.drain(5)

    first, shadow = stage.rows
    assert (first.role, shadow.role) == ("champion", "shadow")
    assert first.prediction == shadow.prediction
    assert stage.backends["3"].calls == stage.backends["1"].calls


async def test_a_slow_version_ends_at_the_deadline():
    stage = Stage(a_policy(champion=rankable()))
    stage.backends["1"].delay_seconds = 30

    outcome = await rank(stage, timeout_seconds=0.05)

    assert isinstance(outcome.error, DeadlineExceeded)
    assert stage.rows[0].status is Status.TIMEOUT


async def test_one_unusable_score_is_a_bad_answer():
    def without_a_number(rows: Sequence[Row]) -> Tensor:
        tensor = sums(rows)
        tensor.values[1] = float("nan")
        return tensor

    stage = Stage(a_policy(champion=rankable()))
    stage.backends["1"].function = without_a_number

    outcome = await rank(stage)

    assert isinstance(outcome.error, BadAnswer)
    assert stage.rows[0].status is Status.BAD_ANSWER


async def test_a_large_request_is_assembled_beside_the_loop_and_means_the_same():
    small = a_request()
    large = parse_rank(orjson.dumps({"entity_id": "customer-1", "inputs": {"age": 40},
                                     "treatments": {"ids": ["a", "b", "c"], "inputs": {"price": PRICES}}})
                       + b" " * LONG_BYTES)  # fmt: skip
    stage = Stage(a_policy(champion=rankable()))

    outcomes = [await rank(stage, request) for request in (small, large)]

    assert [one.is_large(rankable()) for one in (small, large)] == [False, True]
    assert answer_of(outcomes[0]) == answer_of(outcomes[1])


async def test_of_the_inputs_the_entitys_are_logged_and_the_treatments_are_not():
    stage = Stage(a_policy(champion=rankable(), input_sample_percent=100))

    await rank(stage)

    assert orjson.loads(stage.rows[0].inputs) == {"age": 40, "visits": 0}
