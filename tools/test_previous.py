"""Runs the previous release's own integration tests on databases that this release's code has migrated.

    python tools/test_previous.py [REF] [-- PYTEST ARGUMENTS]

REF is a commit or tag; without one, the parent of the commit that added the newest migration. Its tree is taken out
of git into build/previous, and not changed: its tests import its code, and `tests_on_newer_schema.py` has the
databases that they ask for migrated by this tree's `understudy db upgrade`, in a process of its own.

Leaves with 0 only when all that was run has passed. Tests that say what the schema is, or change it, are left out by
name, each with its reason.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = "src/understudy/adapters/migrations/versions"
FOLDERS = ("tests/integration", "tests/contract")
USAGE = 2


def main(arguments: Sequence[str]) -> int:
    own, _, passed_on = _split(arguments)
    ref = own[0] if own else _before_newest_migration()
    commit = _git("rev-parse", "--short=12", f"{ref}^{{commit}}")
    tree = ROOT / "build" / "previous" / commit
    _take_out(commit, tree)
    newest, old = _newest(ROOT), _newest(tree)
    print(f"tests of {commit} (schema {old}) on databases migrated by this tree (schema {newest})", flush=True)
    if newest == old:
        print("Both have the same schema: there is nothing to be tried. Name an older commit.", file=sys.stderr)
        return USAGE
    return _run(tree, passed_on)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], str, Sequence[str]]:
    if "--" in arguments:
        place = list(arguments).index("--")
        return arguments[:place], "--", arguments[place + 1 :]
    return arguments, "", ()


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


def _take_out(commit: str, tree: Path) -> None:
    if tree.exists():
        shutil.rmtree(tree)
    tree.mkdir(parents=True)
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=packed, check=True)


def _newest(tree: Path) -> str:
    return max(path.name[1:5] for path in (tree / VERSIONS).glob("r[0-9]*.py"))


def _python_of(tree: Path) -> Path:
    """Return a Python with what is installed here, and with the old tree's code in place of this one's.

    ``PYTHONPATH`` alone is not enough: some tests start processes with a ``PYTHONPATH`` of their own.
    """
    folder = tree.with_name(f"{tree.name}-venv")
    venv.EnvBuilder(clear=True, symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    installed = sysconfig.get_path("purelib")
    (packages / "trees.pth").write_text(f"{tree / 'src'}\n{installed}\n", encoding="utf-8")
    return folder / "bin" / "python"


def _run(tree: Path, arguments: Sequence[str]) -> int:
    environment = {
        **os.environ,
        # Before what is installed, for the plugin too.
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(ROOT / "tools" / "previous")]),
        "UNDERSTUDY_NEWER_TREE": str(ROOT),
    }
    command = [
        str(_python_of(tree)),
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests_on_newer_schema",
        "-m",
        "not slow and not timed",
    ]
    chosen = [one for one in arguments if one.startswith("tests/")]
    return subprocess.run(
        [*command, *(() if chosen else FOLDERS), *arguments], cwd=tree, env=environment, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
