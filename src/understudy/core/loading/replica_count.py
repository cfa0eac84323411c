"""How many copies of a version its calls need: up at once, down after a quarter of an hour, and not by noise."""

from dataclasses import dataclass
from math import ceil
from typing import Final

TARGET_RATIO: Final = 0.6
"""Share of a server's calls at once that are planned with: beyond it waiting times grow steeply."""
TOLERANCE_RATIO: Final = 0.05
"""So much more, or less, than a number of copies bears changes nothing."""
DOWN_SECONDS: Final = 900.0
"""How long fewer copies have to be enough before one is taken away."""


@dataclass(frozen=True, slots=True)
class VersionLoad:
    """The calls of a version in its last minute."""

    calls_per_second: float
    p95_seconds: float


@dataclass(frozen=True, slots=True)
class ReplicaCount:
    """How many copies a version has, and since when fewer would do."""

    replicas: int = 1
    fewer_since: float | None = None
    """By the clock of the caller; ``None``: fewer would not do."""


def next_replica_count(
    before: ReplicaCount,
    load: VersionLoad,
    now: float,
    *,
    concurrency: int,
    limits: tuple[int, int],
    may_fall: bool = True,
) -> ReplicaCount:
    """Return the number of copies that a version is to have now.

    Args:
        before: What it was.
        load: What it bears.
        now: The clock, in seconds.
        concurrency: Calls that a proxy sends to one server at once.
        limits: The fewest and the most copies.
        may_fall: Whether copies may be taken away: not while the version has a part in a rollout.

    Source:
        Little's law: calls under way = calls per second by the seconds that each takes.
    """
    fewest, most = limits
    needed = load.calls_per_second * load.p95_seconds / (concurrency * TARGET_RATIO)
    is_short = needed > before.replicas * (1 + TOLERANCE_RATIO)
    replicas = min(max(ceil(needed) if is_short else before.replicas, fewest), most)
    enough = min(max(ceil(needed * (1 + TOLERANCE_RATIO)), fewest), most)
    if not may_fall or enough >= replicas:
        return ReplicaCount(replicas)
    since = now if before.fewer_since is None else before.fewer_since
    if now - since < DOWN_SECONDS:
        return ReplicaCount(replicas, since)
    return ReplicaCount(enough)
