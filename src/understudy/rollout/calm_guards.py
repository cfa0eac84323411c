"""Calm guards: which of the open rollouts a tick is about, and how closely it looks at each.

An analysis takes time in proportion to all windows since the guard began, and nearly all guards are old and fine. So a
guard that was calm for half an hour is glanced at every half minute (:mod:`understudy.core.canary.glance`), and
analysed every five minutes, or at once where the glance looks worse. How and from what it is judged stays the same;
there are only fewer moments at which it is, so nothing is remembered here that a verdict rests on, and a monitor that
takes over comes to the same ones.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import ceil

from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.rollout.state import Kind, Phase
from understudy.ports.rollout.rollout_store import RolloutView

CALM_SECONDS = 1_800.0
"""So long a guard is analysed at each tick after its split began, or after its policy was changed."""
GLANCE_INTERVAL_SECONDS = 30.0
ANALYSIS_INTERVAL_SECONDS = 300.0


class Turn(Enum):
    """How closely a tick looks at a rollout."""

    ANALYSIS = auto()
    """All of its windows are judged."""
    GLANCE = auto()
    """Its last minutes are looked at, and all of its windows if these look worse."""


@dataclass(frozen=True, slots=True)
class _Calm:
    """A guard that need not be analysed at each tick, with the ticks in which it had its last turns."""

    generation: int
    """Of the policy."""
    analysed: int
    glanced: int


@dataclass(frozen=True, slots=True)
class _Split:
    """A policy as it was first seen, and from when on it is watched closely."""

    generation: int
    since: float


class CalmGuards:
    """Remembers which guards are calm.

    Args:
        tick_seconds: Time between two ticks.
    """

    def __init__(self, tick_seconds: float) -> None:
        self._glance_ticks = max(1, int(GLANCE_INTERVAL_SECONDS / tick_seconds))
        self._analysis_ticks = max(1, int(ANALYSIS_INTERVAL_SECONDS / tick_seconds))
        self._tick = 0
        self._calm: dict[int, _Calm] = {}
        self._splits: dict[int, _Split] = {}

    def turns(self, rollout_ids: Collection[int], guard_ids: Collection[int]) -> Mapping[int, Turn]:
        """Begin a tick and return which of the open rollouts have a turn in it; all others are forgotten.

        Args:
            rollout_ids: Those that are not over, or whose end was not announced.
            guard_ids: The guards among them that are not over.

        Returns:
            The turn of each that has one. Calm guards have theirs in the order in which they wait, a share of them in
            each tick, so that no tick is about many. The more there are, the larger is the share: none waits longer
            than its interval.
        """
        self._tick += 1
        self._calm = {known: calm for known, calm in self._calm.items() if known in guard_ids}
        self._splits = {known: split for known, split in self._splits.items() if known in guard_ids}
        analysed = sorted(self._calm, key=lambda known: self._calm[known].analysed)
        analysed = analysed[: ceil(len(self._calm) / self._analysis_ticks)]
        glanced = sorted(self._calm.keys() - set(analysed), key=lambda known: (self._calm[known].glanced, known))
        glanced = glanced[: ceil(len(self._calm) / self._glance_ticks)]
        others = [known for known in rollout_ids if known not in self._calm]
        return {**dict.fromkeys([*others, *analysed], Turn.ANALYSIS), **dict.fromkeys(glanced, Turn.GLANCE)}

    def is_calm(self, view: RolloutView) -> bool:
        """Return whether a guard was calm when it was last looked at, under the policy of now."""
        calm = self._calm.get(view.record.id)
        return calm is not None and calm.generation == _generation(view)

    def glanced(self, rollout_id: int) -> None:
        """Take down that a glance found nothing."""
        self._calm[rollout_id] = replace(self._calm[rollout_id], glanced=self._tick)

    def analysed(self, view: RolloutView, decision: Decision | None, *, is_worse: bool) -> None:
        """Take down what an analysis said of a rollout, and whether a glance at its last minutes would look worse."""
        rollout_id = view.record.id
        has_alerted = view.record.state.has_failed_guard  # it does not alert again, whatever is seen
        if self._may_be_calm(view) and (has_alerted or (not is_worse and _is_fine(view, decision))):
            self._calm[rollout_id] = _Calm(_generation(view), self._tick, self._tick)
        else:
            self._calm.pop(rollout_id, None)

    def _may_be_calm(self, view: RolloutView) -> bool:
        record, state = view.record, view.record.state
        if state.kind is not Kind.GUARD or state.promoted_at is not None or not state.step_starts:
            return False
        if record.slow_us is None or state.plan.canary_policy == SEED:
            return False
        split = self._splits.setdefault(record.id, _Split(_generation(view), state.started_at))
        if split.generation != _generation(view):
            split = self._splits[record.id] = _Split(_generation(view), view.read_at)
        return view.read_at - split.since >= CALM_SECONDS


def _is_fine(view: RolloutView, decision: Decision | None) -> bool:
    if decision is None or view.record.state.phase is not Phase.PROGRESSING:
        return False
    return decision.verdict not in (Verdict.ROLL_BACK, Verdict.INVALID)


def _generation(view: RolloutView) -> int:
    return 0 if view.policy is None else view.policy.generation
