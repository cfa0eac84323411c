"""What is built installs, in an empty environment, and works there: the client alone, and a whole installation.

Runs by ``make test-package``: it builds two distributions twice and installs two environments.
"""

import json
import os
import resource
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e.stack import get, wait_for_port

from understudy import DISTRIBUTION
from understudy.adapters.embedded.loopback_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
SOURCE = ROOT / "src" / "understudy"
PACKED = {
    path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"
}
BUILD_SECONDS, INSTALL_SECONDS, COMMAND_SECONDS = 120, 300, 60
MAX_LIGHT_BYTES = 120 * 1_000_000
HELP_CPU_SECONDS, LIST_CPU_SECONDS = 0.15, 0.4
FRONTENDS = {
    "uv": [str(UV), "build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable, "--out-dir"],
    "build": [sys.executable, "-m", "build", "--no-isolation", "--outdir"],
}
"""Each makes the sdist, and of the sdist the wheel, with the locked build backend and without a network."""
KEPT = {
    "PATH": "/usr/bin:/bin",
    **{name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "SSL_", "HOME", "LANG"))},
    "UV_COMPILE_BYTECODE": "false",
}


def run(
    arguments: list[str], seconds: float, environment: Mapping[str, str] | None = None, cwd: Path = Path("/")
) -> subprocess.CompletedProcess[str]:
    """Run a program away from the checkout, with nothing of this environment but what installing needs."""
    return subprocess.run(
        arguments, cwd=cwd, env={**KEPT, **(environment or {})}, capture_output=True, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module", params=FRONTENDS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both distributions."""
    folder: Path = tmp_path_factory.mktemp(f"dist-{request.param}")
    done = run([*FRONTENDS[request.param], str(folder)], BUILD_SECONDS, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("wheel")
    done = run([*FRONTENDS["uv"], str(folder)], BUILD_SECONDS, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def install(folder: Path, wheel: Path, extras: str) -> Path:
    """Make an environment with the wheel and its locked requirements, and return its folder of programs."""
    made = run([str(UV), "venv", "--quiet", "--python", sys.executable, str(folder)], COMMAND_SECONDS)
    assert made.returncode == 0, made.stderr
    asked = f"{DISTRIBUTION}{extras} @ {wheel.as_uri()}"
    command = [str(UV), "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    locked = str(ROOT / "requirements" / "dev.txt")
    done = run([*command, "--constraint", locked, asked], INSTALL_SECONDS)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("light") / "venv", wheel, "")


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("whole") / "venv", wheel, "[proxy,cli]")


def test_both_distributions_have_every_file_of_the_package(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        in_wheel = {name for name in archive.namelist() if name.startswith("understudy/")}
        told = {name for name in archive.namelist() if "/licenses/" in name}
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        in_sdist = {name.removeprefix("src/") for name in names if name.startswith("src/understudy/")}

    assert in_wheel == PACKED
    assert in_sdist == PACKED
    assert {Path(name).name for name in told} == {"LICENSE", "NOTICE"}


def test_without_extras_it_is_small_and_has_the_client_and_the_help(light):
    site = next((light.parent / "lib").glob("python3*/site-packages"))
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and not path.is_symlink())
    imported = run([str(light / "python"), "-c", "import understudy.client, understudy.errors"], COMMAND_SECONDS)
    helped = run([str(light / "understudy"), "--help"], COMMAND_SECONDS)

    assert size <= MAX_LIGHT_BYTES, f"{size / 1e6:.0f} MB"
    assert imported.returncode == 0, imported.stderr
    assert helped.returncode == 0
    assert "rollback" in helped.stdout


def processor_seconds(arguments: list[str], environment: Mapping[str, str] | None = None) -> float:
    """Return the least of five runs, after one that compiles: what runs beside it only adds."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    runs = []
    for _ in range(6):
        before = spent()
        done = run(arguments, COMMAND_SECONDS, environment)
        assert done.returncode == 0, done.stderr
        runs.append(spent() - before)
    return min(runs[1:])


def test_the_help_of_an_installation_without_extras_takes_little(light):
    took = processor_seconds([str(light / "understudy"), "--help"])

    assert took <= HELP_CPU_SECONDS


def test_a_list_of_models_takes_little(whole, database_url):
    took = processor_seconds([str(whole / "understudy"), "model", "list"], {"DATABASE_URL": database_url})

    assert took <= LIST_CPU_SECONDS


@pytest.mark.parametrize(("command", "extra"), [("model list", "cli"), ("serve proxy", "proxy"), ("demo", "demo")])
def test_without_extras_a_command_says_which_one_it_needs(light, command, extra):
    done = run([str(light / "understudy"), *command.split()], COMMAND_SECONDS)

    assert done.returncode == 2
    assert f"pip install '{DISTRIBUTION}[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def serving(program: list[str], environment: Mapping[str, str], log: Path) -> Iterator[None]:
    with log.open("ab") as output:
        child = subprocess.Popen(program, cwd=log.parent, env={**KEPT, **environment}, stdout=output, stderr=output)
        try:
            yield
        finally:
            child.terminate()
            child.wait(COMMAND_SECONDS)


def wait_until_ready(port: int) -> None:
    wait_for_port(port)
    deadline = time.monotonic() + COMMAND_SECONDS
    while get(f"http://127.0.0.1:{port}/readyz")[0] != 200:
        assert time.monotonic() < deadline, "the proxy did not become ready"
        time.sleep(0.05)


def test_a_whole_installation_migrates_serves_predicts_and_is_examined(whole, empty_database_url, model_port, tmp_path):
    port, metrics_port = free_port(), free_port()
    settings = {
        "DATABASE_URL": empty_database_url, "UNDERSTUDY_PORT": str(port), "UNDERSTUDY_METRICS_PORT": str(metrics_port),
        "UNDERSTUDY_STATE_DIR": str(tmp_path / "state"),
    }  # fmt: skip

    def understudy(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run([str(whole / "understudy"), *arguments], COMMAND_SECONDS, settings, tmp_path)

    upgraded = understudy("db", "upgrade", "--json")
    assert upgraded.returncode == 0, upgraded.stderr
    registered = understudy("examples", "register", "--endpoint", f"127.0.0.1:{model_port('visits:1', 'visits:2')}")
    assert registered.returncode == 0, registered.stderr

    with serving([str(whole / "understudy"), "serve", "proxy"], settings, tmp_path / "proxy.log"):
        wait_until_ready(port)
        answered = understudy("predict", "visits", "--entity", "customer-42", "--json")
        examined = understudy("doctor", "--json")

    assert answered.returncode == 0, answered.stderr
    assert json.loads(answered.stdout)["call"]["answer"]["version"] == "1"
    findings = {finding["name"]: finding for finding in json.loads(examined.stdout)["findings"]}
    assert findings["schema"]["state"] == "good", examined.stdout
