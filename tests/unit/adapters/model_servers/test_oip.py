"""Which output of an answer is used, and which answers have none that can be."""

import pytest

from understudy.adapters.model_servers.oip import index_of_output
from understudy.errors import BadAnswer


def test_the_output_that_the_schema_names_is_used_and_the_first_one_where_it_names_none():
    assert index_of_output("b", ["a", "b"]) == 1
    assert index_of_output(None, ["a", "b"]) == 0


def test_two_outputs_of_the_wanted_name_are_no_answer():
    with pytest.raises(BadAnswer, match="several outputs 'a'"):
        index_of_output("a", ["a", "b", "a"])
