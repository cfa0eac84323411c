"""The actor of a command: the user of this machine, for the audit."""

import getpass
import socket

from understudy.ports.registry.registry import Actor


def actor_of_command(reason: str | None) -> Actor:
    """Return the user of this machine as the actor of a change."""
    return Actor(name=this_person(), via="cli", reason=reason)


def this_person() -> str:
    """Return the user of this machine as ``name@host``; a container may have no name for its user id."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"
