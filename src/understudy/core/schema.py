"""``input_schema`` and ``output_schema``: read once per version, then used on every request.

``input_schema``::

    {"features": [{"name": "age", "dtype": "float32", "shape": [], "min": 0, "max": 130},
                  {"name": "plan", "dtype": "string", "enum": ["free", "pro"], "default": "free"},
                  {"name": "visits_30d", "dtype": "int64", "source": "store", "default": 0}],
     "tensors": [{"name": "input", "dtype": "float32", "features": ["age", "visits_30d"]}],
     "batch": true}

Without ``tensors`` each feature is a tensor of its own. With it, a tensor holds its features side by side, flattened in
the order named. ``batch`` says that the server takes a leading batch dimension (default true).

``output_schema``::

    {"tensor": "probabilities", "dtype": "float32", "shape": [2], "score_index": 1, "activation": "none",
     "min": 0, "max": 1, "labels": ["no", "yes"]}

An empty ``output_schema`` takes the server's first output, any shape.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import prod
from typing import Any, NamedTuple, NoReturn

from understudy.core.tensors import Datatype, Row, TensorSpec, parse_datatype
from understudy.errors import InputInvalid, SchemaInvalid, Violation

MAX_TENSOR_ELEMENTS = 1_000_000
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Feature:
    """One named input. ``shape`` ``()`` is a single value; otherwise a (nested) list of exactly that shape."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...] = ()
    default: Any = None
    has_default: bool = False
    minimum: float | None = None
    maximum: float | None = None
    enum: tuple[Any, ...] = ()
    stored: bool = False
    """Whether the feature store is asked when the request does not carry it."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class Assembled(NamedTuple):
    """Validated inputs as tensors, their SHA-256 (64 hex digits), and the features that took their default."""

    row: Row
    digest: str
    defaulted: tuple[str, ...]


class _Tensor(NamedTuple):
    spec: TensorSpec
    features: tuple[Feature, ...]
    packer: struct.Struct | None
    """For numbers: packs one row's elements, little-endian."""


@dataclass(frozen=True, slots=True, eq=False)
class InputSchema:
    """A compiled ``input_schema``."""

    features: tuple[Feature, ...]
    batch: bool
    packed: tuple[_Tensor, ...]
    by_name: Mapping[str, Feature]
    stored_names: tuple[str, ...]
    single_row: struct.Struct | None = field(default=None)
    """Set when the whole input is one tensor of single numbers: then one ``pack`` assembles it."""

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """The input tensors, in the order of a :data:`Row`."""
        return tuple(tensor.spec for tensor in self.packed)

    def assemble(self, values: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> Assembled:
        """Return the tensors of one entity: its own ``values`` first, then ``stored`` ones, then defaults.

        Raises:
            InputInvalid: With every violation, each at its JSON pointer under ``/inputs``.
        """
        violations: list[Violation] = []
        merged: dict[str, Any] = {}
        defaulted: list[str] = []
        own = 0
        for feature in self.features:
            name = feature.name
            value = values.get(name, _MISSING)
            if value is not _MISSING:
                own += 1
            elif stored is not None and name in stored:
                value = stored[name]
            elif feature.has_default:
                value = feature.default
                if feature.stored:
                    defaulted.append(name)
            else:
                violations.append(_missing(feature, stored))
                continue
            merged[name] = _checked(feature, value, violations)
        if own != len(values):
            violations.extend(
                Violation(pointer_of(name), "is not an input of this version; leave it out")
                for name in values
                if name not in self.by_name
            )
        if violations:
            _refuse(violations)
        row = self._pack(merged, violations)
        if violations:
            _refuse(violations)
        return Assembled(row, digest_of(row), tuple(defaulted))

    def _pack(self, merged: Mapping[str, Any], violations: list[Violation]) -> Row:
        if self.single_row is not None:
            try:
                return (self.single_row.pack(*merged.values()),)
            except (OverflowError, struct.error):
                pass
        parts: list[bytes] = []
        for tensor in self.packed:
            chunks = [_pack_feature(feature, tensor.spec.datatype, merged[feature.name], violations) for feature in tensor.features]
            parts.append(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """A compiled ``output_schema``; ``core.outputs`` reads answers with it."""

    tensor: str | None = None
    datatype: Datatype | None = None
    shape: tuple[int, ...] | None = None
    score_index: int | None = None
    activation: str = "none"
    minimum: float | None = None
    maximum: float | None = None
    labels: tuple[str, ...] = ()


def digest_of(row: Row) -> str:
    """Return the SHA-256 of assembled inputs in hex; each tensor's content is preceded by its length, 8 bytes."""
    digest = sha256()
    for content in row:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def pointer_of(*parts: str | int) -> str:
    """Return the JSON pointer (RFC 6901) of a place under ``/inputs``."""
    return "/inputs" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _refuse(violations: list[Violation]) -> NoReturn:
    count = len(violations)
    raise InputInvalid(f"{count} problem{'s' if count > 1 else ''}", tuple(violations))


def _missing(feature: Feature, stored: Mapping[str, Any] | None) -> Violation:
    if feature.stored and stored is not None:
        return Violation(pointer_of(feature.name), "missing, and the feature store has no value for this entity")
    return Violation(pointer_of(feature.name), f"missing; expected {_expected(feature)}")


def _expected(feature: Feature) -> str:
    kind = {True: "a number", False: "a string"}[feature.datatype is not Datatype.BYTES]
    if feature.datatype is Datatype.BOOL:
        kind = "true or false"
    elif feature.datatype.is_integer:
        kind = f"an integer ({feature.datatype.wire_name.lower()})"
    if feature.shape:
        return f"a list of shape {list(feature.shape)} of {kind}"
    return kind


def _checked(feature: Feature, value: Any, violations: list[Violation]) -> Any:
    """Return a single value, or the flat list of a feature with a shape; problems go to ``violations``."""
    if feature.shape:
        if feature.shape == (1,) and not isinstance(value, list):
            value = [value]
        flat: list[Any] = []
        _flatten(feature, value, feature.shape, (feature.name,), flat, violations)
        return flat
    problem = _problem_of(feature, value)
    if problem is not None:
        violations.append(Violation(pointer_of(feature.name), problem))
    return value


def _flatten(
    feature: Feature,
    value: Any,
    shape: tuple[int, ...],
    path: tuple[str | int, ...],
    flat: list[Any],
    violations: list[Violation],
) -> None:
    if not shape:
        problem = _problem_of(feature, value)
        if problem is not None:
            violations.append(Violation(pointer_of(*path), problem))
        flat.append(value)
        return
    if not isinstance(value, list):
        violations.append(Violation(pointer_of(*path), f"expected {_expected(feature)}"))
        return
    if len(value) != shape[0]:
        violations.append(Violation(pointer_of(*path), f"expected {shape[0]} elements, got {len(value)}"))
        return
    for index, element in enumerate(value):
        _flatten(feature, element, shape[1:], (*path, index), flat, violations)


def _problem_of(feature: Feature, value: Any) -> str | None:
    """Say what is wrong with one element, without repeating it."""
    kind = type(value)
    datatype = feature.datatype
    if datatype is Datatype.FP32 or datatype is Datatype.FP64:
        if kind is not float and kind is not int:
            return f"expected {_expected_element(feature)}"
    elif datatype is Datatype.BYTES:
        if kind is not str:
            return f"expected {_expected_element(feature)}"
    elif datatype is Datatype.BOOL:
        if kind is not bool:
            return f"expected {_expected_element(feature)}"
    elif kind is not int:
        return f"expected {_expected_element(feature)}"
    if feature.enum:
        return None if value in feature.enum else f"expected one of {', '.join(map(str, feature.enum))}"
    if feature.minimum is not None and value < feature.minimum:
        return f"is below the least permitted value {feature.minimum:g}"
    if feature.maximum is not None and value > feature.maximum:
        return f"is above the greatest permitted value {feature.maximum:g}"
    return None


def _expected_element(feature: Feature) -> str:
    return _expected(Feature(feature.name, feature.datatype))


def _pack_feature(feature: Feature, datatype: Datatype, value: Any, violations: list[Violation]) -> bytes:
    elements = value if feature.shape else (value,)
    if datatype is Datatype.BYTES:
        encoded = [str(element).encode() for element in elements]
        return b"".join(len(element).to_bytes(4, "little") + element for element in encoded)
    packer = struct.Struct(f"<{len(elements)}{datatype.letter}")
    try:
        return packer.pack(*elements)
    except (OverflowError, struct.error):
        violations.append(Violation(pointer_of(feature.name), f"does not fit into {datatype.wire_name.lower()}"))
        return b""


# -- compiling ---------------------------------------------------------------------------------------------------------


def compile_input_schema(document: Any) -> InputSchema:
    """Compile an ``input_schema``.

    Raises:
        SchemaInvalid: Naming the field that cannot be used.
    """
    if not isinstance(document, Mapping):
        raise SchemaInvalid("input_schema: expected an object with 'features'")
    _only(document, {"features", "tensors", "batch"}, "input_schema")
    listed = document.get("features")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise SchemaInvalid("input_schema.features: expected a list of at least one feature")
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
            _packed(TensorSpec(feature.name, feature.datatype, feature.shape), (feature,)) for feature in features
        )
    if sum(tensor.spec.size for tensor in packed) > MAX_TENSOR_ELEMENTS:
        raise SchemaInvalid(f"input_schema: more than {MAX_TENSOR_ELEMENTS:,} elements for one entity")
    one = packed[0]
    single = (
        one.packer if len(packed) == 1 and one.features == features and not any(f.shape for f in features) else None
    )
    return InputSchema(
        features=features,
        batch=batch,
        packed=packed,
        by_name=by_name,
        stored_names=tuple(feature.name for feature in features if feature.stored),
        single_row=single,
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
    _only(document, {"tensor", "dtype", "shape", "score_index", "activation", "min", "max", "labels"}, where)
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
    if tensor is not None and not isinstance(tensor, str):
        raise SchemaInvalid(f"{where}.tensor: expected the name of an output")
    labels = document.get("labels", [])
    if not isinstance(labels, Sequence) or isinstance(labels, str) or not all(isinstance(x, str) for x in labels):
        raise SchemaInvalid(f"{where}.labels: expected a list of strings")
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
    )


def _compile_feature(entry: Any, where: str) -> Feature:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise SchemaInvalid(f"{where}: expected an object with a name")
    _only(entry, {"name", "dtype", "shape", "default", "min", "max", "enum", "source", "description"}, where)
    where = f"{where} ({entry['name']})"
    source = entry.get("source", "request")
    if source not in ("request", "store"):
        raise SchemaInvalid(f"{where}.source: expected request or store")
    enum = entry.get("enum", [])
    if not isinstance(enum, Sequence) or isinstance(enum, str):
        raise SchemaInvalid(f"{where}.enum: expected a list")
    feature = Feature(
        name=entry["name"],
        datatype=_datatype(entry.get("dtype"), f"{where}.dtype"),
        shape=_shape(entry.get("shape", []), f"{where}.shape"),
        default=entry.get("default"),
        has_default="default" in entry,
        minimum=_number(entry, "min", where),
        maximum=_number(entry, "max", where),
        enum=tuple(enum),
        stored=source == "store",
    )
    if feature.datatype in (Datatype.BYTES, Datatype.BOOL) and (feature.minimum, feature.maximum) != (None, None):
        raise SchemaInvalid(f"{where}: min and max are for numbers")
    for option in feature.enum:
        problem = _problem_of(Feature(feature.name, feature.datatype), option)
        if problem is not None:
            raise SchemaInvalid(f"{where}.enum: {problem}")
    if feature.has_default:
        problems: list[Violation] = []
        _checked(feature, feature.default, problems)
        if problems:
            raise SchemaInvalid(f"{where}.default: {problems[0].detail}")
    return feature


def _compile_tensors(listed: Any, by_name: Mapping[str, Feature]) -> tuple[_Tensor, ...]:
    where = "input_schema.tensors"
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise SchemaInvalid(f"{where}: expected a list of at least one tensor")
    used: set[str] = set()
    packed: list[_Tensor] = []
    for index, entry in enumerate(listed):
        place = f"{where}[{index}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise SchemaInvalid(f"{place}: expected an object with a name")
        _only(entry, {"name", "dtype", "shape", "features"}, place)
        names = entry.get("features", [])
        unknown = [name for name in names if name not in by_name]
        if not names or unknown:
            raise SchemaInvalid(f"{place}.features: expected names of features; unknown: {unknown}")
        if used & set(names) or len(set(names)) != len(names):
            raise SchemaInvalid(f"{place}.features: a feature goes into exactly one tensor")
        used.update(names)
        features = tuple(by_name[name] for name in names)
        datatype = _datatype(entry["dtype"], f"{place}.dtype") if "dtype" in entry else features[0].datatype
        for feature in features:
            _check_convertible(feature, datatype, place)
        size = sum(feature.size for feature in features)
        shape = _shape(entry["shape"], f"{place}.shape") if "shape" in entry else (size,)
        if prod(shape) != size:
            raise SchemaInvalid(f"{place}.shape: {list(shape)} has {prod(shape)} elements, its features have {size}")
        packed.append(_packed(TensorSpec(entry["name"], datatype, shape), features))
    if len({tensor.spec.name for tensor in packed}) != len(packed):
        raise SchemaInvalid(f"{where}: two tensors have one name")
    if used != set(by_name):
        raise SchemaInvalid(f"{where}: in no tensor: {sorted(set(by_name) - used)}")
    return tuple(packed)


def _check_convertible(feature: Feature, datatype: Datatype, where: str) -> None:
    strings = (feature.datatype is Datatype.BYTES, datatype is Datatype.BYTES)
    narrows = feature.datatype.is_float and not datatype.is_float
    booleans = datatype is Datatype.BOOL and feature.datatype is not Datatype.BOOL
    if strings[0] != strings[1] or narrows or booleans:
        raise SchemaInvalid(
            f"{where}.dtype: {feature.name} is {feature.datatype.wire_name}, which does not go into {datatype.wire_name}"
        )


def _packed(spec: TensorSpec, features: tuple[Feature, ...]) -> _Tensor:
    packer = None if spec.datatype is Datatype.BYTES else struct.Struct(f"<{spec.size}{spec.datatype.letter}")
    return _Tensor(spec, features, packer)


def _only(document: Mapping[str, Any], permitted: set[str], where: str) -> None:
    unknown = sorted(set(document) - permitted)
    if unknown:
        raise SchemaInvalid(f"{where}: unknown field {unknown[0]!r}; known: {', '.join(sorted(permitted))}")


def _datatype(name: Any, where: str) -> Datatype:
    try:
        return parse_datatype(name)
    except (KeyError, AttributeError):
        raise SchemaInvalid(f"{where}: expected bool, int8 … int64, float32, float64 or string") from None


def _shape(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(type(n) is int and n > 0 for n in value):
        raise SchemaInvalid(f"{where}: expected a list of whole numbers above 0, without the batch dimension")
    return tuple(value)


def _number(entry: Mapping[str, Any], name: str, where: str) -> float | None:
    value = entry.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise SchemaInvalid(f"{where}.{name}: expected a number")
    return value
