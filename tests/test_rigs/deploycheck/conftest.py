import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rigs.deploycheck.findings import Finding, ToolMissing

ROOT = Path(__file__).resolve().parents[3]
JUDGED = (
    "Dockerfile",
    "docker-compose.yml",
    ".gitlab-ci.yml",
    ".github",
    "k8s",
    "deploy",
    "tools/release_image.sh",
)


@pytest.fixture
def a_copy(tmp_path: Path) -> Path:
    """A copy of everything that is judged, to make mistakes in."""
    for name in JUDGED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("secrets"))
        else:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tmp_path / name)
    return tmp_path


@pytest.fixture
def found() -> Callable[..., list[Finding]]:
    """Runs a check; one whose program is not here is left out with its reason."""

    def run(check, root: Path) -> list[Finding]:
        try:
            return list(check(root))
        except ToolMissing as reason:
            pytest.skip(f"NOT CHECKED: {reason}")

    return run
