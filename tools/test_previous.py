"""Runs the previous release's own integration tests on databases that this release's code has migrated.

    python -m tools.test_previous [REF] [-- PYTEST ARGUMENTS]

REF is a commit or tag; without one, the parent of the commit that added the newest migration. Its tree is taken out
of git into build/previous, and not changed: its tests import its code, and `tests_on_newer_schema.py` has the
databases that they ask for migrated by this tree's `understudy db upgrade`, in a process of its own.

Leaves with 0 only when all that was run has passed. Tests that say what the schema is, or change it, are left out by
name, each with its reason.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

from tools.previous.release import ROOT, Release, newest_schema, take_out

FOLDERS = ("tests/integration", "tests/contract")
USAGE = 2


def main(arguments: Sequence[str]) -> int:
    own, passed_on = _split(arguments)
    release = take_out(own[0] if own else "")
    newest = newest_schema()
    print(
        f"tests of {release.commit} (schema {release.schema}) on databases migrated by this tree (schema {newest})",
        flush=True,
    )
    if newest == release.schema:
        print("Both have the same schema: there is nothing to be tried. Name an older commit.", file=sys.stderr)
        return USAGE
    return _run(release, passed_on)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if "--" in arguments:
        place = list(arguments).index("--")
        return arguments[:place], arguments[place + 1 :]
    return arguments, ()


def _run(release: Release, arguments: Sequence[str]) -> int:
    tree = release.tree
    environment = {
        **os.environ,
        # Before what is installed, for the plugin too.
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(ROOT / "tools" / "previous")]),
        "UNDERSTUDY_NEWER_TREE": str(ROOT),
    }
    command = [
        str(release.make_python()),
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
