"""A field of a policy in words, as every table of models has it."""

from typing import Any

from understudy.core.routing.arms import arm_percents
from understudy.entrypoints.cli.shared.rendering import nothing_as


def value_text(value: Any) -> str:
    """Return a field's value; further arms as versions with their percent."""
    if not isinstance(value, tuple):
        return nothing_as(value)
    return nothing_as(", ".join(f"{arm} {percent} %" for arm, percent in arm_percents(value).items()))
