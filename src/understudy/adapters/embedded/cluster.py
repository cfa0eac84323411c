"""A Postgres cluster on disk: how it is made, how its server is started, and which server runs on it."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from understudy.adapters.embedded.account import Account, process_options
from understudy.adapters.embedded.child_process import is_alive, shown_by_ps
from understudy.adapters.embedded.installations import Installation
from understudy.errors import RegistryUnavailable

DATABASE = "understudy"
USER = "understudy"
INITDB_SECONDS = 60.0
HINT = "Set DATABASE_URL to a Postgres of your own (15 to 18), or look into the log that the detail names."


_RULES = """\
# Made by Understudy for the password {digest}: no one gets in without it.
host all all 127.0.0.1/32 scram-sha-256
"""


class Postmaster(NamedTuple):
    """A server as ``postmaster.pid`` describes it."""

    pid: int
    port: int
    ready: bool


class Cluster(NamedTuple):
    """A cluster in the folder ``home``, beside the log of its server; both belong to ``account``."""

    home: Path
    account: Account | None

    @property
    def path(self) -> Path:
        """The folder that Postgres calls the data directory."""
        return self.home / "cluster"

    @property
    def log_path(self) -> Path:
        """The log of the server's last start; the one before it is beside it as ``postgres.log.1``."""
        return self.home / "postgres.log"

    @property
    def major(self) -> str | None:
        """The major version that made the cluster, and that alone can run it; ``None`` before it is made."""
        made_by = self.path / "PG_VERSION"
        return made_by.read_text().strip() if made_by.exists() else None

    def create(self, installation: Installation) -> None:
        """Make the cluster beside its place and move it there, so that a crash half-way leaves none.

        Raises:
            RegistryUnavailable: A program failed.
        """
        unfinished = self.path.with_name("cluster.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        if self.account is not None:
            os.chown(unfinished, *self.account)
        initdb = [installation.binary("initdb"), "-D", str(unfinished), "-U", USER, "--auth=trust", "--encoding=UTF8"]
        self._run([*initdb, "--locale=C", "--no-sync", "--no-instructions"])
        # Without fsync, as initdb above: a machine that stops now loses a cluster that nothing was written to.
        single = [*_single_user(installation, unfinished), "-F", "postgres"]
        self._run(single, f"CREATE DATABASE {DATABASE};\n".encode())
        unfinished.rename(self.path)

    def require_password(self, installation: Installation, password: str) -> None:
        """Have the next server of this cluster ask for the password; no server may run on it now.

        A cluster that asks for this one already is left as it is, so only the first start takes the time.

        Args:
            installation: Whose Postgres made the cluster.
            password: Letters, digits, ``-`` and ``_`` only: it is written into a statement.

        Raises:
            RegistryUnavailable: Postgres failed, or refused the statement; the next start tries again.
        """
        access = self.path / "pg_hba.conf"
        rules = _RULES.format(digest=hashlib.sha256(password.encode()).hexdigest()[:16])
        if access.exists() and access.read_text() == rules:
            return
        (self.path / "postmaster.pid").unlink(missing_ok=True)
        # With fsync: the cluster has data, and the rules below are only as good as the password that they ask for.
        single = [*_single_user(installation, self.path), "postgres"]
        self._run(single, f"ALTER ROLE {USER} PASSWORD '{password}';\n".encode(), secret=password)
        access.write_text(rules)  # last: a start that ends before this begins again

    def launch(self, installation: Installation, port: int, parameters: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a server on 127.0.0.1, with a new log; it is not ready yet."""
        (self.path / "postmaster.pid").unlink(missing_ok=True)
        if self.log_path.exists():
            self.log_path.replace(self.log_path.with_name("postgres.log.1"))
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",  # a path over about 100 bytes would be refused; TCP needs none
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "logging_collector": "off",
            **parameters,
        }
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        with self.log_path.open("wb") as log:
            return subprocess.Popen(
                [installation.binary("postgres"), "-D", str(self.path), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for this process, which stops the server last
                **process_options(self.account),
            )

    def postmaster(self) -> Postmaster | None:
        """Return the live server of this cluster, also one that another process started."""
        found = self.announced()
        return found if found is not None and self._is_run_by(found.pid) else None

    def announced(self) -> Postmaster | None:
        """Return the server of ``postmaster.pid`` (lines 1, 4 and 8), or ``None`` while the file is incomplete."""
        try:
            lines = (self.path / "postmaster.pid").read_text().splitlines()
            return Postmaster(int(lines[0]), int(lines[3]), len(lines) > 7 and lines[7].strip() == "ready")  # noqa: PLR2004 - line numbers of postmaster.pid
        except (OSError, ValueError, IndexError):
            return None

    def end_of_log(self) -> str:
        """Return the last lines of the server's log."""
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        return " / ".join(lines[-4:])

    def _is_run_by(self, pid: int) -> bool:
        """Whether the process is a live postmaster of this cluster, and no other one that got its number."""
        if not is_alive(pid):
            return False
        try:
            return Path(f"/proc/{pid}/cwd").readlink() == self.path.resolve()
        except PermissionError:
            return False
        except OSError:  # macOS has no /proc
            return str(self.path) in shown_by_ps("command", pid)

    def _run(self, command: list[str], stdin: bytes = b"", *, secret: str = "") -> None:
        try:
            done = subprocess.run(
                command,
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=INITDB_SECONDS,
                check=False,
                **process_options(self.account),
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise RegistryUnavailable(f"{command[0]}: {problem}", hint=HINT) from problem
        if done.returncode != 0:
            output = done.stdout.decode(errors="replace").strip()
            output = output.replace(secret, "…") if secret else output
            raise RegistryUnavailable(f"{command[0]} failed: {output}", hint=HINT)


def _single_user(installation: Installation, data: Path) -> list[str]:
    """Return the command for statements of a cluster that has no server, to which the name of a database is added."""
    # By itself it goes on after a statement that failed, and exits with 0.
    return [installation.binary("postgres"), "--single", "-D", str(data), "-c", "exit_on_error=on"]
