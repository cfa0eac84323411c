"""pgbouncer in transaction mode, before a Postgres."""

import asyncio
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from rigs.faults.not_here import NotHere
from understudy.adapters.embedded.loopback_ports import free_port

SERVER_CONNECTIONS = 2
"""Fewer than clients, so that a client meets now one server and now the other."""
START_SECONDS = 10.0
_STOP_SECONDS = 10.0
_CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={server.port} user={server.username}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
logfile = {log}
log_connections = 1
"""


@dataclass
class Pooler:
    """A pgbouncer that runs."""

    port: int
    log: Path

    @property
    def logins(self) -> int:
        """How many clients it let in since it started."""
        return self.log.read_text().count("login attempt")


@asynccontextmanager
async def a_pooler(server_url: str, folder: Path) -> AsyncIterator[Pooler]:
    """Run a pgbouncer before every database of a server.

    Args:
        server_url: Of any of its databases; everybody is that login.
        folder: Is made; other accounts must be able to walk to it.

    Raises:
        NotHere: It is not installed.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise NotHere("pgbouncer is not installed")
    server = urlsplit(server_url)
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it will not run as root
    folder.mkdir()
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
    pooler = Pooler(free_port(), folder / "pgbouncer.log")
    written = folder / "pgbouncer.ini"
    written.write_text(_CONFIGURATION.format(server=server, port=pooler.port, log=pooler.log, size=SERVER_CONNECTIONS))
    process = subprocess.Popen(
        [program, "-q", str(written)],
        stdin=subprocess.DEVNULL,
        cwd="/",
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )
    try:
        await _until_it_answers(process, pooler, server.username or "")
        yield pooler
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, _STOP_SECONDS)


async def _until_it_answers(process: "subprocess.Popen[bytes]", pooler: Pooler, user: str) -> None:
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            connection = await asyncpg.connect(
                f"postgresql://{user}@127.0.0.1:{pooler.port}/postgres", statement_cache_size=0, timeout=START_SECONDS
            )
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            if process.poll() is not None or time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.05)
        else:
            await connection.close()
            return
