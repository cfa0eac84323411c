"""Reads a list of limits that a plan has beside each other, outcomes or metrics, and gathers what is wrong with it."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from understudy.errors import Violation

MAX_NAME = 255
"""Characters of an outcome's name."""
MIN_ALPHA_SHARE = 0.01
_ROUNDING = 1e-9


def shares_of(given: Sequence[float | None]) -> tuple[float, ...]:
    """Return each one's share of what all may spend: as given, or what the others leave in equal parts; together 1."""
    left = 1 - sum(share or 0.0 for share in given)
    without = sum(share is None for share in given)
    return tuple(left / without if share is None else share for share in given)


class LimitReader:
    """Reads single fields as far as they can be read, and gathers what is wrong with them.

    Args:
        noun: What each entry of the list is called.
    """

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self.violations: list[Violation] = []

    def known(self, pointer: str, value: Mapping[str, Any], names: Sequence[str]) -> None:
        """Refuse the keys that there are not."""
        for key in value.keys() - set(names):
            self.refuse(f"{pointer}/{str(key)[:MAX_NAME]}", f"is not known; there are {', '.join(names)}")

    def names_apart(self, names: Sequence[str]) -> None:
        """Refuse a name that is there twice."""
        for number, name in enumerate(names):
            if name in names[:number]:
                self.refuse(f"/{number}/name", f"is named before: expected each {self._noun} once")

    def shares_together(self, given: Sequence[float | None]) -> None:
        """Refuse shares of alpha that come to more than 1."""
        together = sum(share or 0.0 for share in given)
        without = sum(share is None for share in given)
        if together + MIN_ALPHA_SHARE * without > 1 + _ROUNDING:
            left = f" with {MIN_ALPHA_SHARE:g} left for each {self._noun} that has none" if without else ""
            self.refuse(
                "", f"expected alpha_share of all {self._noun}s to come to 1 at most{left}, they come to {together:g}"
            )

    def share(self, pointer: str, value: Any) -> float | None:
        """Return a share of alpha; ``None`` where there is none."""
        return None if value is None else self.number(f"{pointer}/alpha_share", value, MIN_ALPHA_SHARE, 1.0)

    def number(self, pointer: str, value: Any, low: float, high: float) -> float:
        """Return a number; the lowest one when it cannot be used."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or not low <= value <= high:
            self.refuse(pointer, f"expected a number from {low:,.12g} to {high:,.12g}")
            return low
        return float(value)

    def yes_or_no(self, pointer: str, value: Mapping[str, Any], name: str) -> bool:
        """Return a truth value, which is false where there is none."""
        given = value.get(name, False)
        if not isinstance(given, bool):
            self.refuse(f"{pointer}/{name}", "expected true or false")
            return False
        return given

    def refuse(self, pointer: str, detail: str) -> None:
        """Write down what is wrong at a place."""
        self.violations.append(Violation(pointer, detail))
