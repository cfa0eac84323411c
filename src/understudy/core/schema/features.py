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
    problem = problem_of(feature, value)
    if problem is not None:
        note(violations, pointer_of(feature.name), problem)
    return value


def _flatten(
    feature: Feature, value: Any, path: tuple[str | int, ...], flat: list[Any], violations: list[Violation]
) -> None:
    """Check nested lists by recursion; ``path`` is the feature's name and the indices so far."""
    shape = feature.shape[len(path) - 1 :]
    if not shape:
        problem = problem_of(feature, value)
        if problem is not None:
            note(violations, pointer_of(*path), problem)
        flat.append(value)
    elif not isinstance(value, list):
        note(violations, pointer_of(*path), f"expected {expected(feature)}")
    elif len(value) != shape[0]:
        note(violations, pointer_of(*path), f"expected {shape[0]} elements, got {len(value)}")
    else:
        for index, element in enumerate(value):
            _flatten(feature, element, (*path, index), flat, violations)


def problem_of(feature: Feature, value: Any) -> str | None:
    """Return what is wrong with one element, without its value; ``None`` when it is valid."""
    if type(value) not in JSON_TYPES[feature.datatype]:
        return f"expected {_expected_element(feature)}"
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


def _expected_element(feature: Feature) -> str:
    return expected(Feature(feature.name, feature.datatype))
