"""Our policy for what is deployed: each rule, broken in what production really renders to, is said."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rigs.deploycheck.findings import ToolMissing
from rigs.deploycheck.manifests import built_trees, trees
from rigs.deploycheck.policy import CONTAINER_RULES, OBJECT_RULES, POD_RULES, judge

ROOT = Path(__file__).resolve().parents[3]
Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rendered() -> Mapping[str, Objects]:
    try:
        return {tree: [dict(one) for one in objects] for tree, objects in built_trees(ROOT)}
    except ToolMissing as reason:
        pytest.skip(f"NOT CHECKED: {reason}")


@pytest.fixture
def production(rendered) -> Objects:
    return copy.deepcopy(rendered["k8s/overlays/prod"])


def one_of(objects: Objects, kind: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def pod(objects: Objects, kind: str = "Deployment", name: str = "understudy-proxy") -> dict[str, Any]:
    spec = one_of(objects, kind, name)["spec"]
    found: dict[str, Any] = (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]
    return found


def container(objects: Objects, kind: str = "Deployment", name: str = "understudy-proxy") -> dict[str, Any]:
    found: dict[str, Any] = pod(objects, kind, name)["containers"][0]
    return found


def with_variable(objects: Objects, name: str, value: str) -> None:
    container(objects)["env"].append({"name": name, "value": value})


def add_secret(objects: Objects) -> None:
    secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "planted", "namespace": "understudy"}}
    objects.append({**secret, "data": {}})


def add_scaler(objects: Objects) -> None:
    target = {"scaleTargetRef": {"name": "understudy-proxy"}}
    objects.append({"kind": "ScaledObject", "metadata": {"name": "x", "namespace": "understudy"}, "spec": target})


BROKEN: list[tuple[str, Callable[[Objects], Any]]] = [
    ("may run as root", lambda o: pod(o)["securityContext"].pop("runAsNonRoot")),
    ("may run as root", lambda o: pod(o)["securityContext"].update(runAsUser=0)),
    ("may make any system call", lambda o: pod(o)["securityContext"].pop("seccompProfile")),
    ("hostNetwork is the host's", lambda o: pod(o).update(hostNetwork=True)),
    ("gets a token", lambda o: pod(o, "Job", "understudy-migrate").pop("automountServiceAccountToken")),
    ("gets a variable for each Service", lambda o: pod(o).pop("enableServiceLinks")),
    ("may fill the node", lambda o: pod(o)["volumes"][0].update(emptyDir={})),
    ("is a folder of the host", lambda o: pod(o)["volumes"].append({"name": "x", "hostPath": {"path": "/"}})),
    (
        "may hold 2048 Mi, and the ephemeral-storage of its containers is limited to 1024 Mi",
        lambda o: pod(o)["volumes"][0]["emptyDir"].update(sizeLimit="2Gi"),
    ),
    (
        "an image without a digest",
        lambda o: pod(o)["volumes"].append({"name": "x", "image": {"reference": "models:1"}}),
    ),
    (
        "knows the password of understudy-owner; the proxy may know understudy-proxy",
        lambda o: pod(o)["volumes"][-1].update(secret={"secretName": "understudy-owner"}),
    ),
    ("is killed after 45 s, and may need 54 s", lambda o: pod(o).update(terminationGracePeriodSeconds=45)),
    (
        "is killed after 15 s, and may need 18 s",
        lambda o: pod(o, name="understudy-monitor").update(terminationGracePeriodSeconds=15),
    ),
    ("name a tag other than latest", lambda o: container(o).update(image="registry.example/understudy:latest")),
    ("may become another image", lambda o: container(o).update(image="registry.example/other:1.2.3")),
    ("has a digest that is none", lambda o: container(o).update(image="understudy@sha256:abc")),
    ("can be written to", lambda o: container(o)["securityContext"].pop("readOnlyRootFilesystem")),
    ("may gain privileges", lambda o: container(o)["securityContext"].update(privileged=True)),
    ("keeps capabilities", lambda o: container(o)["securityContext"].update(capabilities={"drop": ["NET_RAW"]})),
    ("has no resources.limits.memory", lambda o: container(o)["resources"]["limits"].pop("memory")),
    (
        "has no resources.requests.cpu",
        lambda o: container(o, "CronJob", "understudy-archive")["resources"]["requests"].pop("cpu"),
    ),
    ("has a limit of CPU", lambda o: container(o)["resources"]["limits"].update(cpu="1")),
    ("has no readinessProbe", lambda o: container(o).pop("readinessProbe")),
    ("has no livenessProbe", lambda o: container(o, name="understudy-monitor").pop("livenessProbe")),
    (
        "is restarted when a dependency is away",
        lambda o: container(o)["livenessProbe"].update(httpGet={"path": "/readyz", "port": "http"}),
    ),
    ("ends while it still gets calls", lambda o: container(o).pop("lifecycle")),
    ("understudy serve has no command proxies", lambda o: container(o).update(args=["serve", "proxies"])),
    ("understudy has no command run", lambda o: container(o).update(args=["run"])),
    ("no process reads UNDERSTUDY_WORKER", lambda o: with_variable(o, "UNDERSTUDY_WORKER", "1")),
    ("UNDERSTUDY_PORT=tcp://10.0.0.1:80", lambda o: with_variable(o, "UNDERSTUDY_PORT", "tcp://10.0.0.1:80")),
    (
        "UNDERSTUDY_ALERT_WEBHOOK_URL is a secret",
        lambda o: with_variable(o, "UNDERSTUDY_ALERT_WEBHOOK_URL", "https://hooks.example/T0K3N"),
    ),
    ("DATABASE_URL has a password in it", lambda o: with_variable(o, "DATABASE_URL", "postgresql://a:b@c/d")),
    (
        "is in no volume that is mounted",
        lambda o: with_variable(o, "UNDERSTUDY_FEATURE_REDIS_URL_FILE", "/secrets/features"),
    ),
    ("is a secret in a repository", add_secret),
    ("selects nobody", lambda o: one_of(o, "Service", "understudy-proxy")["spec"]["selector"].update(app="x")),
    (
        "sends calls to the port https",
        lambda o: one_of(o, "Service", "understudy-proxy")["spec"]["ports"][0].update(targetPort="https"),
    ),
    (
        "scrapes nobody",
        lambda o: one_of(o, "ServiceMonitor", "understudy")["spec"]["selector"]["matchLabels"].update(app="x"),
    ),
    (
        "scrapes the port http, which",
        lambda o: one_of(o, "ServiceMonitor", "understudy")["spec"]["endpoints"][0].update(port="http"),
    ),
    (
        "unhealthyPodEvictionPolicy: AlwaysAllow",
        lambda o: one_of(o, "PodDisruptionBudget", "understudy-proxy")["spec"].pop("unhealthyPodEvictionPolicy"),
    ),
    (
        "may lose all its pods at once",
        lambda o: o.remove(one_of(o, "PodDisruptionBudget", "understudy-monitor")),
    ),
    ("may have all its pods on one node", lambda o: pod(o).pop("topologySpreadConstraints")),
    ("is scaled by 2 autoscalers", add_scaler),
    ("each apply would set it back", lambda o: one_of(o, "Deployment", "understudy-proxy")["spec"].update(replicas=3)),
    ("may run beside itself", lambda o: one_of(o, "CronJob", "understudy-archive")["spec"].pop("concurrencyPolicy")),
    ("may try for ever", lambda o: one_of(o, "Job", "understudy-migrate")["spec"].pop("activeDeadlineSeconds")),
    (
        "lets pods do anything",
        lambda o: one_of(o, "Namespace", "understudy")["metadata"]["labels"].clear(),
    ),
    (
        "is in the namespace default",
        lambda o: one_of(o, "Service", "understudy-proxy")["metadata"].update(namespace="default"),
    ),
]


@pytest.mark.parametrize(("said", "break_it"), BROKEN, ids=[said for said, _ in BROKEN])
def test_a_rule_that_is_broken_is_said(said, break_it, production):
    break_it(production)

    found = [f"{where}: {what}" for where, what in judge(production)]

    assert any(said in finding for finding in found), found
    assert len(found) <= 2, "one mistake is said once, or twice where two rules meet"


def test_production_breaks_no_rule(production):
    assert judge(production) == []


def test_there_are_as_many_broken_rules_as_rules():
    assert len({said for said, _ in BROKEN}) >= len(POD_RULES) + len(CONTAINER_RULES) + len(OBJECT_RULES)


def test_every_tree_runs_each_process_once_under_its_own_login(rendered):
    assert set(rendered) == set(trees(ROOT))
    for objects in rendered.values():
        kinds = {(one["kind"], one["metadata"]["name"]) for one in objects}
        assert {
            ("Deployment", "understudy-proxy"),
            ("Deployment", "understudy-monitor"),
            ("Job", "understudy-migrate"),
            ("CronJob", "understudy-partitions"),
            ("CronJob", "understudy-archive"),
        } <= kinds
        assert one_of(objects, "Deployment", "understudy-monitor")["spec"]["replicas"] == 2


def test_a_model_server_beside_a_proxy_may_fill_the_volume_of_its_models(rendered):
    objects = copy.deepcopy(rendered["k8s/examples/models-from-pvc"])
    assert judge(objects) == []
    sidecar = pod(objects)["initContainers"][-1]

    sidecar["resources"]["limits"]["ephemeral-storage"] = "500Mi"

    assert [what for _, what in judge(objects) if "may hold 2560 Mi" in what]


@pytest.mark.parametrize("example", ["tfserving-sidecar", "models-from-pvc"])
def test_a_model_server_beside_a_proxy_starts_before_it_and_has_to_have_its_model(rendered, example):
    spec = pod(rendered[f"k8s/examples/{example}"])
    sidecar = spec["initContainers"][-1]

    assert (sidecar["name"], sidecar["restartPolicy"]) == ("tfserving", "Always")
    for probe in ("startupProbe", "readinessProbe"):
        assert sidecar[probe]["httpGet"]["path"] == "/v1/models/visits/metadata"
