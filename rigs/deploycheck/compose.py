"""docker-compose.yml: its schema, and our rules."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rigs.deploycheck.findings import Finding, ToolMissing
from rigs.deploycheck.ours import (
    DRAINS_OF,
    command_problem,
    image_problem,
    is_ours,
    is_redis,
    login_problem,
    secret_problem,
    variable_problem,
)
from rigs.deploycheck.programs import schema_findings

FILE = "docker-compose.yml"
MADE = "deploy/compose/secrets/"
"""Made by ``make compose-secrets``, and in no repository."""
WATCHING = ("deploy/prometheus", "deploy/alertmanager", "deploy/grafana")
ENDING_SECONDS = 4.0
"""Beside the drains: what gunicorn gives a worker for shadows (0.5 s), spans (2 s) and closing (1 s), rounded up."""
NOT_ASKED = frozenset({"traffic"})
"""No service depends on it, and it says itself how it fares."""


def check_schema(root: Path) -> list[Finding]:
    """Judge the file by the compose specification."""
    return schema_findings("vendor.compose-spec", FILE, root)


def check_our_rules(root: Path) -> list[Finding]:
    """Judge what the specification leaves open."""
    document = _read(root)
    services: Mapping[str, Any] = document["services"]
    found = [Finding(f"{FILE} {name}", what) for name, service in services.items() for what in _of(name, service)]
    for name, service in services.items():
        rest = (*_around(service), *_waits(service, services), *_keeps_redis_apart(name, services))
        found += [Finding(f"{FILE} {name}", what) for what in rest]
    found += [Finding(FILE, what) for what in _files(document, root)]
    return found


def check_watching(root: Path) -> list[Finding]:
    """Judge whether what Prometheus, Alertmanager and Grafana mount is there.

    Raises:
        ToolMissing: One of the folders is not there at all.
    """
    for folder in WATCHING:
        if not (root / folder).is_dir():
            raise ToolMissing(folder, "the profile obs of docker-compose.yml mounts it")
    document = _read(root)
    mounted = [source for service in document["services"].values() for source in _bound(service)]
    named = [str(config.get("file", "")).removeprefix("./") for config in document.get("configs", {}).values()]
    wanted = [path for path in (*mounted, *named) if path.startswith(WATCHING)]
    return [Finding(FILE, f"mounts {path}, which is not there") for path in wanted if not (root / path).exists()]


def _read(root: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((root / FILE).read_text(encoding="utf-8"))
    return document


def filled(text: str) -> str:
    """Return a text with each ``${NAME:-default}`` as its default."""
    return re.sub(r"\$\{\w+(?::?-([^}]*))?\}", lambda match: match[1] or "", text)


def _of(name: str, service: Mapping[str, Any]) -> Iterator[str]:
    image = filled(str(service.get("image", "")))
    problem = image_problem(image)
    if problem is not None:
        yield problem
    if "ALL" not in service.get("cap_drop", ()):
        yield "keeps capabilities: cap_drop: [ALL]"
    if "no-new-privileges:true" not in service.get("security_opt", ()):
        yield "may gain privileges: security_opt: [no-new-privileges:true]"
    if "memory" not in service.get("deploy", {}).get("resources", {}).get("limits", {}):
        yield "has no limit of memory: deploy.resources.limits.memory"
    if service.get("restart") == "unless-stopped" and "healthcheck" not in service and name not in NOT_ASKED:
        yield "has no healthcheck"
    if is_ours(image):
        yield from _of_ours(service, service.get("environment", {}))


def _around(service: Mapping[str, Any]) -> Iterator[str]:
    for port in service.get("ports", ()):
        if not str(port).startswith("127.0.0.1:"):
            yield f"port {port} listens beyond this machine: 127.0.0.1:{port}"
    for variable, value in service.get("environment", {}).items():
        secret = secret_problem(variable, str(value))
        if secret is not None:
            yield secret


def _of_ours(service: Mapping[str, Any], environment: Mapping[str, Any]) -> Iterator[str]:
    if str(service.get("user")) != "10001:10001":
        yield 'runs as another user than the image: user: "10001:10001"'
    if service.get("read_only") is not True:
        yield "has a root that can be written to: read_only: true"
    problem = command_problem([filled(str(word)) for word in service.get("command", ())])
    if problem is not None:
        yield problem
    yield from _ends_in_time(service)
    for variable, value in environment.items():
        unknown = variable_problem(variable, filled(str(value)))
        if unknown is not None:
            yield unknown


def _ends_in_time(service: Mapping[str, Any]) -> Iterator[str]:
    drain = service.get("environment", {}).get("UNDERSTUDY_DRAIN_SECONDS")
    if drain is None:
        return
    grace = re.fullmatch(r"(\d+)s", str(service.get("stop_grace_period", "10s")))  # without one: compose's own
    if grace is None:
        yield f"says {service['stop_grace_period']}: write stop_grace_period in seconds"
        return
    drains = max((DRAINS_OF.get(str(word), 1) for word in service.get("command", ())), default=1)
    needed = drains * float(drain) + ENDING_SECONDS
    if float(grace[1]) < needed:
        yield f"is killed after {grace[1]} s, and may need {needed:.0f} s to end: stop_grace_period"


def _waits(service: Mapping[str, Any], services: Mapping[str, Any]) -> Iterator[str]:
    for other, wait in service.get("depends_on", {}).items():
        if other not in services:
            yield f"waits for {other}, which is no service"
        elif wait["condition"] == "service_healthy" and "healthcheck" not in services[other]:
            yield f"waits until {other} is healthy, which has no healthcheck"
        elif wait["condition"] == "service_completed_successfully" and services[other]["restart"] == "unless-stopped":
            yield f"waits for the end of {other}, which is started again"


def _keeps_redis_apart(name: str, services: Mapping[str, Any]) -> Iterator[str]:
    service = services[name]
    if not is_redis(filled(str(service.get("image", "")))):
        return
    problem = login_problem([str(word) for word in service.get("command", ())])
    if problem is not None:
        yield problem
    for other, neighbour in services.items():
        asks = any("REDIS_URL" in variable for variable in neighbour.get("environment", {}))
        shared = sorted(set(service.get("networks", ())) & set(neighbour.get("networks", ())))
        if other != name and shared and not asks:
            yield f"is reached by {other}, which has no login of it: a network of its own in place of {shared[0]}"


def _files(document: Mapping[str, Any], root: Path) -> Iterator[str]:
    named = {**document.get("secrets", {}), **document.get("configs", {})}
    for name, place in named.items():
        path = str(place.get("file", "")).removeprefix("./")
        if not path:
            yield f"{name} is not a file"
        elif not path.startswith((MADE, *WATCHING)) and not (root / path).is_file():
            yield f"{name}: there is no {path}"
    for service_name, service in document["services"].items():
        for entry in service.get("secrets", ()):
            secret = entry["source"] if isinstance(entry, dict) else entry
            if secret not in document.get("secrets", {}):
                yield f"{service_name} wants the secret {secret}, which nobody defines"
        for source in _bound(service):
            if source.startswith(("/", "~", "..")):
                yield f"{service_name} mounts {source} of the host"
            elif not source.startswith(WATCHING) and not (root / source).exists():
                yield f"{service_name} mounts {source}, which is not there"


def _bound(service: Mapping[str, Any]) -> list[str]:
    sources = [str(volume).partition(":")[0] for volume in service.get("volumes", ())]
    return [source.removeprefix("./") for source in sources if source.startswith(("/", ".", "~"))]
