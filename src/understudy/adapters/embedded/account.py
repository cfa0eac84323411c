"""The account that an embedded Postgres runs as: Postgres refuses to run as root."""

import os
import pwd
import stat
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from understudy.errors import RegistryUnavailable


class Account(NamedTuple):
    """The unprivileged user that root hands the server to."""

    uid: int
    gid: int


def account_to_drop_to() -> Account | None:
    """Return the account that the server runs as; ``None``: the one of this process, which is not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    return Account(65_534, 65_534)


def process_options(account: Account | None) -> dict[str, Any]:
    """Return how ``subprocess`` starts a program as the account, without the caller's ``PG*``, locale and libraries."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
    drop = {"user": account.uid, "group": account.gid, "extra_groups": []} if account is not None else {}
    return {"cwd": "/", "env": environment, **drop}


def is_reachable(path: Path, account: Account | None) -> bool:
    """Whether the account may walk down to ``path`` (links followed) and into it."""
    place = path.resolve()
    folders = (place, *place.parents)
    return account is None or all(_may_enter(folder.stat(), account) for folder in folders if folder.exists())


def reachable_temporary_folder(account: Account) -> Path:
    """Return a folder for temporary files that the account can reach.

    Raises:
        RegistryUnavailable: There is none.
    """
    # /var/tmp first: it outlives a reboot, as a demo's data should
    for folder in (Path("/var/tmp"), Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - mkdtemp makes the name
        if folder.is_dir() and is_reachable(folder, account):
            return folder
    raise RegistryUnavailable("no folder that an unprivileged account can reach", hint="Run as another user than root.")


def _may_enter(found: os.stat_result, account: Account) -> bool:
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)
