"""Pod noise: how far the mean latency of one side wanders by itself, told by the champion's own five minutes.

The pods of a version share a host, a collector and a neighbour, so for some minutes they are slower or faster
together. Neither the calls of these minutes nor a handful of blocks of them show it: versions that were equal were
rolled back in their fifth minute, on pods that wander by a fifth. What the champion's means did before and since does.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BLOCK_SECONDS = 300
MAX_BLOCKS = 72
"""Six hours, the newest ones: pods that wandered last week say little of now."""
MIN_BLOCKS = 4
"""Below it nothing is known of the noise: a line through three points leaves one degree of freedom."""
BLOCK_WINDOWS = 20
"""Windows of a block: the noise of a mean over more of them falls with their number."""


class Blocks(NamedTuple):
    """Number, sum and sum of squares of the champion's values in each five minutes, shape (blocks,) each."""

    number: FloatArray
    total: FloatArray
    squares: FloatArray


class PodNoise(NamedTuple):
    """The variance of one side's mean of five minutes, beyond what single values explain."""

    variance: float
    degrees: int
    """Of freedom."""
    moderates: bool = False
    """Whether a variance over a few blocks of windows is taken together with the one that this noise explains."""

    def added_to(self, error: float, degrees: float, windows: int) -> tuple[float, float]:
        """Return a difference's standard error and degrees of freedom with the noise of both sides in it.

        Args:
            error: Standard error without it.
            degrees: Of freedom of that.
            windows: That the difference is of.

        Source:
            Satterthwaite 1946, for the degrees of freedom of a sum of variances.
        """
        noise = 2 * self.variance * min(1.0, BLOCK_WINDOWS / windows)
        together = error**2 + noise
        if noise == 0 or together == 0:
            return error, degrees
        return together**0.5, together**2 / (error**4 / degrees + noise**2 / self.degrees)

    def moderated(self, error: float, degrees: float, explained: float) -> tuple[float, float]:
        """Return a standard error over a few blocks of windows, and its degrees of freedom, with what else is known.

        A dozen blocks know their own variance so badly that a shift of six standard errors counts as one of four. How
        far means wander from block to block is known from the champion's five minutes as well: what single windows and
        this noise explain counts as much as the blocks themselves, at most, and by no more degrees of freedom than the
        noise has.

        Args:
            error: Standard error over the blocks, with this noise in it.
            degrees: Of freedom of that.
            explained: Standard error over single windows, with this noise in it.

        Source:
            Smyth 2004 (a variance with few degrees of freedom, moderated by one that is known from elsewhere).
        """
        if not self.moderates:
            return error, degrees
        known = min(float(self.degrees), degrees)
        together = degrees + known
        return ((degrees * error**2 + known * explained**2) / together) ** 0.5, together


NO_NOISE = PodNoise(0.0, 1)


def blocks_of(starts: IntArray, number: FloatArray, total: FloatArray, squares: FloatArray) -> Blocks:
    """Return the blocks of windows, which start at ``starts``, in seconds and in their order; none of few windows."""
    if not len(starts):
        return Blocks(number, total, squares)
    places = starts // BLOCK_SECONDS
    borders = np.flatnonzero(np.diff(places, prepend=places[0] - 1))
    is_used = np.diff(np.append(borders, len(starts))) > BLOCK_WINDOWS / 2
    return Blocks(*(np.add.reduceat(column, borders)[is_used] for column in (number, total, squares)))


def pod_noise(blocks: Blocks, *, moderates: bool = False) -> PodNoise:
    """Return the noise that the newest blocks show, about a straight line through them; none while they are few."""
    used = blocks.number > 1
    number, total, squares = (column[used][-MAX_BLOCKS:] for column in blocks)
    count = len(number)
    if count < MIN_BLOCKS:
        return NO_NOISE
    means = total / number
    places = np.arange(count) - (count - 1) / 2
    slope = float(places @ means) / float(places @ places)
    rest = means - means.mean() - slope * places
    sampling = np.maximum(squares - total * means, 0.0) / (number - 1) / number
    variance = float(rest @ rest) / (count - 2) - float(sampling.mean())
    return PodNoise(max(variance, 0.0), count - 2, moderates)
