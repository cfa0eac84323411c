"""What a version asks of its callers that the champion does not: calls that fit the one and fail at the other."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from understudy.core.features import Feature, expected
from understudy.core.schema import InputSchema
from understudy.core.schema_reader import compile_input_schema
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


def input_differences(champion: Mapping[str, Any], version: Mapping[str, Any]) -> InputDifferences:
    """Compare two documents of ``input_schema``; one that cannot be compiled is somebody else's to report."""
    try:
        return differences_of(compile_input_schema(champion), compile_input_schema(version))
    except SchemaInvalid:
        return NO_DIFFERENCES


def differences_of(champion: InputSchema, version: InputSchema) -> InputDifferences:
    """Compare what two versions take. An input that is optional in the version and unknown to the champion is none."""
    breaking: list[str] = []
    possible: list[str] = []
    for feature in version.features:
        before = champion.by_name.get(feature.name)
        if before is None:
            _compare_new(feature, breaking, possible)
        else:
            _compare_both(before, feature, breaking, possible)
    for feature in champion.features:
        if feature.name not in version.by_name:
            # Without a default and a store each call has it, and an input that a version does not know is refused.
            always = not (feature.has_default or feature.stored)
            words = "the champion takes it and the version does not"
            (breaking if always else possible).append(f"{feature.name}: {words}")
    return InputDifferences(tuple(breaking), tuple(possible))


def _compare_new(feature: Feature, breaking: list[str], possible: list[str]) -> None:
    if feature.has_default:
        return
    if feature.stored:
        possible.append(f"{feature.name}: new, and without a default where the feature store has no value")
    else:
        breaking.append(f"{feature.name}: new and required, and the champion refuses calls that have it")


def _compare_both(before: Feature, after: Feature, breaking: list[str], possible: list[str]) -> None:
    name = after.name
    if before.per_treatment != after.per_treatment:
        whose = {True: "a treatment's", False: "the entity's"}
        breaking.append(f"{name}: {whose[after.per_treatment]}, and of the champion {whose[before.per_treatment]}")
    elif _kind_of(before) != _kind_of(after) or not _same_shape(before, after):
        breaking.append(f"{name}: {expected(after)}, and of the champion {expected(before)}")
    elif after.datatype.is_integer and before.datatype.is_float:
        possible.append(f"{name}: {expected(after)}, and of the champion {expected(before)}")
    elif _is_narrower(before, after):
        possible.append(f"{name}: fewer values are permitted than of the champion")
    elif not (after.has_default or after.stored) and (before.has_default or before.stored):
        possible.append(f"{name}: required, and of the champion optional")


def _kind_of(feature: Feature) -> str:
    """Return which kind of JSON value it is; whether a number has a fraction is looked at apart."""
    if feature.datatype.is_float or feature.datatype.is_integer:
        return "number"
    return feature.datatype.wire_name


def _same_shape(before: Feature, after: Feature) -> bool:
    # A single value fits a feature of shape [1]; a list of one does not fit a single value.
    return before.shape == after.shape or (before.shape, after.shape) == ((), (1,))


def _is_narrower(before: Feature, after: Feature) -> bool:
    if after.enum:
        return not before.enum or not set(before.enum) <= set(after.enum)
    if before.enum:
        return any(not _within(after, value) for value in before.enum)
    return (after.minimum is not None and (before.minimum is None or before.minimum < after.minimum)) or (
        after.maximum is not None and (before.maximum is None or before.maximum > after.maximum)
    )


def _within(feature: Feature, value: Any) -> bool:
    return (feature.minimum is None or value >= feature.minimum) and (
        feature.maximum is None or value <= feature.maximum
    )
