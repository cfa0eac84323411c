"""Programs that checks start, each with a deadline."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rigs.deploycheck.findings import Finding, ToolMissing

SECONDS = 60.0
_BESIDE_PYTHON = Path(sys.executable).parent
MAKE_INSTALLS = "make check-deploy installs it"


def find(name: str, advice: str = MAKE_INSTALLS) -> str:
    """Return the program's path: of this environment, else on ``PATH``.

    Raises:
        ToolMissing: It is in neither.
    """
    found = shutil.which(name, path=str(_BESIDE_PYTHON)) or shutil.which(name)
    if found is None:
        raise ToolMissing(name, advice)
    return found


def output_of(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run a command in a folder; return its exit status and all that it said."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS, stdin=subprocess.DEVNULL
    )
    return done.returncode, f"{done.stdout}{done.stderr}".strip()


def findings_of(command: Sequence[str], folder: Path, where: str) -> list[Finding]:
    """Run a linter; its output is one finding when its exit status is not 0."""
    status, said = output_of(command, folder)
    return [] if status == 0 else [Finding(where, said or f"{Path(command[0]).name} ended with {status}")]


def schema_findings(schema: str, file: str, root: Path) -> list[Finding]:
    """Judge a file by a schema that check-jsonschema brings along."""
    return findings_of([find("check-jsonschema"), "--builtin-schema", schema, file], root, file)
