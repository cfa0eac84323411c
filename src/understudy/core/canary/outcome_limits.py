"""The outcomes that a plan names: how much worse each may be, and whether a step waits until it is known not to be."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from understudy.errors import Violation

MAX_OUTCOMES = 8
MAX_NAME = 255
"""Characters of an outcome's name."""
MAX_LIMIT_RATIO = 0.99
MIN_HELD_RATIO = 0.001
"""Smallest margin of an outcome that holds a step: within less, no number of entities shows equal versions to be."""
MAX_WITHIN_SECONDS = 30 * 86_400.0
MIN_ALPHA_SHARE = 0.01
_ROUNDING = 1e-9


class OutcomeLimit(NamedTuple):
    """One outcome, and what is tolerated of it."""

    name: str
    limit_ratio: float = 0.05
    """How much worse it may be, as a share of the champion's: the margin of non-inferiority."""
    within_seconds: float = 3_600.0
    """How long after an entity's first call its outcomes count, and before which it does not count itself."""
    lower_is_better: bool = False
    holds_step: bool = False
    """Whether a step ends only when the outcome is shown to be within ``limit_ratio``."""
    alpha_share: float | None = None
    """Of what all outcomes may spend; ``None``: what the others leave, in equal parts."""

    def to_json(self) -> dict[str, Any]:
        """Return it as a plan has it."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def alpha_shares(limits: Sequence[OutcomeLimit]) -> tuple[float, ...]:
    """Return which share of the outcomes' alpha each has: together 1 at most."""
    left = 1 - sum(limit.alpha_share or 0.0 for limit in limits)
    without = sum(limit.alpha_share is None for limit in limits)
    return tuple(left / without if limit.alpha_share is None else limit.alpha_share for limit in limits)


def read_outcomes(value: Any) -> tuple[tuple[OutcomeLimit, ...], list[Violation]]:
    """Return the outcomes of a JSON list, and everything that is wrong with it, with JSON pointers into the list."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not 1 <= len(value) <= MAX_OUTCOMES:
        return (), [Violation("", f"expected a list of 1 to {MAX_OUTCOMES} outcomes")]
    reader = _Reader()
    limits = tuple(reader.outcome(f"/{number}", one) for number, one in enumerate(value))
    if not reader.violations:
        reader.names_apart(limits)
        reader.shares(limits)
    return limits, reader.violations


class _Reader:
    """Reads outcomes as far as they can be read, and gathers what is wrong with them."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def outcome(self, pointer: str, value: Any) -> OutcomeLimit:
        if not isinstance(value, Mapping):
            self._refuse(pointer, 'expected an object such as {"name": "converted", "limit_ratio": 0.1}')
            return OutcomeLimit("")
        for key in value.keys() - set(OutcomeLimit._fields):
            known = ", ".join(OutcomeLimit._fields)
            self._refuse(f"{pointer}/{str(key)[:MAX_NAME]}", f"is not known; there are {known}")
        name = value.get("name")
        if not (isinstance(name, str) and 0 < len(name) <= MAX_NAME):
            self._refuse(f"{pointer}/name", f"expected the name of 1 to {MAX_NAME} characters that its events have")
            name = ""
        holds_step = self._yes_or_no(pointer, value, "holds_step")
        return OutcomeLimit(
            name,
            self._margin(pointer, value, holds_step=holds_step),
            self._number(f"{pointer}/within_seconds", value.get("within_seconds", 3_600.0), 1.0, MAX_WITHIN_SECONDS),
            self._yes_or_no(pointer, value, "lower_is_better"),
            holds_step,
            self._share(pointer, value.get("alpha_share")),
        )

    def names_apart(self, limits: Sequence[OutcomeLimit]) -> None:
        for number, limit in enumerate(limits):
            if any(limit.name == before.name for before in limits[:number]):
                self._refuse(f"/{number}/name", "is named before: expected each outcome once")

    def shares(self, limits: Sequence[OutcomeLimit]) -> None:
        given = sum(limit.alpha_share or 0.0 for limit in limits)
        without = sum(limit.alpha_share is None for limit in limits)
        if given + MIN_ALPHA_SHARE * without > 1 + _ROUNDING:
            left = f" with {MIN_ALPHA_SHARE:g} left for each outcome that has none" if without else ""
            self._refuse("", f"expected alpha_share of all outcomes to come to 1 at most{left}, they come to {given:g}")

    def _margin(self, pointer: str, value: Mapping[str, Any], *, holds_step: bool) -> float:
        margin = self._number(f"{pointer}/limit_ratio", value.get("limit_ratio", 0.05), 0.0, MAX_LIMIT_RATIO)
        if holds_step and margin < MIN_HELD_RATIO and not self.violations:
            self._refuse(
                f"{pointer}/limit_ratio",
                f"expected {MIN_HELD_RATIO:g} at least where holds_step is true: within less, equal versions are never "
                "shown to be; 0.05 to 0.2 are usual",
            )
        return margin

    def _share(self, pointer: str, value: Any) -> float | None:
        return None if value is None else self._number(f"{pointer}/alpha_share", value, MIN_ALPHA_SHARE, 1.0)

    def _number(self, pointer: str, value: Any, low: float, high: float) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or not low <= value <= high:
            self._refuse(pointer, f"expected a number from {low:,.12g} to {high:,.12g}")
            return low
        return float(value)

    def _yes_or_no(self, pointer: str, value: Mapping[str, Any], name: str) -> bool:
        given = value.get(name, False)
        if not isinstance(given, bool):
            self._refuse(f"{pointer}/{name}", "expected true or false")
            return False
        return given

    def _refuse(self, pointer: str, detail: str) -> None:
        self.violations.append(Violation(pointer, detail))
