"""Each server of a version is asked for its tensors, and a version that one of them contradicts is refused."""

import pytest
from builders import an_input_schema

from understudy.core.schema.described import DescribedModel, DescribedTensor
from understudy.errors import BackendUnavailable, ModelContradicts
from understudy.ports.registry.registry import NewVersion
from understudy.ports.upstream.model_description import ModelAt
from understudy.registry.described_version import ServerAnswer, ask_servers, require_agreement

INPUT = DescribedTensor("input", "FP32", (-1, 2))


async def say(at: ModelAt) -> DescribedModel:
    """Each port is another server."""
    if at.endpoint == "a:1":
        raise BackendUnavailable("the model server at a:1 is not reached: nothing listens there")
    inputs = {"a:2": (INPUT,), "a:3": (INPUT._replace(datatype="FP64"),), "a:4": ()}
    return DescribedModel(at.endpoint, inputs[at.endpoint], ())


def a_new_version(*endpoints: str) -> NewVersion:
    return NewVersion("visits", "7", "file:m.onnx", "onnx", an_input_schema(), endpoints=endpoints)


async def test_servers_that_agree_are_away_or_say_nothing_let_a_version_be_registered():
    answers = await ask_servers(a_new_version("a:1", "a:2", "a:4", "a:2"), say)

    require_agreement(answers)
    assert answers == [
        ServerAnswer("a:1", False, "the model server at a:1 is not reached: nothing listens there", ()),
        ServerAnswer("a:2", True, "", ()),
        ServerAnswer("a:4", False, "", ()),
    ]


async def test_a_server_that_has_another_datatype_refuses_the_version():
    answers = await ask_servers(a_new_version("a:2", "a:3"), say)

    with pytest.raises(ModelContradicts, match="a:3: the input 'input' is FP64, and the schema says FP32"):
        require_agreement(answers)


def test_a_server_with_thousands_of_other_tensors_is_told_of_in_one_sentence():
    answer = ServerAnswer("a:1", True, "", tuple(f"there is no input 'x{number}'" for number in range(4_096)))

    with pytest.raises(ModelContradicts, match=r"^a:1: there is no input 'x0'; .*'x7' and 4,088 more$"):
        require_agreement([answer])
