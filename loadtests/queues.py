"""Pods as queues: how long a request waits for its pod's one core, by simulation.

A proxy is one event loop, so a pod is a queue of one core, first come, first served. What a division leaves out is in
here: requests come by chance, in bursts, and not evenly (connections are dealt out at random and then kept); a request
that finds its pod asleep costs a wake-up more; the log's shipper takes the core for its whole batch now and then; and
some of the pods are gone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gamma

FloatArray = NDArray[np.float64]
PERCENTILE = 99


class Work(NamedTuple):
    """What one request costs its pod's core, in seconds.

    ``serve`` is the mean of the request's own part, ``variation`` its standard deviation divided by its mean, ``wake``
    comes on top of a request that finds the core idle, and ``ship`` is what the shipper needs for its rows, later.
    """

    serve: float
    variation: float
    wake: float
    ship: float
    ship_every: float


class Segment(NamedTuple):
    """A time with as much demand as this, in parts of the peak, and this part of the pods gone."""

    seconds: float
    demand: float
    gone: float


class Outcome(NamedTuple):
    """Of each candidate: the wait at the percentile in seconds, the core's busy share, and that of the hottest pod."""

    wait: FloatArray
    busy: FloatArray
    hottest: FloatArray


def pod_shares(connections: float, lanes: int) -> FloatArray:
    """Return how many times the mean some typical pods get, shape ``(lanes,)``, mean 1.

    Args:
        connections: Callers' connections for each pod, dealt out at random and all equally busy; infinity for a
            balancer that deals out requests.
        lanes: How many pods; they stand for equal parts of the fleet.
    """
    if np.isinf(connections):
        return np.ones(lanes)
    places = (np.arange(lanes) + 0.5) / lanes
    shares: FloatArray = gamma.ppf(places, connections, scale=1 / connections)
    shares /= shares.mean()
    return shares


def simulate(work: Work, rates: FloatArray, timeline: Sequence[Segment], shares: FloatArray, seed: int) -> Outcome:
    """Let requests come and wait.

    Args:
        work: What a request costs.
        rates: Requests a second for each pod while all are there and the demand is 1; one for each candidate.
        timeline: What happens. Those that are gone have their part of the demand dealt out to the others.
        shares: Typical pods, see :func:`pod_shares`.
        seed: The same one gives every candidate the same chance: more pods never do worse by luck.
    """
    lanes = rates[:, None] * shares
    demand = np.array([part.seconds * part.demand / (1 - part.gone) for part in timeline])
    seconds = sum(part.seconds for part in timeline)
    expected = float(lanes.max() * demand.sum())
    steps = int(expected + 6 * np.sqrt(expected) + 20)
    rng = np.random.default_rng(seed)
    counted = rng.exponential(size=(steps, len(shares))).cumsum(axis=0)[:, None, :] / lanes
    places = np.concatenate([[0.0], demand.cumsum()])
    times = np.concatenate([[0.0], np.cumsum([part.seconds for part in timeline])])
    came = counted <= places[-1]
    arrive = np.interp(counted, places, times)
    serve = rng.gamma(1 / work.variation**2, work.serve * work.variation**2, size=(steps, 1, len(shares)))
    ship = _batches(arrive, came, work, rng.random(len(shares)))
    wait = np.empty_like(arrive)
    busy = np.zeros(lanes.shape)
    free = np.zeros(lanes.shape)
    for step in range(steps):
        now = arrive[step]
        asleep = free <= now
        start = np.maximum(free, now) + ship[step]
        wait[step] = start - now
        used = serve[step] + asleep * work.wake
        free = start + used
        busy += (used + ship[step]) * came[step]
    waits = [np.percentile(wait[:, one][came[:, one]], PERCENTILE) for one in range(len(rates))]
    return Outcome(np.array(waits), busy.mean(axis=1) / seconds, busy.max(axis=1) / seconds)


def _batches(arrive: FloatArray, came: NDArray[np.bool_], work: Work, phases: FloatArray) -> FloatArray:
    """Return the shipper's time before each request: at the first one of each of its turns, for all rows since."""
    turn = np.floor(arrive / work.ship_every + phases)
    is_first = np.zeros(arrive.shape, bool)
    is_first[1:] = (turn[1:] > turn[:-1]) & came[1:]
    number = np.arange(len(arrive))[:, None, None]
    last = np.maximum.accumulate(np.where(is_first, number, 0), axis=0)
    rows = np.zeros(arrive.shape)
    rows[1:] = number[1:] - last[:-1]
    return np.where(is_first, rows, 0.0) * work.ship
