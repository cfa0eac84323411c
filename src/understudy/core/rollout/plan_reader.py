"""Plans as operators write them.

As JSON; everything may be left out, and a step may be only its weight::

    {"strategy": "canary", "steps": [2, 5, {"weight_percent": 50, "dwell_seconds": 7200, "min_requests": 10000}, 100],
     "maximum_seconds": 86400, "keep_warm_seconds": 1800, "canary_policy": "default", "canary_limits": {}, "salt": null,
     "freezes": ["Fri 18:00 - Mon 08:00 Europe/Berlin"], "expect_different_scores": false,
     "gates": {"before_step": {"http": "quality"}, "before_promotion": {"approval": "another"}}}

As text: one of :data:`~understudy.core.rollout.plan.NAMED_PLANS`, or the weights: ``2,5,10,50,100``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from understudy.core.rollout.freeze import FreezeWindow, read_freeze, unfrozen_seconds
from understudy.core.rollout.plan import (
    KEEP_WARM_SECONDS,
    NAMED_PLANS,
    USUAL_STEPS,
    WHOLE_PERCENT,
    Approver,
    Gate,
    GatePlace,
    RolloutPlan,
    Step,
    Strategy,
    usual_maximum_seconds,
    usual_step,
)
from understudy.errors import Violation

MAX_STEPS = 20
MAX_FREEZES = 20
MAX_DWELL_SECONDS = 30 * 86_400.0
MAX_WARM_SECONDS = 7 * 86_400.0

_MAX_REQUESTS = 1_000_000_000
_MAX_CHARACTERS = 255
_MAX_DIGITS = 9
_SERVICE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_GATE = 'expected {"approval": "anyone"} or "another", or {"http": "a name in UNDERSTUDY_GATES"}, or both'
_NEVER_REACHED = "expected steps between the first one and 100 %: before that one before_promotion is asked"
_TWO_WEEKS = (0.0, 14 * 86_400.0)
"""Any two weeks: what leaves no time in them leaves none in any, unless it names dates."""


def read_plan(source: str | Mapping[str, Any]) -> RolloutPlan:
    """Return the plan that a name, a list of weights or a JSON object describes.

    A step without times has those of the first step of :data:`~understudy.core.rollout.plan.LADDER` that is at least as
    large.

    Raises:
        ValueError: With everything that is wrong with it; :func:`plan_violations` has it in parts.
    """
    plan, violations = _read(source)
    if plan is None:
        raise ValueError("; ".join(f"{pointer}: {detail}" for pointer, detail in violations))
    return plan


def plan_violations(source: str | Mapping[str, Any]) -> tuple[Violation, ...]:
    """Return everything that is wrong with a plan, with JSON pointers into it; nothing for a good one."""
    return _read(source)[1]


def _read(source: str | Mapping[str, Any]) -> tuple[RolloutPlan | None, tuple[Violation, ...]]:
    if isinstance(source, str):
        named = NAMED_PLANS.get(source.strip())
        if named is not None:
            return named, ()
        if not any(part.strip().isdecimal() for part in source.split(",")):
            return None, (Violation("", _no_plan(source.strip())),)
        source = {"steps": [_weight(part.strip()) for part in source.split(",")]}
    if not isinstance(source, Mapping):
        return None, (Violation("", "expected an object, a plan's name or weights"),)
    reader = _Reader()
    plan = reader.plan(source)
    return (None if reader.violations else plan), tuple(reader.violations)


def _no_plan(text: str) -> str:
    """Return what a plan's name may be, and which one was meant."""
    near = get_close_matches(text[:_MAX_CHARACTERS].lower(), NAMED_PLANS, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"expected {', '.join(NAMED_PLANS)}, or weights such as 2,10,50,100{meant}"


def _weight(text: str) -> int | str:
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else text


class _Reader:
    """Reads a plan as far as it can be read, and gathers what is wrong with it."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def plan(self, document: Mapping[str, Any]) -> RolloutPlan:
        self._known(document, "", [attribute.name for attribute in fields(RolloutPlan)])
        strategy = self._strategy(document.get("strategy", Strategy.CANARY))
        steps = self._steps(document.get("steps"), strategy)
        longest = max((step.dwell_seconds for step in steps), default=0.0)
        return RolloutPlan(
            steps=steps,
            strategy=strategy,
            maximum_seconds=self._number(
                document,
                "/maximum_seconds",
                usual_maximum_seconds(steps),
                max(longest, 1e-3),
                4 * MAX_DWELL_SECONDS,
            ),
            keep_warm_seconds=self._number(document, "/keep_warm_seconds", KEEP_WARM_SECONDS, 0.0, MAX_WARM_SECONDS),
            canary_policy=self._text(document, "canary_policy", "default") or "default",
            canary_limits=self._limits(document.get("canary_limits", {})),
            salt=self._text(document, "salt", None),
            freezes=self._freezes(document.get("freezes", ())),
            expect_different_scores=self._yes_or_no(document, "expect_different_scores"),
            gates=self._gates(document.get("gates", {}), steps),
        )

    def _steps(self, value: Any, strategy: Strategy) -> tuple[Step, ...]:
        if value is None:
            return USUAL_STEPS[strategy]
        if not isinstance(value, Sequence) or isinstance(value, str) or not 1 <= len(value) <= MAX_STEPS:
            self._refuse("/steps", f"expected a list of 1 to {MAX_STEPS} steps")
            return ()
        steps = tuple(self._step(f"/steps/{index}", step, strategy) for index, step in enumerate(value))
        if not any(pointer.startswith("/steps/") for pointer, _ in self.violations):
            self._order(steps)
            self._count(steps, strategy)
        return steps

    def _step(self, pointer: str, value: Any, strategy: Strategy) -> Step:
        step = value if isinstance(value, Mapping) else {"weight_percent": value}
        self._known(step, pointer, Step._fields)
        weight_percent = int(self._number(step, f"{pointer}/weight_percent", None, 1, WHOLE_PERCENT, whole=True))
        usual = usual_step(weight_percent, strategy)
        return Step(
            weight_percent,
            self._number(step, f"{pointer}/dwell_seconds", usual.dwell_seconds, 0, MAX_DWELL_SECONDS),
            int(self._number(step, f"{pointer}/min_requests", usual.min_requests, 0, _MAX_REQUESTS, whole=True)),
        )

    def _order(self, steps: Sequence[Step]) -> None:
        for index, (before, after) in enumerate(pairwise(steps), start=1):
            if after.weight_percent <= before.weight_percent:
                self._refuse(f"/steps/{index}/weight_percent", "expected more than the step before it")
        *_, last = steps
        pointer = f"/steps/{len(steps) - 1}"
        if last.weight_percent != WHOLE_PERCENT:
            self._refuse(f"{pointer}/weight_percent", "expected 100 as the last step")
        elif last.dwell_seconds or last.min_requests:
            self._refuse(pointer, "expected no dwell_seconds and no min_requests: at 100 it is the champion")

    def _count(self, steps: Sequence[Step], strategy: Strategy) -> None:
        if strategy is Strategy.BLUE_GREEN and len(steps) > 1:
            self._refuse("/steps", "expected the one step 100: blue_green moves everything at once")
        if strategy is not Strategy.BLUE_GREEN and len(steps) == 1:
            self._refuse("/steps", "expected a step below 100 first; strategy blue_green does without")

    def _strategy(self, value: Any) -> Strategy:
        try:
            return Strategy(value)
        except ValueError:
            self._refuse("/strategy", f"expected one of {', '.join(Strategy)}")
            return Strategy.CANARY

    def _number(
        self,
        place: Mapping[str, Any],
        pointer: str,
        usual: float | None,
        least: float,
        most: float,
        *,
        whole: bool = False,
    ) -> float:
        """Return the number at the end of the pointer; the least one when it cannot be used."""
        value = place.get(pointer.rpartition("/")[2], usual)
        types = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, types) or not least <= value <= most:
            self._refuse(
                pointer, f"expected {'a whole number' if whole else 'a number'} from {least:,.12g} to {most:,.12g}"
            )
            return least
        return value

    def _text(self, document: Mapping[str, Any], name: str, usual: str | None) -> str | None:
        value = document.get(name, usual)
        if value is not None and not (isinstance(value, str) and 1 <= len(value) <= _MAX_CHARACTERS):
            self._refuse(f"/{name}", f"expected a string of 1 to {_MAX_CHARACTERS} characters")
            return usual
        return value

    def _yes_or_no(self, document: Mapping[str, Any], name: str) -> bool:
        value = document.get(name, False)
        if not isinstance(value, bool):
            self._refuse(f"/{name}", "expected true or false")
            return False
        return value

    def _limits(self, value: Any) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        self._refuse("/canary_limits", "expected an object")
        return {}

    def _freezes(self, value: Any) -> tuple[FreezeWindow, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > MAX_FREEZES:
            self._refuse("/freezes", f"expected a list of at most {MAX_FREEZES} windows")
            return ()
        read = []
        for index, text in enumerate(value):
            try:
                read.append(read_freeze(text if isinstance(text, str) else ""))
            except ValueError as problem:
                self._refuse(f"/freezes/{index}", str(problem))
        if read and not unfrozen_seconds(read, *_TWO_WEEKS):
            self._refuse("/freezes", "expected windows that leave a time for steps")
        return tuple(read)

    def _gates(self, value: Any, steps: Sequence[Step]) -> Mapping[GatePlace, Gate]:
        if not isinstance(value, Mapping):
            self._refuse("/gates", "expected an object")
            return {}
        self._known(value, "/gates", list(GatePlace))
        if GatePlace.BEFORE_STEP in value and steps and all(step.weight_percent == WHOLE_PERCENT for step in steps[1:]):
            self._refuse("/gates/before_step", _NEVER_REACHED)
        return {place: self._gate(f"/gates/{place}", value[place]) for place in GatePlace if place in value}

    def _gate(self, pointer: str, value: Any) -> Gate:
        if not isinstance(value, Mapping):
            self._refuse(pointer, _GATE)
            return Gate()
        self._known(value, pointer, Gate._fields)
        approval, http = value.get("approval"), value.get("http")
        is_person = approval in tuple(Approver) if isinstance(approval, str) else approval is None
        is_service = http is None or (isinstance(http, str) and _SERVICE.fullmatch(http) is not None)
        if not (is_person and is_service) or (approval is None and http is None):
            self._refuse(pointer, _GATE)
            return Gate()
        return Gate(None if approval is None else Approver(approval), http)

    def _known(self, document: Mapping[str, Any], pointer: str, names: Sequence[str]) -> None:
        for name in document:
            if name not in names:
                escaped = str(name)[:_MAX_CHARACTERS].replace("~", "~0").replace("/", "~1")
                self._refuse(f"{pointer}/{escaped}", f"is not known; there are {', '.join(names)}")

    def _refuse(self, pointer: str, detail: str) -> None:
        self.violations.append(Violation(pointer, detail))
