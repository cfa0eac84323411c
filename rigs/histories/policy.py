"""A model's policy as a value, and what each operation makes of it: the sequential model that histories are held to.

It is written from the pages (`docs/explanation/rollouts.md`, `docs/reference/sql.md`, ADR 47) and imports nothing of
the product, so that a mistake in the one is not repeated in the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import md5
from itertools import pairwise
from typing import Any, NamedTuple

BUCKETS = 100
MAX_RANGES = 8
FIELDS = {
    "champion": "champion",
    "challenger": "challenger",
    "challenger_weight": "weight",
    "shadow": "shadow",
    "shadow_percent": "shadow_percent",
    "fallback": "fallback",
    "salt": "salt",
    "arms": "arms",
}
"""What an operation may change, by the name that the product gives it."""


class Arm(NamedTuple):
    """A range of buckets of a further version, both ends included."""

    version: str
    first: int
    last: int


@dataclass(frozen=True)
class Policy:
    """A row of ``ServingPolicy``, versions by their labels."""

    champion: str
    challenger: str | None = None
    weight: int = 0
    shadow: str | None = None
    shadow_percent: int = 100
    fallback: bool = True
    salt: str | None = None
    arms: tuple[Arm, ...] = ()
    rollout_id: int | None = None
    previous_champion: str | None = None
    generation: int = 1

    @property
    def holders(self) -> frozenset[str]:
        """The versions with a role."""
        named = {self.champion, self.challenger, self.shadow, *(arm.version for arm in self.arms)}
        return frozenset(version for version in named if version is not None)


class Refusal(NamedTuple):
    """An operation that is not carried out, and why."""

    why: str


def policy_of_row(row: Mapping[str, Any], labels: Mapping[int, str]) -> Policy:
    """Return the policy that a row of the table, or of the audit, holds."""

    def label(name: str) -> str | None:
        return None if row[name] is None else labels[row[name]]

    return Policy(
        champion=labels[row["champion_version"]],
        challenger=label("challenger_version"),
        weight=row["challenger_weight"],
        shadow=label("shadow_version"),
        shadow_percent=row["shadow_percent"],
        fallback=row["fallback"],
        salt=row["salt"],
        arms=tuple(Arm(labels[arm["version_id"]], arm["first"], arm["last"]) for arm in row["arms"]),
        rollout_id=row["rollout_id"],
        previous_champion=label("previous_champion"),
        generation=row["generation"],
    )


def changed(before: Policy, **values: Any) -> Policy:
    """Return the policy after a statement: one generation later, unless the statement changes nothing."""
    after = replace(before, **values)
    if after == before:
        return before
    previous = before.champion if after.champion != before.champion else before.previous_champion
    return replace(after, generation=before.generation + 1, previous_champion=previous)


# -- changes by operators ----------------------------------------------------------------------------------------------


def after_set(before: Policy, changes: Mapping[str, Any], retired: frozenset[str]) -> Policy | Refusal:
    """Return what a change of fields leads to; ``retired`` are the versions that are."""
    values = {FIELDS[name]: value for name, value in changes.items()}
    if "arms" in values:
        values["arms"] = tuple(Arm(*arm) for arm in values["arms"])
    after = changed(before, **values)
    why = next(_problems(after, retired), None)
    return after if why is None else Refusal(why)


def after_add(before: Policy, percent: int) -> Policy:
    """Return what ``shadow_percent = (shadow_percent + percent) % 101`` leads to."""
    return changed(before, shadow_percent=(before.shadow_percent + percent) % (BUCKETS + 1))


def _problems(policy: Policy, retired: frozenset[str]) -> Iterator[str]:
    if not 0 <= policy.weight <= BUCKETS:
        yield f"the weight is {policy.weight}"
    if not 0 <= policy.shadow_percent <= BUCKETS:
        yield f"the shadow's percent is {policy.shadow_percent}"
    if policy.salt == "":
        yield "the salt is empty"
    if policy.weight > 0 and policy.challenger is None:
        yield "there is no challenger for the weight"
    named = [policy.champion, policy.challenger, policy.shadow, *{arm.version for arm in policy.arms}]
    present = [version for version in named if version is not None]
    if len(set(present)) < len(present):
        yield "a version has two roles"
    for version in present:
        if version in retired:
            yield f"version {version} is retired"
    yield from _problems_of_arms(policy)


def _problems_of_arms(policy: Policy) -> Iterator[str]:
    taken = [bucket for arm in policy.arms for bucket in range(arm.first, arm.last + 1)]
    if any(not 0 <= arm.first <= arm.last < BUCKETS for arm in policy.arms) or len(policy.arms) > MAX_RANGES:
        yield "a range is none"
    if len(set(taken)) < len(taken):
        yield "ranges overlap"
    if taken and min(taken) < policy.weight:
        yield "the weight overlaps a range"
    if policy.arms and policy.rollout_id is not None:
        yield "arms beside a rollout"


# -- rollback ----------------------------------------------------------------------------------------------------------


class Rollback(NamedTuple):
    """What a rollback leads to, and what it says that it did."""

    after: Policy
    did: str


NOTHING = "nothing"
BACK = "previous champion back"


class OpenRollout(NamedTuple):
    """The versions of the rollout that is open."""

    champion: str
    challenger: str


def after_rollback(states: Sequence[Policy], rollout: OpenRollout | None, retired: frozenset[str]) -> Rollback:
    """Return what a rollback leads to.

    Args:
        states: The model's policies so far, the first one first; the last one is rolled back.
        rollout: The open one.
        retired: Versions that do not come back.
    """
    before = states[-1]
    newest = newest_move(states)
    way = newest.way_back if newest is not None else None
    usable = way if way not in retired else None
    if before.weight or before.arms:
        did = "weight 0 and the end of all further arms" if before.arms else "weight 0"
        return Rollback(_sent_back(before, usable), f"{did}, {BACK}" if usable else did)
    if rollout is not None and before.champion == rollout.challenger:
        # Promoted by this rollout, and nothing moved traffic since: the old champion is kept warm for this.
        if newest is not None and (newest.was, newest.is_now) == rollout:
            after = changed(
                before,
                champion=rollout.champion,
                challenger=rollout.challenger,
                shadow=_unless(before.shadow, rollout.champion),
            )
            return Rollback(after, BACK)
    elif rollout is not None and before.champion == rollout.champion:
        return Rollback(before, NOTHING)
    return Rollback(_sent_back(before, usable), BACK) if usable else Rollback(before, NOTHING)


def _sent_back(before: Policy, champion: str | None) -> Policy:
    if champion is None:
        return changed(before, weight=0, arms=())
    return changed(
        before,
        weight=0,
        arms=(),
        champion=champion,
        challenger=_unless(before.challenger, champion),
        shadow=_unless(before.shadow, champion),
    )


def _unless(version: str | None, other: str) -> str | None:
    return None if version == other else version


class Move(NamedTuple):
    """A change of champion; the two are equal where only weight or arms moved."""

    was: str
    is_now: str
    way_back: str | None = None
    """Who comes back if this move is undone; ``None`` where it was itself the way back."""


def newest_move(states: Sequence[Policy]) -> Move | None:
    """Return the newest move of traffic; ``None`` where there was none since the first policy.

    A champion that went to and fro is counted: 1 → 2 → 1 is back, so there is no way back from it; 1 → 2 → 1 → 2 is
    forward again.
    """
    moves = [move for before, after in reversed(list(pairwise(states))) if (move := _move(before, after)) is not None]
    if not moves:
        return None
    newest = moves[0]
    if newest.was == newest.is_now:
        return newest
    swings = 0
    later: Move | None = None
    for move in moves:
        if move.was == move.is_now:
            continue
        if later is not None and move.was != later.is_now:
            break
        swings, later = swings + 1, move
    return newest._replace(way_back=newest.was if swings % 2 else None)


def _move(before: Policy, after: Policy) -> Move | None:
    is_move = (before.champion, before.weight, before.arms) != (after.champion, after.weight, after.arms)
    return Move(before.champion, after.champion) if is_move else None


# -- exposure ----------------------------------------------------------------------------------------------------------


class Exposure(NamedTuple):
    """Who answers an entity."""

    version: str
    role: str


def bucket_of(model_name: str, policy: Policy, entity: str) -> int:
    """Return the bucket of an entity: the hash of the seed, with the salt in the place of the model's name."""
    return int(md5(f"{policy.salt or model_name}:{entity}".encode(), usedforsecurity=False).hexdigest(), 16) % BUCKETS


def exposure(model_name: str, policy: Policy, entity: str) -> Exposure:
    """Return who answers an entity under a policy."""
    bucket = bucket_of(model_name, policy, entity)
    if policy.challenger is not None and bucket < policy.weight:
        return Exposure(policy.challenger, "challenger")
    for arm in policy.arms:
        if arm.first <= bucket <= arm.last:
            return Exposure(arm.version, "challenger")
    return Exposure(policy.champion, "champion")
