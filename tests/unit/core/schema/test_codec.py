"""What a hostile or broken model server says of its tensors is refused in a few words, and at once."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.schema.codec import (
    MAX_STRINGS,
    join_bytes_elements,
    split_bytes_elements,
    tensor_of_content,
    tensor_of_values,
)
from understudy.core.schema.outputs import predictions_of
from understudy.core.schema.schema import OutputSchema
from understudy.core.schema.tensors import Datatype, shape_text
from understudy.errors import BadAnswer

MAX_DETAIL = 400
dimensions = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("shape", [(1,) * 200_000, (2**63 - 1,) * 200_000, (-1,) * 200_000, (1,) * 200_000 + (0,)])
def test_a_shape_of_200_000_dimensions_is_refused_in_a_few_words_and_at_once(shape):
    began = time.process_time()

    with pytest.raises(BadAnswer, match=r"200\d{3} dimensions") as by_content:
        tensor_of_content(Datatype.FP32, shape, bytes(8))
    with pytest.raises(BadAnswer, match=r"200\d{3} dimensions") as by_values:
        tensor_of_values(Datatype.FP32, shape, [1.0, 2.0])

    assert max(len(by_content.value.detail), len(by_values.value.detail)) <= MAX_DETAIL
    assert time.process_time() - began < 1


@given(st.lists(dimensions, max_size=80).map(tuple), st.sampled_from(Datatype), st.integers(0, 9))
def test_whatever_shape_an_output_claims_the_refusal_is_short(shape, datatype, rows):
    try:
        tensor = tensor_of_content(datatype, shape, bytes(8))
        predictions_of(OutputSchema(), tensor, rows, batch=True)
    except BadAnswer as problem:
        assert len(problem.detail) <= MAX_DETAIL


@given(st.lists(st.integers(0, 9), max_size=8).map(tuple))
def test_a_usual_shape_is_named_as_a_list(shape):
    assert shape_text(shape) == str(list(shape))


def test_a_long_shape_is_named_by_its_first_dimensions_and_their_number():
    assert shape_text(tuple(range(20))) == "[0, 1, 2, 3, 4, 5, 6, 7, …], which has 20 dimensions"


def test_strings_are_split_up_to_the_first_too_many():
    content = join_bytes_elements([b"a", b"bc", b""]) + b"no length"

    assert split_bytes_elements(content, 2) == [b"a", b"bc", b""]
    with pytest.raises(BadAnswer, match=r"more strings than its shape \[2\]"):
        tensor_of_content(Datatype.BYTES, (2,), content)


def test_an_output_of_too_many_strings_is_refused_before_they_are_split():
    shape = (MAX_STRINGS + 1,)

    with pytest.raises(BadAnswer, match="more than 524,288 strings"):
        tensor_of_content(Datatype.BYTES, shape, b"no length")
    with pytest.raises(BadAnswer, match="more than 524,288 strings"):
        tensor_of_values(Datatype.BYTES, shape, range(MAX_STRINGS + 1))
