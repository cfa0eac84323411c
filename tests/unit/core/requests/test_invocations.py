"""CSV as a hostile caller writes it: what no JSON would say is refused, in time that grows as the body does."""

from time import thread_time
from typing import Any

import pytest

from understudy.core.requests import invocations
from understudy.core.requests.invocations import read_csv
from understudy.core.schema.compile import compile_input_schema
from understudy.errors import InputInvalid

FEATURES = [{"name": "age", "dtype": "float64"}, {"name": "income", "dtype": "float64"}]
SCHEMA = compile_input_schema({"features": FEATURES, "batch": True})
ONE_TENSOR = [{"name": "x", "dtype": "float64", "features": ["age", "income"]}]
PACKED = compile_input_schema({"features": FEATURES, "tensors": ONE_TENSOR, "batch": True})


@pytest.mark.parametrize("field", ["1", "+1.", ".5", "-1e5", "1E-3", " 2 ", "e", "1e", "--1", ".", "1.2.3", "1e999"])
def test_a_line_of_one_tensor_says_what_its_fields_do(field):
    def said(text: str, schema: Any) -> bytes | str:
        try:
            return b"".join(schema.assemble(read_csv(text, schema).rows[0]).row)
        except InputInvalid as problem:
            return problem.violations[0].detail

    assert said(f"2,{field}", PACKED) == said(f"age,income\n2,{field}", SCHEMA)


@pytest.mark.parametrize("field", ["nan", "Infinity", "-inf", "1e999", "9" * 400, "\u0663", "1_0", "0x1", "true"])
def test_what_is_no_number_in_json_is_none_in_csv(field):
    (row,) = read_csv(f"age,income\n{field},1\n", SCHEMA).rows

    with pytest.raises(InputInvalid, match="1 problem"):
        SCHEMA.assemble(row)


def test_a_long_field_of_digits_is_read_in_time_that_grows_as_it_does():
    began = thread_time()

    read_csv(f"age,income\n{'1' * 20_000}x,1\n", SCHEMA)

    assert thread_time() - began < 0.1  # eight seconds, where the digits can be parted in two


def test_fields_of_a_line_that_is_too_long_are_not_read(monkeypatch):
    def never(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(invocations, "_value_of", never)

    with pytest.raises(InputInvalid):
        read_csv("1," * 1_000, PACKED)
