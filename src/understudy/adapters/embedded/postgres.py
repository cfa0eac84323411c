"""An embedded Postgres for the demo and the tests: the programs of a wheel (or of the system) as a child process.

Never for production: no TLS, one superuser, and trust on the loopback address unless it gets a password (the demo gives
it one, tests do not). ``DATABASE_URL`` replaces it.
"""

import fcntl
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Self, TextIO

from understudy.adapters.embedded.account import account_to_drop_to, is_reachable, reachable_temporary_folder
from understudy.adapters.embedded.child_process import POLL_SECONDS, end, is_alive
from understudy.adapters.embedded.cluster import DATABASE, HINT, USER, Cluster
from understudy.adapters.embedded.installations import Installation, find_installations, reachable_installation
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.errors import RegistryUnavailable

START_SECONDS = 60.0
STOP_SECONDS = 15.0
_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class EmbeddedPostgres:
    """One cluster under ``data_dir`` and its server process.

    Several processes may start the same folder: one of them owns the server, the others use it. The owner holds a lock
    on ``owner.lock``; the kernel releases it when the owner dies, and the next start takes the orphan over.

    Postgres refuses to run as root, so root hands it to an unprivileged account; a data folder that the account
    cannot reach (a home of mode 0700) is relocated, and ``data_dir/relocated`` is a link to the new one.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        installations: Sequence[Installation] | None = None,
        password: str | None = None,
    ) -> None:
        """Prepare; no file or process is touched before :meth:`start`.

        Args:
            data_dir: Made when missing. The cluster, its log and the lock lie in it.
            port: Of 127.0.0.1; by default a free one, kept for later starts of this object.
            parameters: More ``postgresql.conf`` settings, such as ``{"fsync": "off"}`` in tests.
            installations: Which Postgres to choose from, best first; by default :func:`find_installations`.
            password: Asked of every client from this start on. ``None``: every process of this machine may connect.

        Raises:
            ValueError: The password has other characters than letters, digits, ``-`` and ``_``.
        """
        if password is not None and re.fullmatch(r"[A-Za-z0-9_-]+", password) is None:
            raise ValueError("expected a password of letters, digits, - and _")
        self._password = password
        self._data_dir = data_dir.absolute()
        self._port = port
        self._fixed_port = port is not None
        self._parameters = dict(parameters or {})
        self._account = account_to_drop_to()
        self._installations = installations
        self._installation: Installation | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._lock: TextIO | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The postmaster's process id while it runs."""
        return self._pid if self._pid is not None and is_alive(self._pid) else None

    @property
    def version(self) -> str:
        """The server's version, such as ``18.4``."""
        return self._chosen().version

    @property
    def url(self) -> str:
        """Where clients connect, with the password."""
        account = USER if self._password is None else f"{USER}:{self._password}"
        return f"postgresql://{account}@127.0.0.1:{self._port}/{DATABASE}"

    @property
    def log_path(self) -> Path:
        """The server's log of this start; the one before it is beside it as ``postgres.log.1``."""
        return self._cluster.log_path

    @property
    def _cluster(self) -> Cluster:
        return Cluster(self._home(), self._account)

    def start(self) -> str:
        """Start the server, or join the one that another process started; return its URL.

        Raises:
            RegistryUnavailable: No Postgres was found, or it did not start.
        """
        if self.pid is not None:
            return self.url
        self.stop()  # it may have crashed: release what is left of it
        give_up = time.monotonic() + START_SECONDS
        self._data_dir.mkdir(parents=True, exist_ok=True)
        while not self._take_ownership():
            if self._join():
                return self.url
            _wait(give_up, f"another process is starting {self._data_dir} and does not finish")
        try:
            if not self._join():
                self._start_owned(give_up)
        except BaseException:
            self.stop("immediate")
            raise
        return self.url

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop the server if this object owns it, and wait for its end; harder when it takes over 15 seconds."""
        if self._lock is not None:
            self._end([(_STOP_SIGNALS[mode], STOP_SECONDS), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)])
        else:
            self._pid = None

    def kill(self) -> None:
        """End the postmaster with SIGKILL, as a crash would; :meth:`start` brings it back on the same port."""
        self._end([(signal.SIGKILL, 5.0)])

    def remove(self) -> None:
        """Stop the server and delete the cluster with all its data."""
        self.stop("immediate")
        link = self._data_dir / "relocated"
        if link.is_symlink():
            shutil.rmtree(link.resolve(), ignore_errors=True)
        shutil.rmtree(self._data_dir, ignore_errors=True)

    def _end(self, signals: Sequence[tuple[signal.Signals, float]]) -> None:
        if self._pid is not None:
            end(self._pid, signals, self._process)
        if self._lock is not None:
            self._lock.close()
        self._lock = self._process = self._pid = None

    def _take_ownership(self) -> bool:
        lock = (self._data_dir / "owner.lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        self._lock = lock
        return True

    def _join(self) -> bool:
        """Use the server that already runs on the cluster, if it is ready."""
        found = self._cluster.postmaster()
        if found is None or not found.ready:
            return False
        self._pid, self._port = found.pid, found.port
        return True

    def _start_owned(self, give_up: float) -> None:
        cluster, installation = self._cluster, self._chosen()
        if not cluster.path.exists():
            cluster.create(installation)
        while True:
            # A postmaster whose owner was killed may still recover or shut down.
            while cluster.postmaster() is not None:
                _wait(give_up, f"a Postgres on {cluster.path} neither gets ready nor ends")
            if self._password is not None:
                cluster.require_password(installation, self._password)
            if self._port is None:
                self._port = free_port()
            self._process = cluster.launch(installation, self._port, self._parameters)
            self._pid = self._process.pid
            if _became_ready(cluster, self._process, give_up):
                return
            log = cluster.end_of_log()
            if "could not create any TCP/IP sockets" in log and not self._fixed_port:
                self._port = None
            elif "shared memory block" not in log:  # those of a killed postmaster are freed within moments
                raise RegistryUnavailable(
                    f"the embedded Postgres did not start, see {cluster.log_path}: {log}", hint=HINT
                )
            _wait(give_up, f"the embedded Postgres did not start, see {cluster.log_path}: {log}")

    def _home(self) -> Path:
        """Return a folder that the server's account can reach: ``data_dir``, or the relocated one."""
        if self._account is None or is_reachable(self._data_dir, self._account):
            return self._data_dir
        link = self._data_dir / "relocated"
        if link.is_symlink() and link.exists():
            return link.resolve()
        if not self._data_dir.exists():
            return self._data_dir
        link.unlink(missing_ok=True)
        home = Path(tempfile.mkdtemp(prefix="understudy-pg-", dir=reachable_temporary_folder(self._account)))
        home.chmod(0o755)
        link.symlink_to(home)
        return home

    def _chosen(self) -> Installation:
        """Return the Postgres to use: of the cluster's own major version once there is a cluster."""
        if self._installation is None:
            cluster = self._cluster
            installations = find_installations() if self._installations is None else self._installations
            major = cluster.major
            fitting = [found for found in installations if major is None or str(found.major) == major]
            if not fitting:
                wanted = f"Postgres {major}, which made {cluster.path}," if major else "Postgres 15 or newer"
                raise RegistryUnavailable(f"no {wanted} was found on this machine", hint=HINT)
            self._installation = reachable_installation(fitting[0], self._account, cluster.home)
        return self._installation


def _became_ready(cluster: Cluster, process: subprocess.Popen[bytes], give_up: float) -> bool:
    while process.poll() is None:
        found = cluster.announced()
        if found is not None and found.pid == process.pid and found.ready:
            return True
        _wait(give_up, f"the embedded Postgres does not get ready, see {cluster.log_path}: {cluster.end_of_log()}")
    return False


def _wait(give_up: float, why: str) -> None:
    if time.monotonic() > give_up:
        raise RegistryUnavailable(why, hint=HINT)
    time.sleep(POLL_SECONDS)
