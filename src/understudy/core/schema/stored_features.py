"""Inputs from the feature store that a version cannot use: a default stands in, or nobody's request is at fault."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from understudy.core.schema.features import feature_at
from understudy.errors import FeaturesUnavailable, InputInvalid, Violation

MAX_TOLD = 10
"""Stored features that one answer names at most."""
_Assembled = TypeVar("_Assembled")


def assemble_without_unfit(
    assemble: Callable[[Mapping[str, Any]], _Assembled],
    inputs: Mapping[str, Any],
    stored: Mapping[str, Any],
    problem: InputInvalid,
) -> _Assembled:
    """Return what is assembled when stored values that do not fit are left out, so that defaults stand in for them.

    Asked only once something was refused: values are looked at a second time then, and never before.

    Args:
        assemble: Makes tensors of the request with these stored values; raises ``InputInvalid``.
        inputs: What the caller sent: no stored value is taken for those.
        stored: What the feature store had.
        problem: Why nothing could be assembled with all of it.

    Raises:
        InputInvalid: With the caller's own violations alone, if there are any.
        FeaturesUnavailable: If only a required feature's stored value is in the way.
    """
    usable = dict(stored)
    unfit: dict[str, str] = {}
    while found := _unfit(problem.violations, inputs, usable):
        unfit.update(found)
        for name in found:
            del usable[name]
        try:
            return assemble(usable)
        except InputInvalid as again:  # a value that is of the right type may still not fit into its tensor
            problem = again
    own = tuple(one for one in problem.violations if feature_at(one.pointer) not in unfit)
    if not unfit or len(own) == len(problem.violations):
        raise problem.as_value()
    if own:
        raise InputInvalid(f"{len(own)} problem{'s' if len(own) > 1 else ''}", own)
    required = [feature_at(one.pointer) for one in problem.violations]
    told = "; ".join(f"{name} {unfit[name]}" for name in required[:MAX_TOLD] if name is not None)
    raise FeaturesUnavailable(f"the feature store's value does not fit this version: {told}")


def _unfit(violations: tuple[Violation, ...], inputs: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with the first place of each stored value that was taken and does not fit."""
    found: dict[str, str] = {}
    for violation in violations:
        name = feature_at(violation.pointer)
        if name is not None and name in stored and name not in inputs:
            found.setdefault(name, violation.detail)
    return found
