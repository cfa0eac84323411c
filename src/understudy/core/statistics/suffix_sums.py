"""Suffix sums over windows: what was seen since each window at which evidence begins anew."""

import numpy as np
from numpy.typing import NDArray


def suffix_sums(values: NDArray[np.float64], firsts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the suffix sums: those over the windows from each of ``firsts`` on.

    Args:
        values: Shape (windows, any).
        firsts: Indices of windows, in any order; beyond the last one the sum is 0.

    Returns:
        Shape (firsts, any). They are added up from the last window on, so that what is recent is not what is left of
        large numbers.
    """
    ordered = np.sort(np.append(np.minimum(firsts, len(values)), len(values)))
    borders = ordered[:-1][ordered[1:] != ordered[:-1]]  # a third of the time of np.unique, and all are before the end
    sums = np.zeros((len(borders) + 1, *values.shape[1:]))
    if len(borders):
        sums[:-1] = np.cumsum(np.add.reduceat(values, borders, axis=0)[::-1], axis=0)[::-1]
    found: NDArray[np.float64] = sums[np.searchsorted(borders, firsts)]
    return found
