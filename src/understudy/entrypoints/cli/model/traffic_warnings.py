"""Warns of a version that is to get more calls: they were taken back from it of late, or no monitor would do that."""

import time
from datetime import UTC, datetime
from shlex import quote

from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane, DatabaseControlPlane
from understudy.core.routing.arms import arm_percents
from understudy.errors import LoginNotAllowed, ScopeMissing
from understudy.ports.monitoring.lease import SILENT_SECONDS
from understudy.ports.registry.registry import AuditFilter, AuditSubject, ChangedPolicy, PolicyRecord
from understudy.registry.rollback_moves import NEWS_SECONDS, UNWATCHED, earlier_rollback

MAX_CHANGES = 100
"""Of the policy in the last day, which are read."""


async def traffic_warnings(control_plane: ControlPlane, changed: ChangedPolicy) -> list[Text]:
    """Return what the console says of a model too: a rollback of a version that gets more calls, and a missing monitor.

    Nothing of what the key or the login may not read; nothing of the monitor over HTTP, which does not tell.
    """
    before, after = changed
    if before is None or not (gaining := _gaining(before, after)):
        return []
    lines: list[Text] = []
    if earlier := await _earlier(control_plane, before, gaining):
        lines += [
            Text("! ", "yellow").append(earlier),
            Text(f"  → understudy audit list {quote(after.model_name)} --since 24h"),
        ]
    if after.guard != "off" and await _is_unwatched(control_plane, after.model_name):
        lines += [Text("! ", "yellow").append(UNWATCHED), Text("  → understudy serve monitor runs one")]
    return lines


def _gaining(before: PolicyRecord, after: PolicyRecord) -> set[str]:
    """Return the versions, by label, whose share grows; the champion so far is what is gone back to."""
    had, gets = arm_percents(before.split.ranges), arm_percents(after.split.ranges)
    return {version for version, share in gets.items() if share > had.get(version, 0) and version != before.champion}


async def _earlier(control_plane: ControlPlane, policy: PolicyRecord, versions: set[str]) -> str:
    """Return what was taken back from these versions before the policy was changed."""
    now, registry, model_name = time.time(), control_plane.registry, policy.model_name
    only = AuditFilter(since=datetime.fromtimestamp(now - NEWS_SECONDS, UTC))
    try:
        audit = await registry.list_audit(model_name, MAX_CHANGES, AuditSubject.POLICY, only=only)
        labels = {one.id: one.version for one in await registry.list_versions(model_name)} if audit else {}
    except (ScopeMissing, LoginNotAllowed):
        return ""
    before = [one for one in audit if (one.generation or 0) <= policy.generation]
    return earlier_rollback(before, versions, now, labels)


async def _is_unwatched(control_plane: ControlPlane, model_name: str) -> bool:
    if not isinstance(control_plane, DatabaseControlPlane):
        return False
    try:
        seconds = (await control_plane.rollbacks.reach(model_name)).monitor_seconds
    except LoginNotAllowed:
        return False
    return seconds is None or seconds > SILENT_SECONDS
