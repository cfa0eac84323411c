"""Pipelines scan for known vulnerabilities; a release is of a tag, scanned, signed, and says where it comes from."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rigs.deploycheck.findings import Finding
from rigs.deploycheck.pipelines import GITLAB, RELEASE_NAME, WORKFLOWS, workflows

RELEASE = f"{WORKFLOWS}/{RELEASE_NAME}"
SCRIPT = "tools/release_image.sh"
RIGHTS = {"contents": "read", "packages": "write", "id-token": "write"}
"""Of the one job that pushes: to read the source, to push, and to sign as itself."""
SCAN, PUBLISH, SIGNER = "make scan", "make release", "sigstore/cosign-installer@"
_SIGNED = {
    "the image": r'^cosign sign --yes "\$name@\$digest"$',
    "its provenance": r'^cosign attest --yes --type slsaprovenance1 --predicate \S+ "\$name@\$digest"$',
    "its bill of materials": r'^cosign attest --yes --type cyclonedx --predicate \S+ "\$name@\$digest"$',
}


def check_scans(root: Path) -> list[Finding]:
    """Judge whether what is pushed is scanned, and what lies there too, from time to time."""
    found = []
    documents = [_read(path) for path in workflows(root)]
    if not any(_asks(document, {"push", "pull_request"}) for document in documents):
        found.append(Finding(WORKFLOWS, f"nothing that is pushed is scanned: {SCAN}"))
    if not any(_asks(document, {"schedule"}) for document in documents):
        found.append(Finding(WORKFLOWS, f"vulnerabilities that become known later are not found: {SCAN} on a schedule"))
    jobs = _read(root / GITLAB).values()
    if not any(isinstance(job, dict) and SCAN in job.get("script", ()) for job in jobs):
        found.append(Finding(GITLAB, f"nothing that is pushed is scanned: {SCAN}"))
    return found


def check_release(root: Path) -> list[Finding]:
    """Judge the pipeline of a release, and what it runs."""
    found = [Finding(RELEASE, what) for what in _of_pipeline(_read(root / RELEASE))]
    text = (root / SCRIPT).read_text(encoding="utf-8")
    for what, line in _SIGNED.items():
        if re.search(line, text, re.MULTILINE) is None:
            found.append(Finding(SCRIPT, f"does not sign {what} by its digest"))
    return found


def _of_pipeline(document: Mapping[str, Any]) -> Iterator[str]:
    if _events(document) != {"push": {"tags": ["v*"]}}:
        yield 'releases what is no tag: on: push: tags: ["v*"]'
    for name, job in document["jobs"].items():
        if job.get("permissions") != RIGHTS:
            yield f"{name} may do something else than read, push and sign: permissions"
        if "environment" not in job:
            yield f"{name} needs no approval: environment"
        runs = [str(step.get("run", "")) for step in job["steps"]]
        if PUBLISH not in runs or SCAN not in runs[: runs.index(PUBLISH)]:
            yield f"{name} releases what was not scanned: {SCAN}, then {PUBLISH}"
        if not any(str(step.get("uses", "")).startswith(SIGNER) for step in job["steps"]):
            yield f"{name} has nothing to sign with: {SIGNER}…"


def _asks(document: Mapping[str, Any], events: set[str]) -> bool:
    """Whether a workflow of one of these events, on branches, scans."""
    on = _events(document)
    is_meant = any(event in on and "tags" not in (on[event] or {}) for event in events)
    return is_meant and any(step.get("run") == SCAN for job in document["jobs"].values() for step in job["steps"])


def _events(document: Mapping[Any, Any]) -> dict[str, Any]:
    events: dict[str, Any] = document.get(True, document.get("on", {}))  # YAML 1.1 reads the key "on" as true
    return events


def _read(path: Path) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document
