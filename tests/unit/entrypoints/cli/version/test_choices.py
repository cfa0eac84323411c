"""What options say of a model is read, or refused with an example."""

import pytest

from understudy.core.schema.proposed import Choices
from understudy.entrypoints.cli.shared.errors import CommandRefused
from understudy.entrypoints.cli.version.choices import backend_of, choices_of

NOTHING = dict.fromkeys(
    ("columns", "shapes", "bounds", "stored", "output", "score", "activation", "answer_bounds", "labels")
)


def test_without_an_option_nothing_is_chosen():
    assert choices_of(**NOTHING) == Choices()


def test_each_option_is_read():
    found = choices_of(
        columns=["age,ward", "plan=free,pro"], shapes=["tokens=128,2", "score="], bounds=["age=0:130", "a=b=-1.5:"],
        stored=["visits"], output="p", score=0, activation="sigmoid", answer_bounds=":1", labels="no,yes",
    )  # fmt: skip

    assert found == Choices(
        columns={"": ("age", "ward"), "plan": ("free", "pro")},
        shapes={"tokens": (128, 2), "score": ()},
        bounds={"age": (0, 130), "a=b": (-1.5, None)},
        stored=("visits",),
        output="p",
        score=0,
        activation="sigmoid",
        answer_bounds=(None, 1),
        labels=("no", "yes"),
    )


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("shapes", ["128"], "--shape 128: expected NAME=…"),
        ("shapes", ["x=0"], "expected whole numbers above 0"),
        ("shapes", ["x=9999999999"], "expected whole numbers above 0"),
        ("bounds", ["age"], "--bounds age: expected NAME=…"),
        ("bounds", ["age=1"], "expected two numbers with a colon"),
        ("answer_bounds", "0:nan", "expected two numbers with a colon"),
        ("answer_bounds", "5:1", "the lower one first"),
    ],
)
def test_what_cannot_be_read_is_refused(option, value, words):
    with pytest.raises(CommandRefused, match=words):
        choices_of(**{**NOTHING, option: value})


def test_backend_settings_are_text_or_truth_values():
    found = backend_of(["model_name=churn", "version=7", "tls=true", "typed_contents=false"])

    assert found == {"model_name": "churn", "version": "7", "tls": True, "typed_contents": False}
