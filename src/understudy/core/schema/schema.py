"""Compiled ``input_schema`` and ``output_schema``: check a request's features and pack them into tensor bytes."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from understudy.core.schema.features import (
    MAX_NAME_SHOWN,
    EnoughViolations,
    Feature,
    as_whole,
    checked,
    expected,
    note,
    pointer_of,
)
from understudy.core.schema.tensors import Datatype, Row, TensorSpec
from understudy.core.schema.typed_decoder import ScalarPacker, TypedDecoder
from understudy.core.value import Value
from understudy.errors import InputInvalid, Violation

_MISSING = object()
_UNKNOWN = "is not an input of this version; leave it out"


class Assembled(Value, frozen=True, gc=False):
    """Validated inputs as tensors, their SHA-256 (64 hex digits), and the features that took their default."""

    row: Row
    digest: str
    defaulted: tuple[str, ...]


class PackedTensor(NamedTuple):
    """An input tensor and its features, side by side; a tensor without features has the content ``constant``."""

    spec: TensorSpec
    features: tuple[Feature, ...]
    constant: bytes = b""


class TreatmentLayout(NamedTuple):
    """Which features belong to the entity in a version that ranks treatments, and how the tensors hold the treatments.

    ``nested``: the entity's tensors once, the treatments' with a dimension of their own (``[1, m, n]``), and perhaps a
    tensor ``counts`` of the treatments' number. Otherwise each treatment is a row, with the entity's features in it.
    """

    entity_features: tuple[Feature, ...]
    nested: bool
    counts: str | None


@dataclass(frozen=True, slots=True, eq=False)
class InputSchema:
    """A compiled ``input_schema``."""

    features: tuple[Feature, ...]
    batch: bool
    packed: tuple[PackedTensor, ...]
    by_name: Mapping[str, Feature]
    stored_names: tuple[str, ...]
    scalars: ScalarPacker | None = None
    decoder: TypedDecoder | None = None
    treatments: TreatmentLayout | None = None
    slices: tuple[Feature, ...] = ()
    """Features whose values versions are compared by, each by itself."""

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """The input tensors, in the order of a :data:`Row`."""
        return tuple(tensor.spec for tensor in self.packed)

    def assemble(self, values: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> Assembled:
        """Return the tensors of one entity: its own ``values`` first, then ``stored`` ones, then defaults.

        Raises:
            InputInvalid: With the first 1,000 violations, each at its JSON pointer under ``/inputs``.
        """
        row = self.scalars.row_of(values) if self.scalars is not None else None
        if row is not None:
            return assembled(row)
        violations: list[Violation] = []
        try:
            merged, defaulted, own = merge_with_stored(self.features, values, stored, violations)
            if own != len(values):
                for name in values:
                    if name not in self.by_name:
                        note(violations, pointer_of(name[:MAX_NAME_SHOWN]), _UNKNOWN)
        except EnoughViolations:
            raise InputInvalid.naming(*violations) from None
        if violations:
            raise InputInvalid.naming(*violations)
        row = self._pack(merged, violations)
        if violations:
            raise InputInvalid.naming(*violations)
        return Assembled(row, input_hash_of(row), tuple(defaulted))

    def _pack(self, merged: Mapping[str, Any], violations: list[Violation]) -> Row:
        return tuple([packed_content(tensor, merged, violations) for tensor in self.packed])


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """A compiled ``output_schema``; ``core.schema.outputs`` reads answers with it."""

    tensor: str | None = None
    datatype: Datatype | None = None
    shape: tuple[int, ...] | None = None
    score_index: int | None = None
    activation: str = "none"
    minimum: float | None = None
    maximum: float | None = None
    labels: tuple[str, ...] = ()
    threshold: float | None = None
    """The score from which on a prediction is positive, for figures alone; ``None``: there is no such thing."""
    also: tuple[str, ...] = ()
    """Outputs that are asked for beside the judged one, and that callers of other protocols get as they are."""


def merge_with_stored(
    features: Sequence[Feature],
    values: Mapping[str, Any],
    stored: Mapping[str, Any] | None,
    violations: list[Violation],
) -> tuple[dict[str, Any], list[str], int]:
    """Merge what ``values``, the feature store and defaults give of each feature.

    Returns:
        Each feature's value, the names of stored ones that took their default, and how many ``values`` gave.

    Raises:
        EnoughViolations: There are more violations than an answer names.
    """
    merged: dict[str, Any] = {}
    defaulted: list[str] = []
    own = 0
    for feature in features:
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
            note(violations, *_missing(feature, stored))
            continue
        merged[name] = checked(feature, value, violations)
    return merged, defaulted, own


def single_values(
    features: Sequence[Feature], values: Mapping[str, Any], stored: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the values that :func:`merge_with_stored` takes of features that are single values and not private."""
    found: dict[str, Any] = {}
    for feature in features:
        if not feature.shape and not feature.private:
            name = feature.name
            kept = stored[name] if stored is not None and name in stored else feature.default
            found[name] = as_whole(feature, values.get(name, kept))
    return found


def packed_content(tensor: PackedTensor, merged: Mapping[str, Any], violations: list[Violation]) -> bytes:
    """Return a tensor's content for one entity; values outside its datatype go to ``violations``."""
    datatype = tensor.spec.datatype
    chunks = [packed_feature(feature, datatype, merged[feature.name], violations) for feature in tensor.features]
    return chunks[0] if len(chunks) == 1 else b"".join(chunks) or tensor.constant


def packed_treatment_count(count: int) -> bytes:
    """Return the content of the input tensor that says how many treatments a call has, packed."""
    return struct.pack("<q", count)


def assembled(row: Row) -> Assembled:
    """Return a row in which no feature took a default."""
    return Assembled(row, input_hash_of(row), ())


def input_hash_of(row: Row) -> str:
    """Return the input hash: the SHA-256, in hex, of each tensor's content behind its length, 8 bytes."""
    if len(row) == 1:  # nearly always: joining them costs less than telling the hash one after the other
        return sha256(len(row[0]).to_bytes(8, "little") + row[0]).hexdigest()
    digest = sha256()
    for content in row:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def _missing(feature: Feature, stored: Mapping[str, Any] | None) -> Violation:
    if feature.stored and stored is not None:
        return Violation(pointer_of(feature.name), "missing, and the feature store has no value for this entity")
    return Violation(pointer_of(feature.name), f"missing; expected {expected(feature)}")


def packed_feature(feature: Feature, datatype: Datatype, value: Any, violations: list[Violation]) -> bytes:
    """Return the elements of one feature's value, flat where it has a shape."""
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
