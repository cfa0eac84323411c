"""How much of an ONNX file is trees."""

from hypothesis import given
from hypothesis import strategies as st
from worlds.onnx_file import a_matrix_model

from understudy.adapters.dev_server.example_models import example_version
from understudy.core.loading.onnx_trees import MAX_FIELDS, tree_bytes


def test_weights_are_no_trees():
    assert tree_bytes(a_matrix_model(100_000)) == 0


def test_nearly_all_of_a_boosted_model_is_trees():
    content = example_version("visits", 2).read()

    assert 0.9 * len(content) < tree_bytes(content) < len(content)


@given(st.binary(max_size=200))
def test_of_what_is_no_onnx_file_no_more_than_all_is_trees(content: bytes):
    assert 0 <= tree_bytes(content) <= len(content)


@given(st.integers(0, 2_000))
def test_a_file_that_ends_too_soon_is_read_as_far_as_it_goes(size: int):
    content = example_version("visits", 2).read()[:size]

    assert 0 <= tree_bytes(content) <= size


def test_a_file_of_more_fields_than_a_model_has_is_taken_for_trees_and_not_walked():
    content = b"\x08\x00" * (MAX_FIELDS + 1)

    assert tree_bytes(content) == len(content)
    assert tree_bytes(content[2:]) == 0
