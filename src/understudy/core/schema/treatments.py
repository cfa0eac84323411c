"""The treatments of a rank call as tensors, assembled by whole columns, never one value after another.

A valid column is checked and packed by a handful of calls, however long it is. Any other is checked value by value, so
that every problem has its pointer; both ways accept the same.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.core.schema.features import (
    JSON_TYPES,
    MAX_NAME_SHOWN,
    EnoughViolations,
    Feature,
    as_whole,
    checked,
    exceeds_max_bytes,
    expected,
    kind_of,
    pointer_of,
)
from understudy.core.schema.schema import (
    InputSchema,
    PackedTensor,
    TreatmentLayout,
    merge_with_stored,
    packed_content,
    packed_feature,
    packed_treatment_count,
)
from understudy.core.schema.tensors import Block, Datatype
from understudy.errors import MAX_VIOLATIONS, InputInvalid, Violation

MAX_ELEMENTS = 4_000_000
"""Of all tensors of one call: 16 MiB of float32, more than most model servers take."""
MAX_REPEATED_CHARACTERS = 4_000_000
_MISSING = object()
_EXACT = 2**53
"""Up to here every whole number is exactly one float64."""
_Column: TypeAlias = NDArray[Any] | list[str]
"""The elements of one feature, treatment after treatment: numbers as float64, int64 or bool, whichever is exact."""


class Rows(NamedTuple):
    """Treatments in rows: each with its own object of values."""

    ids: Sequence[str]
    values: Sequence[Mapping[str, Any]]

    @property
    def brought(self) -> int:
        """Number of values."""
        return sum(map(len, self.values))

    def column(self, feature: Feature) -> tuple[Any, int]:
        """Return the feature's values, and how many of them come from the treatments."""
        name = feature.name
        try:
            return list(map(itemgetter(name), self.values)), len(self.values)
        except KeyError:
            default = feature.default if feature.has_default else _MISSING
            column = [one.get(name, default) for one in self.values]
            return column, sum(name in one for one in self.values)

    def unknown(self, known: frozenset[str]) -> Iterator[tuple[str, str]]:
        """Yield the name and the pointer of each value that is no feature's."""
        for index, one in enumerate(self.values):
            for name in one.keys() - known:
                yield name, self.pointer(name, index)

    def pointer(self, name: str, index: int | None) -> str:
        """Return the JSON pointer of a treatment's value."""
        return f"/treatments/{index}{pointer_of(name)}"


class Columns(NamedTuple):
    """Treatments in columns, the fastest form: for each feature a list of values, in the order of the ids."""

    ids: Sequence[str]
    values: Mapping[str, Any]

    @property
    def brought(self) -> int:
        """Number of columns."""
        return len(self.values)

    def column(self, feature: Feature) -> tuple[Any, int]:
        """Return the feature's column or its default, and 1 if the column comes from the treatments, else 0."""
        column = self.values.get(feature.name, _MISSING)
        if column is not _MISSING:
            return column, 1
        return ([feature.default] * len(self.ids) if feature.has_default else _MISSING), 0

    def unknown(self, known: frozenset[str]) -> Iterator[tuple[str, str]]:
        """Yield the name and the pointer of each column that is no feature's."""
        for name in self.values.keys() - known:
            yield name, self.pointer(name, None)

    def pointer(self, name: str, index: int | None) -> str:
        """Return the JSON pointer of a treatment's value, or of the whole column."""
        return f"/treatments{pointer_of(name) if index is None else pointer_of(name, index)}"


Treatments: TypeAlias = Rows | Columns


def assemble_treatments(
    schema: InputSchema,
    layout: TreatmentLayout,
    inputs: Mapping[str, Any],
    stored: Mapping[str, Any] | None,
    treatments: Treatments,
) -> tuple[Block, tuple[str, ...]]:
    """Return one call's tensors, and the entity's features that took their default.

    With the layout ``rows`` they are those of one predict call for each treatment, one after another.

    Raises:
        InputInvalid: With up to 1,000 violations, under ``/inputs`` and ``/treatments``.
    """
    violations: list[Violation] = []
    _check_elements(schema, layout, len(treatments.ids))
    try:
        merged, defaulted, own = merge_with_stored(layout.entity_features, inputs, stored, violations)
        if own != len(inputs):
            violations.extend(islice(_misplaced(schema, layout, inputs), MAX_VIOLATIONS))
        columns = _columns(schema, treatments, violations)
    except EnoughViolations:
        raise InputInvalid.naming(*violations) from None
    if violations:
        raise InputInvalid.naming(*violations)
    count = len(treatments.ids)
    _check_repeated_strings(layout, merged, count)
    packing = _Packing(layout, count, merged, columns, treatments, violations)
    contents = tuple([packing.content(tensor) for tensor in schema.packed])
    if violations:
        raise InputInvalid.naming(*violations)
    return Block(contents, tuple([packing.shape(tensor) for tensor in schema.packed])), tuple(defaulted)


def _check_elements(schema: InputSchema, layout: TreatmentLayout, count: int) -> None:
    """Bound the elements of one call: a short request grows when each row repeats the entity's features."""
    elements = 0
    for tensor in schema.packed:
        repeated = not layout.nested or any(feature.per_treatment for feature in tensor.features)
        elements += tensor.spec.size * (count if repeated else 1)
    if elements > MAX_ELEMENTS:
        detail = f"{count:,} of them have {elements:,} elements for this version, one call takes {MAX_ELEMENTS:,}"
        raise InputInvalid.naming(Violation("/treatments", detail))


def _check_repeated_strings(layout: TreatmentLayout, merged: Mapping[str, Any], count: int) -> None:
    strings = [merged[feature.name] for feature in layout.entity_features if feature.datatype is Datatype.BYTES]
    size = sum(len(one) if isinstance(one, str) else sum(map(len, one)) for one in strings)
    if not layout.nested and size * count > MAX_REPEATED_CHARACTERS:
        detail = f"its texts have {size:,} characters, which {count:,} treatments would repeat"
        raise InputInvalid.naming(Violation("/inputs", f"{detail}; one call takes {MAX_REPEATED_CHARACTERS:,}"))


def _misplaced(schema: InputSchema, layout: TreatmentLayout, inputs: Mapping[str, Any]) -> Iterator[Violation]:
    known = {feature.name for feature in layout.entity_features}
    for name in inputs:
        if name in schema.by_name and name not in known:
            yield Violation(pointer_of(name), "belongs to the treatments; send it with each of them")
        elif name not in known:
            yield Violation(pointer_of(name[:MAX_NAME_SHOWN]), "is not an input of this version; leave it out")


def _columns(schema: InputSchema, treatments: Treatments, violations: list[Violation]) -> dict[str, _Column]:
    """Return the column of each feature that belongs to the treatments; problems go to ``violations``."""
    columns: dict[str, _Column] = {}
    brought = 0
    for tensor in schema.packed:
        own = [feature for feature in tensor.features if feature.per_treatment]
        listed = [treatments.column(feature) for feature in own]
        brought += sum(present for _, present in listed)
        quick = _checked_at_once(own, [values for values, _ in listed], len(treatments.ids))
        if quick is not None:
            columns.update(zip((feature.name for feature in own), quick, strict=True))
            continue
        for feature, (values, _) in zip(own, listed, strict=True):
            columns[feature.name] = _column(feature, tensor.spec.datatype, values, treatments, violations)
    if brought != treatments.brought:
        violations.extend(islice(_unknown(schema, treatments, frozenset(columns)), MAX_VIOLATIONS))
    return columns


def _checked_at_once(features: Sequence[Feature], listed: list[Any], count: int) -> NDArray[Any] | None:
    """Return the columns of a tensor of single floats, a row for each; ``None`` if anything else or suspect is in it.

    The commonest tensor by far: a dozen calls for all of it, where :func:`_column` needs as many for each feature.
    """
    if not features or not all(feature.datatype.is_float and not feature.shape for feature in features):
        return None
    if any(feature.enum for feature in features) or not all(type(one) is list and len(one) == count for one in listed):
        return None
    try:
        # struct packs an element in 6 ns, numpy reads one from a list in 15 (measured). Both accept true and false.
        pack = struct.Struct(f"<{count}d").pack
        flat = np.frombuffer(b"".join([pack(*one) for one in listed]), "<f8")
    except struct.error:
        return None
    matrix = flat.reshape(len(features), count)
    perhaps_bool = (flat == 0) | (flat == 1)
    if perhaps_bool.any() and bool in map(type, _elements_at(listed, np.flatnonzero(perhaps_bool), count)):
        return None
    least, greatest = matrix.min(axis=1), matrix.max(axis=1)
    bounds = zip(features, least.tolist(), greatest.tolist(), strict=True)
    return matrix if all(_is_within(feature, low, high) for feature, low, high in bounds) else None


def _elements_at(listed: list[list[Any]], indices: NDArray[np.intp], count: int) -> Iterator[Any]:
    return (listed[index // count][index % count] for index in indices.tolist())


def _unknown(schema: InputSchema, treatments: Treatments, known: frozenset[str]) -> Iterator[Violation]:
    for name, pointer in treatments.unknown(known):
        if name in schema.by_name:
            yield Violation(pointer, "belongs to the entity; send it once, in /inputs")
        else:
            yield Violation(pointer[: 2 * MAX_NAME_SHOWN], "is not an input of this version; leave it out")


def _column(
    feature: Feature, datatype: Datatype, values: Any, treatments: Treatments, violations: list[Violation]
) -> _Column:
    count = len(treatments.ids)
    if values is _MISSING:
        violations.append(
            Violation(treatments.pointer(feature.name, None), f"missing; expected a list of {count} values")
        )
    elif type(values) is not list or len(values) != count:
        found = f"{len(values)}" if type(values) is list else kind_of(values)
        violations.append(
            Violation(treatments.pointer(feature.name, None), f"expected a list of {count} values, got {found}")
        )
    else:
        elements = _flat(feature.shape, values)
        column = None if elements is None else _checked_quickly(feature, datatype, elements)
        return column if column is not None else _checked_slowly(feature, datatype, values, treatments, violations)
    return []


def _flat(shape: tuple[int, ...], values: list[Any]) -> list[Any] | None:
    """Return the elements of lists that all have the shape; ``None`` if one has another."""
    for size in shape:
        if set(map(type, values)) != {list} or set(map(len, values)) != {size}:
            return None
        values = list(chain.from_iterable(values))
    return values


def _checked_quickly(feature: Feature, datatype: Datatype, elements: list[Any]) -> _Column | None:
    """Return the column if every element is valid; ``None`` when one may not be."""
    kinds = set(map(type, elements))
    if float in kinds and feature.datatype.is_integer:
        elements = [as_whole(feature, element) for element in elements]
        kinds = set(map(type, elements))
    if not kinds.issubset(JSON_TYPES[feature.datatype]):
        return None
    if feature.enum and not set(elements) <= set(feature.enum):
        return None
    if datatype is Datatype.BYTES:
        is_long = not feature.enum and any(exceeds_max_bytes(element, feature.max_bytes) for element in elements)
        return None if is_long else elements
    array = _numbers(datatype, elements)
    if array is None or feature.enum:
        return array
    return array if _is_within(feature, array.min().item(), array.max().item()) else None


def _is_within(feature: Feature, least: float, greatest: float) -> bool:
    """Whether the bounds certainly hold: a float from 2**53 on may be a rounded whole number."""
    if feature.minimum is None and feature.maximum is None:
        return True
    if type(least) is float and not -_EXACT < least <= greatest < _EXACT:
        return False
    high_enough = feature.minimum is None or least >= feature.minimum
    return high_enough and (feature.maximum is None or greatest <= feature.maximum)


def _numbers(datatype: Datatype, elements: list[Any]) -> NDArray[Any] | None:
    """Return numbers as an array that is exact where the tensor's datatype is; ``None`` if one is over 64 bits."""
    letter = "d" if datatype.is_float else "?" if datatype is Datatype.BOOL else "q"
    try:
        return np.frombuffer(struct.pack(f"<{len(elements)}{letter}", *elements), f"<{letter}")
    except struct.error:
        return None


def _checked_slowly(
    feature: Feature, datatype: Datatype, values: list[Any], treatments: Treatments, violations: list[Violation]
) -> _Column:
    elements: list[Any] = []
    before = len(violations)
    for index, value in enumerate(values):
        if len(violations) >= MAX_VIOLATIONS:
            break
        pointer = treatments.pointer(feature.name, index)
        if value is _MISSING:
            violations.append(Violation(pointer, f"missing; expected {expected(feature)}"))
            continue
        found: list[Violation] = []
        with suppress(EnoughViolations):
            taken = checked(feature, value, found)
            elements += taken if feature.shape else (taken,)
        own = len(pointer_of(feature.name))
        violations.extend(Violation(pointer + one.pointer[own:], one.detail) for one in found)
    if len(violations) > before:
        return []
    column = elements if datatype is Datatype.BYTES else _numbers(datatype, elements)
    if column is None:
        large = {index // feature.size for index, element in enumerate(elements) if not -(2**63) <= element < 2**63}
        violations.extend(_does_not_fit(feature, datatype, sorted(large), treatments))
        return []
    return column


def _does_not_fit(
    feature: Feature, datatype: Datatype, indices: Sequence[int], treatments: Treatments
) -> Iterator[Violation]:
    detail = f"does not fit into {datatype.wire_name.lower()}"
    return (Violation(treatments.pointer(feature.name, int(index)), detail) for index in indices[:MAX_VIOLATIONS])


class _Packing(NamedTuple):
    """Packs the tensors of one call."""

    layout: TreatmentLayout
    rows: int
    merged: Mapping[str, Any]
    columns: Mapping[str, _Column]
    treatments: Treatments
    violations: list[Violation]

    def shape(self, tensor: PackedTensor) -> tuple[int, ...]:
        if not self.layout.nested:
            return (self.rows, *tensor.spec.shape)
        own = bool(tensor.features) and tensor.features[0].per_treatment
        return (1, self.rows, *tensor.spec.shape[1:]) if own else (1, *tensor.spec.shape)

    def content(self, tensor: PackedTensor) -> bytes:
        if tensor.constant:
            return packed_treatment_count(self.rows)
        if any(feature.per_treatment for feature in tensor.features):
            pack: Callable[[PackedTensor], bytes] = (
                self._pack_strings if tensor.spec.datatype is Datatype.BYTES else self._pack_numbers
            )
            return pack(tensor)
        content = packed_content(tensor, self.merged, self.violations)
        return content if self.layout.nested else content * self.rows

    def _pack_numbers(self, tensor: PackedTensor) -> bytes:
        datatype = tensor.spec.datatype
        matrix = np.empty((self.rows, tensor.spec.size), datatype.numpy_dtype)
        start = 0
        with np.errstate(over="ignore"):  # checked below, for all features at once
            for feature in tensor.features:
                part = matrix[:, start : start + feature.size]
                start += feature.size
                if feature.per_treatment:
                    part[:] = self._fitting(feature, datatype)
                else:
                    value = self.merged[feature.name]
                    part[:] = np.frombuffer(
                        packed_feature(feature, datatype, value, self.violations).ljust(part[0].nbytes, b"\0"),
                        datatype.numpy_dtype,
                    )
        if datatype is Datatype.FP32 and not np.isfinite(matrix).all():
            self._refuse_infinite(tensor, matrix)
        return matrix.tobytes()

    def _fitting(self, feature: Feature, datatype: Datatype) -> NDArray[Any]:
        """Return a column of numbers; those outside a smaller integer datatype go to the violations."""
        column = np.asarray(self.columns[feature.name]).reshape(self.rows, feature.size)
        if datatype.is_integer and datatype is not Datatype.INT64:
            limits = np.iinfo(datatype.numpy_dtype)
            outside = (column < limits.min) | (column > limits.max)
            if outside.any():
                indices = np.flatnonzero(outside.any(axis=1)).tolist()
                self.violations.extend(_does_not_fit(feature, datatype, indices, self.treatments))
        return column

    def _refuse_infinite(self, tensor: PackedTensor, matrix: NDArray[Any]) -> None:
        """Refuse infinities: JSON has none, so each is a number too large for the tensor."""
        start = 0
        for feature in tensor.features:
            outside = ~np.isfinite(matrix[:, start : start + feature.size]).all(axis=1)
            start += feature.size
            if feature.per_treatment:
                indices = np.flatnonzero(outside).tolist()
                self.violations.extend(_does_not_fit(feature, tensor.spec.datatype, indices, self.treatments))

    def _pack_strings(self, tensor: PackedTensor) -> bytes:
        parts: list[Sequence[str]] = []
        for feature in tensor.features:
            if feature.per_treatment:
                column = self.columns[feature.name]
                # Strings are a list; only numbers are an array.
                parts += [column[position :: feature.size] for position in range(feature.size)]  # type: ignore[misc]
            else:
                value = self.merged[feature.name]
                parts += [[element] * self.rows for element in (value if feature.shape else (value,))]
        strings = parts[0] if len(parts) == 1 else chain.from_iterable(zip(*parts, strict=True))
        encoded = list(map(str.encode, strings))
        lengths = np.fromiter(map(len, encoded), "<u4", count=len(encoded)).view("V4").tolist()
        return b"".join(chain.from_iterable(zip(lengths, encoded, strict=True)))
