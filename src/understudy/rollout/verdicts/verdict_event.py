"""The event of a verdict: the decision, and all that a replay needs to judge it again."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import structlog

from understudy.core.canary.decision import Decision
from understudy.core.canary.evidence.check_input import Outcomes
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.post_promotion import LIMITS, Watch
from understudy.core.windows.strata import Strata
from understudy.core.windows.strata_codec import strata_digest, strata_to_text
from understudy.ports.rollout.rollout_store import MONITOR, NewRolloutEvent, RolloutView
from understudy.rollout.analysis import policy_of, stage_of
from understudy.rollout.verdicts.stored_outcomes import stored_outcomes

_log = structlog.get_logger(__name__)

_AFTER_PROMOTION = "after_promotion"
"""Where inputs say that their windows are a new champion's beside what the one before it did earlier."""

ACTOR = MONITOR
"""Who acts in events that no operator asked for."""
MAX_STORED_WINDOWS = 5_760
"""A day of windows is stored with a verdict, some megabytes; of more only a digest: callers wait for the rollback."""
PACK_SECONDS = 5.0
"""Longest time in which a decision waits for what is stored with it."""


async def stored_strata(strata: Strata) -> dict[str, object]:
    """Return what is stored of the strata; the decision waits for it a bounded time, and is made without it as well."""
    try:
        async with asyncio.timeout(PACK_SECONDS):
            return await asyncio.to_thread(_packed, strata)
    except Exception as problem:  # noqa: BLE001 - whatever it is, callers of a bad version wait for the rollback
        said = f"{type(problem).__name__}: {problem}"
        _log.warning("rollout.verdict_not_stored", windows=len(strata.starts), problem=said)
        return {"strata_windows": len(strata.starts)}


def _packed(strata: Strata) -> dict[str, object]:
    if len(strata.starts) <= MAX_STORED_WINDOWS:
        return {"strata": strata_to_text(strata)}
    return {"strata_windows": len(strata.starts), "strata_sha256": strata_digest(strata)}


def judged_event(
    view: RolloutView, decision: Decision, stored: Mapping[str, object], outcomes: Outcomes
) -> NewRolloutEvent:
    """Return the event of a decision with ``stored``, everything that it takes to make it again."""
    policy = policy_of(view)
    stored = {**stored, **stored_outcomes(policy, outcomes)}
    return _event(view.read_at, stage_of(view), decision, stored, policy)


async def watch_event(view: RolloutView, decision: Decision, watch: Watch) -> NewRolloutEvent:
    """Return the event of a verdict about a new champion, with all that it takes to make it again."""
    stored = {_AFTER_PROMOTION: True, **await stored_strata(watch.strata)}
    return _event(view.read_at, watch.stage, decision, stored, LIMITS)


def is_after_promotion(inputs: Mapping[str, Any]) -> bool:
    """Whether a stored verdict is about a new champion, whose windows are not beside others of the same seconds."""
    return inputs.get(_AFTER_PROMOTION) is True


def _event(
    now: float, stage: Stage, decision: Decision, stored: Mapping[str, object], policy: CanaryPolicy
) -> NewRolloutEvent:
    rows = [row.to_json() for row in decision.evidence]
    inputs = {"now": now, "stage": asdict(stage), **stored, "decision": decision.sentence}
    return NewRolloutEvent(ACTOR, decision.verdict, rows, inputs, policy.to_json())
