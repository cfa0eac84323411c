"""The demo's artifacts: of each example version a folder with its ONNX file and its validation cases."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import orjson

from understudy.adapters.dev_server.example_models import example_cases, example_version
from understudy.core.loading.digest import folder_digest
from understudy.entrypoints.demo.topology import CASES, VERSIONS, ServedVersion


class Artifact(NamedTuple):
    """An artifact as it is registered."""

    path: str
    """Below the folder of artifacts."""
    digest: str


def write_artifacts(root: Path) -> Mapping[ServedVersion, Artifact]:
    """Write each version's folder below ``root``, in the place of an earlier demo's.

    Raises:
        OSError: It cannot be written.
    """
    return {version: _write(root, version) for version in VERSIONS}


def _write(root: Path, served: ServedVersion) -> Artifact:
    example = example_version(served.model_name, served.version)
    cases = b"\n".join(map(orjson.dumps, example_cases(example)[:CASES]))
    files = {"model.onnx": example.read(), "validation_cases.jsonl": cases + b"\n"}
    path = f"{served.model_name}/{served.version}"
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return Artifact(path, folder_digest((name, sha256(content).hexdigest()) for name, content in files.items()))
