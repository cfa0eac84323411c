"""The check of a late change: whether the challenger, beside the champion, is slower than it was in this step."""

from math import exp, log
from typing import NamedTuple

import numpy as np

from understudy.core.canary.decision import Check, CheckState, Evidence, Unit
from understudy.core.canary.evidence.check_input import CheckInput, Comparison, Keys, evidence_row
from understudy.core.statistics.cluster_test import BucketSums, cluster_z, expected_means
from understudy.core.statistics.own_past import UNIT_SECONDS, OwnPast, beyond_own_past
from understudy.core.statistics.sequential_evidence import FloatArray, IntArray, half_normal_log_evidence
from understudy.core.windows.strata import Side
from understudy.core.windows.window import WINDOW_SECONDS, BucketColumn

LATENCY_CHANGE = Check("latency_change", "latency change", Unit.SECONDS, is_drawn=False, needs_past=True)

_NOTHING = Comparison(None, None, None, None, None)


class LatencyUnits(NamedTuple):
    """What the units of the step so far hold, those alone in which both sides answered; shape (units,) each."""

    first_windows: IntArray
    champion: FloatArray
    """Mean logarithm of the microseconds that an answer took."""
    challenger: FloatArray


def judge_latency_change(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether the last minutes are slower than the step's minutes before, beyond what is tolerated.

    Returns:
        A row whose figures are of the span that says the most; ``too_early`` in the first hour of a step, which has no
        past to compare with. Below ``lone_latency_ratio`` it says nothing: pods differ.
    """
    limit = inputs.policy.tolerated_latency_ratio
    units = latency_units(inputs)
    differences = units.challenger - units.champion
    found = beyond_own_past(differences, log(limit), log(inputs.policy.lone_latency_ratio))
    if found is None:
        return evidence_row(inputs, LATENCY_CHANGE, _NOTHING, limit, Keys(0.0, log_needed, 0.0), is_enough=False)
    first = int(units.first_windows[len(differences) - found.units])
    # Asked only where it can decide: each check has its part of a tick's time.
    across = _across_entities(inputs, first, log(limit)) if found.log_evidence >= log_needed else 0.0
    keys = Keys(found.log_evidence, log_needed, across)
    row = evidence_row(inputs, LATENCY_CHANGE, _comparison(units, found), limit, keys, is_enough=True)
    since = float(inputs.strata.starts[first])
    return row._replace(since=since) if row.state is CheckState.FAIL else row


def latency_units(inputs: CheckInput) -> LatencyUnits:
    """Return the units of the present step since latency counts."""
    first = max(inputs.firsts[-1], inputs.warm)
    starts = inputs.strata.starts[first:]
    if not len(starts):
        return LatencyUnits(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    numbers = starts // UNIT_SECONDS
    borders = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    sides = (inputs.strata.champion, inputs.strata.challenger)
    answered, sums = (
        [np.add.reduceat(column[first:], borders) for column in columns]
        for columns in ([side.answered for side in sides], [side["log_latency"] for side in sides])
    )
    is_whole = (numbers[borders] + 1) * UNIT_SECONDS <= starts[-1] + WINDOW_SECONDS
    used = (answered[0] > 0) & (answered[1] > 0) & is_whole
    champion, challenger = (total[used] / number[used] for total, number in zip(sums, answered, strict=True))
    return LatencyUnits(borders[used] + first, champion, challenger)


def _across_entities(inputs: CheckInput, first: int, limit: float) -> float:
    """Return the evidence across entities that the windows from ``first`` on are slower than tolerated."""
    sums = BucketSums(*_of_buckets(inputs.strata.champion, first), *_of_buckets(inputs.strata.challenger, first))
    score = cluster_z(sums, expected_means(sums, limit), np.array([0]))
    windows = np.array([float(len(inputs.strata.starts) - first)])
    return float(half_normal_log_evidence(score, windows, inputs.policy.across_entities_alpha)[0])


def _of_buckets(side: Side, first: int) -> tuple[FloatArray, FloatArray]:
    return side.bucket(BucketColumn.LOG_LATENCY)[first:], side.bucket_answered[first:]


def _comparison(units: LatencyUnits, found: OwnPast) -> Comparison:
    champion, challenger = (float(column[-found.units :].mean()) for column in (units.champion, units.challenger))
    change = exp(found.latest - max(found.past, 0.0))
    return Comparison(exp(champion) / 1e6, exp(challenger) / 1e6, change, None, None)
