"""``make quick``: lint, types of src, and the unit tests of what changed, in seconds.

What changed is what git says of the work tree against ``HEAD`` (or against a commit that is named), with files that git
does not know yet. A module's tests are its mirror: ``src/understudy/core/drift/hours.py`` is tested by
``tests/unit/core/drift/test_hours*.py``; without a mirror, by the tests that lie in its package, or in the one around
it.
"""

import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
UNIT = Path("tests/unit")
PASSED = {0, 5}
"""Exit codes; 5 is pytest's when every test of a file runs elsewhere."""
PURE_TESTS = ("tests/unit/", "tests/architecture/", "tests/docs/")
"""Tests that need no server; others are left to ``make test``."""
_PARTS_OF_A_DOMAIN = 2
"""A layer and a domain: the tests of a whole layer take too long for every change."""


def changed_files(since: str) -> list[str]:
    """Return the Python files that differ from a commit, or are new, as paths from the root."""
    commands = (["diff", "--name-only", "--diff-filter=d", since], ["ls-files", "--others", "--exclude-standard"])
    named = [
        subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True) for command in commands
    ]
    return sorted({path for one in named for path in one.stdout.splitlines() if path.endswith(".py")})


def mirrors_of(paths: Iterable[str], root: Path) -> list[str]:
    """Return the test files and folders that hold for the files that changed, without doubles."""
    return sorted({test for path in paths for test in _mirrors_of_one(path, root)})


def _mirrors_of_one(path: str, root: Path) -> list[str]:
    if path.startswith(PURE_TESTS):
        return [path] if Path(path).name.startswith("test_") else []
    if not path.startswith("src/understudy/"):
        return []
    module = Path(path).relative_to("src/understudy")
    mirrors = sorted((root / UNIT / module.parent).glob(f"test_{module.stem}*.py"))
    if mirrors:
        return [mirror.relative_to(root).as_posix() for mirror in mirrors]
    around = [package for package in module.parent.parents if len(package.parts) >= _PARTS_OF_A_DOMAIN]
    folders = [UNIT / package for package in (module.parent, *around) if package != Path()]
    for folder in folders:
        beside = sorted((root / folder).glob("test_*.py"))
        if beside:  # those of its parts take too long
            return [test.relative_to(root).as_posix() for test in beside]
    return []


def main(since: str = "HEAD") -> int:
    """Run the checks side by side and return 0 if all passed."""
    changed = changed_files(since)
    tests = mirrors_of(changed, ROOT)
    commands = [[str(BIN / "mypy"), "src"]]
    if changed:
        commands += [
            [str(BIN / "ruff"), "check", "--quiet", *changed],
            [str(BIN / "ruff"), "format", "--check", "--quiet", *changed],
        ]
    if tests:
        chosen = "not timed and not alone and not slow and not followed and not deep"
        few = ("-p", "no:schemathesis", "--hypothesis-profile", "ten_examples")
        commands.append([str(BIN / "pytest"), "-q", "--no-header", "-m", chosen, *few, *tests])
    with ThreadPoolExecutor(len(commands)) as pool:
        done = list(pool.map(_run, commands))
    for command, result in zip(commands, done, strict=True):
        if result.returncode not in PASSED:
            print(f"$ {Path(command[0]).name} {' '.join(command[1:])}\n{result.stdout}{result.stderr}")
    failed = sum(result.returncode not in PASSED for result in done)
    print(f"{len(changed)} changed files; {'tests: ' + ' '.join(tests) if tests else 'no unit test mirrors them'}")
    print("quick: everything passed" if not failed else f"quick: {failed} of {len(commands)} checks failed")
    return int(failed > 0)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
