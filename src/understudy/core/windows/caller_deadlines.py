"""Callers' deadlines: what a call says of a version when its caller gave it less time than the champion has by itself.

A challenger may use a share of a call's deadline, so that the champion can still answer. What a caller's own deadline
costs says nothing about errors, and it must not be able to veto a release. So, within a rollout:

* A call of which the challenger's share would be less than 1.5 times the champion's p95 is hurried: it is left out,
  whichever version got it and however it ended. Its deadline decides, which is known before the outcome, so the calls
  that are left out are alike on both sides.
* Of the other calls with a deadline it is compared how long they took, but at most the challenger's share. One that
  ended at its deadline took all of that: it is a slow answer and no error. Both sides are censored at the same time,
  which is beyond 1.2 times the champion's p95, so none of it makes an equal version look slower.

A champion that is alone, as after a promotion, has the whole deadline: its share is 1.

Outside of a rollout there is no such threshold, and nothing is compared at once: only what ended at its deadline is
hurried. The same holds of a champion that is alone while the p95 is not known.

Source:
    ADR 75. Censoring at a time that does not depend on the outcome (type I): Klein and Moeschberger, *Survival
    Analysis*, 2003, §3.2.
"""

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HURRIED_RATIO = 1.5
"""Of the champion's p95. Answers from 1.2 times that on are slow ones, so a call that ends later was slow already; the
rest is for what a call does before a version is asked."""


class Share(NamedTuple):
    """How much of a deadline a version has to itself."""

    ratio: float = 0.4
    """A challenger's, so that the champion can still answer; 1 for a champion that is alone."""
    is_alone: bool = False
    """Whether no other version is called."""


ALONE = Share(1.0, is_alone=True)


class GivenTime(NamedTuple):
    """What calls were given, each array of shape ``(n,)``."""

    compared_us: NDArray[np.int64]
    """The longest time that is compared, in microseconds: the share of a deadline, whichever version answered."""
    is_expired: NDArray[np.bool_]
    """Whether a call that is judged ended at its caller's deadline."""


def least_deadline_us(slow_us: int | None, budget_ratio: float, *, is_compared: bool) -> float:
    """Return the shortest deadline of a caller, in microseconds, that leaves a version enough time to be judged by.

    Args:
        slow_us: The rollout's threshold τ, the champion's p95; ``None`` while it is not known, and outside of rollouts.
        budget_ratio: The share of a deadline that a version has to itself.
        is_compared: Whether there are two versions at once. Then without a threshold no deadline is long enough;
            otherwise each one is, unless the call ended at it, which 0 says.
    """
    if slow_us is None:
        return inf if is_compared else 0.0
    return HURRIED_RATIO * slow_us / budget_ratio


def are_hurried(
    deadline_us: NDArray[np.int64], is_out_of_time: NDArray[np.bool_], least_us: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return which calls are left out, given what :func:`least_deadline_us` says of each; a deadline of 0 is none."""
    is_outside = least_us == 0
    return (deadline_us > 0) & np.where(is_outside, is_out_of_time, deadline_us < least_us)


def given_time(
    deadline_us: NDArray[np.int64], is_out_of_time: NDArray[np.bool_], budget_ratio: float
) -> GivenTime | None:
    """Return what calls of a rollout that are not hurried were given; ``None``: no caller gave one a deadline."""
    has_deadline = deadline_us > 0
    if not has_deadline.any():
        return None
    share = np.maximum(budget_ratio * deadline_us, 1).astype(np.int64)
    return GivenTime(np.where(has_deadline, share, np.iinfo(np.int64).max), has_deadline & is_out_of_time)
