"""One named feature of a model version: its datatype, bounds and default, and violations of a value."""

from dataclasses import dataclass
from math import prod
from typing import Any

from understudy.core.schema.tensors import Datatype
from understudy.errors import MAX_VIOLATIONS, Violation

MAX_NAME_SHOWN = 255
"""Most characters of an unknown name in an answer."""
MAX_STRING_BYTES = 65_536
"""Longest string in UTF-8 that an element may be where the schema does not say otherwise."""

MAX_EXACT = 2.0**53
"""Below it every whole number has a double of its own."""
_KINDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}

JSON_TYPES: dict[Datatype, tuple[type, ...]] = {
    datatype: (float, int) if datatype.is_float else (int,) for datatype in Datatype
} | {Datatype.BYTES: (str,), Datatype.BOOL: (bool,)}
"""JSON types that an element may have: floats take whole numbers too, and no number may be true or false."""


class EnoughViolations(Exception):
    """As many violations were found as an answer names; to look for more would only cost time."""


def note(violations: list[Violation], pointer: str, detail: str) -> None:
    """Add a violation.

    Raises:
        EnoughViolations: There are :data:`MAX_VIOLATIONS` now.
    """
    violations.append(Violation(pointer, detail))
    if len(violations) >= MAX_VIOLATIONS:
        raise EnoughViolations


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
    """Whether the feature store is read when the request does not have it."""
    private: bool = False
    """Whether its values are never logged."""
    is_slice: bool = False
    """Whether versions are compared for each of its values by itself."""
    max_bytes: int = MAX_STRING_BYTES
    """Longest element in UTF-8, of strings alone."""
    per_treatment: bool = False
    """Whether each treatment has its own value; otherwise the entity has one."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def pointer_of(*parts: str | int) -> str:
    """Return the JSON pointer (RFC 6901) of a place under ``/inputs``."""
    return "/inputs" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def feature_at(pointer: str) -> str | None:
    """Return the feature that a pointer of :func:`pointer_of` names; ``None`` for a place outside ``/inputs``."""
    if not pointer.startswith("/inputs/"):
        return None
    return pointer.split("/", 3)[2].replace("~1", "/").replace("~0", "~")


def expected(feature: Feature) -> str:
    """Return in words what the feature's value should be."""
    kind = {True: "a number", False: "a string"}[feature.datatype is not Datatype.BYTES]
    if feature.datatype is Datatype.BOOL:
        kind = "true or false"
    elif feature.datatype.is_integer:
        kind = f"an integer ({feature.datatype.wire_name.lower()})"
    if feature.shape:
        return f"a list of shape {list(feature.shape)} of {kind}"
    return kind


def checked(feature: Feature, value: Any, violations: list[Violation]) -> Any:
    """Return a single value, or the flat list of a feature with a shape; problems go to ``violations``.

    Raises:
        EnoughViolations: The value has more problems than an answer names.
    """
    if feature.shape:
        if feature.shape == (1,) and not isinstance(value, list):
            value = [value]
        flat: list[Any] = []
        _flatten(feature, value, (feature.name,), flat, violations)
        return flat
    return _checked_element(feature, value, (feature.name,), violations)


def _flatten(
    feature: Feature, value: Any, path: tuple[str | int, ...], flat: list[Any], violations: list[Violation]
) -> None:
    """Check nested lists by recursion; ``path`` is the feature's name and the indices so far."""
    shape = feature.shape[len(path) - 1 :]
    if not shape:
        flat.append(_checked_element(feature, value, path, violations))
    elif not isinstance(value, list):
        note(violations, pointer_of(*path), f"expected {expected(feature)}, got {kind_of(value)}")
    elif len(value) != shape[0]:
        note(violations, pointer_of(*path), f"expected {shape[0]} elements, got {len(value)}")
    else:
        for index, element in enumerate(value):
            _flatten(feature, element, (*path, index), flat, violations)


def _checked_element(feature: Feature, value: Any, path: tuple[str | int, ...], violations: list[Violation]) -> Any:
    problem = problem_of(feature, value)
    if problem is None:
        return value
    whole = as_whole(feature, value)
    if whole is not value:
        value, problem = whole, problem_of(feature, whole)
    if problem is not None:
        note(violations, pointer_of(*path), problem)
    return value


def as_whole(feature: Feature, value: Any) -> Any:
    """Return a whole float as the integer that the feature takes (pandas and JavaScript write ``1.0``), or the value.

    From 2^53 on a float may stand for another whole number than the one that was written.
    """
    if type(value) is not float or not feature.datatype.is_integer:
        return value
    return int(value) if value.is_integer() and -MAX_EXACT < value < MAX_EXACT else value


def as_whole_elements(feature: Feature, value: Any) -> Any:
    """Return a value, which may be nested lists, with :func:`as_whole` of each element."""
    if not feature.datatype.is_integer:
        return value
    if isinstance(value, list):
        return [as_whole_elements(feature, one) for one in value]
    return as_whole(feature, value)


def kind_of(value: Any) -> str:
    """Return in words what JSON calls a value, which is never repeated itself."""
    if type(value) is float and not value.is_integer():
        return "a number with a fraction"
    return _KINDS.get(type(value), "a value of another type")


def problem_of(feature: Feature, value: Any) -> str | None:
    """Return what is wrong with one element, without its value; ``None`` when it is valid."""
    if type(value) not in JSON_TYPES[feature.datatype]:
        return f"expected {_expected_element(feature)}, got {_unfit(feature, value)}"
    if feature.enum:
        return None if value in feature.enum else f"expected one of {', '.join(map(str, feature.enum))}"
    if feature.datatype is Datatype.BYTES:
        return f"is longer than {feature.max_bytes:,} bytes" if exceeds_max_bytes(value, feature.max_bytes) else None
    if feature.minimum is not None and value < feature.minimum:
        return f"is below the least permitted value {feature.minimum:g}"
    if feature.maximum is not None and value > feature.maximum:
        return f"is above the greatest permitted value {feature.maximum:g}"
    return None


def exceeds_max_bytes(text: str, max_bytes: int) -> bool:
    """Whether a feature's string has more bytes in UTF-8 than its ``max_bytes``."""
    return len(text) > max_bytes or (not text.isascii() and len(text.encode()) > max_bytes)


def _unfit(feature: Feature, value: Any) -> str:
    if type(value) is float and value.is_integer() and feature.datatype.is_integer:
        return "a float of 2^53 or more, which may stand for another number"
    return kind_of(value)


def _expected_element(feature: Feature) -> str:
    return expected(Feature(feature.name, feature.datatype))
