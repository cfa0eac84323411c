"""Two checkouts of the product that are measured beside each other: this one, and another one from before a change."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
U = TypeVar("U")
_IMPORT_SECONDS = 60


class Sides(NamedTuple, Generic[T]):
    """The same thing of both checkouts."""

    before: T
    now: T

    def map(self, of: Callable[[T], U]) -> "Sides[U]":
        """Return what ``of`` makes of each side."""
        return Sides(of(self.before), of(self.now))


class Checkout(NamedTuple):
    """A checkout by its ``src`` folder, an absolute path."""

    name: str
    source: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a Python process needs in its environment to import the product from this checkout."""
        inherited = os.environ.get("PYTHONPATH", "")
        return {"PYTHONPATH": os.pathsep.join([str(self.source), *([inherited] if inherited else [])])}

    @property
    def problem(self) -> str | None:
        """Why a process cannot run this checkout, found by starting one; nothing when it can."""
        done = subprocess.run(
            [sys.executable, "-c", "import understudy; print(understudy.__file__)"],
            env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=_IMPORT_SECONDS,
            check=False,
        )  # fmt: skip
        imported = done.stdout.strip()
        if imported == str(self.source / "understudy" / "__init__.py"):
            return None
        found = f"Python imports {imported}" if imported else (done.stderr.strip().splitlines() or ["no output"])[-1]
        return f"{self.source}: not the src folder of a checkout ({found})"
