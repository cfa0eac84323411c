"""The judge that a plan names: who compares the two versions' answers, how much worse they may be, and its budget."""

import re
from collections.abc import Mapping
from enum import Enum, auto
from math import ceil, floor
from typing import Any, NamedTuple

from understudy.core.canary.limit_reader import LimitReader
from understudy.errors import Violation

DEFAULT_LIMIT_RATIO = 0.05
MAX_LIMIT_RATIO = 0.99
MAX_CALLS_PER_MINUTE = 600
MAX_JUDGEMENTS = 10_000
"""Questions of one rollout, and so the rows that are kept, read and stored with a verdict."""
MICROS = 1_000_000
MAX_MONEY = 1e6
_MIN_JUDGEMENTS = 50
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_EXAMPLE = '{"name": "quality", "calls_per_minute": 30, "cost_per_call": 0.002, "money_per_day": 5}'


class BudgetStop(Enum):
    """Why no question may be asked now."""

    MINUTE = auto()
    """So many were asked in the last minute."""
    DAY = auto()
    """The money of the day is spent."""
    FULL = auto()
    """The rollout has all the questions that are kept."""
    KNOWN = auto()
    """The pair was asked in this order before."""


class JudgeLimit(NamedTuple):
    """A judge, what is tolerated of its judgements, and what it may cost."""

    name: str
    """The name that the monitors' setting ``UNDERSTUDY_JUDGES`` has for its address."""
    limit_ratio: float = DEFAULT_LIMIT_RATIO
    """How much lower the challenger's win rate may be, as a share of the champion's."""
    min_judgements: int = 200
    """Pairs of answers that a step waits for."""
    sample_percent: float = 100.0
    """Of the entities, whose calls the judge may be shown: always the same ones."""
    calls_per_minute: int = 30
    """Of all rollouts of the model together, as is ``money_per_day``."""
    cost_per_call: float = 0.0
    """What one question costs, whatever comes of it, in the currency that the operator thinks in."""
    money_per_day: float | None = None
    """What questions of one day (UTC) may cost; ``None`` only where they cost nothing."""

    @property
    def cost_micros(self) -> int:
        """What a question costs, in millionths; never less than the plan says."""
        return ceil(round(self.cost_per_call * MICROS, 3))

    @property
    def day_micros(self) -> int | None:
        """What a day may cost, in millionths; never more than the plan says."""
        return None if self.money_per_day is None else floor(round(self.money_per_day * MICROS, 3))

    def to_json(self) -> dict[str, Any]:
        """Return it as a plan has it."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def budget_stop(limit: JudgeLimit, lately: int, day_micros: int, rows: int) -> BudgetStop | None:
    """Return why no question may be asked; ``None`` where one may.

    Args:
        limit: The judge's budget.
        lately: Questions of the last minute.
        day_micros: What those of the day cost.
        rows: Questions that the rollout has.
    """
    if rows >= MAX_JUDGEMENTS:
        return BudgetStop.FULL
    if limit.day_micros is not None and day_micros + limit.cost_micros > limit.day_micros:
        return BudgetStop.DAY
    return BudgetStop.MINUTE if lately >= limit.calls_per_minute else None


def read_judge(value: Any) -> tuple[JudgeLimit | None, list[Violation]]:
    """Return the judge of a JSON object, and everything that is wrong with it, with JSON pointers into the object."""
    if not isinstance(value, Mapping):
        return None, [Violation("", f"expected an object such as {_EXAMPLE}")]
    reader = _Reader("judge")
    limit = reader.judge(value)
    return (None if reader.violations else limit), reader.violations


class _Reader(LimitReader):
    """Reads a judge as far as it can be read, and gathers what is wrong with it."""

    def judge(self, value: Mapping[str, Any]) -> JudgeLimit:
        self.known("", value, JudgeLimit._fields)
        usual = JudgeLimit("")
        name = value.get("name")
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            self.refuse("/name", "expected the name that UNDERSTUDY_JUDGES has for a judge")
            name = ""
        found = JudgeLimit(
            name,
            self.number("/limit_ratio", value.get("limit_ratio", usual.limit_ratio), 0.0, MAX_LIMIT_RATIO),
            self._whole("/min_judgements", value.get("min_judgements", usual.min_judgements), _MIN_JUDGEMENTS, 5_000),
            self.number("/sample_percent", value.get("sample_percent", usual.sample_percent), 0.01, 100.0),
            self._whole("/calls_per_minute", value.get("calls_per_minute", 30), 1, MAX_CALLS_PER_MINUTE),
            self.number("/cost_per_call", value.get("cost_per_call", usual.cost_per_call), 0.0, MAX_MONEY),
            self._money(value.get("money_per_day")),
        )
        if not self.violations:
            self._check_budget(found)
        return found

    def _check_budget(self, found: JudgeLimit) -> None:
        if found.cost_micros and found.day_micros is None:
            self.refuse("/money_per_day", "expected an amount: a question costs something")
        elif found.day_micros is not None and found.cost_micros > found.day_micros:
            self.refuse("/money_per_day", "expected at least cost_per_call: nothing could be asked")

    def _money(self, value: Any) -> float | None:
        return None if value is None else self.number("/money_per_day", value, 0.0, MAX_MONEY)

    def _whole(self, pointer: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(pointer, f"expected a whole number from {low:,} to {high:,}")
            return low
        return value
