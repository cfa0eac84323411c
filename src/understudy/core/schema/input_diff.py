"""Which calls the champion accepts and a version refuses, because their input schemas differ."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.features import Feature, exceeds_max_bytes, expected
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.tensors import Datatype
from understudy.errors import SchemaInvalid

MAX_NAMED = 10
"""Differences that one text names; a version of another model differs in everything."""


class InputDifferences(NamedTuple):
    """How a version's inputs differ from the champion's, in words, each beginning with the input's name.

    Attributes:
        breaking: With these every call that fits the champion fails at the version.
        possible: With these a call may fail: it depends on its values.
    """

    breaking: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return what differs, what breaks every call first; at most :data:`MAX_NAMED` and how many more there are."""
        listed = [*self.breaking, *self.possible]
        more = len(listed) - MAX_NAMED
        return [*listed[:MAX_NAMED], f"and {more} more"] if more > 0 else listed


NO_DIFFERENCES = InputDifferences()


class Names(NamedTuple):
    """What the words call the two that are compared."""

    before: str = "the champion"
    after: str = "the version"


CHAMPION_AND_VERSION = Names()


def input_differences(champion: Mapping[str, Any], version: Mapping[str, Any]) -> InputDifferences:
    """Compare two documents of ``input_schema``; one that does not compile gives none: registering reports it."""
    try:
        return differences_of(compile_input_schema(champion), compile_input_schema(version))
    except SchemaInvalid:
        return NO_DIFFERENCES


def differences_of(
    champion: InputSchema, version: InputSchema, names: Names = CHAMPION_AND_VERSION
) -> InputDifferences:
    """Compare what two versions take; an optional input that the champion does not know is no difference."""
    breaking: list[str] = []
    possible: list[str] = []
    for feature in version.features:
        before = champion.by_name.get(feature.name)
        if before is None:
            _compare_new(feature, breaking, possible, names)
        else:
            _compare_both(before, feature, breaking, possible, names)
    for feature in champion.features:
        if feature.name not in version.by_name:
            # Without a default and a store each call has it, and an input that a version does not know is refused.
            always = not (feature.has_default or feature.stored)
            words = f"{names.before} takes it and {names.after} does not"
            (breaking if always else possible).append(f"{feature.name}: {words}")
    return InputDifferences(tuple(breaking), tuple(possible))


def _compare_new(feature: Feature, breaking: list[str], possible: list[str], names: Names) -> None:
    if feature.has_default:
        return
    if feature.stored:
        possible.append(f"{feature.name}: new, and without a default where the feature store has no value")
    else:
        breaking.append(f"{feature.name}: new and required, and {names.before} refuses calls that have it")


def _compare_both(before: Feature, after: Feature, breaking: list[str], possible: list[str], names: Names) -> None:
    name, of_before = after.name, f"of {names.before}"
    other = f"{name}: {expected(after)}, and {of_before} {expected(before)}"
    same_kind = _kind_of(before) == _kind_of(after)
    if before.per_treatment != after.per_treatment:
        # A predict call has one treatment and fits both; a rank call does not.
        whose = {True: "a treatment's", False: "the entity's"}
        possible.append(f"{name}: {whose[after.per_treatment]}, and {of_before} {whose[before.per_treatment]}")
    elif not same_kind or not _same_shape(before, after):
        # A call fits both that leaves it out, or has a single value where the champion takes a list of one as well.
        is_left_to_callers = same_kind and (before.shape, after.shape) == ((1,), ())
        (possible if is_left_to_callers or _is_optional(before, after) else breaking).append(other)
    elif after.datatype.is_integer and _holds_more(before.datatype, after.datatype):
        possible.append(other)
    elif _is_narrower(before, after):
        possible.append(f"{name}: fewer values are permitted than {of_before}")
    elif _is_optional(before) and not _is_optional(after):
        possible.append(f"{name}: required, and {of_before} optional")


def _is_optional(*features: Feature) -> bool:
    return all(feature.has_default or feature.stored for feature in features)


def _holds_more(before: Datatype, after: Datatype) -> bool:
    """Whether ``before`` can hold numbers that the integer type ``after`` cannot."""
    if before.is_float:
        return True
    had, has = np.iinfo(before.numpy_dtype), np.iinfo(after.numpy_dtype)
    return bool(had.min < has.min or had.max > has.max)


def _kind_of(feature: Feature) -> str:
    """Return the kind of JSON value; :func:`_holds_more` checks fractions and ranges of numbers."""
    if feature.datatype.is_float or feature.datatype.is_integer:
        return "number"
    return feature.datatype.wire_name


def _same_shape(before: Feature, after: Feature) -> bool:
    # A single value fits a feature of shape [1]; a list of one does not fit a single value.
    return before.shape == after.shape or (before.shape, after.shape) == ((), (1,))


def _is_narrower(before: Feature, after: Feature) -> bool:
    if after.enum:
        return not before.enum or not set(before.enum) <= set(after.enum)
    if after.datatype is Datatype.BYTES and not before.enum:
        return after.max_bytes < before.max_bytes
    if before.enum:
        return any(not _within(after, value) for value in before.enum)
    return (after.minimum is not None and (before.minimum is None or before.minimum < after.minimum)) or (
        after.maximum is not None and (before.maximum is None or before.maximum > after.maximum)
    )


def _within(feature: Feature, value: Any) -> bool:
    if feature.datatype is Datatype.BYTES:
        return not exceeds_max_bytes(value, feature.max_bytes)
    return (feature.minimum is None or value >= feature.minimum) and (
        feature.maximum is None or value <= feature.maximum
    )
