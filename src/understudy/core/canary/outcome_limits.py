"""The outcomes that a plan names: how much worse each may be, and whether a step waits until it is known not to be."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from understudy.core.canary.limit_reader import MAX_NAME, LimitReader, shares_of
from understudy.errors import Violation

MAX_OUTCOMES = 8
MAX_LIMIT_RATIO = 0.99
MIN_HELD_RATIO = 0.001
"""Smallest margin of an outcome that holds a step: within less, no number of entities shows equal versions to be."""
MAX_WITHIN_SECONDS = 30 * 86_400.0


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
    return shares_of([limit.alpha_share for limit in limits])


def read_outcomes(value: Any) -> tuple[tuple[OutcomeLimit, ...], list[Violation]]:
    """Return the outcomes of a JSON list, and everything that is wrong with it, with JSON pointers into the list."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not 1 <= len(value) <= MAX_OUTCOMES:
        return (), [Violation("", f"expected a list of 1 to {MAX_OUTCOMES} outcomes")]
    reader = _Reader("outcome")
    limits = tuple(reader.outcome(f"/{number}", one) for number, one in enumerate(value))
    if not reader.violations:
        reader.names_apart([limit.name for limit in limits])
        reader.shares_together([limit.alpha_share for limit in limits])
    return limits, reader.violations


class _Reader(LimitReader):
    """Reads outcomes as far as they can be read, and gathers what is wrong with them."""

    def outcome(self, pointer: str, value: Any) -> OutcomeLimit:
        if not isinstance(value, Mapping):
            self.refuse(pointer, 'expected an object such as {"name": "converted", "limit_ratio": 0.1}')
            return OutcomeLimit("")
        self.known(pointer, value, OutcomeLimit._fields)
        name = value.get("name")
        if not (isinstance(name, str) and 0 < len(name) <= MAX_NAME):
            self.refuse(f"{pointer}/name", f"expected the name of 1 to {MAX_NAME} characters that its events have")
            name = ""
        holds_step = self.yes_or_no(pointer, value, "holds_step")
        return OutcomeLimit(
            name,
            self._margin(pointer, value, holds_step=holds_step),
            self.number(f"{pointer}/within_seconds", value.get("within_seconds", 3_600.0), 1.0, MAX_WITHIN_SECONDS),
            self.yes_or_no(pointer, value, "lower_is_better"),
            holds_step,
            self.share(pointer, value.get("alpha_share")),
        )

    def _margin(self, pointer: str, value: Mapping[str, Any], *, holds_step: bool) -> float:
        margin = self.number(f"{pointer}/limit_ratio", value.get("limit_ratio", 0.05), 0.0, MAX_LIMIT_RATIO)
        if holds_step and margin < MIN_HELD_RATIO and not self.violations:
            self.refuse(
                f"{pointer}/limit_ratio",
                f"expected {MIN_HELD_RATIO:g} at least where holds_step is true: within less, equal versions are never "
                "shown to be; 0.05 to 0.2 are usual",
            )
        return margin
