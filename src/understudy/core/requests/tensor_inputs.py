"""Callers' tensors as features: what each named input of a model server's client stands for, and what is in its rows.

A caller sends the server's own tensors, which hold features side by side, or one tensor for each feature. Either way
the features are what versions take: bounds, defaults, stored features, the log, and a challenger with another layout
work as for any other call.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from understudy.core.schema.features import MAX_NAME_SHOWN, Feature, as_whole, feature_at
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.tensors import Datatype, TensorSpec, shape_text
from understudy.errors import InputInvalid, Violation

MAX_ROWS = 256
"""Rows of one call; each is a call of its own to everything behind it."""
LONG_ELEMENTS = 32_768
"""Elements of a call whose values are checked in a thread: that many take some ten milliseconds."""


class NamedInput(NamedTuple):
    """An input that callers may name, and the features whose elements it holds, side by side."""

    spec: TensorSpec
    features: tuple[Feature, ...]
    single_floats: tuple[str, ...] | None = None
    """The features' names where all are single floats: none of their values has to be fitted."""

    def values_of(self, elements: Sequence[Any]) -> dict[str, Any]:
        """Return the features' values in one row's elements."""
        if self.single_floats is not None:
            return dict(zip(self.single_floats, elements, strict=True))
        found: dict[str, Any] = {}
        start = 0
        for feature in self.features:
            end = start + feature.size
            fitted = [_fitted(feature, one, self.spec.datatype) for one in elements[start:end]]
            found[feature.name] = nested(fitted, feature.shape)
            start = end
        return found


class CallerInputs:
    """The inputs of a version as callers may name them.

    Args:
        schema: The version's.
    """

    def __init__(self, schema: InputSchema) -> None:
        self.schema = schema
        self._tensors = {one.spec.name: _named(one.spec, one.features) for one in schema.packed if one.features}
        self._alone = {name: {name: one} for name, one in self._tensors.items()}
        self._features: dict[str, NamedInput] = {}
        """Those that callers have named."""

    def __contains__(self, name: str) -> bool:
        return name in self._tensors or name in self.schema.by_name

    @property
    def tensor_names(self) -> list[str]:
        """The server's names, but of tensors without features."""
        return list(self._tensors)

    def alone(self, name: str) -> dict[str, NamedInput] | None:
        """Return what the one input of a call is, if it is a tensor of the server's: nearly always."""
        return self._alone.get(name)

    def named(self, names: Collection[str]) -> dict[str, NamedInput]:
        """Return what inputs of these names are: the server's tensors, or features; unknown names are left out.

        Raises:
            InputInvalid: Some are tensors, and others features.
        """
        tensors, by_name = self._tensors, self.schema.by_name
        features = [name for name in names if name in by_name]
        only_tensor = next((name for name in names if name in tensors and name not in by_name), None)
        if only_tensor is None and not all(name in tensors for name in features):
            return {name: self._features.get(name) or self._feature(name) for name in features}
        only_feature = next((name for name in features if name not in tensors), None)
        if only_tensor is not None and only_feature is not None:
            both = f"{shown(only_tensor)} is a tensor and {shown(only_feature)} a feature"
            raise InputInvalid.naming(Violation("/inputs", f"{both}: send all tensors, or all features"))
        return {name: tensors[name] for name in names if name in tensors}

    def _feature(self, name: str) -> NamedInput:
        found = self._features[name] = _as_input(self.schema.by_name[name])
        return found


@lru_cache(maxsize=1_024)
def caller_inputs_of(schema: InputSchema) -> CallerInputs:
    """Return the inputs of a version as callers may name them, made once for each version that is called so."""
    return CallerInputs(schema)


class InputPlaces:
    """Where features stand in the inputs of a call.

    Args:
        wanted: The call's inputs.
    """

    def __init__(self, wanted: Mapping[str, NamedInput]) -> None:
        self._at: dict[str, tuple[str, int, tuple[int, ...]]] = {}
        for input_name, one in wanted.items():
            start = 0
            for feature in one.features:
                self._at[feature.name] = input_name, start, feature.shape
                start += feature.size

    def element_at(self, pointer: str) -> tuple[str, int] | None:
        """Return the input, and the element in its row, at a feature's place; ``None`` where no input holds it."""
        name = feature_at(pointer)
        if name not in self._at:
            return None
        input_name, start, shape = self._at[name]
        indices = [int(part) for part in pointer.split("/")[3:] if part.isdecimal()]
        element = 0
        for index, size in zip(indices, shape, strict=False):
            element = element * size + index
        return input_name, start + element * prod(shape[len(indices) :])


def nested(elements: list[Any], shape: Sequence[int]) -> Any:
    """Return flat elements as nested lists of a shape; of the shape ``()`` the element itself."""
    if not shape:
        return elements[0]
    for size in reversed(shape[1:]):
        elements = [elements[start : start + size] for start in range(0, len(elements), size)]
    return elements


def rows_in(spec: TensorSpec, shape: tuple[int, ...], *, batch: bool) -> int | None:
    """Return how many rows a tensor of this shape holds; ``None`` where the shape does not fit.

    The first dimension is that of the rows where the version takes one; a shape without it is one row. Single values
    may come as ``[n]`` and as ``[n, 1]``.
    """
    if batch and shape and shape[1:] == spec.shape:
        return shape[0]
    if batch and spec.size == 1 and (len(shape) == 1 or shape[1:] == (1,)):
        return shape[0]
    is_single = spec.size == 1 and prod(shape) == 1
    return 1 if shape == spec.shape or is_single else None


def shape_wanted(spec: TensorSpec, *, batch: bool) -> str:
    """Return in words the shape that an input must have."""
    own = shape_text(spec.shape)
    return f"[rows{''.join(f', {size}' for size in spec.shape)}] or {own}" if batch else own


def shown(name: str) -> str:
    """Return a caller's name for an error."""
    return repr(name[:MAX_NAME_SHOWN])


def _as_input(feature: Feature) -> NamedInput:
    return _named(TensorSpec(feature.name, feature.datatype, feature.shape), (feature,))


def _named(spec: TensorSpec, features: tuple[Feature, ...]) -> NamedInput:
    are_single_floats = all(one.datatype.is_float and not one.shape for one in features)
    return NamedInput(spec, features, tuple(one.name for one in features) if are_single_floats else None)


def _fitted(feature: Feature, value: Any, datatype: Datatype) -> Any:
    """Return a number of a tensor's datatype as the feature has it: a whole float is an integer, 0 and 1 are booleans.

    Whatever else does not fit stays as it is, and is refused where values are checked.
    """
    if type(value) in (int, float) and feature.datatype is Datatype.BOOL is not datatype and value in (0, 1):
        return bool(value)
    return as_whole(feature, value)
