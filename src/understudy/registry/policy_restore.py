"""The restore of an older policy: a new change, which the audit has like every other one."""

from collections.abc import Mapping, Sequence
from typing import Any

from understudy.core.routing.arms import BucketRange
from understudy.errors import NotRegistered, PolicyRefused
from understudy.ports.registry.registry import AuditEntry, AuditFilter, AuditSubject, Registry
from understudy.registry.asked_change import AskedChange
from understudy.registry.changes import POLICY_FIELDS

_COLUMNS = {"champion": "champion_version", "challenger": "challenger_version", "shadow": "shadow_version"}
RESTORED = tuple(field for field in POLICY_FIELDS if field != "rollout_id")
"""Fields that are restored: all but the rollout, which follows the split."""
MAX_GENERATION = 2**63 - 1
"""That a BIGINT holds: there is none beyond, and Postgres cannot be asked for one."""


async def restored_change(registry: Registry, model_name: str, generation: int) -> AskedChange:
    """Return the change that makes a policy what it was at an older generation, for the policy as it is now alone.

    Raises:
        NotRegistered: There is no such model, or the audit has no such generation of its policy.
        PolicyRefused: The policy was deleted then, or names a version that is there no more.
    """
    policy = (await registry.show_model(model_name)).policy
    found: Sequence[AuditEntry] = ()
    if generation <= MAX_GENERATION:
        only = AuditFilter(generation=generation)
        found = await registry.list_audit(model_name, 1, AuditSubject.POLICY, only=only)
    if not found:
        raise NotRegistered(
            f"the audit has no generation {generation} of the policy of {model_name}",
            hint="understudy audit list MODEL --subject policy names the generations that it keeps.",
        )
    row = found[0].after
    if row is None:
        raise PolicyRefused(f"the policy was deleted at generation {generation}", hint="Name an earlier generation.")
    labels = {version.id: version.version for version in await registry.list_versions(model_name)}
    wanted = {field: _value(field, row, labels) for field in RESTORED if _COLUMNS.get(field, field) in row}
    held = {} if policy is None else policy._asdict()
    changes = {field: value for field, value in wanted.items() if field not in held or held[field] != value}
    return AskedChange(model_name, changes, None, 0 if policy is None else policy.generation)


def _value(field: str, row: Mapping[str, Any], labels: Mapping[int, str]) -> Any:
    value = row[_COLUMNS.get(field, field)]
    if field in _COLUMNS:
        return None if value is None else _label(value, labels)
    if field == "arms":
        return tuple(BucketRange(_label(arm["version_id"], labels), arm["first"], arm["last"]) for arm in value or ())
    return value


def _label(version_id: int | str, labels: Mapping[int, str]) -> str:
    """Return a version's text, which an audit that was read over HTTP has already.

    Raises:
        PolicyRefused: It is there no more.
    """
    if isinstance(version_id, str):
        return version_id
    if version_id not in labels:
        raise PolicyRefused(
            f"version id {version_id} is not registered any more", hint="Name another generation, or set its fields."
        )
    return labels[version_id]
