"""What a release builds, pushes and signs: docker and cosign are programs here that write down what they are told."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from understudy import __version__

ROOT = Path(__file__).resolve().parents[3]
NEEDED = ("dirname", "sed", "git", "sh", "mkdir", "cat", "grep")
NAME = "registry.example/shop/understudy"
DIGEST = f"sha256:{'0a' * 32}"
TAG = {"GITHUB_REF_NAME": f"v{__version__}", "IMAGE_NAME": NAME}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ``PATH`` with what the script itself calls, and a committed copy of what it reads."""
    tools = tmp_path / "path"
    tools.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    clone = tmp_path / "clone"
    clone.mkdir()
    for path in ("pyproject.toml", "Dockerfile", ".gitignore", "requirements", "tools"):
        copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy2
        copy(ROOT / path, clone / path)
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "a release"]):
        signed = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", *signed, *command], cwd=clone, check=True, timeout=30)
    return tmp_path


def a_tool(folder: Path, name: str) -> None:
    path = folder / "path" / name
    digests = f'printf "%s\\n" "other.example/x@sha256:{"0" * 64}" "{NAME}@{DIGEST}"'
    path.write_text(
        f'#!/bin/sh\necho "{name} $*" >> "{folder}/log"\n'
        f'case "$1" in\n  inspect) {digests} ;;\n  login) cat >> "{folder}/log" ;;\nesac\n'
    )
    path.chmod(0o755)


def release(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "tools/release_image.sh"], cwd=folder / "clone", capture_output=True, text=True, check=False,
        timeout=60, env={"PATH": str(folder / "path"), "PYTHON": sys.executable, **variables},
    )  # fmt: skip


def told(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_a_release_is_pushed_and_signed_by_digest_with_provenance_and_bill_of_materials(folder):
    a_tool(folder, "docker")
    a_tool(folder, "cosign")

    done = release(folder, **TAG, REGISTRY_USER="ci", REGISTRY_PASSWORD="hidden", GITHUB_REPOSITORY="shop/understudy",
                   GITHUB_SERVER_URL="https://forge.example", GITHUB_RUN_ID="7")  # fmt: skip

    assert done.returncode == 0, done.stderr
    said = told(folder)
    whole = f"{NAME}@{DIGEST}"
    assert [line for line in said if line.startswith("cosign")] == [
        f"cosign sign --yes {whole}",
        f"cosign attest --yes --type slsaprovenance1 --predicate build/provenance.json {whole}",
        f"cosign attest --yes --type cyclonedx --predicate build/sbom.json {whole}",
    ]
    assert said.index(f"docker push --quiet {NAME}:{__version__}") < said.index(f"cosign sign --yes {whole}")
    assert "docker login --username ci --password-stdin registry.example" in said
    assert [line for line in said if "hidden" in line and line.startswith(("docker", "cosign"))] == []
    assert done.stdout.splitlines()[-1] == f"{NAME}:{__version__}@{DIGEST}"
    made = json.loads((folder / "clone/build/provenance.json").read_text())["buildDefinition"]
    commit, base, *locks = made["resolvedDependencies"]
    assert commit["uri"] == "git+https://forge.example/shop/understudy@"
    assert len(commit["digest"]["gitCommit"]) == 40
    assert (base["uri"], len(base["digest"]["sha256"])) == ("oci:python:3.11-slim-bookworm", 64)
    assert [lock["uri"] for lock in locks] == [f"requirements/{name}.txt" for name in ("build", "image", "uv")]
    assert json.loads((folder / "clone/build/sbom.json").read_text())["bomFormat"] == "CycloneDX"


@pytest.mark.parametrize("tag", ["", "main", "v9.9.9", __version__])
def test_what_is_not_the_tag_of_the_version_is_not_released(folder, tag):
    a_tool(folder, "docker")
    a_tool(folder, "cosign")

    done = release(folder, **{**TAG, "GITHUB_REF_NAME": tag})

    assert done.returncode == 2
    assert f"tag the commit v{__version__}" in done.stderr
    assert told(folder) == []


def test_what_is_not_committed_is_not_released(folder):
    a_tool(folder, "docker")
    a_tool(folder, "cosign")
    (folder / "clone/Dockerfile").write_text("FROM scratch\n")

    done = release(folder, **TAG)

    assert (done.returncode, "a release is of a commit" in done.stderr) == (2, True)
    assert told(folder) == []


def test_nothing_is_pushed_where_nothing_can_be_signed(folder):
    a_tool(folder, "docker")

    done = release(folder, **TAG)

    assert (done.returncode, "needs cosign" in done.stderr) == (69, True)
    assert told(folder) == []
