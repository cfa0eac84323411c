"""Hostile calls in other servers' protocols over HTTP: the Open Inference Protocol, KServe V1 and MLflow."""

import gzip
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rigs.fuzz.cases import AUTHORIZATION, EITHER, GOOD, Case
from rigs.fuzz.models import MIXED, VECTORS, VISITS, Attacked, attacked_models
from rigs.fuzz.values import (
    HOSTILE_TEXTS,
    MARK,
    Inputs,
    bad_entity_ids,
    bad_values,
    dumps,
    entity_ids,
    good_value,
    inputs_for,
    mutated,
)
from understudy.core.schema.tensors import Datatype, parse_datatype

REFUSED_IN_FORM = EITHER | {404, 413, 501}


def oip_cases(model: Attacked) -> SearchStrategy[Case]:
    """Draw infer calls with an input for each feature, and what is almost one."""
    features = {one["name"]: one for one in model.input_schema["features"]}

    def case_of(inputs: Inputs, entity: Any, more: Mapping[str, Any], binary: bool) -> Case:  # noqa: FBT001 - drawn
        is_good = inputs.is_good and not more and isinstance(entity, str) and 0 < len(entity) < 256  # noqa: PLR2004
        tensors = [_tensor(name, value, features.get(name, {})) for name, value in inputs.values.items()]
        content, head = b"", b""
        parameters = {"entity_id": entity, "binary_data_output": binary}
        if is_good and binary:
            content = b"".join(_in_binary(one) for one in tensors)
        text = dumps({"id": "f", "inputs": tensors, "parameters": parameters, **more})
        if content:
            head = b"inference-header-content-length: %d\r\n" % len(text)
        return Case(
            f"/v2/models/{model.name}/infer", text + content, GOOD if is_good else REFUSED_IN_FORM, headers=head
        )

    odd = _odd("inputs", "outputs", "parameters", "id")
    return st.builds(
        case_of, inputs_for(model.input_schema), entity_ids | bad_entity_ids, st.just({}) | odd, st.booleans()
    )


def _odd(*names: str) -> SearchStrategy[dict[str, Any]]:
    """Draw bad values of one or two fields. A call's own name and a signature's are said again: they have no mark."""

    def is_fit(drawn: dict[str, Any]) -> bool:
        return not any(MARK in str(drawn.get(name)) for name in ("id", "signature_name"))

    return st.dictionaries(st.sampled_from(names), bad_values, min_size=1, max_size=2).filter(is_fit)


def lying_binary_cases() -> SearchStrategy[Case]:
    """Draw tensors as bytes whose lengths, shapes and datatypes contradict each other."""
    sizes = st.sampled_from([0, -1, 1, 3, 51, 52, 53, 2**31, 2**63, 2**64 - 1, "52", None])
    shapes = st.lists(st.sampled_from([0, 1, 13, -1, 2**31, 2**62, 2**63, "1", None, 1.5]), max_size=12)
    kinds = st.sampled_from(["FP32", "FP64", "BYTES", "BOOL", "INT64", "BF16", "fp32", "", None])
    content = st.sampled_from([b"", b"\x00" * 52, b"\xff" * 52, b"\xff\xff\xff\xff" + b"x" * 48, b"\x00" * 53])
    lengths = st.sampled_from(["exact", "0", "1", "99999999", "-1", "x", ""])

    def case_of(size: Any, shape: Any, kind: Any, rest: bytes, length: str) -> Case:
        tensor = {"name": "input", "datatype": kind, "shape": shape, "parameters": {"binary_data_size": size}}
        text = dumps({"inputs": [tensor]})
        head = str(len(text)) if length == "exact" else length
        line = f"inference-header-content-length: {head}\r\n".encode()
        return Case(f"/v2/models/{VISITS}/infer", text + rest, REFUSED_IN_FORM, headers=line)

    return st.builds(case_of, sizes, shapes, kinds, content, lengths)


def v1_cases(model: Attacked) -> SearchStrategy[Case]:
    """Draw KServe V1's calls: rows as objects of features, columns, and what is almost either."""
    is_batch = bool(model.input_schema.get("batch"))

    def rows_of(drawn: list[Inputs], entity: Any, more: Mapping[str, Any]) -> Case:
        is_good = all(one.is_good for one in drawn) and not more and isinstance(entity, str) and 0 < len(entity) < 256  # noqa: PLR2004
        text = dumps({"instances": [one.values for one in drawn], "entity_id": entity, **more})
        return Case(f"/v1/models/{model.name}:predict", text, GOOD if is_good and is_batch else REFUSED_IN_FORM)

    def columns_of(inputs: Inputs) -> Case:
        columns = {name: [value] for name, value in inputs.values.items()}
        return Case(f"/v1/models/{model.name}:predict", dumps({"inputs": columns}), REFUSED_IN_FORM)

    odd = _odd("inputs", "signature_name", "x", "instances", "category")
    inputs = inputs_for(model.input_schema)
    rows = st.builds(rows_of, st.lists(inputs, min_size=1, max_size=5), entity_ids | bad_entity_ids, st.just({}) | odd)
    return rows | inputs.map(columns_of)


def invocation_cases(model: Attacked) -> SearchStrategy[Case]:
    """Draw MLflow's forms of a frame, and CSV that is almost one."""
    inputs = st.lists(inputs_for(model.input_schema).map(lambda one: one.values), min_size=1, max_size=4)
    records = inputs.map(lambda rows: dumps({"dataframe_records": rows}))
    frames = st.tuples(st.lists(st.text(max_size=6) | bad_values, max_size=5), st.lists(bad_values, max_size=4)).map(
        lambda drawn: dumps({"dataframe_split": {"columns": drawn[0], "data": drawn[1]}})
    )
    csv = st.lists(st.text(max_size=40), max_size=5).map(lambda lines: "\r\n".join(lines).encode(errors="replace"))
    target = f"/v1/models/{model.name}/invocations"
    as_json = (records | frames).map(lambda body: Case(target, body, REFUSED_IN_FORM))
    return as_json | csv.map(lambda body: Case(target, body, REFUSED_IN_FORM, headers=b"content-type: text/csv\r\n"))


def broken_dialect_cases() -> SearchStrategy[Case]:
    """Draw texts that are such a call almost, to every path that reads one."""
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 13], "data": [0.5] * 13}
    texts = [
        dumps({"inputs": [tensor], "outputs": [{"name": "probabilities"}], "parameters": {"entity_id": "e-1"}}),
        dumps({"instances": [[0.5] * 13], "signature_name": "serving_default"}),
        dumps({"examples": [{"age": 1}], "context": {"plan": "pro"}}),
        dumps({"dataframe_split": {"columns": ["a"], "data": [[1]]}, "params": {"entity_id": "e"}}),
    ]
    targets = st.sampled_from([
        f"/v2/models/{VISITS}/infer",
        f"/v2/models/{VISITS}/versions/1/infer",
        f"/v1/models/{VISITS}:predict",
        f"/v1/models/{MIXED}:classify",
        f"/v1/models/{MIXED}:regress",
        f"/v1/models/{VISITS}/labels/canary:predict",
        f"/v1/models/{VISITS}/invocations",
        "/v2/models/%00/infer",
        "/v2/repository/index",
    ])  # fmt: skip
    bodies = st.sampled_from(texts).flatmap(mutated) | st.sampled_from(HOSTILE_TEXTS) | st.binary(max_size=200)
    return st.tuples(targets, bodies).map(
        lambda drawn: Case(drawn[0], drawn[1], REFUSED_IN_FORM, headers=AUTHORIZATION)
    )


def good_but_compressed_cases() -> SearchStrategy[Case]:
    """Draw good calls that are compressed: between bombs they are answered."""
    (model,) = (one for one in attacked_models() if one.name == VECTORS)
    required = {one["name"]: good_value(one) for one in model.input_schema["features"]}
    features = {one["name"]: one for one in model.input_schema["features"]}
    return st.fixed_dictionaries(required).map(
        lambda values: Case(
            f"/v2/models/{VECTORS}/infer",
            gzip.compress(dumps({"inputs": [_tensor(name, value, features[name]) for name, value in values.items()]})),
            GOOD,
            headers=b"content-encoding: gzip\r\n",
        )
    )


def _tensor(name: str, value: Any, feature: Mapping[str, Any]) -> dict[str, Any]:
    kind = parse_datatype(feature["dtype"]).wire_name if "dtype" in feature else "FP32"
    data = value if isinstance(value, list) else [value]
    # Each of these models' tensors has the name of its first feature, and one dimension.
    return {"name": name, "datatype": kind, "shape": [prod(feature.get("shape", [1]))], "data": data}


def _in_binary(tensor: dict[str, Any]) -> bytes:
    """Return a tensor's content as bytes, which then come behind the JSON."""
    data = tensor.pop("data")
    datatype = next(one for one in Datatype if one.wire_name == tensor["datatype"])
    if datatype is Datatype.BYTES:
        texts = [text.encode() for text in np.array(data, object).ravel()]
        content = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    else:
        content = np.array(data, datatype.numpy_dtype).tobytes()
    tensor["parameters"] = {"binary_data_size": len(content)}
    return content
