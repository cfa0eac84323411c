"""Further arms: each has buckets of its own, and a change of weights moves as few entities as it can.

With one challenger the ranges are those of the policy: the challenger has the buckets below its weight. Further arms
begin at the other end, so that the challenger has room to grow without moving an entity of theirs.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from understudy.core.routing.buckets import BUCKETS


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


class Split(NamedTuple):
    """Who has which buckets by a policy, versions by their text; the champion has what the others leave."""

    champion: str
    challenger: str | None = None
    challenger_weight: int = 0
    arms: Sequence[BucketRange] = ()
    """Of the further arms."""

    @property
    def ranges(self) -> tuple[BucketRange, ...]:
        """All buckets, in their order."""
        owners = [self.champion] * BUCKETS
        for arm, first, last in self.arms:
            owners[first : last + 1] = [arm] * (last + 1 - first)
        if self.challenger is not None:
            owners[: self.challenger_weight] = [self.challenger] * self.challenger_weight
        return _ranges(owners)


def further_arms(before: Split, after: Split, weights: Mapping[str, int]) -> tuple[BucketRange, ...]:
    """Return the ranges that give the further arms these weights, in the order of the buckets.

    Args:
        before: The policy so far.
        after: The policy to be, without arms. Where its challenger's buckets run into a range they go before.
        weights: Percent of the entities for each further arm. One that is not named has none.

    Raises:
        ValueError: As :func:`bucket_ranges`; also if the champion or the challenger has a weight.
    """
    champion, challenger, weight, _ = after
    owners = [champion if owner == challenger else owner for owner in _owners(before.ranges)]
    fixed = {}
    if challenger is not None:
        if challenger in weights:
            raise ValueError(f"weights: {challenger} is the challenger and has a weight of its own; leave it out")
        owners[:weight] = [challenger] * weight
        fixed = {challenger: weight}
    mirrored = bucket_ranges({**fixed, **weights}, champion, _ranges(owners[::-1]))
    return tuple(
        BucketRange(arm, BUCKETS - 1 - last, BUCKETS - 1 - first)
        for arm, first, last in reversed(mirrored)
        if arm in weights
    )


def arm_percents(ranges: Sequence[BucketRange]) -> dict[str, int]:
    """Return how many percent of the entities each arm has."""
    percents: dict[str, int] = {}
    for arm, first, last in ranges:
        percents[arm] = percents.get(arm, 0) + last + 1 - first
    return percents


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
