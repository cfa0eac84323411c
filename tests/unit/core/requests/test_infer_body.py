"""A caller's tensors are the version's tensors, bit for bit, whatever they are sent as; and features are features."""

from typing import Any

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.requests.caller_entity import Named, owners_of
from understudy.core.requests.infer_body import read_infer
from understudy.core.requests.row_json import read_row_json
from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.tensors import Datatype
from understudy.errors import InputInvalid

DTYPES = ("float32", "float64", "int8", "int64", "uint8", "bool")
ENTITY = Named("e", "x-entity-id")


@st.composite
def schemas(draw: st.DrawFn) -> InputSchema:
    """Draw tensors that each hold a few features of one datatype, of several shapes."""
    features: list[dict[str, Any]] = []
    tensors: list[dict[str, Any]] = []
    for place in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(DTYPES))
        shapes = draw(st.lists(st.lists(st.integers(1, 3), max_size=2), min_size=1, max_size=3))
        names = [f"f{place}-{number}" for number in range(len(shapes))]
        features += [{"name": name, "dtype": dtype, "shape": shape} for name, shape in zip(names, shapes, strict=True)]
        tensors.append({"name": f"t{place}", "features": names})
    return compile_input_schema({"features": features, "tensors": tensors, "batch": True})


@st.composite
def calls(draw: st.DrawFn) -> tuple[InputSchema, list[np.ndarray[Any, Any]]]:
    """Draw a schema, and each tensor's values for some rows."""
    schema, rows = draw(schemas()), draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    arrays = []
    for spec in schema.tensors:
        size, dtype = rows * spec.size, spec.datatype.numpy_dtype
        if spec.datatype.is_float:
            values = random.normal(size=size).astype(dtype)
        elif spec.datatype is Datatype.BOOL:
            values = random.integers(0, 2, size).astype(dtype)
        else:
            limits = np.iinfo(dtype)
            values = random.integers(limits.min, limits.max, size, dtype=dtype, endpoint=True)
        arrays.append(values.reshape(rows, *spec.shape))
    return schema, arrays


def contents_of(schema: InputSchema, request: Any) -> list[bytes]:
    """Return each tensor's content in all rows together, as the model server would get it."""
    owners = owners_of(request.whose, len(request.rows), entity=ENTITY, category=None, draw=None)
    rows = [schema.assemble(one.inputs).row for one in request.requests(owners)]
    return [b"".join(parts) for parts in zip(*rows, strict=True)]


@given(calls())
def test_tensors_reach_the_model_server_bit_for_bit(call):
    schema, arrays = call
    expected = [array.tobytes() for array in arrays]
    heads = [
        {"name": spec.name, "datatype": spec.datatype.wire_name, "shape": array.shape}
        for spec, array in zip(schema.tensors, arrays, strict=True)
    ]
    sized = [{**head, "parameters": {"binary_data_size": len(e)}} for head, e in zip(heads, expected, strict=True)]
    nested = [{**head, "data": array.tolist()} for head, array in zip(heads, arrays, strict=True)]
    header = orjson.dumps({"inputs": sized})

    as_bytes = read_infer(header + b"".join(expected), len(header), schema)
    as_json = read_infer(orjson.dumps({"inputs": nested}), None, schema)

    assert contents_of(schema, as_bytes.request) == contents_of(schema, as_json.request) == expected


@given(calls())
def test_rows_and_columns_reach_it_bit_for_bit(call):
    schema, arrays = call
    named = {spec.name: array.tolist() for spec, array in zip(schema.tensors, arrays, strict=True)}
    instances = [{name: column[row] for name, column in named.items()} for row in range(len(arrays[0]))]

    in_rows = read_row_json({"instances": instances}, schema)
    in_columns = read_row_json({"inputs": named}, schema)

    expected = [array.tobytes() for array in arrays]
    assert contents_of(schema, in_rows.request) == contents_of(schema, in_columns.request) == expected


@given(calls(), st.data())
def test_what_is_wrong_is_named_where_it_stands(call, data):
    schema, arrays = call
    heads: list[dict[str, Any]] = [
        {"name": spec.name, "datatype": spec.datatype.wire_name, "shape": array.shape, "data": array.ravel().tolist()}
        for spec, array in zip(schema.tensors, arrays, strict=True)
    ]
    tensor = data.draw(st.integers(0, len(heads) - 1))
    element = data.draw(st.integers(0, arrays[tensor].size - 1))
    heads[tensor]["data"][element] = "x"
    request = read_infer(orjson.dumps({"inputs": heads}), None, schema).request
    row = element // schema.tensors[tensor].size

    try:
        schema.assemble(request.rows[row])
    except InputInvalid as problem:
        found = request.located(row, problem)

    assert isinstance(found, InputInvalid)
    assert [place.pointer for place in found.violations] == [f"/inputs/{tensor}/data/{element}"]


def test_a_float32_is_the_decimal_that_its_bound_and_the_log_know():
    schema = compile_input_schema({"features": [{"name": "x", "dtype": "float32", "max": 0.1}], "batch": True})
    content = np.array([0.1, -0.0, 1e-45], "<f4").tobytes()
    tensor = {"name": "x", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}}
    header = orjson.dumps({"inputs": [tensor]})

    request = read_infer(header + content, len(header), schema).request

    assert [row["x"] for row in request.rows] == [0.1, 0.0, 1e-45]
    assert contents_of(schema, request) == [content]
