"""Adds up what windows say of slices, stretch by stretch, in bounded memory."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.canary.slices.failing_slices import (
    FALSE_DISCOVERY_RATE,
    MAX_WORST,
    MIN_UNITS,
    UNIT_SECONDS,
    SliceCheck,
    SliceCount,
    SliceCounts,
    log_evidence,
)
from understudy.core.canary.slices.slice_figures import SliceFigures, SliceSide
from understudy.core.canary.slices.slice_places import SlicePlaces
from understudy.core.prediction_log.call_slices import ROUTED, Slice
from understudy.core.routing.policy import Role
from understudy.core.statistics.sequential_evidence import (
    FIRST_ALPHA_SHARE,
    RATIOS,
    RESTART_ALPHA_SHARE,
    FloatArray,
    Rates,
    rate_gains,
)
from understudy.core.windows.slices import SLICE_BUCKETS, SliceColumn
from understudy.core.windows.slices import SliceCounts as Counted
from understudy.core.windows.window import MICRO, Window

RESTART_SECONDS = 10_800.0
"""Evidence begins anew so often within steps: a slice that was good for hours may get worse."""
MAX_RESTARTS = 8
"""The newest ones are kept: what older ones would add is lost, and a change that old is no news."""
GAIN_CAP = 3.0
"""The most that a stretch adds to an alternative's logarithm: no short incident decides."""
TOLERATED_LOG_LATENCY = float(np.log(1.3))
INCIDENT_RATIO = 0.1
INCIDENT_ERRORS = 3
"""Where the challenger fails so many of the calls outside of a slice, it has an incident, which is no slice's own."""
RATE_FLOOR = 0.005
"""A champion with fewer bad calls outside of a slice counts as having them: else a few would hide all others."""
_DECAY = 0.97
"""Of what is known of the other calls: half of it is forgotten in 46 minutes."""
_CHECKS = tuple(SliceCheck)
_CALLS, _ERRORS, _SLOW, _LOG_LATENCY = map(int, SliceColumn)
_BAD = {SliceCheck.ERRORS: _ERRORS, SliceCheck.SLOW: _SLOW}
_CHAMPION, _CHALLENGER = 0, 1


class SliceUnit(NamedTuple):
    """What both versions did in a stretch under one generation of the policy."""

    start: float
    slices: tuple[Counted, Counted]
    """Of the champion and the challenger."""
    totals: FloatArray
    """Of all judged calls, shape (2, 4): the columns of :class:`SliceColumn`."""


def slice_units(windows: Sequence[Window], rollout_id: int) -> list[SliceUnit]:
    """Return the stretches that a rollout's windows are of, oldest first; a change of the weight begins another one."""
    groups: dict[tuple[int, int], list[Window]] = {}
    for window in windows:
        key = window.key
        if key.rollout_id == rollout_id and key.role is not Role.SHADOW and (window.calls or window.slices):
            start = key.start // UNIT_SECONDS * UNIT_SECONDS
            groups.setdefault((start, key.policy_generation), []).append(window)
    return [_unit_of(start, groups[start, generation]) for start, generation in sorted(groups)]


def _unit_of(start: int, windows: Sequence[Window]) -> SliceUnit:
    totals = np.zeros((2, len(SliceColumn)))
    sides: tuple[dict[Slice, NDArray[np.int64]], dict[Slice, NDArray[np.int64]]] = ({}, {})
    for window in windows:
        side = _CHALLENGER if window.key.role is Role.CHALLENGER else _CHAMPION
        slow = window.slow_high if side == _CHALLENGER else window.slow_low
        totals[side] += (window.calls, window.errors, slow, window.log_latency / MICRO)
        for one, counted in window.slices.items():
            sides[side][one] = sides[side][one] + counted if one in sides[side] else counted
    return SliceUnit(float(start), sides, totals)


class _Process:
    """One process of evidence, which begins at a moment: sums of all slices since."""

    def __init__(self, since: float, share: float, cells: int) -> None:
        self.since = since
        self.share = share
        self.gains = np.zeros((len(_BAD), cells, len(RATIOS)))
        self.scores = np.zeros((len(_CHECKS), cells, SLICE_BUCKETS))
        self.figures = np.zeros((2, cells, len(SliceColumn)))
        self.units = np.zeros(cells)
        self.failing = np.zeros((len(_CHECKS), cells))

    def add(self, found: "_Found") -> None:
        self.gains += found.gains
        self.scores += found.scores
        self.figures += found.figures
        self.units += found.is_compared
        self.failing += found.is_failing

    def clear(self, cell: int) -> None:
        """Begin anew with another slice in a place."""
        for array in (self.gains, self.scores, self.figures, self.failing):
            array[:, cell] = 0.0
        self.units[cell] = 0.0

    def grow(self, cells: int) -> None:
        """Have room for so many slices."""
        more = cells - self.units.size
        self.gains, self.scores, self.figures = (
            np.pad(array, ((0, 0), (0, more), (0, 0))) for array in (self.gains, self.scores, self.figures)
        )
        self.units, self.failing = np.pad(self.units, (0, more)), np.pad(self.failing, ((0, 0), (0, more)))


class _Found(NamedTuple):
    """What a stretch says of each slice; the arrays of :class:`_Process`."""

    gains: FloatArray
    scores: FloatArray
    figures: FloatArray
    is_compared: NDArray[np.bool_]
    is_failing: NDArray[np.bool_]


class SliceTally:
    """What is known of a rollout's slices so far.

    Args:
        planned: How many steps its plan has.
        warm_from: Latencies count from then on, in seconds since the epoch.
    """

    def __init__(self, planned: int, warm_from: float) -> None:
        self._planned = max(1, planned)
        self._warm_from = warm_from
        self._places = SlicePlaces()
        self._room = 16
        self._steps: list[_Process] = []
        self._restarts: list[_Process] = []
        self._begun = 0
        """How many restarts have begun."""
        self._rest = np.zeros((2, self._room, len(SliceColumn)))
        self._met = np.zeros(self._room, np.bool_)
        self._gone = 0
        """Slices that the challenger met and that lost their places: they are of those that a name was sought among."""
        self._is_routed = np.zeros(self._room, np.bool_)
        """Slices whose calls are none of the judged ones, because their category chose the version."""

    def add(self, unit: SliceUnit, step_starts: Sequence[float]) -> None:
        """Count one stretch; they come in their order."""
        self._begin(unit.start, step_starts)
        self._seat(unit.slices)
        places = [[(self._places.place_of(one), counts) for one, counts in side.items()] for side in unit.slices]
        sides = np.stack([self._array_of(side) for side in places])
        found = self._found(unit, sides)
        for process in (*self._steps, *self._restarts):
            if process.since <= unit.start:
                process.add(found)

    def counts(self) -> SliceCounts:
        """Return the slices that do worst."""
        seen = int(self._met.sum()) + self._gone
        processes = [one for one in (*self._steps, *self._restarts) if one.units.any()]
        if not processes or not seen:
            return SliceCounts(seen)
        evidence = np.stack([_evidence_of(one) for one in processes])  # (processes, checks, cells)
        best = evidence.reshape(-1, self._room).argmax(axis=0)
        most = evidence.reshape(-1, self._room).max(axis=0)
        worst = np.argsort(-most, kind="stable")[:MAX_WORST]
        names = self._places.names
        return SliceCounts(
            seen,
            tuple(
                _count_of(names[cell], cell, processes[best[cell] // len(_CHECKS)], _CHECKS[best[cell] % len(_CHECKS)])
                for cell in worst.tolist()
                if most[cell] >= -np.log(FALSE_DISCOVERY_RATE)
            ),
        )

    def figures(self) -> list[SliceFigures]:
        """Return what was compared of each slice that the challenger met, since it has its place."""
        if not self._steps:
            return []
        first = self._steps[0]  # which is never let go, so it has all that was compared
        return [
            SliceFigures(one, float(first.units[cell]), *(SliceSide(*side) for side in first.figures[:, cell].tolist()))
            for cell, one in enumerate(self._places.names)
            if self._met[cell]
        ]

    def _begin(self, now: float, step_starts: Sequence[float]) -> None:
        """Begin the processes that are due: one with each step, and some within."""
        later = (1 - FIRST_ALPHA_SHARE - RESTART_ALPHA_SHARE) / max(1, self._planned - 1)
        for start in step_starts[len(self._steps) : self._planned]:
            first = FIRST_ALPHA_SHARE if self._planned > 1 else 1 - RESTART_ALPHA_SHARE
            share = later if self._steps else first
            self._steps.append(_Process(start, share / len(_CHECKS), self._room))
        if not step_starts:
            return
        while step_starts[0] + (self._begun + 1) * RESTART_SECONDS <= now:
            self._begun += 1
            share = RESTART_ALPHA_SHARE * (1 / np.log2(self._begun + 1) - 1 / np.log2(self._begun + 2))
            since = step_starts[0] + self._begun * RESTART_SECONDS
            self._restarts.append(_Process(since, float(share) / len(_CHECKS), self._room))
        del self._restarts[:-MAX_RESTARTS]

    def _array_of(self, places: Sequence[tuple[int | None, NDArray[np.int64]]]) -> FloatArray:
        """Return the counts of all slices, shape (room, 16, 4)."""
        found = np.zeros((self._room, SLICE_BUCKETS, len(SliceColumn)))
        for place, counts in places:
            if place is not None:
                found[place] += counts
        found[:, :, _LOG_LATENCY] /= MICRO
        return found

    def _seat(self, slices: tuple[Counted, Counted]) -> None:
        """Give the slices of a stretch their places; what was counted in those that change hands is let go."""
        for cell in self._places.add(slices):
            self._gone += int(self._met[cell])
            self._met[cell] = False
            for process in (*self._steps, *self._restarts):
                process.clear(cell)
        while len(self._places.names) > self._room:
            more, self._room = self._room, 2 * self._room
            for process in (*self._steps, *self._restarts):
                process.grow(self._room)
            self._rest = np.pad(self._rest, ((0, 0), (0, more), (0, 0)))
            self._met = np.pad(self._met, (0, more))
        names = self._places.names
        self._is_routed = np.array([one.feature == ROUTED for one in names] + [False] * (self._room - len(names)))

    def _found(self, unit: SliceUnit, sides: FloatArray) -> _Found:
        sums = sides.sum(axis=2)
        rest = unit.totals[:, None] - np.where(self._is_routed[None, :, None], 0.0, sums)
        calls, errors = rest[_CHALLENGER, :, _CALLS], rest[_CHALLENGER, :, _ERRORS]
        in_incident = (errors >= INCIDENT_ERRORS) & (errors >= INCIDENT_RATIO * calls)
        self._rest = _DECAY * self._rest + np.where(in_incident[None, :, None], 0.0, rest)
        self._met |= sums[_CHALLENGER, :, _CALLS] > 0
        is_compared = ~in_incident & (sums[:, :, _CALLS] > 0).all(axis=0)
        used = np.where(is_compared[None, :, None, None], sides, 0.0)
        gains, scores, failing = [], [], []
        for column in _BAD.values():
            ratio = _rest_ratio(self._rest, column)
            gained, scored = _of_rate(used[..., _CALLS], used[..., column], ratio)
            gains.append(gained)
            scores.append(scored)
            failing.append(used[_CHALLENGER, :, :, column].sum(axis=1) > 0)
        slower = _slower(used, rest) * (unit.start >= self._warm_from)
        scores.append(slower)
        failing.append(slower.sum(axis=1) > 0)
        figures = np.where(is_compared[None, :, None], sums, 0.0)
        return _Found(np.stack(gains), np.stack(scores), figures, is_compared, np.stack(failing))


def _rest_ratio(rest: FloatArray, column: int) -> FloatArray:
    """Return how many times as often the challenger's calls outside of each slice are bad, at least, from 1 on."""
    bad_champion, bad_challenger = rest[_CHAMPION, :, column], rest[_CHALLENGER, :, column]
    least = np.maximum(0.0, bad_challenger - 2 * np.sqrt(np.maximum(0.0, bad_challenger)))
    most = bad_champion + 2 * np.sqrt(np.maximum(0.0, bad_champion)) + 1
    champion, challenger = (np.maximum(1.0, rest[side, :, _CALLS]) for side in (_CHAMPION, _CHALLENGER))
    found: FloatArray = np.maximum(1.0, (least / challenger) / np.maximum(RATE_FLOOR, most / champion))
    return found


def _of_rate(calls: FloatArray, bad: FloatArray, ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what a stretch adds to each alternative and to each group of entities, given counts (2, slices, 16)."""
    champion, challenger = calls.sum(axis=2)
    bad_champion, bad_challenger = bad.sum(axis=2)
    trials = challenger * ratio
    gains = rate_gains(Rates(bad_champion, champion, bad_challenger, trials), 1.0, GAIN_CAP)
    share = _divided(trials, trials + champion)
    rate = _divided(bad_champion + bad_challenger, trials + champion)
    above = bad[_CHALLENGER] - (ratio * rate)[:, None] * calls[_CHALLENGER]
    scores = (1 - share)[:, None] * above - share[:, None] * (bad[_CHAMPION] - rate[:, None] * calls[_CHAMPION])
    return gains, scores


def _slower(sides: FloatArray, rest: FloatArray) -> FloatArray:
    """Return how much slower each group of entities is, beyond what is tolerated and what all other calls are."""
    answers = sides[..., _CALLS] - sides[..., _ERRORS]
    sums = sides[..., _LOG_LATENCY]
    rest_answers = rest[:, :, _CALLS] - rest[:, :, _ERRORS]
    means = _divided(rest[:, :, _LOG_LATENCY], rest_answers)
    is_known = (rest_answers > 0).all(axis=0)
    shift = TOLERATED_LOG_LATENCY + np.where(is_known, np.maximum(0.0, means[_CHALLENGER] - means[_CHAMPION]), 0.0)
    champion, challenger = answers.sum(axis=2)
    is_compared = (champion > 0) & (challenger > 0)
    total = champion + challenger
    mean = _divided(sums.sum(axis=(0, 2)) - shift * challenger, total)
    share = _divided(challenger, total)
    above = sums[_CHALLENGER] - (mean + shift)[:, None] * answers[_CHALLENGER]
    found: FloatArray = (1 - share)[:, None] * above
    found -= share[:, None] * (sums[_CHAMPION] - mean[:, None] * answers[_CHAMPION])
    found *= is_compared[:, None]
    return found


def _evidence_of(process: _Process) -> FloatArray:
    """Return the logarithm of each check's and slice's evidence with its share, shape (checks, slices)."""
    rows = [
        log_evidence(process.gains[number] if check in _BAD else None, process.scores[number], process.units)
        for number, check in enumerate(_CHECKS)
    ]
    found = np.stack(rows) + np.log(process.share)
    evidence: FloatArray = np.where(process.failing >= MIN_UNITS, found, -np.inf)
    return evidence


def _count_of(one: Slice, cell: int, process: _Process, check: SliceCheck) -> SliceCount:
    number = _CHECKS.index(check)
    sides = process.figures[:, cell]
    calls = sides[:, _CALLS] - (sides[:, _ERRORS] if check is SliceCheck.LATENCY else 0)
    bad = sides[:, _BAD.get(check, _LOG_LATENCY)]
    champion, challenger = zip(calls.tolist(), bad.tolist(), strict=True)
    return SliceCount(
        one.feature,
        one.value,
        check,
        process.since,
        process.share,
        champion,
        challenger,
        int(process.units[cell]),
        int(process.failing[number, cell]),
        tuple(process.scores[number, cell].tolist()),
        tuple(process.gains[number, cell].tolist()) if check in _BAD else (),
    )


def _divided(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    found: FloatArray = np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
    return found
