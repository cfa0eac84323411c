"""Versions that get a role by a change of a policy, and how their inputs differ from the champion's so far."""

from typing import NamedTuple

from rich.text import Text

from understudy.core.schema.input_diff import InputDifferences, input_differences
from understudy.core.upstream.same_call import SameCall, same_call
from understudy.entrypoints.cli.shared.policy_changes.input_warnings import input_warnings
from understudy.entrypoints.cli.shared.policy_changes.same_call_warnings import same_call_warnings
from understudy.ports.registry.registry import PolicyRecord, Registry


class Newcomer(NamedTuple):
    """A version that gets a role, beside the champion so far."""

    version: str
    champion: str
    found: InputDifferences
    same: SameCall | None = None
    """With the champion so far."""

    @property
    def warnings(self) -> list[Text]:
        """What callers have to send for it that the champion does not ask for, and whether it is another model."""
        same = same_call_warnings([] if self.same is None else [self.same])
        return input_warnings(self.champion, self.version, self.found) + same


async def newcomers_of(registry: Registry, before: PolicyRecord | None, after: PolicyRecord) -> list[Newcomer]:
    """Return the versions that get a role, or another one, and how their inputs differ from the champion's so far."""
    if before is None:
        return []
    changed = _roles_of(after) - _roles_of(before)
    versions = {version for _, version in changed if version not in (None, before.champion)}
    if not versions:  # weight 0 in an incident waits for nothing
        return []
    champion = await registry.show_version(after.model_name, before.champion)
    newcomers = []
    for version in sorted(filter(None, versions)):
        one = await registry.show_version(after.model_name, version)
        inputs = input_differences(champion.input_schema, one.input_schema)
        newcomers.append(Newcomer(version, before.champion, inputs, same_call(one, champion)))
    return newcomers


def _roles_of(policy: PolicyRecord) -> set[tuple[str, str | None]]:
    named = {("champion", policy.champion), ("challenger", policy.challenger), ("shadow", policy.shadow)}
    return named | {("arm", version) for version, _, _ in policy.arms}
