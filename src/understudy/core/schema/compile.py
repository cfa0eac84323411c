"""Compiles the documents ``input_schema`` and ``output_schema`` into schemas; their mistakes are named by place.

``input_schema``::

    {"features": [{"name": "age", "dtype": "float32", "shape": [], "min": 0, "max": 130},
                  {"name": "plan", "dtype": "string", "enum": ["free", "pro"], "default": "free"},
                  {"name": "visits_30d", "dtype": "int64", "source": "store", "default": 0}],
     "tensors": [{"name": "input", "dtype": "float32", "features": ["age", "visits_30d"]}],
     "batch": true}

Without ``tensors`` each feature is a tensor of its own. With it, a tensor holds its features side by side, flattened in
the order named. ``batch`` says that the server takes a leading batch dimension (default true).

With ``"per": "treatment"`` a feature belongs to each of the treatments that a rank call brings, and not to the entity.
``"treatments": {"layout": "nested", "counts": "treatment_counts"}`` sends them as ``[1, m, n]`` beside the entity's
tensors; without it (``"layout": "rows"``) each treatment is a row of the batch.

``output_schema``::

    {"tensor": "probabilities", "dtype": "float32", "shape": [2], "score_index": 1, "activation": "none",
     "min": 0, "max": 1, "labels": ["no", "yes"], "threshold": 0.5}

An empty ``output_schema`` takes the server's first output, any shape.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np

from understudy.core.first_names import first_names
from understudy.core.schema.features import (
    JSON_TYPES,
    MAX_STRING_BYTES,
    EnoughViolations,
    Feature,
    as_whole_elements,
    checked,
    problem_of,
)
from understudy.core.schema.schema import (
    InputSchema,
    OutputSchema,
    PackedTensor,
    TreatmentLayout,
    packed_treatment_count,
)
from understudy.core.schema.tensors import Datatype, TensorSpec, parse_datatype
from understudy.core.schema.typed_decoder import (
    ScalarPacker,
    TypedDecoder,
    decoder_of,
    is_readable,
    scalar_struct_of,
)
from understudy.errors import SchemaInvalid, Violation

MAX_FEATURES = 4_096
"""The database has the same bound (``understudy_guard_size``): compiling takes 50 ms, which holds the event loop."""
MAX_NAME = 255
"""Characters of a name: of a feature, a tensor, an output."""
MAX_ALSO = 16
"""Outputs beside the judged one."""
MAX_OPTIONS = 4_096
"""Members of an ``enum``, and labels."""
_OUTPUT_FIELDS = {
    "tensor",
    "dtype",
    "shape",
    "score_index",
    "activation",
    "min",
    "max",
    "labels",
    "threshold",
    "also",
}
MAX_THRESHOLD = 1e100
"""As for a value of training data: beyond it squares are no numbers any more."""
_SHOWN = 5
"""Names in one message."""
MAX_TENSOR_ELEMENTS = 1_000_000
MOST_STRING_BYTES = 16_777_216
"""Most that a schema may permit of one string; bodies are limited besides."""
MAX_SLICE_FEATURES = 4
"""Features of a version that are marked as slices: each call counts once for each of them."""
NO_SLICES = frozenset({"category", "category route", "entity_id"})
"""The call's own category is a slice without a mark, and so is one that is routed; an entity is none, whatever its
values are."""
MAX_DIMENSIONS = 32
"""Half of what numpy takes; nested values are checked by recursion, which must end before Python's limit."""


_FEATURE_FIELDS = {
    "name",
    "dtype",
    "shape",
    "default",
    "min",
    "max",
    "enum",
    "max_bytes",
    "source",
    "private",
    "slice",
    "per",
    "description",
}


def compile_input_schema(document: Any) -> InputSchema:
    """Compile an ``input_schema``.

    Raises:
        SchemaInvalid: Naming the field that cannot be used.
    """
    if not isinstance(document, Mapping):
        raise SchemaInvalid("input_schema: expected an object with 'features'")
    _only(document, {"features", "tensors", "batch", "treatments"}, "input_schema")
    listed = document.get("features")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise SchemaInvalid("input_schema.features: expected a list of at least one feature")
    if len(listed) > MAX_FEATURES:
        raise SchemaInvalid(
            f"input_schema.features: {len(listed):,} features; at most {MAX_FEATURES:,}: give many of one kind as one, "
            "with a shape"
        )
    features = tuple(_compile_feature(entry, f"input_schema.features[{i}]") for i, entry in enumerate(listed))
    by_name = {feature.name: feature for feature in features}
    if len(by_name) != len(features):
        raise SchemaInvalid("input_schema.features: two features have one name")
    batch = document.get("batch", True)
    if not isinstance(batch, bool):
        raise SchemaInvalid("input_schema.batch: expected true or false")
    if "tensors" in document:
        packed = _compile_tensors(document["tensors"], by_name)
    else:
        packed = tuple(
            PackedTensor(TensorSpec(feature.name, feature.datatype, feature.shape), (feature,)) for feature in features
        )
    treatments = _compile_treatments(document.get("treatments"), features, batch=batch)
    if treatments is not None and treatments.nested:
        packed = _nested(packed, treatments.counts)
    if sum(tensor.spec.size for tensor in packed) > MAX_TENSOR_ELEMENTS:
        raise SchemaInvalid(f"input_schema: more than {MAX_TENSOR_ELEMENTS:,} elements for one entity")
    scalars = _scalars(features, packed)
    slices = tuple(feature for feature in features if feature.is_slice)
    if len(slices) > MAX_SLICE_FEATURES:
        raise SchemaInvalid(f"input_schema.features: {len(slices)} are slices; at most {MAX_SLICE_FEATURES}")
    return InputSchema(
        features=features,
        batch=batch,
        packed=packed,
        by_name=by_name,
        stored_names=tuple(feature.name for feature in features if feature.stored),
        scalars=scalars,
        decoder=_decoder(features, scalars),
        treatments=treatments,
        slices=slices,
    )


def compile_output_schema(document: Any) -> OutputSchema:
    """Compile an ``output_schema``; an empty one accepts any first output.

    Raises:
        SchemaInvalid: Naming the field that cannot be used.
    """
    if document is None:
        return OutputSchema()
    if not isinstance(document, Mapping):
        raise SchemaInvalid("output_schema: expected an object")
    where = "output_schema"
    _only(document, _OUTPUT_FIELDS, where)
    shape = _shape(document["shape"], f"{where}.shape") if "shape" in document else None
    index = document.get("score_index")
    if index is not None and (type(index) is not int or index < 0):
        raise SchemaInvalid(f"{where}.score_index: expected a whole number from 0 on")
    if index is not None and shape is not None and index >= max(prod(shape), 1):
        raise SchemaInvalid(f"{where}.score_index: {index} is outside the shape {list(shape)}")
    activation = document.get("activation", "none")
    if activation not in ("none", "sigmoid", "softmax"):
        raise SchemaInvalid(f"{where}.activation: expected none, sigmoid or softmax")
    tensor = document.get("tensor")
    if tensor is not None and not _is_name(tensor):
        raise SchemaInvalid(f"{where}.tensor: expected the name of an output, of 1 to {MAX_NAME} characters")
    labels = document.get("labels", [])
    if not isinstance(labels, Sequence) or isinstance(labels, str) or not all(isinstance(x, str) for x in labels):
        raise SchemaInvalid(f"{where}.labels: expected a list of strings")
    if len(labels) > MAX_OPTIONS:
        raise SchemaInvalid(f"{where}.labels: {len(labels):,} labels; at most {MAX_OPTIONS:,}")
    if labels and shape is not None and prod(shape) != len(labels):
        raise SchemaInvalid(f"{where}.labels: {len(labels)} labels for {prod(shape)} values")
    return OutputSchema(
        tensor=tensor,
        datatype=_datatype(document["dtype"], f"{where}.dtype") if "dtype" in document else None,
        shape=shape,
        score_index=index,
        activation=activation,
        minimum=_number(document, "min", where),
        maximum=_number(document, "max", where),
        labels=tuple(labels),
        threshold=_threshold(document, where),
        also=_also(document.get("also", []), tensor),
    )


def _threshold(document: Mapping[str, Any], where: str) -> float | None:
    threshold = _number(document, "threshold", where)
    if threshold is None:
        return None
    if not abs(threshold) <= MAX_THRESHOLD:  # NaN neither
        raise SchemaInvalid(f"{where}.threshold: expected a number from {-MAX_THRESHOLD:g} to {MAX_THRESHOLD:g}")
    if "dtype" in document and _datatype(document["dtype"], f"{where}.dtype") is Datatype.BYTES:
        raise SchemaInvalid(f"{where}.threshold: strings have no score that could reach it")
    return threshold


def _also(names: Any, tensor: str | None) -> tuple[str, ...]:
    where = "output_schema.also"
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(map(_is_name, names)):
        raise SchemaInvalid(f"{where}: expected a list of names of outputs, of 1 to {MAX_NAME} characters")
    if len(names) > MAX_ALSO:
        raise SchemaInvalid(f"{where}: {len(names):,} outputs; at most {MAX_ALSO}")
    if names and tensor is None:
        raise SchemaInvalid(f"{where}: output_schema.tensor must name the output that is judged")
    if len({*names, tensor}) <= len(names):
        raise SchemaInvalid(f"{where}: each output is named once, and none is the judged one")
    return tuple(names)


def _compile_feature(entry: Any, where: str) -> Feature:
    if not isinstance(entry, Mapping) or not _is_name(entry.get("name")):
        raise SchemaInvalid(f"{where}: expected an object with a name of 1 to {MAX_NAME} characters")
    _only(entry, _FEATURE_FIELDS, where)
    where = f"{where} ({entry['name']})"
    stored, per_treatment = _source_of(entry, where)
    private = entry.get("private", False)
    if not isinstance(private, bool):
        raise SchemaInvalid(f"{where}.private: expected true or false")
    enum = entry.get("enum", [])
    if not isinstance(enum, Sequence) or isinstance(enum, str):
        raise SchemaInvalid(f"{where}.enum: expected a list")
    if len(enum) > MAX_OPTIONS:
        raise SchemaInvalid(f"{where}.enum: {len(enum):,} members; at most {MAX_OPTIONS:,}")
    feature = Feature(
        name=entry["name"],
        datatype=_datatype(entry.get("dtype"), f"{where}.dtype"),
        shape=_shape(entry.get("shape", []), f"{where}.shape"),
        default=entry.get("default"),
        has_default="default" in entry,
        minimum=_number(entry, "min", where),
        maximum=_number(entry, "max", where),
        enum=tuple(enum),
        stored=stored,
        private=private,
        is_slice=_slice_mark(entry, where),
        max_bytes=_max_bytes(entry, where),
        per_treatment=per_treatment,
    )
    _check_bounds(feature, where, has_length="max_bytes" in entry)
    _check_slice(feature, where)
    for option in feature.enum:
        problem = problem_of(Feature(feature.name, feature.datatype, max_bytes=feature.max_bytes), option)
        if problem is not None:
            raise SchemaInvalid(f"{where}.enum: {problem}")
    if feature.has_default:
        problems: list[Violation] = []
        with suppress(EnoughViolations):
            checked(feature, feature.default, problems)
        if problems:
            raise SchemaInvalid(f"{where}.default: {problems[0].detail}")
        feature = replace(feature, default=as_whole_elements(feature, feature.default))
    _check_representable(feature, where)
    return feature


def _slice_mark(entry: Mapping[str, Any], where: str) -> bool:
    mark = entry.get("slice", False)
    if not isinstance(mark, bool):
        raise SchemaInvalid(f"{where}.slice: expected true or false")
    return mark


def _check_slice(feature: Feature, where: str) -> None:
    """Refuse to compare by values that are no few labels, or that are not to be logged."""
    if not feature.is_slice:
        return
    if feature.private:
        raise SchemaInvalid(f"{where}.slice: a private feature's values are never logged, so it is no slice")
    if feature.name in NO_SLICES:
        raise SchemaInvalid(f"{where}.slice: the name {feature.name} is the call's own, so it is no slice")
    if feature.shape or feature.per_treatment or feature.datatype.is_float:
        raise SchemaInvalid(f"{where}.slice: a slice is a single string, whole number or truth value of the entity")


def _check_bounds(feature: Feature, where: str, *, has_length: bool) -> None:
    """Refuse bounds of another kind of value."""
    if has_length and feature.datatype is not Datatype.BYTES:
        raise SchemaInvalid(f"{where}: max_bytes is for strings")
    if feature.datatype in (Datatype.BYTES, Datatype.BOOL) and (feature.minimum, feature.maximum) != (None, None):
        raise SchemaInvalid(f"{where}: min and max are for numbers")


def _max_bytes(entry: Mapping[str, Any], where: str) -> int:
    found = entry.get("max_bytes", MAX_STRING_BYTES)
    if type(found) is not int or not 1 <= found <= MOST_STRING_BYTES:
        raise SchemaInvalid(f"{where}.max_bytes: expected a whole number from 1 to {MOST_STRING_BYTES:,}")
    return found


def _source_of(entry: Mapping[str, Any], where: str) -> tuple[bool, bool]:
    """Return whether the feature comes from the store, and whether each treatment has its own value."""
    source = entry.get("source", "request")
    if source not in ("request", "store"):
        raise SchemaInvalid(f"{where}.source: expected request or store")
    per = entry.get("per", "entity")
    if per not in ("entity", "treatment"):
        raise SchemaInvalid(f"{where}.per: expected entity or treatment")
    if per == "treatment" and source == "store":
        raise SchemaInvalid(f"{where}.source: the store has values of entities; a treatment's come with the request")
    return source == "store", per == "treatment"


def _check_representable(feature: Feature, where: str) -> None:
    """Refuse numbers outside the range of the feature's own datatype: no input could have them."""
    if not feature.datatype.is_integer:
        return
    single_default = [] if feature.shape or not feature.has_default else [feature.default]
    for name, values in (
        ("min", [feature.minimum]),
        ("max", [feature.maximum]),
        ("enum", feature.enum),
        ("default", single_default),
    ):
        if any(value is not None and not _fits(value, feature.datatype) for value in values):
            raise SchemaInvalid(f"{where}.{name}: is outside {feature.datatype.wire_name.lower()}")


def _fits(value: float, datatype: Datatype) -> bool:
    limits = np.iinfo(datatype.numpy_dtype)
    return bool(limits.min <= value <= limits.max)


def _compile_tensors(listed: Any, by_name: Mapping[str, Feature]) -> tuple[PackedTensor, ...]:
    where = "input_schema.tensors"
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise SchemaInvalid(f"{where}: expected a list of at least one tensor")
    used: set[str] = set()
    packed: list[PackedTensor] = []
    for index, entry in enumerate(listed):
        place = f"{where}[{index}]"
        if not isinstance(entry, Mapping) or not _is_name(entry.get("name")):
            raise SchemaInvalid(f"{place}: expected an object with a name of 1 to {MAX_NAME} characters")
        _only(entry, {"name", "dtype", "shape", "features"}, place)
        features = _features_of(entry.get("features"), by_name, f"{place}.features")
        names = {feature.name for feature in features}
        if used & names or len(names) != len(features):
            raise SchemaInvalid(f"{place}.features: a feature goes into exactly one tensor")
        used |= names
        datatype = _datatype(entry["dtype"], f"{place}.dtype") if "dtype" in entry else features[0].datatype
        for feature in features:
            _check_convertible(feature, datatype, place)
        size = sum(feature.size for feature in features)
        shape = _shape(entry["shape"], f"{place}.shape") if "shape" in entry else (size,)
        if prod(shape) != size:
            raise SchemaInvalid(f"{place}.shape: {list(shape)} has {prod(shape)} elements, its features have {size}")
        packed.append(PackedTensor(TensorSpec(entry["name"], datatype, shape), features))
    if len({tensor.spec.name for tensor in packed}) != len(packed):
        raise SchemaInvalid(f"{where}: two tensors have one name")
    if used != set(by_name):
        missing = sorted(set(by_name) - used)
        raise SchemaInvalid(f"{where}: in no tensor: {first_names(missing, _SHOWN)}")
    return tuple(packed)


def _compile_treatments(entry: Any, features: tuple[Feature, ...], *, batch: bool) -> TreatmentLayout | None:
    where = "input_schema.treatments"
    per_treatment = any(feature.per_treatment for feature in features)
    if entry is None and not per_treatment:
        return None
    if not per_treatment:
        raise SchemaInvalid(f'{where}: no feature has "per": "treatment"')
    if not batch:
        raise SchemaInvalid('input_schema.batch: treatments need a batch dimension; remove "batch": false')
    entry = {} if entry is None else entry
    if not isinstance(entry, Mapping):
        raise SchemaInvalid(f"{where}: expected an object")
    _only(entry, {"layout", "counts"}, where)
    layout, counts = entry.get("layout", "rows"), entry.get("counts")
    if layout not in ("rows", "nested"):
        raise SchemaInvalid(f"{where}.layout: expected rows or nested")
    if counts is not None and (not _is_name(counts) or layout != "nested"):
        raise SchemaInvalid(f"{where}.counts: expected the name of an input, with the layout nested")
    entity_features = tuple(feature for feature in features if not feature.per_treatment)
    return TreatmentLayout(entity_features, layout == "nested", counts)


def _nested(packed: tuple[PackedTensor, ...], counts: str | None) -> tuple[PackedTensor, ...]:
    """Return the tensors with the treatments' own dimension, which is 1 in a predict call: it has one treatment."""
    nested = []
    for tensor in packed:
        spec = tensor.spec
        kinds = {feature.per_treatment for feature in tensor.features}
        if len(kinds) > 1:
            raise SchemaInvalid(f"input_schema.tensors: {spec.name} holds features of the entity and of treatments")
        nested.append(tensor._replace(spec=replace(spec, shape=(1, *spec.shape))) if True in kinds else tensor)
    if counts is not None:
        if counts in {tensor.spec.name for tensor in packed}:
            raise SchemaInvalid(f"input_schema.treatments.counts: there is another input named {counts!r}")
        nested.append(PackedTensor(TensorSpec(counts, Datatype.INT64), (), packed_treatment_count(1)))
    return tuple(nested)


def _features_of(names: Any, by_name: Mapping[str, Feature], where: str) -> tuple[Feature, ...]:
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise SchemaInvalid(f"{where}: expected a list of names of features")
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise SchemaInvalid(f"{where}: no feature has the name {unknown[0]!r}")
    return tuple(by_name[name] for name in names)


def _check_convertible(feature: Feature, datatype: Datatype, where: str) -> None:
    strings = (feature.datatype is Datatype.BYTES, datatype is Datatype.BYTES)
    narrows = feature.datatype.is_float and not datatype.is_float
    booleans = datatype is Datatype.BOOL and feature.datatype is not Datatype.BOOL
    if strings[0] != strings[1] or narrows or booleans:
        raise SchemaInvalid(
            f"{where}.dtype: {feature.name} is {feature.datatype.wire_name}, which does not fit {datatype.wire_name}"
        )


def _scalars(features: tuple[Feature, ...], packed: tuple[PackedTensor, ...]) -> ScalarPacker | None:
    spec = packed[0].spec
    single_numbers = all(
        not feature.shape and not feature.enum and feature.datatype is not Datatype.BYTES for feature in features
    )
    if len(packed) > 1 or packed[0].features != features or not single_numbers:
        return None
    checks = tuple(
        (
            feature.name,
            JSON_TYPES[feature.datatype],
            -inf if feature.minimum is None else feature.minimum,
            inf if feature.maximum is None else feature.maximum,
        )
        for feature in features
    )
    return ScalarPacker(scalar_struct_of(f"<{spec.size}{spec.datatype.letter}"), checks)


def _decoder(features: tuple[Feature, ...], scalars: ScalarPacker | None) -> TypedDecoder | None:
    """Return the decoder of whole bodies; ``None`` where it would often miss, since features may be left out."""
    # A slice's value is looked up by its name, for which a body that was read into a row is parsed again.
    often_missing = any(feature.has_default or feature.stored or feature.is_slice for feature in features)
    if scalars is None or often_missing or not is_readable(scalars):
        return None
    return decoder_of(scalars)


def _only(document: Mapping[str, Any], permitted: set[str], where: str) -> None:
    unknown = sorted(set(document) - permitted)
    if unknown:
        raise SchemaInvalid(f"{where}: unknown field {unknown[0]!r}; known: {', '.join(sorted(permitted))}")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME


def _datatype(name: Any, where: str) -> Datatype:
    try:
        return parse_datatype(name)
    except (KeyError, AttributeError):
        raise SchemaInvalid(f"{where}: expected bool, int8 … int64, float32, float64 or string") from None


def _shape(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(type(n) is int and n > 0 for n in value):
        raise SchemaInvalid(f"{where}: expected a list of whole numbers above 0, without the batch dimension")
    if len(value) > MAX_DIMENSIONS:
        raise SchemaInvalid(f"{where}: more than {MAX_DIMENSIONS} dimensions")
    return tuple(value)


def _number(entry: Mapping[str, Any], name: str, where: str) -> float | None:
    value = entry.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise SchemaInvalid(f"{where}.{name}: expected a number")
    return value
