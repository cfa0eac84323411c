"""What watches an installation: Prometheus' rules and configuration, Alertmanager's, Grafana's dashboards."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import yaml

from rigs.deploycheck.findings import Finding, ToolMissing
from rigs.deploycheck.programs import find, findings_of
from tools.make_prometheus_rule import TARGET, make_rule, rule_files
from understudy import __version__

DEBIAN = "Debian's package {} has it"
PROMETHEUS = "deploy/prometheus/prometheus.yml"
ALERTMANAGER = "deploy/alertmanager/alertmanager.yml"
DASHBOARDS = "deploy/grafana/dashboards"
SAME = (("deploy/compose/create-logins.sh", "k8s/components/dev-stores/create-logins.sh"),)
"""Files that two tools want in folders of their own."""


def check_rules(root: Path) -> list[Finding]:
    """Judge the rules with Prometheus' own tool.

    Raises:
        ToolMissing: There is no promtool, or there are no rules.
    """
    files = [path.relative_to(root).as_posix() for path in rule_files(root)]
    if not files:
        raise ToolMissing("deploy/prometheus", "there are no rules to judge")
    return findings_of([_promtool(), "check", "rules", "--lint=all", "--lint-fatal", *files], root, ", ".join(files))


def check_prometheus(root: Path) -> list[Finding]:
    """Judge Prometheus' configuration; files that it names are looked for."""
    _require(root, PROMETHEUS)
    return findings_of([_promtool(), "check", "config", "--syntax-only", PROMETHEUS], root, PROMETHEUS)


def check_alertmanager(root: Path) -> list[Finding]:
    """Judge Alertmanager's configuration with its own tool."""
    _require(root, ALERTMANAGER)
    amtool = find("amtool", DEBIAN.format("prometheus-alertmanager"))
    return findings_of([amtool, "check-config", ALERTMANAGER], root, ALERTMANAGER)


def check_dashboards(root: Path) -> list[Finding]:
    """Judge whether each dashboard can be read, has a name of its own, and asks something in every panel."""
    _require(root, DASHBOARDS)
    return [Finding(path.relative_to(root).as_posix(), what) for path, what in _dashboards(root)]


def check_copies(root: Path) -> list[Finding]:
    """Judge whether what is made from other files is what they would make today."""
    target = root / TARGET
    found = []
    if not target.is_file() or yaml.safe_load(target.read_text(encoding="utf-8")) != yaml.safe_load(make_rule(root)):
        found.append(Finding(TARGET.as_posix(), "is not what deploy/prometheus makes: make k8s-rules"))
    found += [Finding(file, f"names version {said}, this is {__version__}") for file, said in _versions(root)]
    for original, copy in SAME:
        if (root / original).read_bytes() != (root / copy).read_bytes():
            found.append(Finding(copy, f"is not the same as {original}: cp {original} {copy}"))
    return found


def _versions(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each file that names another version of our image than the one that it is built from."""
    named = [("Dockerfile", r"ARG VERSION=(\S+)"), ("docker-compose.yml", r"IMAGE:-understudy:([^}\s]+)")]
    trees = sorted(root.glob("k8s/*/*/kustomization.yaml"))
    for file, pattern in [*named, *((path.relative_to(root).as_posix(), r"newTag: (\S+)") for path in trees)]:
        for said in re.findall(pattern, (root / file).read_text(encoding="utf-8")):
            if said != __version__:
                yield file, said


def _promtool() -> str:
    return find("promtool", DEBIAN.format("prometheus"))


def _require(root: Path, path: str) -> None:
    if not (root / path).exists():
        raise ToolMissing(path, "there is nothing to judge")


def _dashboards(root: Path) -> Iterator[tuple[Path, str]]:
    seen: dict[str, Path] = {}
    for path in sorted((root / DASHBOARDS).glob("**/*.json")):
        try:
            document: dict[str, Any] = orjson.loads(path.read_bytes())
        except orjson.JSONDecodeError as problem:
            yield path, f"is no JSON: {problem}"
            continue
        uid = document.get("uid")
        if not uid or not document.get("title"):
            yield path, "has no uid or no title"
        elif seen.setdefault(uid, path) != path:
            yield path, f"has the uid {uid} of {seen[uid].name}"
        for panel in _panels(document):
            if panel.get("type") not in ("row", "text") and not panel.get("targets"):
                yield path, f"the panel {panel.get('title')!r} asks nothing"


def _panels(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in document.get("panels", ()):
        yield panel
        yield from _panels(panel)
