"""Each kind of mistake, planted in a copy, is caught by the check that is there for it."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from rigs.deploycheck.__main__ import CHECKS

BY_NAME = {check.name: check.run for check in CHECKS}
DOCKERFILE = "Dockerfile"
BASE = "k8s/base/proxy.yaml"
COMPONENTS = "k8s/components/"
STORES = COMPONENTS + "dev-stores/stores.yaml"
AGENT = COMPONENTS + "agent-sidecar/"
COMPOSE = "docker-compose.yml"
WORKFLOW = ".github/workflows/checks.yml"
NIGHTLY = ".github/workflows/nightly.yml"
GITLAB = ".gitlab-ci.yml"
RELEASE = ".github/workflows/release.yml"
SCRIPT = "tools/release_image.sh"
BASE_DIGEST = "sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b"


class Mistake(NamedTuple):
    """What stands in a file, what is planted in its place, and what is said of it."""

    file: str
    stands: str
    planted: str
    said: str


PLANTED: dict[str, list[Mistake]] = {
    "image: hadolint": [
        Mistake(DOCKERFILE, "ARG BASE=", "RUN cd /tmp && sudo true\nARG BASE=", "DL3"),
    ],
    "image: our rules": [
        Mistake(DOCKERFILE, "target=/src/pyproject.toml", "target=pyproject.toml", "is relative"),
        Mistake(
            DOCKERFILE, "ARG BASE=python:3.11-slim-bookworm@", "ARG BASE=python:latest@", "says nothing about what"
        ),
        Mistake(DOCKERFILE, f"bookworm@{BASE_DIGEST}", "bookworm", "may become another image"),
        Mistake(DOCKERFILE, BASE_DIGEST, "sha256:abc", "has a digest that is none"),
        Mistake(DOCKERFILE, "image.base.name", "image.base", "has no label org.opencontainers.image.base.name"),
        Mistake(DOCKERFILE, "FROM ${BASE} AS runtime", "FROM debian:12 AS runtime", "another base"),
        Mistake(DOCKERFILE, "USER 10001:10001", "USER understudy", "ends as user understudy"),
        Mistake(DOCKERFILE, "USER 10001:10001\n", "", "ends as user root"),
        Mistake(DOCKERFILE, "--require-hashes \\\n        -r", "-r", "what no hash is known of"),
        Mistake(DOCKERFILE, "--no-index /opt", "--index-url https://x.example /opt", "names a host"),
        Mistake(DOCKERFILE, "image.revision", "image.commit", "has no label org.opencontainers.image.revision"),
    ],
    "compose: schema": [
        Mistake(COMPOSE, "    depends_on:\n", "    dependson:\n", "dependson"),
    ],
    "compose: our rules": [
        Mistake(
            COMPOSE, "image: valkey/valkey:9.1.1@", "image: valkey/valkey:latest@", "says nothing about what will run"
        ),
        Mistake(COMPOSE, "image: valkey/valkey:9.1.1@", "image: redis:7.4.2-bookworm@", "licences that are not free"),
        Mistake(COMPOSE, "prom/prometheus:v3.13.1@sha256:", "prom/prometheus:v3.13.1 # ", "may become another image"),
        Mistake(COMPOSE, "  read_only: true\n  cap_drop: [ALL]\n", "  cap_drop: [ALL]\n", "can be written to"),
        Mistake(COMPOSE, '  user: "10001:10001"\n', "", "another user"),
        Mistake(COMPOSE, '"127.0.0.1:${PORT:-8080}:8080"', '"8080:8080"', "listens beyond this machine"),
        Mistake(COMPOSE, "UNDERSTUDY_WORKERS:", "UNDERSTUDY_WORKER:", "no process reads UNDERSTUDY_WORKER"),
        Mistake(COMPOSE, 'UNDERSTUDY_WORKERS: "2"', 'UNDERSTUDY_WORKERS: "0"', "greater than or equal to 1"),
        Mistake(COMPOSE, "stop_grace_period: 35s", "stop_grace_period: 30s", "killed after 30 s, and may need 34 s"),
        Mistake(COMPOSE, "    stop_grace_period: 35s\n", "", "killed after 10 s, and may need 34 s"),
        Mistake(COMPOSE, "stop_grace_period: 35s", "stop_grace_period: 1m", "write stop_grace_period in seconds"),
        Mistake(COMPOSE, "[serve, monitor]", "[serve, monitors]", "has no command monitors"),
        Mistake(COMPOSE, "--key-file, /var", "--keyfile, /var", "has no option --keyfile"),
        Mistake(
            COMPOSE,
            "REDIS_URL_FILE: /run/secrets/redis_url",
            "REDIS_URL: redis://default:hunter2@redis:6379/0",
            "has a password in it",
        ),
        Mistake(COMPOSE, "--aclfile, /run/secrets/redis_acl", "--protected-mode, no", "lets any client in"),
        Mistake(COMPOSE, "networks: [cache]", "networks: [cache, data]", "is reached by postgres, which has no login"),
        Mistake(COMPOSE, "secrets: [owner_url]", "secrets: [owners_url]", "which nobody defines"),
        Mistake(COMPOSE, "./deploy/compose/create-logins.sh", "./deploy/compose/logins.sh", "there is no"),
        Mistake(COMPOSE, '"tfserving-models:/models:ro"', '"/srv/models:/models:ro"', "of the host"),
    ],
    "manifests: kustomize": [
        Mistake("k8s/base/kustomization.yaml", "  - upkeep.yaml", "  - upkeeps.yaml", "upkeeps.yaml"),
        Mistake("k8s/examples/keda/kustomization.yaml", "components/keda", "components/hpa", "components/keda"),
    ],
    "manifests: schemas": [
        Mistake(BASE, "            preStop:", "            preStopp:", "preStopp"),
        Mistake(BASE, "containerPort: 8080", 'containerPort: "eight"', "is not of type 'integer'"),
        Mistake(COMPONENTS + "servicemonitor/servicemonitor.yaml", "honorLabels", "honourLabels", "honourLabels"),
        Mistake(COMPONENTS + "keda/scaledobject.yaml", "maxReplicaCount", "maxReplicas", "maxReplicas"),
    ],
    "manifests: our policy": [
        Mistake(BASE, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "can be written to"),
        Mistake(STORES, "--aclfile, /run", "--dir, /run", "understudy-redis redis: lets any client in"),
        Mistake(STORES, "kind: NetworkPolicy", "kind: NetworkPolicies", "is reached by every pod"),
        Mistake(STORES, "policyTypes: [Ingress, Egress]", "policyTypes: [Egress]", "is reached by every pod"),
        Mistake(AGENT + "agent.yaml", "          restartPolicy: Always\n", "", "beside or after the server"),
        Mistake(AGENT + "server.yaml", "path: /drained", "path: /livez", "ends while proxies call it"),
        Mistake(AGENT + "networkpolicy.yaml", "port: predict", "port: 8501", "is reached at 8501"),
    ],
    "pipelines: schemas": [
        Mistake(WORKFLOW, "    runs-on:", "    run-on:", "run-on"),
        Mistake(GITLAB, "  script:\n    - make check\n", "  scripts:\n    - make check\n", "scripts"),
    ],
    "pipelines: our rules": [
        Mistake(WORKFLOW, "@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0", "@v5", "pin the full commit"),
        Mistake(WORKFLOW, " # v6.0.0", "", "does not say which version"),
        Mistake(WORKFLOW, "  contents: read", "  contents: write", "may do more than read"),
        Mistake(WORKFLOW, "    timeout-minutes: 20\n", "", "may run for hours"),
        Mistake(WORKFLOW, "persist-credentials: false", "persist-credentials: true", "leaves its token"),
        Mistake(WORKFLOW, "run: make test", "run: pytest", "pipelines call make"),
        Mistake(GITLAB, "python:3.11-bookworm@", "python:latest@", "says nothing about what will run"),
        Mistake(GITLAB, "debian:12.9@sha256:", "debian:12.9 # ", "may become another image"),
        Mistake(GITLAB, "    - make image", "    - buildah build .", "pipelines call make"),
    ],
    "pipelines: scans": [
        Mistake(WORKFLOW, "run: make scan", "run: make check", "nothing that is pushed is scanned"),
        Mistake(GITLAB, "    - make scan", "    - make check", "nothing that is pushed is scanned"),
        Mistake(".github/workflows/scan.yml", "run: make scan", "run: make check", "become known later"),
        Mistake(".github/workflows/scan.yml", '  schedule:\n    - cron: "17 5 * * 1"\n', "", "become known later"),
    ],
    "pipelines: random draws": [
        Mistake(
            NIGHTLY, '      UNDERSTUDY_TEST_RANDOM: "1"', '      UNDERSTUDY_TEST_RANDOM: "0"', "nothing draws anew"
        ),
        Mistake(NIGHTLY, "run: make test", "run: make check", "nothing draws anew"),
        Mistake(NIGHTLY, '  schedule:\n    - cron: "43 2 * * *"\n', "", "nothing draws anew"),
        Mistake(GITLAB, '        UNDERSTUDY_TEST_RANDOM: "1"', "        OTHER: x", "nothing draws anew"),
        Mistake(GITLAB, "    - make test\n", "    - make quick\n", "nothing draws anew"),
    ],
    "release": [
        Mistake(RELEASE, '    tags: ["v*"]', "    branches: [main]", "releases what is no tag"),
        Mistake(RELEASE, "  push:\n    tags", "  pull_request_target:\n  push:\n    tags", "releases what is no tag"),
        Mistake(
            RELEASE, "      packages: write", "      packages: write\n      actions: write", "may do something else"
        ),
        Mistake(RELEASE, "    environment: release\n", "", "needs no approval"),
        Mistake(RELEASE, "      - run: make scan\n", "", "releases what was not scanned"),
        Mistake(RELEASE, "sigstore/cosign-installer", "sigstore/gitsign-installer", "has nothing to sign with"),
        Mistake(SCRIPT, 'cosign sign --yes "$name@$digest"', 'cosign sign --yes "$name:$version"', "sign the image by"),
        Mistake(SCRIPT, "--type slsaprovenance1", "--type custom", "does not sign its provenance"),
        Mistake(SCRIPT, "cosign attest --yes --type cyclonedx", "echo", "does not sign its bill of materials"),
    ],
    "copies": [
        Mistake(COMPOSE, "understudy:0.1.0", "understudy:0.0.9", "names version 0.0.9"),
        Mistake("k8s/overlays/prod/kustomization.yaml", "newTag: 0.1.0", "newTag: 0.0.9", "names version 0.0.9"),
        Mistake(
            COMPONENTS + "dev-stores/create-logins.sh", "LOGIN PASSWORD", "LOGIN SUPERUSER PASSWORD", "is not the same"
        ),
    ],
}
ALL = [(name, mistake) for name, mistakes in PLANTED.items() for mistake in mistakes]


@pytest.mark.parametrize(("name", "mistake"), ALL, ids=[f"{name}: {mistake.said}" for name, mistake in ALL])
def test_a_planted_mistake_is_caught(name, mistake, a_copy: Path, found):
    path = a_copy / mistake.file
    text = path.read_text()
    assert mistake.stands in text, f"{mistake.file} has no {mistake.stands!r} to make a mistake of"
    path.write_text(text.replace(mistake.stands, mistake.planted))

    findings = [str(finding) for finding in found(BY_NAME[name], a_copy)]

    assert any(mistake.said in finding for finding in findings), findings


def test_a_service_that_others_wait_for_has_a_healthcheck(a_copy: Path, found):
    path = a_copy / COMPOSE
    text = path.read_text()
    begin = text.index("    healthcheck:", text.index("  modelserver:"))
    path.write_text(text[:begin] + text[text.index("    deploy:", begin) :])

    findings = [str(finding) for finding in found(BY_NAME["compose: our rules"], a_copy)]

    assert f"{COMPOSE} modelserver: has no healthcheck" in findings
    assert f"{COMPOSE} register: waits until modelserver is healthy, which has no healthcheck" in findings


def test_rules_that_prometheus_would_refuse_are_caught(a_copy: Path, found):
    rules = a_copy / "deploy/prometheus/rules/planted.yml"
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text("groups: [{name: planted, rules: [{alert: Planted, expr: 'sum(('}]}]\n")

    findings = [str(finding) for finding in found(BY_NAME["watching: rules"], a_copy)]

    assert any("planted" in finding for finding in findings), findings


def test_rules_that_the_cluster_would_not_get_are_caught(a_copy: Path, found):
    rules = a_copy / "deploy/prometheus/rules/planted.yml"
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text("groups: [{name: planted, rules: [{alert: Planted, expr: 'up == 0'}]}]\n")

    findings = [str(finding) for finding in found(BY_NAME["copies"], a_copy)]

    assert any("make k8s-rules" in finding for finding in findings), findings


def test_a_configuration_that_alertmanager_would_refuse_is_caught(a_copy: Path, found):
    path = a_copy / "deploy/alertmanager/alertmanager.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("route: {receiver: nobody}\nreceivers: [{name: somebody}]\n")

    findings = [str(finding) for finding in found(BY_NAME["watching: alertmanager"], a_copy)]

    assert any("nobody" in finding for finding in findings), findings


def test_a_configuration_that_prometheus_would_refuse_is_caught(a_copy: Path, found):
    path = a_copy / "deploy/prometheus/prometheus.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("scrape_configs: [{job_name: proxy, scrape_intervall: 5s}]\n")

    findings = [str(finding) for finding in found(BY_NAME["watching: prometheus"], a_copy)]

    assert any("scrape_intervall" in finding for finding in findings), findings


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "is no JSON"),
        (json.dumps({"title": "Planted", "panels": []}), "has no uid"),
        (json.dumps({"uid": "x", "title": "Planted", "panels": [{"type": "stat", "title": "Calls"}]}), "asks nothing"),
    ],
)
def test_a_dashboard_that_shows_nothing_is_caught(document, said, a_copy: Path, found):
    path = a_copy / "deploy/grafana/dashboards/planted.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document)

    findings = [str(finding) for finding in found(BY_NAME["watching: dashboards"], a_copy)]

    assert any("planted.json" in finding and said in finding for finding in findings), findings


def test_a_folder_that_is_mounted_and_lacks_a_file_is_caught(a_copy: Path, found):
    for folder in ("prometheus", "alertmanager", "grafana"):
        (a_copy / "deploy" / folder).mkdir(parents=True, exist_ok=True)
    path = a_copy / COMPOSE
    path.write_text(path.read_text().replace("./deploy/grafana/provisioning", "./deploy/grafana/provisionings"))

    findings = [str(finding) for finding in found(BY_NAME["compose: what the profile obs mounts"], a_copy)]

    assert any("deploy/grafana/provisionings, which is not there" in finding for finding in findings), findings
