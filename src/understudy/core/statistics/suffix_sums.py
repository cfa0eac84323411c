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
    ends = len(values)
    borders, places = np.unique(np.append(np.minimum(firsts, ends), ends), return_inverse=True)
    sums = np.zeros((len(borders), *values.shape[1:]))
    if len(borders) > 1:
        sums[:-1] = np.cumsum(np.add.reduceat(values, borders[:-1], axis=0)[::-1], axis=0)[::-1]
    found: NDArray[np.float64] = sums[places[:-1]]
    return found
