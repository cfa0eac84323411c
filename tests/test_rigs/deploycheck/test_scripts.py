"""The scripts that deployments run: logins of the database, secrets, models from a volume."""

import asyncio
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import redis
import yaml

from rigs.deploycheck.findings import ToolMissing
from rigs.deploycheck.manifests import built_trees
from understudy.adapters.embedded.installations import find_installations
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.embedded.valkey import find_server
from understudy.adapters.migrations import check, roles_without_rights, upgrade
from understudy.adapters.redis.checkup import examine_redis

ROOT = Path(__file__).resolve().parents[3]
LOGINS = ("owner", "proxy", "monitor", "retention", "engineer", "agent")


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **variables}
    )


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    assert run(sys.executable, "tools/make_secrets.py", str(folder), "--placeholders").returncode == 0
    return folder


def test_secrets_are_made_once_agree_with_each_other_and_are_in_a_folder_of_ones_own(secrets):
    before = {path.name: path.read_text() for path in secrets.iterdir()}

    assert run(sys.executable, "tools/make_secrets.py", str(secrets)).returncode == 0

    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    assert secrets.stat().st_mode & 0o777 == 0o700
    for login in LOGINS:
        url = urlsplit(before[f"{login}_url"].strip())
        assert (url.username, url.password) == (f"{login}_login", before[f"{login}_password"].strip())
        assert (url.hostname, url.port, url.path) == ("postgres", 5432, "/understudy")
    passwords = [text for name, text in before.items() if name.endswith("_password")]
    assert len(set(passwords)) == len(passwords)
    assert all(len(password.strip()) >= 32 for password in passwords)


def test_the_url_of_redis_gets_the_login_that_is_made_and_one_without_it_is_replaced(tmp_path):
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "redis_url").write_text("redis://redis:6379/0\n")

    assert run(sys.executable, "tools/make_secrets.py", str(folder)).returncode == 0

    url = urlsplit((folder / "redis_url").read_text().strip())
    assert (url.username, url.hostname, url.port, url.path) == ("proxy", "redis", 6379, "/0")
    assert url.password == (folder / "redis_password").read_text().strip()


def test_the_url_of_a_redis_with_a_login_of_yours_stays_as_you_give_it(tmp_path):
    folder, yours = tmp_path / "secrets", "rediss://me:mine@cache.example:6380/2"

    assert run(sys.executable, "tools/make_secrets.py", str(folder), "--redis", yours).returncode == 0

    assert (folder / "redis_url").read_text().strip() == yours


@pytest.fixture
def a_closed_redis(secrets: Path) -> Iterator[int]:
    """A Redis or Valkey with the users that were made, and its port."""
    port, server = free_port(), find_server()
    if server is None:
        pytest.skip("NOT CHECKED: no valkey-server or redis-server is here")
    flags = ["--save", "", "--port", str(port), "--bind", "127.0.0.1", "--aclfile", str(secrets / "redis_acl")]
    child = subprocess.Popen([server, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        time.sleep(0.02)
    yield port
    child.terminate()
    child.wait(10)


def test_redis_lets_the_proxies_login_use_the_cache_and_nobody_do_anything_else(secrets, a_closed_redis):
    password = (secrets / "redis_password").read_text().strip()
    proxy = redis.Redis(port=a_closed_redis, username="proxy", password=password)
    url = f"redis://proxy:{password}@127.0.0.1:{a_closed_redis}/0"

    assert proxy.set("infer:1:a:0011", b"value", ex=60)
    assert proxy.mget(["infer:1:a:0011"]) == [b"value"]
    assert asyncio.run(examine_redis(url)).problem == ""
    for forbidden in (
        ("SET", "features:visits:customer-42", "1"),
        ("MGET", "infer:1:a:0011", "features:visits:customer-42"),
        ("GET", "infer:1:a:0011"),
        ("KEYS", "*"),
        ("FLUSHALL",),
        ("CONFIG", "SET", "maxmemory", "1"),
        ("ACL", "LIST"),
        ("EVAL", "return 1", "0"),
        ("PERSIST", "infer:1:a:0011"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            proxy.execute_command(*forbidden)  # type: ignore[no-untyped-call]
    for stranger in (redis.Redis(port=a_closed_redis), redis.Redis(port=a_closed_redis, password=password)):
        with pytest.raises(redis.exceptions.AuthenticationError):
            stranger.ping()


def test_every_secret_that_compose_reads_is_made(secrets):
    named = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["secrets"]

    assert {Path(place["file"]).name for place in named.values()} == {path.name for path in secrets.iterdir()}


@pytest.mark.parametrize(
    ("options", "tree"),
    [
        ([], "k8s/overlays/prod"),
        (["--dev-stores"], "k8s/overlays/dev"),
        (["--agents"], "k8s/examples/triton-agent"),
    ],
    ids=["prod", "dev", "agents"],
)
def test_every_secret_that_a_cluster_reads_is_made_and_no_other(options, tree, secrets):
    if shutil.which("kubectl") is None:
        pytest.skip("NOT CHECKED: kubectl is not here")
    done = run("sh", "deploy/kubernetes/secrets.sh", *options, str(secrets))
    assert done.returncode == 0, done.stderr
    made = {one["metadata"]["name"]: set(one["data"]) for one in yaml.safe_load_all(done.stdout) if one}

    wanted = dict(_files_of_secrets(tree))

    assert wanted
    for name, keys in wanted.items():
        assert keys <= made[name], name
    assert set(made) == set(wanted)


@pytest.mark.parametrize("arguments", [[], ["--dev-stores"], ["nowhere"], ["--all", "deploy"]])
def test_secrets_of_no_folder_are_a_mistake_that_is_said(arguments):
    done = run("sh", "deploy/kubernetes/secrets.sh", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: deploy/kubernetes/secrets.sh [--dev-stores] [--agents] FOLDER" in done.stderr


def _files_of_secrets(tree: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each Secret that a tree mounts, with the keys that its containers read."""
    found: dict[str, set[str]] = {}
    try:
        objects = [one for name, objects in built_trees(ROOT) if name == tree for one in objects]
    except ToolMissing as reason:
        pytest.skip(f"NOT CHECKED: {reason}")
    for spec in map(_pod_of, objects):
        places = {
            volume["name"]: volume["secret"]["secretName"] for volume in spec.get("volumes", ()) if "secret" in volume
        }
        for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
            for mount in container.get("volumeMounts", ()):
                if mount["name"] not in places:
                    continue
                keys = found.setdefault(places[mount["name"]], set())
                values = [entry.get("value", "") for entry in container.get("env", ())]
                keys |= {value.rpartition("/")[2] for value in values if value.startswith(f"{mount['mountPath']}/")}
    yield from found.items()


def _pod_of(one: Any) -> Any:
    spec = one.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    return spec.get("template", {}).get("spec", {})


# -- logins ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_postgres() -> Iterator[str]:
    """A server for one test: logins belong to the server, not to a database."""
    folder = Path(tempfile.mkdtemp(prefix="us-pg-", dir="/tmp"))
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder / "pg", parameters={"fsync": "off"})
    try:
        yield server.start()
    finally:
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def managed_postgres(own_postgres) -> str:
    """A server whose superuser is somebody else's: one may make roles and databases, and owns the database."""
    place = urlsplit(own_postgres)
    for statement in (
        "CREATE ROLE administrator LOGIN CREATEROLE CREATEDB PASSWORD 'secret'",
        f'ALTER DATABASE "{place.path[1:]}" OWNER TO administrator',
    ):
        asyncio.run(_execute(own_postgres, statement))
    return str(place._replace(netloc=f"administrator:secret@{place.hostname}:{place.port}").geturl())


@pytest.fixture(params=["own_postgres", "managed_postgres"])
def postgres(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def create_logins(url: str, secrets: Path) -> None:
    """Run the script as whoever the URL names."""
    folders = [str(Path(one.binary("psql")).parent) for one in find_installations()]
    path = os.pathsep.join([os.environ["PATH"], *folders])
    if shutil.which("psql", path=path) is None:
        pytest.skip("NOT CHECKED: psql is not here")
    place = urlsplit(url)
    done = run(
        "sh", "deploy/compose/create-logins.sh",
        PATH=path, PGHOST=str(place.hostname), PGPORT=str(place.port), POSTGRES_USER=str(place.username),
        PGPASSWORD=place.password or "", POSTGRES_DB=place.path[1:], SECRETS=str(secrets),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")


def url_as(login: str, url: str, secrets: Path) -> str:
    place = urlsplit(url)
    password = (secrets / f"{login}_password").read_text().strip()
    return str(place._replace(netloc=f"{login}_login:{password}@{place.hostname}:{place.port}").geturl())


def test_each_login_has_its_own_role_and_only_the_owner_can_migrate(postgres, secrets):
    create_logins(postgres, secrets)

    def url_of(login: str) -> str:
        return url_as(login, postgres, secrets)

    asyncio.run(upgrade(url_of("owner")))

    assert asyncio.run(roles_without_rights(url_of("owner"))) == []
    for login in LOGINS:
        assert asyncio.run(check(url_of(login)))
    assert asyncio.run(_is_superuser(url_of("owner"))) is False
    for login in LOGINS[1:]:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            asyncio.run(_execute(url_of(login), "CREATE TABLE planted ()"))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        asyncio.run(_execute(url_of("proxy"), "SELECT * FROM PredictionLog"))


def test_a_second_run_gives_the_logins_the_passwords_of_the_folder_and_no_other_role(
    postgres, own_postgres, secrets, tmp_path
):
    create_logins(postgres, secrets)
    asyncio.run(upgrade(url_as("owner", postgres, secrets)))
    before = asyncio.run(_memberships(postgres))
    newer = tmp_path / "newer"
    assert run(sys.executable, "tools/make_secrets.py", str(newer)).returncode == 0

    create_logins(postgres, newer)

    assert asyncio.run(_memberships(postgres)) == before
    assert ("understudy_proxy", "proxy_login") in before
    assert not [member for role, member in before if role == "owner_login" and member != "administrator"]
    for login in LOGINS:
        verifier = asyncio.run(_verifier(own_postgres, f"{login}_login"))
        assert is_verified((newer / f"{login}_password").read_text().strip(), verifier)
        assert not is_verified((secrets / f"{login}_password").read_text().strip(), verifier)


def is_verified(password: str, verifier: str) -> bool:
    """Return whether a password is the one that Postgres keeps; the server of these tests lets everybody in.

    Source:
        RFC 5802, section 3; ``SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey``.
    """
    _, work, keys = verifier.split("$")
    iterations, salt = work.split(":")
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b64decode(salt), int(iterations))
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    return stored == b64decode(keys.split(":")[0])


async def _verifier(url: str, login: str) -> str:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return str(await connection.fetchval("SELECT rolpassword FROM pg_authid WHERE rolname = $1", login))
    finally:
        await connection.close()


def test_whoever_made_the_logins_is_none_of_them_afterwards(managed_postgres, secrets):
    create_logins(managed_postgres, secrets)
    asyncio.run(upgrade(url_as("owner", managed_postgres, secrets)))

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        asyncio.run(_execute(managed_postgres, "SELECT * FROM ModelVersion"))


async def _memberships(url: str) -> set[tuple[str, str]]:
    """Return who is a member of what, the right to make others one included."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        rows = await connection.fetch("SELECT roleid::regrole::text, member::regrole::text FROM pg_auth_members")
        return {(role, member) for role, member in rows}
    finally:
        await connection.close()


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _is_superuser(url: str) -> bool:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return bool(await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"))
    finally:
        await connection.close()


# -- models from a volume ----------------------------------------------------------------------------------------------

COPY = "k8s/components/models-from-pvc/copy-models.sh"


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    model = tmp_path / "volume/visits/1"
    (model / "variables").mkdir(parents=True)
    (model / "saved_model.pb").write_bytes(b"graph")
    (model / "variables/variables.index").write_bytes(b"index")
    return tmp_path / "volume"


def test_models_are_copied_and_their_checksums_said(volume, tmp_path):
    done = run("sh", COPY, FROM=str(volume), TO=str(tmp_path / "models"), MODELS="visits")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "models/visits/1/variables/variables.index").read_bytes() == b"index"
    graph = f"{hashlib.sha256(b'graph').hexdigest()}  visits/1/saved_model.pb"
    index = f"{hashlib.sha256(b'index').hexdigest()}  visits/1/variables/variables.index"
    together = hashlib.sha256(f"{graph}\n{index}\n".encode()).hexdigest()
    assert done.stdout.splitlines() == [graph, index, f"visits sha256:{together}"]


def test_another_file_is_another_checksum(volume, tmp_path):
    before = run("sh", COPY, FROM=str(volume), TO=str(tmp_path / "a"), MODELS="visits").stdout.splitlines()[-1]
    (volume / "visits/1/saved_model.pb").write_bytes(b"another graph")

    after = run("sh", COPY, FROM=str(volume), TO=str(tmp_path / "b"), MODELS="visits").stdout.splitlines()[-1]

    assert before != after


def test_a_model_that_is_missing_is_said_and_left_out(volume, tmp_path):
    (volume / "empty").mkdir()

    done = run("sh", COPY, FROM=str(volume), TO=str(tmp_path / "models"), MODELS="visits empty churn")

    assert done.returncode == 0
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["MISSING empty", "MISSING churn"]
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["visits"]
