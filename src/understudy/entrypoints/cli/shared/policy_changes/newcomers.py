"""Versions that get a role by a change of a policy, and how their inputs differ from the champion's so far."""

from typing import NamedTuple

from rich.text import Text

from understudy.core.schema.input_diff import InputDifferences, input_differences
from understudy.entrypoints.cli.shared.policy_changes.input_warnings import input_warnings
from understudy.ports.registry.registry import PolicyRecord, Registry


class Newcomer(NamedTuple):
    """A version that gets a role, beside the champion so far."""

    version: str
    champion: str
    found: InputDifferences

    @property
    def warnings(self) -> list[Text]:
        """What callers have to send for it that the champion does not ask for."""
        return input_warnings(self.champion, self.version, self.found)


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
        schema = (await registry.show_version(after.model_name, version)).input_schema
        newcomers.append(Newcomer(version, before.champion, input_differences(champion.input_schema, schema)))
    return newcomers


def _roles_of(policy: PolicyRecord) -> set[tuple[str, str | None]]:
    named = {("champion", policy.champion), ("challenger", policy.challenger), ("shadow", policy.shadow)}
    return named | {("arm", version) for version, _, _ in policy.arms}
