"""A primary with a synchronous standby, for failovers."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from e2e.stack import sql

from understudy.adapters.embedded.installations import find_installations
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade

BACKUP_SECONDS = 60
_STREAMING = "SELECT count(*) AS n FROM pg_stat_replication WHERE state = 'streaming'"


@dataclass
class Pair:
    """Two clusters of which the second follows the first."""

    primary: EmbeddedPostgres
    standby: EmbeddedPostgres

    async def promote(self) -> None:
        """End the primary at once and make the standby one."""
        await asyncio.to_thread(self.primary.stop, "immediate")
        await sql(self.standby.url, "SELECT pg_promote()")


@asynccontextmanager
async def a_cluster_with_standby(folder: Path, *, synchronous: bool) -> AsyncIterator[Pair]:
    """Start a migrated primary and a standby that streams from it.

    Args:
        folder: Of both clusters.
        synchronous: Whether a commit waits for the standby: without that a failover may lose what was committed.
    """
    primary, standby = EmbeddedPostgres(folder / "primary"), EmbeddedPostgres(folder / "standby")
    try:
        await asyncio.to_thread(primary.start)
        await upgrade(primary.url)
        await asyncio.to_thread(_back_up, primary, folder / "standby" / "cluster")
        await asyncio.to_thread(standby.start)
        give_up = time.monotonic() + BACKUP_SECONDS
        while not (await sql(primary.url, _STREAMING))[0]["n"]:
            if time.monotonic() > give_up:
                raise TimeoutError("the standby does not stream")
            await asyncio.sleep(0.1)
        if synchronous:
            await sql(primary.url, "ALTER SYSTEM SET synchronous_standby_names = '*'")
            await sql(primary.url, "SELECT pg_reload_conf()")
        yield Pair(primary, standby)
    finally:
        await asyncio.to_thread(standby.remove)
        await asyncio.to_thread(primary.remove)


def _back_up(primary: EmbeddedPostgres, target: Path) -> None:
    installation = next(one for one in find_installations() if one.version == primary.version)
    place = urlsplit(primary.url)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Of the account that runs the primary: ours may be root, whom Postgres refuses.
    owner = _owner_of(primary)
    command = [installation.binary("pg_basebackup"), "-D", str(target), "-R", "-X", "stream", "-c", "fast"]
    command += ["-h", "127.0.0.1", "-p", str(place.port), "-U", str(place.username)]
    subprocess.run(command, check=True, capture_output=True, timeout=BACKUP_SECONDS)
    if os.geteuid() == 0:
        for found in (target, *target.rglob("*")):
            os.lchown(found, *owner)


def _owner_of(server: EmbeddedPostgres) -> tuple[int, int]:
    found = Path(f"/proc/{server.pid}").stat()
    return found.st_uid, found.st_gid
