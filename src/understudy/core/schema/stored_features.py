"""Stored features that a version cannot use: a default is used, or the call fails as the store's fault."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from understudy.core.schema.features import feature_at
from understudy.errors import FeaturesUnavailable, InputInvalid, Violation

MAX_NAMED = 10
"""Most stored features in one answer."""
_Assembled = TypeVar("_Assembled")


def assemble_without_unfit(
    assemble: Callable[[Mapping[str, Any]], _Assembled],
    inputs: Mapping[str, Any],
    stored: Mapping[str, Any],
    problem: InputInvalid,
) -> _Assembled:
    """Assemble without the stored values that do not fit, so that defaults are used instead.

    Called only after a first assembly was refused, so valid calls pay nothing for it.

    Args:
        assemble: Makes tensors of the request with these stored values; raises ``InputInvalid``.
        inputs: What the caller sent: no stored value is used for those.
        stored: What the feature store had.
        problem: Why the first assembly was refused.

    Raises:
        InputInvalid: With the caller's own violations alone, if there are any.
        FeaturesUnavailable: If the only problem is the stored value of a required feature.
    """
    usable = dict(stored)
    unfit: dict[str, str] = {}
    while found := _unfit(problem.violations, inputs, usable):
        unfit.update(found)
        for name in found:
            del usable[name]
        try:
            return assemble(usable)
        except InputInvalid as again:  # a value of the right type may still not fit its tensor
            problem = again
    own = tuple(one for one in problem.violations if feature_at(one.pointer) not in unfit)
    if not unfit or len(own) == len(problem.violations):
        raise problem.as_value()
    if own:
        raise InputInvalid.naming(*own)
    required = [feature_at(one.pointer) for one in problem.violations]
    told = "; ".join(f"{name} {unfit[name]}" for name in required[:MAX_NAMED] if name is not None)
    raise FeaturesUnavailable(f"the feature store's value does not fit this version: {told}")


def _unfit(violations: tuple[Violation, ...], inputs: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, str]:
    """Return the first problem of each stored value that was used and does not fit."""
    found: dict[str, str] = {}
    for violation in violations:
        name = feature_at(violation.pointer)
        if name is not None and name in stored and name not in inputs:
            found.setdefault(name, violation.detail)
    return found
