import numpy as np
import orjson
import pytest

from understudy.core.drift.baseline import CategoricalBaseline, NumericBaseline
from understudy.core.drift.hours import class_hour
from understudy.core.drift.logged_baseline import logged_baseline, logged_classes, logged_inputs
from understudy.core.prediction_log.input_sampling import InputSample
from understudy.core.schema.compile import compile_input_schema

RANDOM = np.random.default_rng(17)
UNDRAWN = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Draw from the beginning: a test's figures must not depend on which ones ran before it."""
    RANDOM.bit_generator.state = UNDRAWN


def groups_of(own_share: float, entities: int = 640, each: int = 20) -> list[list[float]]:
    """Return 64 groups of entities, so much of whose variance is their own."""
    own = RANDOM.normal(size=(64, entities // 64, 1)) * own_share**0.5
    scores = 0.4 + 0.1 * (own + RANDOM.normal(size=(64, entities // 64, each)) * (1 - own_share) ** 0.5)
    return [group.ravel().tolist() for group in scores]


def test_rows_that_are_alike_count_for_fewer():
    alike, independent = logged_baseline(groups_of(0.9)), logged_baseline(groups_of(0.0))

    # 1 + 19 * 0.9 = 18.1 rows of an entity say as much as one; with 64 groups that is known to a third.
    assert alike.rows == pytest.approx(12_800 / 18.1, rel=0.5)
    assert independent.rows == pytest.approx(12_800, rel=0.4)
    assert independent.mean == pytest.approx(0.4, abs=0.005)
    assert independent.standard_deviation == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("groups", [[], [[0.5] * 1_000], groups_of(0.0, each=1)[:15], [[0.5]] * 64])
def test_too_few_scores_or_entities_are_no_baseline(groups):
    with pytest.raises(ValueError, match="a baseline from the log rests on at least 200 in 16"):
        logged_baseline(groups)


def test_a_version_that_always_says_the_same_has_a_baseline():
    found = logged_baseline([[0.5] * 10] * 64)

    assert (found.mean, found.standard_deviation, found.rows) == (0.5, 0.0, 640)


def sampled(count: int, entities: int) -> list[InputSample]:
    return [
        InputSample(
            f"user-{place % entities}", orjson.dumps({"age": place % 50, "plan": "pro" if place % 4 else "free"})
        )
        for place in range(count)
    ]


FEATURES = compile_input_schema(
    {
        "features": [
            {"name": "age", "dtype": "float32"},
            {"name": "plan", "dtype": "string"},
            {"name": "later", "dtype": "float32"},
        ]
    }
).features


def test_logged_inputs_have_baselines_that_are_as_sure_as_their_entities_are_many():
    found = logged_inputs(sampled(2_000, 400), FEATURES)

    age, plan = found["age"], found["plan"]
    assert found.keys() == {"age", "plan"}
    assert isinstance(age, NumericBaseline)
    assert isinstance(plan, CategoricalBaseline)
    assert age.mean == pytest.approx(24.5)
    assert plan.shares == {"pro": 0.75, "free": 0.25}
    assert (age.rows, plan.rows) == (400, 400)


def test_inputs_of_a_few_entities_make_no_baseline():
    assert logged_inputs(sampled(2_000, 100), FEATURES) == {}


def test_a_logged_value_that_the_schema_does_not_know_is_left_out():
    odd = InputSample("user-1", b'{"age": "old", "plan": "pro"}')

    found = logged_inputs([*sampled(2_000, 400), *[odd] * 500], FEATURES)

    assert isinstance(found["age"], NumericBaseline)
    assert found["age"].mean == pytest.approx(24.5)


def test_classes_of_hours_add_up_to_shares_and_calls_of_one_entity_count_for_fewer():
    alone = [(f"user-{number}", "pro" if number % 4 else "basic") for number in range(4_000)]
    alike = [(f"user-{number // 10}", "pro" if number // 10 % 4 else "basic") for number in range(4_000)]

    once, often = (logged_classes([class_hour(0.0, one), class_hour(3_600.0, one)]) for one in (alone, alike))

    assert once is not None
    assert often is not None
    assert once.shares == often.shares == {"pro": 0.75, "basic": 0.25}
    assert once.rows is not None
    assert often.rows is not None
    assert often.rows < once.rows / 3
    assert logged_classes([class_hour(0.0, alone[:100])]) is None
