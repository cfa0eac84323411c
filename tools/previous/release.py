"""Takes an older release's tree out of git, and makes a Python that imports its code beside what is installed here."""

import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = "src/understudy/adapters/migrations/versions"
_COMMAND = """\
import runpy

runpy.run_module("understudy.entrypoints.cli", run_name="__main__")
"""


class Release(NamedTuple):
    """An older release, as files."""

    commit: str
    tree: Path
    schema: str
    """Its newest migration, such as ``0036``."""

    def make_python(self) -> Path:
        """Return a Python with what is installed here, and this release's code and command in place of this tree's.

        ``PYTHONPATH`` alone is not enough: some tests start processes with a ``PYTHONPATH`` of their own.
        """
        folder = self.tree.with_name(f"{self.tree.name}-venv")
        venv.EnvBuilder(clear=True, symlinks=True).create(folder)
        (packages,) = folder.glob("lib/python*/site-packages")
        installed = sysconfig.get_path("purelib")
        (packages / "trees.pth").write_text(f"{self.tree / 'src'}\n{installed}\n", encoding="utf-8")
        python, command = folder / "bin" / "python", folder / "bin" / "understudy"
        command.write_text(f"#!{python}\n{_COMMAND}", encoding="utf-8")
        command.chmod(0o755)
        return python


def take_out(ref: str = "") -> Release:
    """Return the release of a commit or tag; without one, of the commit before the newest migration.

    Raises:
        SystemExit: Git does not know it.
    """
    ref = ref or _before_newest_migration()
    commit = _git("rev-parse", "--short=12", f"{ref}^{{commit}}")
    tree = ROOT / "build" / "previous" / commit
    if tree.exists():
        shutil.rmtree(tree)
    tree.mkdir(parents=True)
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=packed, check=True)
    return Release(commit, tree, newest_schema(tree))


def newest_schema(tree: Path = ROOT) -> str:
    """Return a tree's newest migration, such as ``0040``."""
    return max(path.name[1:5] for path in (tree / VERSIONS).glob("r[0-9]*.py"))


def _before_newest_migration() -> str:
    newest = max((ROOT / VERSIONS).glob("r[0-9]*.py")).relative_to(ROOT)
    added = _git("log", "--diff-filter=A", "--format=%H", "--", str(newest)).split()
    if not added:
        raise SystemExit(f"{newest} is not committed, or this clone is shallow (git fetch --unshallow): name a commit")
    return f"{added[-1]}^"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
