"""Which tool builds the image, and what is said where there is none."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NEEDED = ("dirname", "sed", "git", "sh")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ``PATH`` with what the script itself calls, and no tool that builds."""
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None, name
        (tmp_path / name).symlink_to(found)
    return tmp_path


def a_tool(folder: Path, name: str, *, has_engine: bool = True) -> None:
    """Put a program there that repeats its arguments; a docker without an engine says no to ``info``."""
    path = folder / name
    path.write_text(f'#!/bin/sh\n[ "$1" != info ] || exit {int(not has_engine)}\necho "{name} $*"\n')
    path.chmod(0o755)


def build(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "tools/build_image.sh"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30,
        env={"PATH": str(folder), "IMAGE": "understudy:0.1.0", **variables},
    )  # fmt: skip


def test_without_any_tool_it_says_which_ones_would_do(folder):
    done = build(folder)

    assert done.returncode == 69
    assert "docker with a running engine, podman or buildah" in done.stderr


def test_a_docker_without_its_engine_is_passed_over(folder):
    a_tool(folder, "docker", has_engine=False)
    a_tool(folder, "buildah")

    done = build(folder, BASE="localhost/base:1")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("buildah build --file Dockerfile --tag understudy:0.1.0 --build-arg VERSION=0.1.0 ")
    assert "--build-arg BASE=localhost/base:1 --format oci" in done.stdout


def test_the_first_tool_that_works_is_taken_unless_another_is_named(folder):
    a_tool(folder, "docker")
    a_tool(folder, "podman")

    assert build(folder).stdout.startswith("docker build ")
    assert build(folder, BUILDER="podman").stdout.startswith("podman build ")
    assert build(folder, BUILDER="kaniko").returncode == 2
