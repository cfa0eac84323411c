"""What the committed results say of each target, so that a new run can be read beside them."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import orjson

from loadtests.result import RESULTS
from loadtests.target import Target


class Committed(NamedTuple):
    """A target's figure in a committed result: what its bound is on, and the file."""

    judged: float
    file: str


class Baseline(dict[tuple[str, str], Committed]):
    """The newest committed figure of each target, by its source and text."""

    def of(self, target: Target) -> Committed | None:
        """Return a target's, if one was committed under the same text."""
        return self.get((target.source, target.text))

    def files(self, targets: Iterable[Target]) -> list[str]:
        """Return the results that these targets' figures are from."""
        return sorted({found.file for found in map(self.of, targets) if found is not None})


def committed_baseline(folder: Path = RESULTS) -> Baseline:
    """Read every committed result that has targets; of two with the same target the newer one counts."""
    documents = [(orjson.loads(path.read_bytes()), path.name) for path in folder.glob("baseline-*.json")]
    measured = [(document, name) for document, name in documents if "sections" in document]
    found = Baseline()
    for document, name in sorted(measured, key=lambda one: one[0]["at"]):
        for section in document["sections"].values():
            for target in section["targets"]:
                found[target["source"], target["text"]] = Committed(_number(target["judged"]), name)
    return found


def _number(value: float | None) -> float:
    """Return a figure; JSON has no word for one that could not be taken."""
    return float("nan") if value is None else value
