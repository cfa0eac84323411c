"""An older policy is restored from the audit, whether the database or a proxy tells of it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from understudy.errors import PolicyRefused
from understudy.ports.registry.registry import AuditEntry, AuditSubject, Registry
from understudy.registry.policy_restore import restored_change

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Audited:
    """A registry whose only change is one of a policy; of its versions 1 and 2 are there."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        policy = AuditSubject.POLICY
        self._entry = AuditEntry(1, "visits", 4, NOON, "k1", "cli", None, "update", {}, row, policy, "visits", None)

    async def show_model(self, model_name: str) -> Any:
        return SimpleNamespace(policy=None)

    async def list_audit(self, *_: Any, only: Any) -> Sequence[AuditEntry]:
        return [self._entry]

    async def list_versions(self, model_name: str) -> Any:
        return [SimpleNamespace(id=1, version="6"), SimpleNamespace(id=2, version="7")]


async def changes_to(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return (await restored_change(cast("Registry", Audited(row)), "visits", 4)).changes


@pytest.mark.parametrize("roles", [(1, 2), ("6", "7")])
async def test_versions_are_named_by_their_labels(roles):
    champion, challenger = roles

    changes = await changes_to({"champion_version": champion, "challenger_version": challenger, "fallback": True})

    assert changes == {"champion": "6", "challenger": "7", "fallback": True}


async def test_a_version_that_is_there_no_more_is_refused():
    with pytest.raises(PolicyRefused, match="version id 9 is not registered any more"):
        await changes_to({"champion_version": 9})
