"""What differs between two registered versions of a model: inputs, tensors, outputs, model servers and settings."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from understudy.core.schema.compile import compile_input_schema, compile_output_schema
from understudy.core.schema.features import MAX_STRING_BYTES, Feature
from understudy.core.schema.input_diff import InputDifferences, Names, differences_of
from understudy.core.schema.schema import InputSchema, OutputSchema, PackedTensor
from understudy.core.schema.tensors import Datatype
from understudy.errors import SchemaInvalid

SETTINGS = (
    "protocol",
    "timeout_ms",
    "cache_ttl_seconds",
    "deterministic",
    "framework",
    "artifact_path",
    "artifact_digest",
    "base_model",
    "family",
    "backend",
)
"""Columns of ``ModelVersion`` that are compared as they are."""


class Part(StrEnum):
    """What of a version a difference is about."""

    INPUT = "input"
    INPUT_SCHEMA = "input_schema"
    TENSOR = "tensor"
    OUTPUT = "output"
    ENDPOINT = "endpoint"
    SETTING = "setting"


class Difference(NamedTuple):
    """One difference, in the terms of the documents that a version is registered with.

    Attributes:
        part: What differs. ``tensor`` is a declared input of the model server, where one of the two declares any.
        name: The input's or the tensor's; empty for the other parts, of which a version has one each.
        field: Which field differs; empty where the whole was added or removed.
        old: ``None`` where it was added.
        new: ``None`` where it was removed.
    """

    part: Part
    name: str
    field: str
    old: Any
    new: Any


class Callers(StrEnum):
    """Which calls of the old version the new one can answer; with ``SOME`` it depends on their values."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


class Comparison(NamedTuple):
    """Two versions side by side."""

    callers: Callers
    inputs: InputDifferences
    differences: tuple[Difference, ...]


def compare_versions(old: Mapping[str, Any], new: Mapping[str, Any], names: Names) -> Comparison:
    """Compare two rows of ``ModelVersion``, each with its ``endpoints``; callers are those of ``old``.

    Raises:
        SchemaInvalid: A schema cannot be compiled; the detail names the version, and the field.
    """
    inputs_old, inputs_new = _compiled(old, "input_schema"), _compiled(new, "input_schema")
    found = differences_of(inputs_old, inputs_new, names)
    listed = [
        *_members(Part.INPUT, _inputs_of(inputs_old), _inputs_of(inputs_new)),
        *_fields(Part.INPUT_SCHEMA, "", _layout_of(inputs_old), _layout_of(inputs_new)),
    ]
    if any("tensors" in row["input_schema"] for row in (old, new)):
        # Without declared tensors each input is a tensor of its own, and is compared above.
        listed += _members(Part.TENSOR, _tensors_of(inputs_old), _tensors_of(inputs_new))
    outputs = [_output_of(_compiled(row, "output_schema")) for row in (old, new)]
    listed += _fields(Part.OUTPUT, "", *outputs)
    listed += _endpoints(old["endpoints"], new["endpoints"])
    listed += _fields(Part.SETTING, "", *({name: row[name] for name in SETTINGS} for row in (old, new)))
    return Comparison(callers_of(found), found, tuple(listed))


def callers_of(found: InputDifferences) -> Callers:
    """Return which calls fit both versions, by how the inputs differ."""
    if found.breaking:
        return Callers.NONE
    return Callers.SOME if found.possible else Callers.ALL


def _compiled(row: Mapping[str, Any], name: str) -> Any:
    compiled_by = {"input_schema": compile_input_schema, "output_schema": compile_output_schema}
    try:
        return compiled_by[name](row[name])
    except SchemaInvalid as problem:
        raise SchemaInvalid(f"version {row['version']}: {problem.detail}") from None


def _members(
    part: Part, old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> Iterator[Difference]:
    for name in {**old, **new}:
        if name in old and name in new:
            yield from _fields(part, name, old[name], new[name])
        else:
            yield Difference(part, name, "", old.get(name), new.get(name))


def _fields(part: Part, name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for field in {**old, **new}:
        if old.get(field) != new.get(field):
            yield Difference(part, name, field, old.get(field), new.get(field))


def _endpoints(old: tuple[str, ...], new: tuple[str, ...]) -> Iterator[Difference]:
    for target in old:
        if target not in new:
            yield Difference(Part.ENDPOINT, "", "", target, None)
    for target in new:
        if target not in old:
            yield Difference(Part.ENDPOINT, "", "", None, target)


# -- what is compared; fields with their default are left out ----------------------------------------------------------


def _inputs_of(schema: InputSchema) -> dict[str, dict[str, Any]]:
    return {feature.name: _input_of(feature) for feature in schema.features}


def _input_of(feature: Feature) -> dict[str, Any]:
    return _said(
        dtype=_dtype(feature.datatype),
        shape=list(feature.shape),
        required=not (feature.has_default or feature.stored),
        default=feature.default,
        min=feature.minimum,
        max=feature.maximum,
        enum=list(feature.enum) or None,
        max_bytes=feature.max_bytes if feature.max_bytes != MAX_STRING_BYTES else None,
        source="store" if feature.stored else None,
        per="treatment" if feature.per_treatment else None,
        private=feature.private or None,
        slice=feature.is_slice or None,
    )


def _layout_of(schema: InputSchema) -> dict[str, Any]:
    treatments = schema.treatments
    if treatments is None:
        return {"batch": schema.batch}
    layout = _said(layout="nested" if treatments.nested else "rows", counts=treatments.counts)
    return {"batch": schema.batch, "treatments": layout}


def _tensors_of(schema: InputSchema) -> dict[str, dict[str, Any]]:
    return {packed.spec.name: _tensor_of(packed) for packed in schema.packed}


def _tensor_of(packed: PackedTensor) -> dict[str, Any]:
    spec = packed.spec
    names = [feature.name for feature in packed.features]
    return {"dtype": _dtype(spec.datatype), "shape": list(spec.shape), "features": names}


def _output_of(schema: OutputSchema) -> dict[str, Any]:
    return _said(
        tensor=schema.tensor,
        dtype=None if schema.datatype is None else _dtype(schema.datatype),
        shape=None if schema.shape is None else list(schema.shape),
        score_index=schema.score_index,
        activation=schema.activation if schema.activation != "none" else None,
        min=schema.minimum,
        max=schema.maximum,
        labels=list(schema.labels) or None,
        threshold=schema.threshold,
        also=list(schema.also) or None,
    )


def _said(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _dtype(datatype: Datatype) -> str:
    return "string" if datatype is Datatype.BYTES else datatype.numpy_dtype.name
