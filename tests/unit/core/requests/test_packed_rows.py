"""Rows that the typed decoder packs as they come are those that the features would give, one by one."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from builders import a_version
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from understudy.core.requests.caller_entity import owners_of
from understudy.core.requests.caller_request import CallerRequest
from understudy.core.requests.infer_body import read_infer
from understudy.core.requests.predict import DrawnTypedRow, TypedRow
from understudy.core.requests.row_json import read_row_body
from understudy.core.schema.schema import Assembled, InputSchema
from understudy.errors import UnderstudyError

BOUNDS: tuple[Mapping[str, float], ...] = (
    {},
    {"min": 0, "max": 1},
    {"min": 0.1},
    {"max": 0.10000000149011612},
    {"min": -130, "max": 16_777_217},
)
NUMBERS = (
    0,
    1,
    0.1,
    0.5,
    -0.0,
    1.0,
    -1,
    2,
    130,
    0.10000000149011612,
    16_777_217,
    1e-45,
    3.5e38,
    1e300,
    2**53 + 1,
    2**64,
)
ODD: tuple[Any, ...] = (True, None, "1", [0.5], [], {})
Read = Callable[[InputSchema], tuple[CallerRequest, Any]]
"""Returns a call's request, and what else it says."""


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    names = "abcd"[: draw(st.integers(1, 4))]
    kinds = st.sampled_from(["float32", "float32", "float32", "int16", "bool"])
    features = [{"name": name, "dtype": draw(kinds), **draw(st.sampled_from(BOUNDS))} for name in names]
    for one in features:
        if one["dtype"] == "bool":
            one.pop("min", None), one.pop("max", None)
        elif one["dtype"] == "int16":
            one.update({name: bound for name, bound in (("min", 0), ("max", 130)) if name in one})
    tensor = {
        "name": "input",
        "dtype": draw(st.sampled_from(["float32", "float32", "float64"])),
        "features": list(names),
    }
    return {"features": features, "tensors": [tensor], "batch": True}


@st.composite
def calls(draw: st.DrawFn) -> tuple[dict[str, Any], Read]:
    schema = draw(schemas())
    names, datatype = [one["name"] for one in schema["features"]], schema["tensors"][0]["dtype"]
    values = st.sampled_from(NUMBERS) | (st.sampled_from(ODD) if draw(st.booleans()) else st.just(0.5))
    rows = draw(st.lists(st.lists(values, min_size=len(names), max_size=len(names)), min_size=1, max_size=3))
    form = draw(st.sampled_from(["flat", "nested", "bytes", "lists", "objects", "others"]))
    if form == "bytes":
        content = draw(st.binary(min_size=4 * len(names), max_size=4 * len(names)) | st.just(None))
        return schema, _by_bytes(rows, content, names, draw(_around({}, {"id": "a"})))
    if form in ("flat", "nested"):
        data = rows if form == "nested" else [one for row in rows for one in row]
        name = "FP32" if datatype == "float32" else "FP64"
        tensor = {"name": "input", "datatype": name, "shape": [len(rows), len(names)], "data": data}
        return schema, _by_infer(draw(_around({"inputs": [tensor]}, {"id": "a:b"})), None)
    if form == "lists":
        return schema, _by_rows(draw(_around({"instances": rows}, {"entity_id": "e", "category": "c"})))
    objects = [dict(zip(names, row, strict=True), **({"x": 1} if form == "others" else {})) for row in rows]
    return schema, _by_rows(json.dumps({"instances": objects}).encode())


@st.composite
def _around(draw: st.DrawFn, document: dict[str, Any], more: dict[str, Any]) -> bytes:
    """Draw a body with what may stand beside its rows, a key of which may be written twice or with escapes."""
    outputs = [{"name": "p"}, {"name": "q", "parameters": {"binary_data": True}}]
    more = {
        **more,
        "outputs": outputs,
        "parameters": {"entity_id": "p", "binary_data_output": True},
        "signature_name": "serving_default",
    }
    names = draw(st.lists(st.sampled_from(sorted(more)), unique=True))
    values = {name: draw(st.sampled_from([more[name], more[name], "e", 7, None, {"entity_id": "x"}])) for name in names}
    text = json.dumps({**document, **values})
    end = draw(st.sampled_from(["}", "}", "}", ', "inputs": 1}', ', "id": "\\u0041"}', ', "parameters": {}}', " } "]))
    return (text[:-1] + end).encode()


def _by_rows(body: bytes) -> Read:
    def read(compiled: InputSchema) -> tuple[CallerRequest, Any]:
        request, *rest = astuple(read_row_body(body, compiled))
        return request, rest

    return read


def _by_bytes(rows: list[list[Any]], content: bytes | None, names: list[str], around: bytes = b"{}") -> Read:
    flat = [one if isinstance(one, float | int) and abs(one) < 3.4e38 else 0.5 for row in rows for one in row]
    raw = content or struct.pack(f"<{len(flat)}f", *flat)
    count = len(raw) // 4 // len(names)
    tensor = {
        "name": "input",
        "datatype": "FP32",
        "shape": [count, len(names)],
        "parameters": {"binary_data_size": len(raw)},
    }
    text = json.dumps({"inputs": [tensor]}).encode()
    text = text[:-1] + (b", " + around[1:] if len(around) > 2 else b"}")
    return _by_infer(text + raw, len(text))


def _by_infer(body: bytes, length: int | None) -> Read:
    def read(compiled: InputSchema) -> tuple[CallerRequest, Any]:
        request, *rest = astuple(read_infer(body, length, compiled))
        return request, rest

    return read


def _made(read: Read, compiled: InputSchema) -> Any:
    """Return what a version gets of each row, or what is wrong with the first one that is refused."""
    try:
        request, rest = read(compiled)
        owners = owners_of(request.whose, len(request.rows), entity=None, category=None, draw=lambda: "d")
        found: list[tuple[Assembled, Mapping[str, Any]]] = []
        version = a_version()
        for one in request.requests(owners):
            schema = replace(compiled, decoder=getattr(one, "decoder", None))
            found.append((one.assemble(replace(version, input_schema=schema), None), one.inputs))
    except UnderstudyError as problem:
        return problem.code, str(problem), getattr(problem, "violations", ())
    places = [request.place_of(0, name, 0) for name in (None, *request.wanted)]
    return found, [str(one) for _, one in found], request.elements, request.whose, places, rest


@given(calls())
def test_packed_rows_are_those_of_the_features(call: tuple[dict[str, Any], Read]):
    schema, read = call
    compiled = a_version(input_schema=schema).input_schema
    assert compiled.decoder is not None or len(compiled.features) > 4

    assert _made(read, compiled) == _made(read, replace(compiled, decoder=None))


@pytest.mark.parametrize("form", ["flat", "bytes", "lists", "objects"])
def test_the_usual_forms_are_packed_as_they_come(form: str):
    features = [{"name": name, "dtype": "float32", "min": 0, "max": 1} for name in "ab"]
    schema = {
        "features": features,
        "tensors": [{"name": "input", "dtype": "float32", "features": ["a", "b"]}],
        "batch": True,
    }
    compiled = a_version(input_schema=schema).input_schema
    tensor = {"name": "input", "datatype": "FP32", "shape": [2, 2], "data": [0, 0.5, 1, 0.25]}
    instances = {"lists": [[0, 0.5], [1, 0.25]], "objects": [{"b": 0.5, "a": 0}, {"a": 1, "b": 0.25}]}.get(form)
    read = {
        "flat": _by_infer(json.dumps({"inputs": [tensor]}).encode(), None),
        "bytes": _by_bytes([[0, 0.5], [1, 0.25]], None, ["a", "b"]),
    }.get(form, _by_rows(json.dumps({"instances": instances}).encode()))

    request, _ = read(compiled)

    assert request.packed is not None
    assert list(request.packed.rows) == [struct.pack("<2f", 0, 0.5), struct.pack("<2f", 1, 0.25)]
    unnamed = owners_of(request.whose, 2, entity=None, category=None, draw=lambda: "d")
    assert [type(one) for one in request.requests(unnamed)] == [DrawnTypedRow, DrawnTypedRow]
    assert all(isinstance(one, TypedRow) and one.is_drawn for one in request.requests(unnamed))
    assert request.rows[1] == {"a": 1, "b": 0.25}
