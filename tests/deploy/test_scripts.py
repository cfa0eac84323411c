"""The scripts that deployments run: logins of the database, secrets, models from a volume."""

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import yaml

from deploycheck.findings import ToolMissing
from deploycheck.manifests import built_trees
from understudy.adapters.embedded_postgres import EmbeddedPostgres, find_installations
from understudy.adapters.migrations import check, roles_without_rights, upgrade

ROOT = Path(__file__).resolve().parents[2]
LOGINS = ("owner", "proxy", "monitor", "retention", "engineer")


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


def test_every_secret_that_compose_reads_is_made(secrets):
    named = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["secrets"]

    assert {Path(place["file"]).name for place in named.values()} == {path.name for path in secrets.iterdir()}


def test_every_secret_that_a_cluster_reads_is_made(secrets):
    if shutil.which("kubectl") is None:
        pytest.skip("NOT CHECKED: kubectl is not here")
    done = run("sh", "deploy/kubernetes/secrets.sh", str(secrets))
    assert done.returncode == 0, done.stderr
    made = {one["metadata"]["name"]: set(one["data"]) for one in yaml.safe_load_all(done.stdout) if one}

    wanted = dict(_files_of_secrets())

    assert wanted
    for name, keys in wanted.items():
        assert keys <= made[name], name
    assert set(made) == set(wanted)


def _files_of_secrets() -> Iterator[tuple[str, set[str]]]:
    """Yield each Secret that a tree mounts, with the keys that its containers read."""
    found: dict[str, set[str]] = {}
    try:
        objects = [one for _, objects in built_trees(ROOT) for one in objects]
    except ToolMissing as reason:
        pytest.skip(f"NOT CHECKED: {reason}")
    for spec in map(_pod_of, objects):
        places = {
            volume["name"]: volume["secret"]["secretName"] for volume in spec.get("volumes", ()) if "secret" in volume
        }
        for container in spec.get("containers", ()):
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


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[str]:
    """A server of its own: logins belong to the server, not to a database."""
    folder = Path(tempfile.mkdtemp(prefix="us-pg-", dir="/tmp"))
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder / "pg", parameters={"fsync": "off"})
    try:
        yield server.start()
    finally:
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


def test_each_login_has_its_own_role_and_only_the_owner_can_migrate(own_postgres, secrets):
    folders = [str(Path(one.binary("psql")).parent) for one in find_installations()]
    place = urlsplit(own_postgres)
    path = os.pathsep.join([os.environ["PATH"], *folders])
    if shutil.which("psql", path=path) is None:
        pytest.skip("NOT CHECKED: psql is not here")
    done = run(
        "sh", "deploy/compose/create-logins.sh",
        PATH=path, PGHOST=str(place.hostname), PGPORT=str(place.port), POSTGRES_USER=str(place.username),
        POSTGRES_DB=place.path[1:], SECRETS=str(secrets),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    def url_of(login: str) -> str:
        password = (secrets / f"{login}_password").read_text().strip()
        return str(place._replace(netloc=f"{login}_login:{password}@{place.hostname}:{place.port}").geturl())

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
