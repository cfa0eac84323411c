"""How much of a model server's JSON is read before an answer of too many values is refused."""

from typing import NoReturn

import pytest

from understudy.core.schema.json_codec import MAX_ANSWER_DEPTH, MAX_ANSWER_VALUES, flattened, read_json, tensor_of_json
from understudy.core.schema.tensors import Datatype
from understudy.errors import BadAnswer


class Unread(list[object]):
    """A list whose elements are not looked at."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("its elements were read")


def test_an_answer_of_more_values_than_its_schema_says_is_refused_before_they_are_read():
    with pytest.raises(BadAnswer, match="more values than the 3"):
        flattened(Unread([1, 2, 3, 4]), 3)


def test_so_is_one_whose_inner_lists_hold_too_many():
    with pytest.raises(BadAnswer, match="more values than the 3"):
        flattened([[1, 2], [3, 4]], 3)
    assert flattened([[1, 2], [3, 4]], 4) == flattened([[1, 2], [3, 4]], None) == ((2, 2), [1, 2, 3, 4], {int})


@pytest.mark.parametrize("value", [[1, [2]], [[1], 2], [[1], [2, 3]], [[[1]], [2]], [[[1]], [[2], [3]]]])
def test_lists_of_different_lengths_or_depths_are_no_tensor(value):
    with pytest.raises(BadAnswer, match="differ in length"):
        flattened(value, None)


def test_lists_are_read_to_their_greatest_depth_and_no_deeper():
    value: object = 1.5
    for _ in range(MAX_ANSWER_DEPTH):
        value = [value]

    assert flattened(value, None) == ((1,) * MAX_ANSWER_DEPTH, [1.5], {float})
    with pytest.raises(BadAnswer, match="nested too deep"):
        flattened([value], None)


@pytest.mark.deep
@pytest.mark.parametrize(("element", "marks"), [(b"1", 1), (b"[]", 2), (b"{}", 2)])
def test_json_of_too_many_values_is_refused_before_it_is_parsed(element, marks):
    most = MAX_ANSWER_VALUES // marks
    whole = b"[" + b",".join([element] * most) + b"]"

    assert len(read_json(whole)) == most
    with pytest.raises(BadAnswer, match="more than 524,288 values"):
        read_json(whole + b", this is no JSON")


def test_a_number_beyond_its_datatype_is_infinite_which_outputs_may_not_be():
    assert tensor_of_json([1e39, -1e39, 1], Datatype.FP32).values.tolist() == [float("inf"), float("-inf"), 1.0]
