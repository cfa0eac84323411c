"""A change of a policy that an operator asks for: tried in the database first, then made of what was seen."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from understudy.errors import PolicyRefused
from understudy.ports.registry.registry import Actor, ChangedPolicy, Registry
from understudy.registry.changes import set_policy
from understudy.registry.policy_changes import with_arms

NONE = "none"


class AskedChange(NamedTuple):
    """What is asked for."""

    model_name: str
    changes: Mapping[str, Any]
    """New values by fields of the policy."""
    weights: Mapping[str, int] | None = None
    """Percent of the further arms; ``None``: they stay."""
    expected_generation: int | None = None
    """Change nothing unless the policy is at it."""


async def settled(registry: Registry, asked: AskedChange) -> AskedChange:
    """Return the change with its arms as ranges, which hold for the generation alone that they were computed from.

    Raises:
        NotRegistered: There is no such model.
        PolicyRefused: The arms cannot have that.
    """
    standing = (await registry.show_model(asked.model_name)).policy
    if asked.weights is None:
        return asked
    expected = asked.expected_generation
    if expected is None and standing is not None:
        expected = standing.generation
    changes = with_arms(standing, asked.changes, asked.weights)
    return asked._replace(changes=changes, weights=None, expected_generation=expected)


async def make_change(registry: Registry, asked: AskedChange, actor: Actor, *, dry_run: bool = False) -> ChangedPolicy:
    """Make a change that :func:`settled` returned, or only try it; the audit gets ``actor``.

    Raises:
        PolicyRefused, NotRegistered: The change is refused.
        GenerationMoved: The policy is at another generation than expected; nothing was changed.
        RegistryUnavailable: Postgres does not answer in time.
    """
    return await set_policy(
        registry,
        asked.model_name,
        asked.changes,
        actor,
        expected_generation=asked.expected_generation,
        dry_run=dry_run,
    )


def arm_weights_of(asked: Sequence[str]) -> dict[str, int]:
    """Return the percent of each further arm, from texts such as ``9=10``; nothing for ``none`` alone.

    Raises:
        PolicyRefused: It is not ``VERSION=PERCENT``, or a version is named twice.
    """
    if list(asked) == [NONE]:
        return {}
    weights: dict[str, int] = {}
    for text in asked:
        version, _, percent = text.rpartition("=")
        if not version or version in weights or not re.fullmatch(r"[0-9]{1,3}", percent):
            raise PolicyRefused(
                f"arms: {text!r} is no share of a version",
                hint="Name shares as VERSION=PERCENT, such as 9=10, or none.",
            )
        weights[version] = int(percent)
    return weights
