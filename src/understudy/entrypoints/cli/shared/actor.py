"""Who sits at this command line."""

import getpass
import socket

from understudy.ports.registry import Actor


def actor_of_command(reason: str | None) -> Actor:
    """Return who sits at this command line, for the audit."""
    return Actor(name=this_person(), via="cli", reason=reason)


def this_person() -> str:
    """Return the user of this machine as ``name@host``; a container may have no name for its user id."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"
