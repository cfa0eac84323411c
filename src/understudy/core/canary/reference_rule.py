"""The reference rule: seed 003's canary rule, as the policy named ``seed``, for comparison with the default.

It compares percentiles and rates of the last requests with fixed limits, each time. On two identical versions it
rolls back in every rollout of five stages (statistics page, §1), and it advances each time that it passes, so stages
have no length.

Source:
    Seed 003, ``CanaryEvaluator``, ``ModelUpdatePlanner.rollback_trigger`` and ``ProgressiveRollout``.
"""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.canary.decision import Check, CheckState, Decision, Evidence, Unit, Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.limits import Stage
from understudy.core.canary.messages import comparison_of, place_of
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import merged
from understudy.core.windows.window import WINDOW_SECONDS, Window

P99_LATENCY = Check("p99_latency", "p99 latency", Unit.SECONDS, is_drawn=False)
POLICY_NAME = "seed"
P99_LATENCY_INCREASE_PERCENT = 20.0
ERROR_RATE_INCREASE_PERCENT = 50.0
MIN_REQUESTS = 50
LAST_REQUESTS = 1_000
"""What seed 003 keeps of each version. Here the youngest windows that hold as many, which may be a few more."""
ERROR_RATE_FLOOR = 0.001
"""What seed 003 divides by when the champion has fewer errors."""
WATERMARK_SECONDS = 5.0


class _Side(NamedTuple):
    """The last requests of one version."""

    requests: int
    errors: int
    p99_us: float | None

    @property
    def error_rate(self) -> float:
        return self.errors / self.requests if self.requests else 0.0


def evaluate_reference_rule(windows: Sequence[Window], stage: Stage, now: float) -> Decision:
    """Return the rule's verdict: ``ROLL_BACK``, ``HOLD`` below 50 requests of either version, otherwise ``ADVANCE``.

    Seed 003's latency includes failed requests; windows know that of answered ones. One that ended at its caller's
    deadline failed, unless that deadline was too short to judge any version by.
    """
    champion, challenger = (_last(windows, stage, role, now) for role in (Role.CHAMPION, Role.CHALLENGER))
    fewest = min(champion.requests, challenger.requests)
    if fewest < MIN_REQUESTS:
        reason = f"{fewest} of {MIN_REQUESTS} requests"
        return Decision(Verdict.HOLD, reason, (), max(0, MIN_REQUESTS - challenger.requests))
    evidence = (_latency(champion, challenger), _errors(champion, challenger))
    failing = [row for row in evidence if row.state is CheckState.FAIL]
    place = place_of(stage, now)
    if failing:
        reason = f"{'; '.join(map(comparison_of, failing))} (reference rule)"
        return Decision(Verdict.ROLL_BACK, reason, evidence, place=place)
    return Decision(Verdict.ADVANCE, "within the reference rule's limits", evidence, place=place)


def _last(windows: Sequence[Window], stage: Stage, role: Role, now: float) -> _Side:
    own = sorted(
        (window for window in windows if _is_of(window, stage, role, now)), key=lambda window: window.key.start
    )
    used: list[Window] = []
    while own and sum(window.calls for window in used) < LAST_REQUESTS:
        used.append(own.pop())
    return _Side(
        sum(window.calls for window in used),
        sum(window.errors + window.expired_calls for window in used),
        merged(window.latencies for window in used).quantile(0.99),
    )


def _is_of(window: Window, stage: Stage, role: Role, now: float) -> bool:
    key = window.key
    is_closed = key.start + WINDOW_SECONDS <= now - WATERMARK_SECONDS
    return key.rollout_id == stage.rollout_id and key.role is role and is_closed


def _latency(champion: _Side, challenger: _Side) -> Evidence:
    if champion.p99_us is None or challenger.p99_us is None:
        return _row(P99_LATENCY, champion, challenger, (None, None, None), 1 + P99_LATENCY_INCREASE_PERCENT / 100)
    values = (champion.p99_us / 1e6, challenger.p99_us / 1e6, challenger.p99_us / max(champion.p99_us, 1.0))
    return _row(P99_LATENCY, champion, challenger, values, 1 + P99_LATENCY_INCREASE_PERCENT / 100)


def _errors(champion: _Side, challenger: _Side) -> Evidence:
    rates = (champion.error_rate, challenger.error_rate)
    change = 1 + (rates[1] - rates[0]) / max(rates[0], ERROR_RATE_FLOOR)
    return _row(ERROR_RATE, champion, challenger, (*rates, change), 1 + ERROR_RATE_INCREASE_PERCENT / 100)


def _row(
    check: Check,
    champion: _Side,
    challenger: _Side,
    values: tuple[float | None, float | None, float | None],
    limit: float,
) -> Evidence:
    """Return a row; the reference rule has no intervals and no evidence, only limits."""
    change = values[2]
    state = CheckState.TOO_EARLY if change is None else CheckState.FAIL if change > limit else CheckState.OK
    return Evidence(
        check=check,
        state=state,
        champion=values[0],
        challenger=values[1],
        change=change,
        change_low=None,
        change_high=None,
        limit=limit,
        evidence=None,
        evidence_needed=None,
        evidence_across_entities=None,
        evidence_across_entities_needed=None,
        champion_requests=champion.requests,
        challenger_requests=challenger.requests,
    )
