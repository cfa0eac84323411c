"""Postgres clusters that the tests' servers begin with: made once for all workers of a run, and copied.

Making one takes a second of a processor, migrating a database in it another; copying the files takes a tenth.
"""

import asyncio
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import asyncpg
from loopback.server_folder import chosen_disk

from understudy.adapters.embedded.account import account_to_drop_to
from understudy.adapters.embedded.cluster import Cluster
from understudy.adapters.embedded.installations import Installation, find_installations, reachable_installation
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade

TEMPLATE = "understudy_template"
"""The migrated database of :func:`put_migrated_cluster`."""
_CATALOGUE = """
    SELECT string_agg(format('pg_catalog.%I', relname), ', ') FROM pg_class
    WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' AND NOT relisshared
"""
_VARIABLE = "UNDERSTUDY_TEST_CLUSTERS"
"""Tells the workers where the run's clusters are; the first process chooses the place and deletes it."""


def choose_folder() -> None:
    """Say where this run's clusters will be made; nothing is made yet."""
    os.environ[_VARIABLE] = str(chosen_disk() / f"us-pg-{uuid4().hex[:12]}")


def delete_folder() -> None:
    """Delete what was made."""
    shutil.rmtree(os.environ.pop(_VARIABLE), ignore_errors=True)


def shared_folder() -> Path:
    """Return the folder of this run, which all of its workers know; it is made here."""
    folder = Path(os.environ[_VARIABLE])
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def put_new_cluster(data_dir: Path, installations: Sequence[Installation] | None = None) -> None:
    """Have the server of ``data_dir`` begin with a cluster that was just made, with nothing in it.

    Args:
        data_dir: As :class:`EmbeddedPostgres` takes it; a folder in which there is no cluster.
        installations: Whose first one the server will be; by default those of this machine.
    """
    installation = (find_installations() if installations is None else installations)[0]
    _copy(_once(f"new-{installation.version}", lambda home: _make(home, installation)), data_dir)


def put_migrated_cluster(data_dir: Path, installations: Sequence[Installation], parameters: Mapping[str, str]) -> None:
    """Have the server of ``data_dir`` begin with a cluster that has the migrated database ``TEMPLATE``."""

    def make(home: Path) -> None:
        put_new_cluster(home, installations)
        server = EmbeddedPostgres(home, installations=installations, parameters=parameters)
        server.start()
        try:
            asyncio.run(_migrate(server.url))
        finally:
            server.stop()

    _copy(_once(f"migrated-{installations[0].version}", make), data_dir)


def _make(home: Path, installation: Installation) -> None:
    account = account_to_drop_to()
    Cluster(home, account).create(reachable_installation(installation, account, home))


async def _migrate(url: str) -> None:
    connection = await asyncpg.connect(url, timeout=60)
    await connection.execute(f"CREATE DATABASE {TEMPLATE}")
    await connection.close(timeout=5)
    migrated = f"{url.rpartition('/')[0]}/{TEMPLATE}"
    await upgrade(migrated)
    # Each migration leaves old rows in the catalogue: without them a copy for a test takes two thirds of the time. The
    # old files remain, and would be copied, until a checkpoint. Of our own tables Postgres would remember that they
    # have no row, and read them from end to end once they have.
    connection = await asyncpg.connect(migrated, timeout=60)
    tables = await connection.fetchval(_CATALOGUE)
    await connection.execute(f"VACUUM FULL {tables}")
    await connection.execute("CHECKPOINT")
    await connection.close(timeout=5)


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the home of a cluster that one of the run's workers makes, for which the others wait."""
    folder = shared_folder()
    (folder / "pg").mkdir(exist_ok=True)
    (folder / "pg" / "owner.lock").touch()  # by which a later run knows what a killed one left (server_folder.py)
    folder.chmod(0o755)
    home, made = folder / name, folder / f"{name}.made"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            home.chmod(0o755)
            make(home)
            made.touch()
    return home


def _copy(home: Path, data_dir: Path) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    # With its owner, who is not this process's when that is root's.
    subprocess.run(["cp", "-a", str(home / "cluster"), str(data_dir / "cluster")], check=True, timeout=60)
