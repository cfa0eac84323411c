"""A challenger that drifts from the champion on the same hours, as a canary analysis says it.

It is found in hours of the log and not in windows (:mod:`understudy.core.drift.beside_champion`), and only where the
policy says that it leads to a rollback.
"""

from collections.abc import Sequence

from understudy.core.canary.decision import Check, CheckState, Evidence, Unit
from understudy.core.drift.beside_champion import BesideChampion

CHALLENGER_DRIFT = Check("challenger_drift", "drift", Unit.NUMBER, is_distance=True, is_drawn=False)


def drift_reason(found: Sequence[BesideChampion]) -> str:
    """Say what is unlike the champion, the surest first, and how much more there is."""
    first, *others = sorted(found, key=lambda one: -one.evidence)
    more = f"; {len(others)} more: {', '.join(one.subject for one in others)}" if others else ""
    return f"drifts from the champion: {first.words}{more}"


def drift_row(found: Sequence[BesideChampion], requests: tuple[int, int]) -> Evidence:
    """Return the row of the surest one, in the measure's own unit."""
    worst = max(found, key=lambda one: one.evidence)
    return Evidence(
        CHALLENGER_DRIFT,
        CheckState.FAIL,
        worst.champion,
        worst.challenger,
        worst.distance,
        None,
        None,
        worst.limit,
        worst.evidence,
        worst.evidence_needed,
        None,
        None,
        *requests,
        since=worst.since,
        subject=worst.subject,
    )
