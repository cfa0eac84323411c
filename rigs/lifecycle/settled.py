"""Whether everything is where it is wanted: by the policy, the records, the endpoints, and what the servers say."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from e2e.stack import sql

from rigs.lifecycle.stack import MODEL, SERVERS, LifecycleStack
from understudy.adapters.model_servers.control.repository_control import RepositoryControl
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.control.repository_layout import LAYOUTS
from understudy.core.loading.served_name import served_name
from understudy.errors import UnderstudyError

KIND: Final = "understudy"
_WANTED = "SELECT champion_version, previous_champion FROM ServingPolicy WHERE model_name = $1"
_SEEN = {
    "placed": "SELECT model_version_id, server FROM Placement",
    "available": "SELECT model_version_id, server FROM LoadedVersion WHERE state = 'AVAILABLE'",
    "under way": "SELECT model_version_id, server FROM LoadedVersion WHERE state NOT IN ('AVAILABLE', 'END')",
    "endpoints": "SELECT model_version_id, server FROM ModelEndpoint WHERE source = 'agent'",
}


async def differences(stack: LifecycleStack) -> Mapping[str, str]:
    """Return what is not as it is wanted, by where that was seen; nothing: wanted = loaded = endpoints."""
    wanted_row = (await sql(stack.url, _WANTED, MODEL))[0]
    versions = {version_id for version_id in wanted_row if version_id is not None}
    wanted = {(version_id, server) for version_id in versions for server in SERVERS}
    found = {}
    for what, query in _SEEN.items():
        seen = {(row[0], row[1]) for row in await sql(stack.url, query)}
        expected = set() if what == "under way" else wanted
        if seen != expected:
            found[what] = f"{sorted(seen)}, not {sorted(expected)}"
    labels = {version_id: label for label, version_id in stack.ids.items()}
    names = {served_name(MODEL, labels[version_id]) for version_id in versions}
    for server, member in stack.members.items():
        told = await loaded_at(member.control_port)
        if told != names:
            found[server] = "no answer" if told is None else f"has {sorted(told)}, not {sorted(names)}"
    return found


async def loaded_at(port: int) -> Collection[str] | None:
    """Return what a server says that it has, by the port of its control; ``None``: it does not answer."""
    control = RepositoryControl(f"127.0.0.1:{port}", RepositoryFolder(Path("/nowhere"), LAYOUTS[KIND]), KIND)
    try:
        return frozenset(await control.loaded())
    except UnderstudyError:
        return None
    finally:
        await control.close()
