"""More than two arms: each has buckets of its own, and a change of weights moves as few entities as it can.

With one challenger the ranges are those of the policy: the challenger has the buckets below its weight.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from understudy.core.routing import BUCKETS


class BucketRange(NamedTuple):
    """The buckets ``first`` to ``last``, both included, of one arm. An arm may have several ranges."""

    arm: str
    first: int
    last: int


def bucket_ranges(
    weights: Mapping[str, int], champion: str, previous: Sequence[BucketRange] = ()
) -> tuple[BucketRange, ...]:
    """Return which arm has which buckets, in the order of the buckets.

    An arm that grows keeps all it has, and an arm that shrinks gets nothing, so no change moves fewer entities, and
    while only challengers grow an entity leaves the champion once and never comes back.

    Args:
        weights: Percent of the entities for each challenger. One that is not named has none.
        champion: The arm that has all the others.
        previous: The ranges so far; without them all entities were the champion's.

    Raises:
        ValueError: If a weight is no whole percent of 0-100, all together exceed 100, the champion has a weight, or
            ``previous`` is not a partition of all buckets.
    """
    shares = _shares(weights, champion)
    owners = _owners(previous) if previous else [champion] * BUCKETS
    freed = sorted(bucket for arm in set(owners) for bucket in _given_up(arm, owners, shares.get(arm, 0), champion))
    takers = (arm for arm, share in shares.items() for _ in range(share - owners.count(arm)))
    for bucket, taker in zip(freed, list(takers), strict=True):
        owners[bucket] = taker
    return _ranges(owners)


def arm_of(ranges: Sequence[BucketRange], bucket: int) -> str:
    """Return the arm that has this bucket.

    Raises:
        ValueError: If none has.
    """
    for arm, first, last in ranges:
        if first <= bucket <= last:
            return arm
    raise ValueError(f"no arm has bucket {bucket}")


def moved_percent(before: Sequence[BucketRange], after: Sequence[BucketRange]) -> int:
    """Return how many percent of the entities change their arm."""
    return sum(old != new for old, new in zip(_owners(before), _owners(after), strict=True))


def _shares(weights: Mapping[str, int], champion: str) -> dict[str, int]:
    """Return the percent of every arm, the champion's last."""
    if champion in weights:
        raise ValueError(f"weights: {champion} is the champion and has what the challengers leave; leave it out")
    for arm, weight in weights.items():
        if type(weight) is not int or not 0 <= weight <= BUCKETS:
            raise ValueError(f"weights: {arm} has {weight!r}; expected a whole percent from 0 to {BUCKETS}")
    rest = BUCKETS - sum(weights.values())
    if rest < 0:
        raise ValueError(f"weights: together {BUCKETS - rest} percent; expected at most {BUCKETS}")
    return {**weights, champion: rest}


def _given_up(arm: str, owners: Sequence[str], share: int, champion: str) -> list[int]:
    """Return the buckets that an arm loses: the champion its lowest, others their highest, as with one challenger."""
    own = [bucket for bucket, owner in enumerate(owners) if owner == arm]
    surplus = max(0, len(own) - share)
    return own[:surplus] if arm == champion else own[len(own) - surplus :]


def _owners(ranges: Sequence[BucketRange]) -> list[str]:
    """Return the arm of each bucket."""
    buckets = [(bucket, arm) for arm, first, last in ranges for bucket in range(first, last + 1)]
    if sorted(bucket for bucket, _ in buckets) != list(range(BUCKETS)):
        raise ValueError(f"ranges: expected each bucket from 0 to {BUCKETS - 1} exactly once")
    return [arm for _, arm in sorted(buckets)]


def _ranges(owners: Sequence[str]) -> tuple[BucketRange, ...]:
    runs = [(arm, [bucket for bucket, _ in run]) for arm, run in groupby(enumerate(owners), key=lambda pair: pair[1])]
    return tuple(BucketRange(arm, buckets[0], buckets[-1]) for arm, buckets in runs)
