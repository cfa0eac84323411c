"""Builds the image with buildah on a base made here, and has every process of it do its work as in a cluster.

``make image-proof`` (as root, on Linux, with Debian's packages buildah and debootstrap). The base stands in for the
Dockerfile's own, which comes from a registry: a minimal Debian with Python. Everything that is peculiar to this place
(certificate authorities, package indexes) goes there, so that none of it is in the Dockerfile.

Each container has a read-only root, the image's own user, no capability and no way to new privileges, its own process
and mount namespaces; /tmp and the state folder can be written, secrets are files. Postgres runs outside of them.
"""

import argparse
import asyncio
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from understudy.adapters.dev_server.example_models import example_rows
from understudy.adapters.embedded.installations import find_installations
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.postgres import EmbeddedPostgres

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "image-proof"
SUITE = "bookworm"
BASE = "localhost/understudy-stand-in:1"
IMAGE = "localhost/understudy:proof"
PACKAGES = "python3,python3-venv,ca-certificates"
OF_THIS_PLACE = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "http_proxy", "https_proxy", "no_proxy")
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
CALLS = 50
START_SECONDS, END_SECONDS, BUILD_SECONDS = 60.0, 60.0, 900.0
STATE, SECRETS = "/var/lib/understudy", "/run/secrets"
NOT_HERE = 69
ENDED_WELL = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
"""uvicorn drains, and then takes the signal again."""

# In namespaces of its own: a root that nobody can write to, and then the image's user with nothing but that.
ENTER = f"""
set -eu
root=$1 state=$2 secrets=$3 user=$4
shift 4
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777,size=64m,nosuid,nodev tmpfs "$root/tmp"
mount --bind "$state" "$root{STATE}"
mount --bind "$secrets" "$root{SECRETS}"
mount -o remount,bind,ro "$root{SECRETS}"
mount -o remount,bind,ro "$root"
exec chroot "$root" setpriv --reuid="${{user%:*}}" --regid="${{user#*:}}" --clear-groups --no-new-privs \\
  --bounding-set=-all --inh-caps=-all "$@"
"""


class ProofFailed(Exception):
    """The image does not do what it should."""


class Built(NamedTuple):
    """A built image, mounted: where, and what its configuration says."""

    root: str
    user: str
    environment: dict[str, str]
    entrypoint: list[str]


def say(text: str) -> None:
    print(text, flush=True)


def must(is_so: object, what: str) -> None:
    if not is_so:
        raise ProofFailed(what)
    say(f"✔ {what}")


def run(command: Sequence[str], *, seconds: float = BUILD_SECONDS, **more: Any) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, **more)
    if done.returncode != 0:
        said = f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
        raise ProofFailed(f"{' '.join(command[:4])} … ended with {done.returncode}:\n{said}")
    return done.stdout


# -- the image ---------------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return the environment of buildah: storage of its own, and no namespaces that a container here may not have."""
    storage = WORK / "storage.conf"
    driver = os.environ.get("STORAGE_DRIVER", "vfs")
    WORK.mkdir(parents=True, exist_ok=True)
    storage.write_text(f'[storage]\ndriver = "{driver}"\ngraphroot = "{WORK}/graph"\nrunroot = "{WORK}/run"\n')
    return {
        **os.environ,
        "CONTAINERS_STORAGE_CONF": str(storage),
        "STORAGE_DRIVER": driver,
        "BUILDAH_ISOLATION": "chroot",
        "TMPDIR": str(_made(WORK / "tmp")),
    }


def make_base(env: Mapping[str, str], mirror: Sequence[str]) -> None:
    """Make the stand-in base, unless an earlier run has; ``mirror`` is where from, or nothing."""
    known = subprocess.run(["buildah", "inspect", "--type", "image", BASE], env=env, capture_output=True, check=False)
    if known.returncode == 0:
        say(f"✔ {BASE} is there already")
        return
    began = time.monotonic()
    folder = WORK / "debian"
    shutil.rmtree(folder, ignore_errors=True)
    run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder), *mirror])
    shutil.copy2(AUTHORITIES, folder / AUTHORITIES.relative_to("/"))
    container = run(["buildah", "from", "scratch"], env=env).strip()
    # Neither what debootstrap may have left mounted, nor devices, which a container gets of its own.
    archive = WORK / "debian.tar"
    left_out = [f"--exclude=./{path}/*" for path in ("dev", "proc", "sys", "var/cache/apt/archives")]
    run(["tar", "--one-file-system", *left_out, "--create", "--file", str(archive), "--directory", str(folder), "."])
    run(["buildah", "add", "--quiet", container, str(archive), "/"], env=env)
    archive.unlink()
    given = {name: os.environ[name] for name in OF_THIS_PLACE if name in os.environ} | {"PIP_CERT": str(AUTHORITIES)}
    run(["buildah", "config", *(f"--env={name}={value}" for name, value in given.items()), container], env=env)
    run(["buildah", "commit", "--quiet", "--rm", container, BASE], env=env)
    shutil.rmtree(folder, ignore_errors=True)
    say(f"✔ a Debian {SUITE} with Python, as the base, in {time.monotonic() - began:.0f} s")


def build(env: Mapping[str, str], base: str) -> Built:
    """Build with ``make image``, and mount what came of it."""
    began = time.monotonic()
    made = {**env, "BUILDER": "buildah", "BASE": base, "IMAGE": IMAGE}
    run(["make", "--no-print-directory", "image"], env=made, cwd=ROOT)
    say(f"✔ make image, with buildah, in {time.monotonic() - began:.0f} s")
    config = json.loads(run(["buildah", "inspect", "--type", "image", IMAGE], env=env))["OCIv1"]["config"]
    labels = config.get("Labels", {})
    must(config.get("User") == "10001:10001", "the image's user is 10001:10001")
    title = labels.get("org.opencontainers.image.title")
    must("org.opencontainers.image.version" in labels, f"it says what it is: {title}")
    container = run(["buildah", "from", IMAGE], env=env).strip()
    asked = ["buildah", "run", "--isolation", "chroot", container, "--", *config["Entrypoint"], "--version"]
    version = run(asked, env=env)
    must(version.startswith("understudy "), f"buildah run: {version.strip()}")
    root = run(["buildah", "mount", container], env=env).strip()
    _made(Path(f"{root}{SECRETS}"))
    variables = dict(entry.split("=", 1) for entry in config["Env"])
    size = int(run(["du", "--summarize", "--bytes", f"{root}/opt/understudy"]).split()[0])
    say(f"  /opt/understudy is {size / 1e6:.0f} MB")
    return Built(root, config["User"], variables, config["Entrypoint"])


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# -- containers --------------------------------------------------------------------------------------------------------


class Container:
    """A process of the image in namespaces of its own, on this machine's network."""

    def __init__(
        self, built: Built, folder: Path, name: str, command: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        self.name = name
        self.state = _made(folder / "state" / name)
        os.chown(self.state, *map(int, built.user.split(":")))
        self.log = folder / f"{name}.log"
        given = [f"{key}={value}" for key, value in {**built.environment, "HOME": STATE, **variables}.items()]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "enter", built.root,
                 str(self.state), str(folder / "secrets"), built.user, "env", "-i", *given, *command],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def pid(self) -> int:
        """Return the process id, seen from here, of what is process 1 in there."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def ended(self) -> int:
        """Wait for the end; return the exit status."""
        return self.process.wait(END_SECONDS)

    def stop(self) -> int:
        """Ask it to end, as a cluster does, and return the exit status."""
        if self.process.poll() is None:
            os.kill(self.pid(), signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_SECONDS)

    def said(self) -> str:
        """Return what it printed."""
        return self.log.read_text(errors="replace")[-3000:]


class Containers:
    """Starts containers of one image, and ends what is left of them."""

    def __init__(self, built: Built, folder: Path) -> None:
        self._built = built
        self._folder = folder
        self._all: list[Container] = []

    def start(self, name: str, *arguments: str, entrypoint: Sequence[str] | None = None, **variables: str) -> Container:
        """Start one; ``variables`` are added to the image's."""
        command = [*(self._built.entrypoint if entrypoint is None else entrypoint), *arguments]
        container = Container(self._built, self._folder, name, command, variables)
        self._all.append(container)
        return container

    def finish(self, name: str, *arguments: str, **variables: str) -> str:
        """Run one to its end; it has to end well."""
        container = self.start(name, *arguments, **variables)
        status = container.ended()
        if status != 0:
            raise ProofFailed(f"{name} ended with {status}:\n{container.said()}")
        say(f"✔ understudy {' '.join(arguments[:2])}")
        return container.said()

    def kill(self) -> None:
        """End all of them, whatever they do."""
        for container in self._all:
            container.kill()


# -- the proof ---------------------------------------------------------------------------------------------------------


@contextmanager
def postgres(folder: Path) -> Iterator[tuple[str, int]]:
    """Start a Postgres beside the containers, with the logins that compose and dev have; give its URL and port."""
    server = EmbeddedPostgres(folder / "pg")
    url = server.start()
    try:
        port = int(url.rpartition(":")[2].partition("/")[0])
        secrets = folder / "secrets"
        place = f"127.0.0.1:{port}/understudy"
        run([sys.executable, "tools/make_secrets.py", str(secrets), "--database", place], cwd=ROOT)
        folders = [str(Path(one.binary("psql")).parent) for one in find_installations()]
        env = {
            **os.environ,
            "PATH": os.pathsep.join([os.environ["PATH"], *folders]),
            "PGHOST": "127.0.0.1",
            "PGPORT": str(port),
            "POSTGRES_USER": url.partition("://")[2].partition("@")[0].partition(":")[0],
            "SECRETS": str(secrets),
        }
        run(["sh", "deploy/compose/create-logins.sh"], cwd=ROOT, env=env)
        secrets.chmod(0o755)  # a bind of the folder, where compose binds single files
        yield url, port
    finally:
        server.remove()


def prove(built: Built, folder: Path) -> None:
    """Have the processes of the image work together, and look at how they run."""
    with ExitStack() as stack:
        url, _port = stack.enter_context(postgres(folder))
        containers = Containers(built, folder)
        stack.callback(containers.kill)
        containers.finish("migrate", "db", "upgrade", DATABASE_URL_FILE=f"{SECRETS}/owner_url")
        model_port, port, monitor_port = free_port(), free_port(), free_port()
        serve = [word for spec in ("visits:1", "visits:2", "visits:4", "digits:1") for word in ("--serve", spec)]
        models = containers.start("modelserver", "modelserver", "--port", str(model_port), *serve)
        until(lambda: '"port"' in models.said(), models)
        containers.finish(
            "register", "examples", "register", "--endpoint", f"127.0.0.1:{model_port}", "--key-file", f"{STATE}/key",
            DATABASE_URL_FILE=f"{SECRETS}/owner_url",
        )  # fmt: skip
        key = (folder / "state" / "register" / "key").read_text().strip()
        containers.finish("partitions", "db", "partitions", DATABASE_URL_FILE=f"{SECRETS}/monitor_url")
        monitor = containers.start(
            "monitor", "serve", "monitor",
            UNDERSTUDY_METRICS_HOST="127.0.0.1", UNDERSTUDY_MONITOR_METRICS_PORT=str(monitor_port),
            DATABASE_URL_FILE=f"{SECRETS}/monitor_url",
            UNDERSTUDY_RETENTION_DATABASE_URL_FILE=f"{SECRETS}/retention_url",
        )  # fmt: skip
        began = time.monotonic()
        proxy = containers.start(
            "proxy", "serve", "proxy", UNDERSTUDY_HOST="127.0.0.1", UNDERSTUDY_PORT=str(port), UNDERSTUDY_AUTH="true",
            UNDERSTUDY_METRICS_HOST="127.0.0.1", UNDERSTUDY_METRICS_PORT=str(free_port()),
            DATABASE_URL_FILE=f"{SECRETS}/proxy_url", UNDERSTUDY_CONTROL_DATABASE_URL_FILE=f"{SECRETS}/engineer_url",
        )  # fmt: skip
        until(lambda: get(port, "/readyz") == 200, proxy)  # noqa: PLR2004 - OK
        say(f"✔ the proxy is ready after {time.monotonic() - began:.1f} s")
        until(lambda: get(monitor_port, "/livez") == 200, monitor)  # noqa: PLR2004 - OK
        say("✔ the monitor lives")
        call(port, key)
        is_confined(proxy)
        is_confined(monitor)
        cannot_write(containers)
        must(proxy.stop() in ENDED_WELL, "the proxy ends well when it is told to")
        must(monitor.stop() == 0, "the monitor does, too")
        models.stop()
        rows, calls, owner = asyncio.run(look(url))
        must(rows == calls == CALLS, f"{calls} of {CALLS} answered calls are in the log, in {rows} rows")
        must(owner == "owner_login", f"the tables are {owner}'s, and no process has that login")


def call(port: int, key: str) -> None:
    """Make calls, first without a key."""
    body = json.dumps({"entity_id": "customer-42", "inputs": example_rows("visits")[0].inputs})
    must(post(port, body, None)[0] == http.client.UNAUTHORIZED, "a call without a key is refused")
    rows = example_rows("visits")
    for number in range(CALLS):
        row = rows[number % len(rows)]
        status, answer = post(port, json.dumps({"entity_id": f"customer-{number}", "inputs": row.inputs}), key)
        if status != http.client.OK:
            raise ProofFailed(f"call {number}: {status} {answer!r}")
    must(json.loads(answer)["role"] == "champion", f"{CALLS} calls with one are answered: {answer.decode()}")


def is_confined(container: Container) -> None:
    """Look at the process from outside: who it is, what it may, and what it can write to."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{container.pid()}/status").read_text().splitlines() if ":" in line
    )
    must(status["Uid"].split() == ["10001"] * 4, f"{container.name}: user 10001")
    rights = [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd")]
    must(not any(rights), f"{container.name}: no capability")
    must(status["NoNewPrivs"].strip() == "1", f"{container.name}: no way to new privileges")
    mounts = [line.split() for line in Path(f"/proc/{container.pid()}/mountinfo").read_text().splitlines()]
    root = [mount[5] for mount in mounts if mount[4] == "/"][-1]
    must("ro" in root.split(","), f"{container.name}: a read-only root ({root})")


def cannot_write(containers: Containers) -> None:
    """Try to write where nobody should be able to, and where everybody must."""
    script = (
        "import errno, pathlib, sys\n"
        "for place in ('/', '/opt/understudy', '/etc', '/run/secrets'):\n"
        "    try:\n"
        "        pathlib.Path(place, 'planted').touch()\n"
        "    except OSError as problem:\n"
        "        assert problem.errno in (errno.EROFS, errno.EACCES), problem\n"
        "    else:\n"
        "        sys.exit(f'{place} can be written to')\n"
        "for place in ('/tmp', '/var/lib/understudy'):\n"
        "    pathlib.Path(place, 'written').write_text('x')\n"
        "import understudy.serving.turn as module\n"
        "assert pathlib.Path(module.__cached__).is_file(), 'no bytecode'\n"
    )
    container = containers.start("writer", "-c", script, entrypoint=["python"])
    if container.ended() != 0:
        raise ProofFailed(container.said())
    say("✔ nothing but /tmp and the state can be written, and bytecode is there")


async def look(url: str) -> tuple[int, int, str]:
    """Return the rows of the champion, how many calls they are of, and whose the tables are."""
    count = "SELECT count(*), count(DISTINCT prediction_id) FROM PredictionLog WHERE role = 'champion'"
    connection = await asyncpg.connect(url, timeout=10)
    try:
        rows, calls = await connection.fetchrow(count)
        owner = await connection.fetchval("SELECT tableowner FROM pg_tables WHERE tablename = 'predictionlog'")
    finally:
        await connection.close()
    return int(rows), int(calls), str(owner)


def until(is_so: Callable[[], bool], container: Container) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        if container.process.poll() is not None or time.monotonic() > deadline:
            raise ProofFailed(f"{container.name} did not start:\n{container.said()}")
        time.sleep(0.1)


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def post(port: int, body: str, key: str | None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"content-type": "application/json", **({} if key is None else {"authorization": f"Bearer {key}"})}
    try:
        connection.request("POST", "/v1/models/visits/predict", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def main() -> int:
    parser = argparse.ArgumentParser("make image-proof", description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="A base image that buildah has or can get; else one is made with debootstrap.")
    parser.add_argument("--mirror", help="Where debootstrap gets Debian from; without it from where it always does.")
    options = parser.parse_args()
    needed = ("buildah", "unshare", *(() if options.base else ("debootstrap",)))
    missing = [name for name in needed if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        say("make image-proof runs as root, on Linux, with Debian's packages buildah and debootstrap.")
        say(f"Not here: {', '.join(missing) or 'root'}")
        return NOT_HERE
    env = environment()
    folder = Path(tempfile.mkdtemp(prefix="us-image-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        if options.base is None:
            make_base(env, [options.mirror] if options.mirror else [])
        prove(build(env, options.base or BASE), folder)
    except ProofFailed as problem:
        say(f"✖ {problem}")
        return 1
    finally:
        subprocess.run(["buildah", "rm", "--all"], env=env, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
    say("The image builds, and its processes work as they are.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
