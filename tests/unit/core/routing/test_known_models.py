import pytest

from understudy.core.routing.known_models import ALIKE, MAX_CHARACTERS, MAX_LISTED, KnownModels
from understudy.errors import UnknownModel

MODELS = {"visits": 1, "fraud": 2, "Churn": 3}


def told(name: str, models: dict[str, int] = MODELS, permitted: frozenset[str] | None = None) -> UnknownModel:
    return KnownModels().unknown(name, models, permitted)


@pytest.mark.parametrize(
    ("name", "near"), [("visit", "visits"), ("vists", "visits"), ("FRAUD", "fraud"), ("churn", "Churn")]
)
def test_the_nearest_model_is_named_and_stands_first_in_the_list(name, near):
    problem = told(name)

    assert problem.detail == f"no model {name!r} is served; did you mean {near!r}?"
    assert problem.next_step.startswith(f"There are {near!r}, ")
    assert all(repr(model) in problem.next_step for model in MODELS)


def test_without_a_near_one_there_is_the_list_alone():
    problem = told("nobody")

    assert problem.detail == "no model 'nobody' is served"
    assert problem.next_step.startswith("There are 'Churn', 'fraud' and 'visits'; ")


@pytest.mark.parametrize("permitted", [frozenset({"fraud"}), frozenset({"fraud", "gone"})])
def test_a_caller_is_told_of_no_model_that_it_may_not_read(permitted):
    problem = told("visit", permitted=permitted)

    assert problem.detail == "no model 'visit' is served"
    assert problem.next_step.startswith("There is 'fraud'; ")


@pytest.mark.parametrize(("models", "permitted"), [({}, None), (MODELS, frozenset()), (MODELS, frozenset({"gone"}))])
def test_where_there_is_nothing_to_tell_the_usual_next_step_stands(models, permitted):
    problem = told("visit", models, permitted)

    assert (problem.detail, problem.next_step) == ("no model 'visit' is served", UnknownModel.hint)


def test_of_many_models_the_first_are_named_and_the_number_of_the_others():
    problem = told("model-4711x", {f"model-{number}": number for number in range(5_000)})

    assert problem.detail.endswith("did you mean 'model-4711'?")
    assert problem.next_step.startswith("There are 'model-4711', 'model-0', ")
    assert problem.next_step.count("'model-") == MAX_LISTED
    assert f"{5_000 - MAX_LISTED:,} more: GET /v1/models" in problem.next_step


@pytest.mark.parametrize("typed", ["risk-of-default-4711", "xrisk-of-fraud-4711"])
def test_of_many_models_those_are_compared_that_begin_or_end_alike(typed):
    models = {f"risk-of-fraud-{number}": number for number in range(10 * ALIKE)} | {"risk-of-fraud-4711": 1}

    assert told(typed, models).detail.endswith("did you mean 'risk-of-fraud-4711'?")


def test_names_that_are_long_are_cut():
    models = {f"{letter}{'x' * 254}": 1 for letter in "abcdefghij"}

    problem = told("y" * 100_000, models)

    assert len(problem.detail) < 100
    assert len(problem.next_step) < MAX_CHARACTERS + 100


def test_names_of_a_later_snapshot_are_those_of_then():
    known = KnownModels()

    before = known.unknown("visits2", {"visits": 1}, None)
    after = known.unknown("visits2", {"visits22": 1}, None)

    assert before.detail.endswith("did you mean 'visits'?")
    assert after.detail.endswith("did you mean 'visits22'?")
