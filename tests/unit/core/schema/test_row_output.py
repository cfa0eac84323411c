import numpy as np
import pytest

from understudy.core.schema.row_output import RowOutput, row_outputs_of
from understudy.core.schema.tensors import Datatype, Tensor
from understudy.errors import BadAnswer


def test_a_row_has_the_very_bits_of_its_part_of_the_tensor():
    values = np.array([0.1, -0.0, 1e-45, 3.4e38, 5, 6], "<f4")
    tensor = Tensor(Datatype.FP32, (3, 2, 1), values, "logits")

    first, last = row_outputs_of(tensor, [0, 2], batch=True)

    assert first == RowOutput("logits", Datatype.FP32, (2, 1), values[:2].tobytes())
    assert isinstance(last, RowOutput)
    assert last.content == values[4:].tobytes()


def test_without_a_batch_dimension_the_row_is_the_tensor():
    values = np.array([1, 2, 3, 4], "<i8")

    (row,) = row_outputs_of(Tensor(Datatype.INT64, (2, 2), values), [0], batch=False)

    assert isinstance(row, RowOutput)
    assert (row.shape, row.content) == ((2, 2), values.tobytes())


def test_strings_have_their_lengths_before_them():
    values = np.array([b"ja", b"", b"nein"], dtype=object)

    rows = row_outputs_of(Tensor(Datatype.BYTES, (3, 1), values), range(3), batch=True)

    assert [row.content for row in rows if isinstance(row, RowOutput)] == [b"\2\0\0\0ja", b"\0\0\0\0", b"\4\0\0\0nein"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_json_cannot_say_is_a_bad_answer_and_the_others_are_not(bad):
    tensor = Tensor(Datatype.FP32, (3, 2), np.array([1, 2, 3, bad, 5, 6], "<f4"))

    first, second, third = row_outputs_of(tensor, range(3), batch=True)

    assert isinstance(second, BadAnswer)
    assert (first, third) == tuple(row_outputs_of(tensor, [0, 2], batch=True))
    assert isinstance(first, RowOutput)


def test_rows_of_outputs_beside_the_judged_one_come_with_it_and_are_not_judged():
    rank = Tensor(Datatype.FP64, (3,), np.array([1.0, np.nan, 3.0]), "rank")
    tensor = Tensor(Datatype.FP32, (3, 1), np.array([0.5, 0.25, 0.125], "<f4"), "p", (rank,))

    found = row_outputs_of(tensor, [1, 2], batch=True)

    assert [getattr(one, "beside", None) for one in found] == [
        (RowOutput("rank", Datatype.FP64, (), np.array([value]).tobytes()),) for value in (np.nan, 3.0)
    ]


def test_an_output_beside_the_judged_one_without_its_rows_is_a_bad_answer_of_all_that_keep_outputs():
    tensor = Tensor(
        Datatype.FP32, (2, 1), np.array([0.5, 0.25], "<f4"), "p", (Tensor(Datatype.INT64, (1,), np.array([1]), "rank"),)
    )

    assert ["rank" in str(one) for one in row_outputs_of(tensor, [0, 1], batch=True)] == [True, True]
