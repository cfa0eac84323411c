"""Warns of a new champion that does not answer: every call goes to it, and the database cannot know."""

import asyncio
from importlib.util import find_spec
from shlex import quote

from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane, DatabaseControlPlane
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.errors import BackendUnavailable, SchemaInvalid
from understudy.ports.registry.registry import ChangedPolicy, VersionRecord

MAX_SECONDS = 4.0
"""In which it is called, after the change was made."""


async def champion_warning(control_plane: ControlPlane, changed: ChangedPolicy) -> list[Text]:
    """Return what keeps a champion that a change made from answering; nothing where it does, or is not known.

    Model servers are called from here, so a command that goes to a proxy calls none.
    """
    before, after = changed
    if before is not None and before.champion == after.champion:
        return []
    if not isinstance(control_plane, DatabaseControlPlane) or find_spec("grpc") is None:
        return []
    record = await control_plane.registry.show_version(after.model_name, after.champion)
    try:
        async with asyncio.timeout(MAX_SECONDS):
            problem = await _problem_of(record)
    except (BackendUnavailable, SchemaInvalid, TimeoutError):
        return []
    if not problem:
        return []
    named = f"{quote(record.model_name)} {quote(record.version)}"
    return [
        Text("! ", "yellow").append(f"{record.version} answers no call from here: {problem}"),
        Text(f"  → understudy version check {named} says more; understudy version add-endpoint {named} HOST:PORT"),
    ]


async def _problem_of(record: VersionRecord) -> str:
    """Return why a version does not answer example calls; empty where it does."""
    # gRPC, numpy and structlog: other changes of a policy do without.
    from understudy.bootstrap.upstream.backends import try_version  # noqa: PLC0415
    from understudy.core.routing.policy_document import version_from_row  # noqa: PLC0415
    from understudy.entrypoints.logs import keep_log_off_output  # noqa: PLC0415

    keep_log_off_output()
    version = version_from_row(record.model_name, record._asdict())
    servers, result = await try_version(settings_with_demo(lambda _: None), version)
    if result is not None:
        return "" if result.passed else result.detail
    return "; ".join(f"{server.endpoint}: {server.problem}" for server in servers) or "it has no model server"
