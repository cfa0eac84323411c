"""The Dockerfile: hadolint's rules, and ours."""

import re
from collections.abc import Iterator
from pathlib import Path

from rigs.deploycheck.findings import Finding
from rigs.deploycheck.ours import image_problem
from rigs.deploycheck.programs import find, findings_of

FILE = "Dockerfile"
USER = "10001:10001"
LABELS = ("title", "description", "base.name", "version", "revision")


def check_hadolint(root: Path) -> list[Finding]:
    """Lint the file; a warning is a finding."""
    return findings_of([find("hadolint"), "--failure-threshold", "warning", FILE], root, FILE)


def check_our_rules(root: Path) -> list[Finding]:
    """Judge what hadolint has no rule for."""
    text = (root / FILE).read_text(encoding="utf-8")
    return [Finding(FILE, what) for what in _problems(text)]


def _problems(text: str) -> Iterator[str]:
    instructions = _logical_lines(text)
    for target in re.findall(r"--mount=\S*?target=([^,\s]+)", " ".join(instructions)):
        if not target.startswith("/"):
            yield f"the mount target {target} is relative, which buildah refuses"
    for base in re.findall(r"^ARG BASE=(\S+)", text, re.MULTILINE) or ["(none)"]:
        problem = image_problem(base)
        if problem is not None:
            yield f"ARG BASE: {problem}"
    for line in instructions:
        yield from _sources(line)
    users = [line.split()[1] for line in instructions if line.startswith("USER ")]
    if users[-1:] != [USER]:
        yield f"ends as user {users[-1] if users else 'root'}; a cluster wants {USER}, by number"
    for label in LABELS:
        if f"org.opencontainers.image.{label}=" not in text:
            yield f"has no label org.opencontainers.image.{label}"


def _sources(line: str) -> Iterator[str]:
    if line.startswith("FROM") and "${BASE}" not in line:
        yield f"{line} is another base than BASE"
    if re.search(r"https?://", line):
        yield f"names a host: {line[:80]}"
    for install in re.findall(r"pip install[^&]*", line):
        if "--require-hashes" not in install and "--no-index" not in install:
            yield f"installs what no hash is known of: {install.strip()[:80]}"


def _logical_lines(text: str) -> list[str]:
    without_comments = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [line.strip() for line in without_comments.replace("\\\n", " ").splitlines() if line.strip()]
