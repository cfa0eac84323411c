"""A tick's analysis of a rollout: reads as many windows as a tick has time for, and judges them or glances at them."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from understudy.core.canary.evidence.check_input import Metrics, Outcomes
from understudy.core.canary.glance import GLANCE_SECONDS
from understudy.core.canary.judgement_records import Judgements
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.rollout.state import DriftMode, Kind
from understudy.core.windows.strata import Strata
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.rollout.rollout_store import RolloutStore, RolloutView
from understudy.rollout.analysis import (
    Analysis,
    analysis_after_promotion,
    analysis_of_strata,
    analysis_of_windows,
    glance,
    read_after_promotion,
)
from understudy.rollout.calm_guards import CalmGuards, Turn
from understudy.rollout.checks.drift_check import DriftCheck
from understudy.rollout.checks.entity_check import EntityCheck
from understudy.rollout.checks.slice_check import SliceCheck
from understudy.rollout.known_checks import KnownChecks
from understudy.rollout.metrics import RolloutMetrics
from understudy.rollout.start.start import TRAFFIC_SECONDS
from understudy.rollout.start.time_allowed import champion_p95_us
from understudy.rollout.verdicts.shared_errors import SharedErrors
from understudy.rollout.window_cache import WindowCache

READ_SECONDS = 5.0
"""How long a tick reads windows of one rollout: after a restart of the monitor a long one takes several ticks."""


class TickAnalysis:
    """Reads and judges the windows of open rollouts, and remembers which guards are calm and what was read.

    Args:
        store: Gets the threshold of slow answers, once it is known.
        windows: What the versions did.
        outcomes_of: What the outcomes of a rollout's plan came to of late, challenger less champion, by its id.
        metrics_of: What is stored of the metrics of a rollout's plan, by its id.
        metrics: Show what an analysis says; after a glance they go on showing the last one.
        judgements_of: What the judge of a rollout's plan has said, by its id.
        entities: Counts the calls of single entities; ``None`` names none.
        slices: Adds up what windows have of categories and values of features; ``None`` names none.
        drifts: Compares the hours of challenger and champion; ``None`` compares none.
        shared_errors: Knows which operators were told of errors that the champion had as well.
        tick_seconds: Time between two ticks.
    """

    def __init__(
        self,
        store: RolloutStore,
        windows: WindowLog,
        outcomes_of: Callable[[int], Outcomes],
        metrics_of: Callable[[int], Metrics],
        metrics: RolloutMetrics,
        *,
        judgements_of: Callable[[int], Judgements],
        entities: EntityCheck | None,
        slices: SliceCheck | None,
        drifts: DriftCheck | None,
        shared_errors: SharedErrors,
        tick_seconds: float,
    ) -> None:
        self._store = store
        self._windows = windows
        self._outcomes_of = outcomes_of
        self._metrics_of = metrics_of
        self._judgements_of = judgements_of
        self._metrics = metrics
        self._entities = entities
        self._slices = slices
        self._drifts = drifts
        self._shared_errors = shared_errors
        self._cache = WindowCache(windows)
        self._calm_guards = CalmGuards(tick_seconds)
        self._known_checks: dict[int, KnownChecks] = {}
        """By rollout."""

    def turns(self, rollout_ids: Collection[int], guard_ids: Collection[int]) -> Mapping[int, Turn]:
        """Return how closely this tick looks at each rollout that has a turn, and forget those that are not open."""
        self._cache.forget_others(rollout_ids)
        self._known_checks = {known: checks for known, checks in self._known_checks.items() if known in rollout_ids}
        return self._calm_guards.turns(rollout_ids, guard_ids)

    async def look(self, view: RolloutView, turn: Turn, epoch: Epoch) -> tuple[RolloutView, Analysis] | None:
        """Analyse a rollout, or glance at it; ``None`` while there are more windows than a tick can read."""
        if turn is Turn.GLANCE and not await self._looks_worse(view):
            self._calm_guards.glanced(view.record.id)
            return view, Analysis()
        view = await self._cache.with_champion_before(view)
        seen = await self._read_and_judge(view, epoch)
        if seen is None:
            return None
        self._calm_guards.analysed(view, seen.decision, is_worse=seen.is_worse)
        self._metrics.show(view, seen.decision or seen.after_promotion)
        return view, seen

    async def _read_and_judge(self, view: RolloutView, epoch: Epoch) -> Analysis | None:
        """Read as many windows as it takes and judge them: a processor's work, so not on the event loop.

        ``None`` while there are more than can be read in a tick; what was read is kept.
        """
        record = view.record
        state = record.state
        if not state.step_starts:
            if state.kind is Kind.GUARD:
                since = view.read_at - TRAFFIC_SECONDS
                alone = await self._windows.of_versions([record.champion_id], since, view.read_at)
                await self._learn_threshold(view, alone, epoch)
            return Analysis()
        if state.promoted_at is not None:
            since_promotion = await read_after_promotion(self._windows, view)
            return await asyncio.to_thread(analysis_after_promotion, view, since_promotion)
        if record.slow_us is None or state.plan.canary_policy == SEED:
            windows = await self._windows.of_rollout(record.id)
            await self._learn_threshold(view, windows, epoch)
            known = (self._outcomes_of(record.id), self._metrics_of(record.id), self._judgements_of(record.id))
            return await asyncio.to_thread(analysis_of_windows, view, windows, *known)
        strata = await self._cache.strata(record.id, view.read_at, started_at=state.started_at, seconds=READ_SECONDS)
        if strata is None:
            return None
        return await self._judge(view, strata)

    async def _judge(self, view: RolloutView, strata: Strata) -> Analysis:
        """Judge windows; errors that the champion had as well hold nothing once an operator was told of them."""
        rollout_id = view.record.id
        takes_back = view.on_drift is DriftMode.ROLLBACK
        analysis = partial(
            analysis_of_strata,
            view,
            strata,
            self._outcomes_of(rollout_id),
            metrics=self._metrics_of(rollout_id),
            judgements=self._judgements_of(rollout_id),
            entities=None if self._entities is None else self._entities.latest(rollout_id),
            slices=None if self._slices is None else self._slices.latest(rollout_id),
            drift=self._drifts.latest(rollout_id) if takes_back and self._drifts is not None else (),
            checks=self._known_checks.setdefault(rollout_id, KnownChecks()),
        )
        is_known = self._shared_errors.is_known(rollout_id)
        found = await asyncio.to_thread(analysis, are_shared_errors_told=is_known)
        if found.decision is None or not found.decision.has_shared_errors:
            return found
        if not await self._shared_errors.was_told(rollout_id):
            return found
        return await asyncio.to_thread(analysis, are_shared_errors_told=True)

    async def _looks_worse(self, view: RolloutView) -> bool:
        """Whether a guard that was calm is to be analysed now."""
        if not self._calm_guards.is_calm(view):
            return True
        if view.record.state.has_failed_guard:
            return False
        since = view.read_at - GLANCE_SECONDS - WINDOW_SECONDS
        windows = await self._windows.of_rollout(view.record.id, since)
        return await asyncio.to_thread(glance, view, windows)

    async def _learn_threshold(self, view: RolloutView, windows: Sequence[Window], epoch: Epoch) -> None:
        """Freeze the champion's 95th percentile as soon as it is known."""
        if view.record.slow_us is not None:
            return
        slow_us = champion_p95_us(windows, view.record.champion_id)
        if slow_us is not None:
            await self._store.set_slow_us(view.record.id, slow_us, epoch=epoch)
