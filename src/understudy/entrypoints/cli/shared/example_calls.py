"""Calls a version from here with example inputs: of what it answers the database knows nothing."""

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec
from shlex import quote

from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane, DatabaseControlPlane
from understudy.core.rollout.state import WarmUpResult
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.errors import BackendUnavailable, SchemaInvalid
from understudy.ports.registry.registry import ChangedPolicy, VersionRecord
from understudy.ports.upstream.model_backend import ServerSeen

MAX_SECONDS = 4.0
"""In which it is called, after the change was made."""


async def champion_warning(control_plane: ControlPlane, changed: ChangedPolicy) -> list[Text]:
    """Return what keeps a champion that a change made from answering; nothing where it does, or is not known.

    Model servers are called from here, so a command that goes to a proxy calls none.
    """
    before, after = changed
    if before is not None and before.champion == after.champion:
        return []
    if not _may_call(control_plane):
        return []
    record = await control_plane.registry.show_version(after.model_name, after.champion)
    servers, result = await _tried(record)
    if servers is None or (result is not None and result.passed):
        return []
    named = f"{quote(record.model_name)} {quote(record.version)}"
    advice = f"understudy version check {named} says more"
    if result is None:
        problem = "; ".join(f"{server.place}: {server.problem}" for server in servers) or "it has no model server"
        advice = f"{advice}; understudy version add-endpoint {named} HOST:PORT"
    else:
        problem = result.detail
    what = f"{record.version} answers no call from here: {problem}"
    return [Text("! ", "yellow").append(what), Text(f"  → {advice}")]


async def unanswered(control_plane: ControlPlane, model_name: str, label: str) -> str:
    """Return why a version's servers, which are reached from here, answer no example call; else nothing."""
    if not _may_call(control_plane):
        return ""
    _, result = await _tried(await control_plane.registry.show_version(model_name, label))
    return "" if result is None or result.passed else result.detail


def _may_call(control_plane: ControlPlane) -> bool:
    return isinstance(control_plane, DatabaseControlPlane) and find_spec("grpc") is not None


async def _tried(record: VersionRecord) -> tuple[Sequence[ServerSeen] | None, WarmUpResult | None]:
    """Return how a version's servers are, and what became of example calls; ``None``: that is not known."""
    # gRPC, numpy and structlog: other changes of a policy do without.
    from understudy.bootstrap.upstream.backends import try_version  # noqa: PLC0415
    from understudy.core.routing.policy_document import version_from_row  # noqa: PLC0415
    from understudy.entrypoints.logs import keep_log_off_output  # noqa: PLC0415

    keep_log_off_output()
    try:
        async with asyncio.timeout(MAX_SECONDS):
            version = version_from_row(record.model_name, record._asdict())
            return await try_version(settings_with_demo(lambda _: None), version)
    except (BackendUnavailable, SchemaInvalid, TimeoutError):
        return None, None
