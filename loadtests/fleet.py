"""How many pods a load needs: the fewest with which nobody waits too long, whatever part of them is gone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from loadtests.queues import FloatArray, Outcome, Segment, Work, pod_shares, simulate

FIGURES = Path(__file__).with_name("capacity.json")
SEED = 20_261_121
LANES = 12
"""Typical pods of a fleet."""
CANDIDATES, ROUNDS = 6, 2
DAY_HOURS = 24
BEFORE_SECONDS, BURST_SECONDS, AFTER_SECONDS = 0.25, 1.25, 0.25
LONGER = {"predict": 1, "rank": 8}
"""Rank calls are few: a longer look makes their percentile as sure."""


class Scale(NamedTuple):
    """A load: ``peak`` is calls a second in the busiest hour of the day."""

    name: str
    kind: str
    peak: float


class Fleet(NamedTuple):
    """The pods of a scale, and how its calls fare, by what is gone."""

    pods: int
    outcomes: Mapping[str, "Fared"]
    day_busy: float
    """Of a core, over the day."""
    broken: float
    """Calls in flight on a node that dies at the peak."""
    on_disk: float
    """Rows on that node's disk that Postgres does not have yet."""

    @property
    def zone_busy(self) -> float:
        return self.outcomes["zone gone"].busy


class Fared(NamedTuple):
    """The wait for the core at the 99th percentile, and the busy share of a core: the mean and the hottest pod's."""

    wait_ms: float
    busy: float
    hottest: float


@dataclass(frozen=True)
class Inputs:
    """What ``capacity.json`` says: every figure, assumption, limit and price by its name, and the scales."""

    document: Mapping[str, Any]

    def __getitem__(self, name: str) -> float:
        """Return a value by its name, which is unique in the file."""
        return self._values[name]

    def limit(self, name: str) -> float:
        """Return a limit, whose name is that of what it bounds."""
        return float(self.document["limits"][name]["value"])

    @cached_property
    def _values(self) -> dict[str, float]:
        groups = [self.document[group] for group in ("figures", "assumptions", "prices")]
        values = {name: float(entry["value"]) for group in groups for name, entry in group.items()}
        if len(values) != sum(map(len, groups)):
            raise ValueError(f"{FIGURES.name}: a name stands in two groups; give each value a name of its own")
        return values

    @cached_property
    def scales(self) -> Sequence[Scale]:
        """The loads in question, smallest first."""
        return [Scale(**scale) for scale in self.document["scales"]]

    def work(self, kind: str) -> Work:
        """Return what a call of this kind costs its pod."""
        ship = (self["shipper_stage_us"] + self["copy_client_us"]) / 1e6
        wake = self["predict_us"] * self["wake_ratio"] / 1e6
        serve = self[f"{kind}_us"] / 1e6 - ship
        return Work(serve, self[f"{kind}_variation"], wake, ship, self["ship_every_seconds"])

    def wait_bound_ms(self, kind: str) -> float:
        """Return how long the 99th percentile may wait."""
        return self["wait_bound_ms" if kind == "predict" else "rank_wait_bound_ms"]


def read_inputs(path: Path = FIGURES) -> Inputs:
    """Return what the file says."""
    return Inputs(orjson.loads(path.read_bytes()))


def most_per_pod(inputs: Inputs, kind: str, work: Work | None = None, connections: float | None = None) -> float:
    """Return the most calls a second that a pod may get at the peak, so that a zone may go in a burst.

    Args:
        inputs: Figures and assumptions.
        kind: ``predict`` or ``rank``.
        work: What a call costs, if it is not what the figures say.
        connections: Callers' connections for each pod, if not as assumed; infinity for a balancer of requests.
    """
    work = work or inputs.work(kind)
    # With a zone gone and in a burst, a pod has some twice the load: half of what its core can do is beyond it.
    low, high = 0.1 / work.serve, 0.5 / work.serve
    for _ in range(ROUNDS):
        rates = np.geomspace(low, high, CANDIDATES)
        outcome = _fare(inputs, kind, work, rates, _zone(inputs), connections=connections)
        good = int(np.argmin(np.append(outcome.wait * 1000 <= inputs.wait_bound_ms(kind), False)))
        if good == 0:
            raise ValueError(f"{kind}: the wait is beyond its bound however few calls a pod gets; raise the bound")
        low, high = rates[good - 1], rates[min(good, CANDIDATES - 1)]
    return float(low)


def pods_for(inputs: Inputs, peak: float, per_pod: float) -> int:
    """Return the pods for a peak, a multiple of the zones."""
    zones = int(inputs["zones"])
    return max(1, math.ceil(peak / per_pod / zones)) * zones


def fleet_for(inputs: Inputs, scale: Scale, per_pod: float) -> Fleet:
    """Return the pods of a scale, tried with what may be gone: more of them until every wait is within its bound."""
    pods = pods_for(inputs, scale.peak, per_pod)
    while True:
        outcomes = {name: _fared(inputs, scale, pods, gone) for name, gone in _troubles(inputs, pods).items()}
        if all(one.wait_ms <= inputs.wait_bound_ms(scale.kind) for one in outcomes.values()):
            break
        pods += int(inputs["zones"])
    dying = scale.peak / pods * inputs["burst_ratio"] * _on_a_node(inputs, pods)
    in_pod = (inputs["model_ms"] + outcomes["all there"].wait_ms) / 1000
    day_busy = _day_busy(inputs, scale, pods)
    return Fleet(pods, outcomes, day_busy, dying * in_pod, dying * inputs["ship_every_seconds"])


def day(inputs: Inputs) -> FloatArray:
    """Return the demand of each hour, in parts of the peak."""
    low = inputs["daily_low_ratio"]
    return (1 + low) / 2 + (1 - low) / 2 * np.cos(2 * np.pi * np.arange(DAY_HOURS) / DAY_HOURS)


def _troubles(inputs: Inputs, pods: int) -> Mapping[str, Sequence[Segment]]:
    """Return what may happen, each with a burst in its middle."""
    burst = inputs["burst_ratio"]
    node = _on_a_node(inputs, pods) / pods
    redeployed = max(1, round(pods * inputs["redeploy_ratio"])) / pods
    dies = [
        Segment(BEFORE_SECONDS, 1, 0),
        Segment(BURST_SECONDS / 2, burst, 0),
        Segment(BURST_SECONDS / 2, burst, node),
        Segment(AFTER_SECONDS, 1, node),
    ]
    return {
        "all there": _with_burst(burst, 0),
        "node killed": dies,
        "redeploy": _with_burst(burst, redeployed),
        "zone gone": _zone(inputs),
    }


def _zone(inputs: Inputs) -> Sequence[Segment]:
    return _with_burst(inputs["burst_ratio"], 1 / inputs["zones"])


def _with_burst(burst: float, gone: float) -> Sequence[Segment]:
    return [
        Segment(BEFORE_SECONDS, 1, gone),
        Segment(BURST_SECONDS, burst, gone),
        Segment(AFTER_SECONDS, 1, gone),
    ]


def _on_a_node(inputs: Inputs, pods: int) -> int:
    return min(int(inputs["pods_per_node"]), pods // int(inputs["zones"]))


def _fared(inputs: Inputs, scale: Scale, pods: int, timeline: Sequence[Segment]) -> Fared:
    rates = np.array([scale.peak / pods])
    outcome = _fare(inputs, scale.kind, inputs.work(scale.kind), rates, timeline)
    return Fared(float(outcome.wait[0]) * 1000, float(outcome.busy[0]), float(outcome.hottest[0]))


def _fare(
    inputs: Inputs,
    kind: str,
    work: Work,
    rates: FloatArray,
    timeline: Sequence[Segment],
    *,
    connections: float | None = None,
) -> Outcome:
    longer = [part._replace(seconds=part.seconds * LONGER[kind]) for part in timeline]
    shares = pod_shares(inputs["connections_per_pod"] if connections is None else connections, LANES)
    return simulate(work, rates, longer, shares, SEED)


def _day_busy(inputs: Inputs, scale: Scale, pods: int) -> float:
    rates = scale.peak / pods * day(inputs)
    shares = pod_shares(inputs["connections_per_pod"], LANES // 3)
    timeline = [Segment(0.25 * LONGER[scale.kind], 1, 0)]
    return float(simulate(inputs.work(scale.kind), rates, timeline, shares, SEED).busy.mean())
