"""Writes a software bill of materials (CycloneDX 1.6, JSON) of what is pinned or vendored: version, hashes, licence.

    python tools/make_sbom.py requirements/run.txt requirements/demo.txt requirements/dev.txt > sbom.json

The files are read in this order: what the first one names is required, what only later ones name is optional. Packages
that are pinned and not installed here have no licence in the document, and are counted on standard error.

Source:
    https://cyclonedx.org/docs/1.6/json/ for the fields.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, NamedTuple

from understudy import DISTRIBUTION

PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?==(?P<version>[^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})")
SPDX_ID = re.compile(r"[A-Za-z0-9.+-]+")
VENDORED = Path(__file__).resolve().parents[1] / "src/understudy/entrypoints/console/static/VENDORED"
"""What browsers load from the package itself: a line that names it, and one with the digest of its file."""
_VENDORED = re.compile(
    r"(?P<name>\S+) (?P<version>\S+), \S+, (?P<licence>\S+) .*\nsha256 (?P<digest>[0-9a-f]{64})  \S+\n"
)
MAX_LICENCE = 100
"""Characters of a licence's name; more is the licence's text, which some packages put in its place."""
_CLASSIFIER = "License :: OSI Approved :: "


class Pin(NamedTuple):
    """A package as a requirements file pins it."""

    name: str
    version: str
    digests: tuple[str, ...]


def read_pins(text: str) -> list[Pin]:
    """Return what a requirements file pins.

    Raises:
        ValueError: A line is no pin with a hash.
    """
    pins = []
    for line in text.replace("\\\n", " ").splitlines():
        entry = line.partition(" #")[0].strip()
        if not entry or entry.startswith("#"):
            continue
        found, digests = PIN.match(entry), tuple(HASH.findall(entry))
        if found is None or not digests:
            raise ValueError(f"no pin with a hash: {entry[:80]}")
        pins.append(Pin(re.sub(r"[-_.]+", "-", found["name"]).lower(), found["version"], digests))
    return pins


def read_vendored(text: str) -> list[dict[str, Any]]:
    """Return the components that a file of vendored parts names.

    Raises:
        ValueError: It has something else in it.
    """
    found = list(_VENDORED.finditer(text))
    if not found or "".join(one[0] for one in found) != text:
        raise ValueError(f"no list of vendored parts: {text[:80]}")
    return [_vendored(one) for one in found]


def _vendored(one: re.Match[str]) -> dict[str, Any]:
    reference = f"pkg:npm/{one['name']}@{one['version']}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": one["name"],
        "version": one["version"],
        "purl": reference,
        "scope": "required",
        "hashes": [{"alg": "SHA-256", "content": one["digest"]}],
        "licenses": [{"expression": one["licence"]}],
    }


def make_sbom(
    name: str, version: str, files: Sequence[Sequence[Pin]], vendored: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the document; the same pins give the same document."""
    scopes: dict[Pin, str] = {}
    for place, pins in enumerate(files):
        for pin in pins:
            scopes.setdefault(pin, "required" if place == 0 else "optional")
    components = [*(_component(pin, scope) for pin, scope in sorted(scopes.items())), *vendored]
    identity = json.dumps([name, version, components])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, identity).urn,
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": name, "name": name, "version": version}},
        "components": components,
    }


def _component(pin: Pin, scope: str) -> dict[str, Any]:
    reference = f"pkg:pypi/{pin.name}@{pin.version}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": pin.name,
        "version": pin.version,
        "purl": reference,
        "scope": scope,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(set(pin.digests))],
    }
    licences = _licences(pin)
    return {**component, "licenses": licences} if licences else component


def _licences(pin: Pin) -> list[Mapping[str, Any]]:
    try:
        said = metadata(pin.name)
    except PackageNotFoundError:
        return []
    if said["Version"] != pin.version:
        return []
    if "License-Expression" in said:
        return [{"expression": said["License-Expression"]}]
    return [{"license": {"name": name}} for name in _licence_names(said)]


def _licence_names(said: PackageMetadata) -> Iterable[str]:
    named = [
        text.removeprefix(_CLASSIFIER) for text in said.get_all("Classifier") or () if text.startswith(_CLASSIFIER)
    ]
    plain = next(iter(said.get_all("License") or ()), "").strip()
    if plain and len(plain) <= MAX_LICENCE and "\n" not in plain and not named:
        named = [plain]
    return dict.fromkeys(named)


def main(paths: Sequence[str]) -> int:
    """Write the document to standard output, and what is unknown to standard error."""
    files = [read_pins(Path(path).read_text(encoding="utf-8")) for path in paths]
    vendored = read_vendored(VENDORED.read_text(encoding="utf-8"))
    sbom = make_sbom(DISTRIBUTION, metadata(DISTRIBUTION)["Version"], files, vendored)
    unknown = [component["name"] for component in sbom["components"] if "licenses" not in component]
    sys.stdout.write(json.dumps(sbom, indent=2) + "\n")
    listed = f": {', '.join(unknown)}" if unknown else ""
    sys.stderr.write(f"{len(sbom['components'])} packages, {len(unknown)} without a known licence{listed}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
