"""Our policy for what is deployed: each rule, broken in what production really renders to, is said."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rigs.deploycheck.findings import ToolMissing
from rigs.deploycheck.manifests import built_trees, trees
from rigs.deploycheck.policy import CONTAINER_RULES, OBJECT_RULES, POD_RULES, SCALERS, judge

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


def pod(objects: Objects, kind: str = "StatefulSet", name: str = "understudy-proxy") -> dict[str, Any]:
    spec = one_of(objects, kind, name)["spec"]
    found: dict[str, Any] = (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]
    return found


def container(objects: Objects, kind: str = "StatefulSet", name: str = "understudy-proxy") -> dict[str, Any]:
    found: dict[str, Any] = pod(objects, kind, name)["containers"][0]
    return found


def with_variable(objects: Objects, name: str, value: str) -> None:
    container(objects)["env"].append({"name": name, "value": value})


def proxies(objects: Objects) -> dict[str, Any]:
    found: dict[str, Any] = one_of(objects, "StatefulSet", "understudy-proxy")["spec"]
    return found


def claim(objects: Objects) -> dict[str, Any]:
    found: dict[str, Any] = proxies(objects)["volumeClaimTemplates"][0]["spec"]
    return found


def in_place_of_claims(objects: Objects, **volume: Any) -> None:
    """Put the spool on another volume, with room for it on the node."""
    del proxies(objects)["volumeClaimTemplates"]
    pod(objects)["volumes"].append({"name": "state", **volume})
    container(objects)["resources"]["limits"]["ephemeral-storage"] = "1Gi"


def add_secret(objects: Objects) -> None:
    secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "planted", "namespace": "understudy"}}
    objects.append({**secret, "data": {}})


def add_scaler(objects: Objects) -> None:
    target = {"scaleTargetRef": {"kind": "StatefulSet", "name": "understudy-proxy"}}
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
        "may hold 2048 Mi, and the ephemeral-storage of its containers is limited to 200 Mi",
        lambda o: pod(o)["volumes"].append({"name": "x", "emptyDir": {"sizeLimit": "2Gi"}}),
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
        lambda o: pod(o, kind="Deployment", name="understudy-monitor").update(terminationGracePeriodSeconds=15),
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
    ("has no livenessProbe", lambda o: container(o, kind="Deployment", name="understudy-monitor").pop("livenessProbe")),
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
    (
        "scales Deployment/understudy-proxy, which is not here",
        lambda o: one_of(o, "HorizontalPodAutoscaler", "understudy-proxy")["spec"]["scaleTargetRef"].pop("kind"),
    ),
    ("names its pods by the Service nobody, which", lambda o: proxies(o).update(serviceName="nobody")),
    ("has its spool in the container", lambda o: container(o)["volumeMounts"].pop(0)),
    ("may have two pods at one spool", lambda o: claim(o).update(accessModes=["ReadWriteOnce"])),
    (
        "loses what waits for Postgres when it is scaled",
        lambda o: proxies(o)["persistentVolumeClaimRetentionPolicy"].update(whenScaled="Delete"),
    ),
    (
        "has a volume of 300Mi, and its spool may need 320 Mi",
        lambda o: claim(o)["resources"]["requests"].update(storage="300Mi"),
    ),
    (
        "has a volume of 1Gi, and its spool may need 1280 Mi",
        lambda o: with_variable(o, "UNDERSTUDY_SPOOL_LIMIT_BYTES", str(2**30)),
    ),
    ("has one volume for all pods", lambda o: in_place_of_claims(o, persistentVolumeClaim={"claimName": "spools"})),
    ("loses what a pod has not shipped", lambda o: in_place_of_claims(o, emptyDir={"sizeLimit": "512Mi"})),
    ("each apply would set it back", lambda o: one_of(o, "StatefulSet", "understudy-proxy")["spec"].update(replicas=3)),
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


def test_a_spool_that_ends_with_its_pod_is_taken_where_the_overlay_says_so(production, rendered):
    in_place_of_claims(production, emptyDir={"sizeLimit": "512Mi"})
    assert len(judge(production)) == 1

    one_of(production, "StatefulSet", "understudy-proxy")["metadata"]["annotations"] = {
        "understudy/spool": "ends-with-its-pod"
    }

    assert judge(production) == []
    dev = one_of(list(rendered["k8s/overlays/dev"]), "Deployment", "understudy-proxy")
    assert dev["metadata"]["annotations"] == {"understudy/spool": "ends-with-its-pod"}


@pytest.mark.parametrize("tree", ["k8s/overlays/prod", "k8s/examples/keda", "k8s/examples/tfserving-sidecar"])
def test_each_proxy_of_production_keeps_its_spool_on_a_volume_of_its_own(tree, rendered):
    objects = copy.deepcopy(rendered[tree])

    assert claim(objects)["accessModes"] == ["ReadWriteOncePod"]
    assert proxies(objects)["volumeClaimTemplates"][0]["metadata"]["name"] == "state"
    assert "state" not in [volume["name"] for volume in pod(objects)["volumes"]]
    scaled = [one["spec"]["scaleTargetRef"]["kind"] for one in objects if one["kind"] in SCALERS]
    assert scaled == ["StatefulSet"]


def test_production_breaks_no_rule(production):
    assert judge(production) == []


def test_there_are_as_many_broken_rules_as_rules():
    assert len({said for said, _ in BROKEN}) >= len(POD_RULES) + len(CONTAINER_RULES) + len(OBJECT_RULES)


def test_every_tree_runs_each_process_once_under_its_own_login(rendered):
    assert set(rendered) == set(trees(ROOT))
    for objects in rendered.values():
        kinds = {(one["kind"], one["metadata"]["name"]) for one in objects}
        assert {
            ("Deployment", "understudy-monitor"),
            ("Job", "understudy-migrate"),
            ("CronJob", "understudy-partitions"),
            ("CronJob", "understudy-archive"),
        } <= kinds
        assert len(kinds & {("Deployment", "understudy-proxy"), ("StatefulSet", "understudy-proxy")}) == 1
        assert one_of(objects, "Deployment", "understudy-monitor")["spec"]["replicas"] == 2


def test_a_model_server_beside_a_proxy_may_fill_the_volume_of_its_models(rendered):
    objects = copy.deepcopy(rendered["k8s/examples/models-from-pvc"])
    assert judge(objects) == []
    sidecar = pod(objects)["initContainers"][-1]

    sidecar["resources"]["limits"]["ephemeral-storage"] = "500Mi"

    assert [what for _, what in judge(objects) if "may hold 2048 Mi" in what]


def test_the_versions_of_a_rollout_lie_side_by_side_in_every_pod_and_the_server_serves_each(rendered):
    objects = rendered["k8s/examples/tfserving-sidecar"]
    sidecar = pod(objects)["initContainers"][-1]
    (config,) = [one for one in objects if one["metadata"]["name"].startswith("understudy-tfserving")]

    folders = {mount["mountPath"]: mount.get("subPath") for mount in sidecar["volumeMounts"]}
    assert (folders["/models/visits/1"], folders["/models/visits/2"]) == ("1", "2")
    assert "--model_config_file=/config/models.config" in sidecar["args"]
    assert "model_version_policy { all {} }" in config["data"]["models.config"]


@pytest.mark.parametrize("example", ["tfserving-sidecar", "models-from-pvc"])
def test_a_model_server_beside_a_proxy_starts_before_it_and_has_to_have_its_model(rendered, example):
    spec = pod(rendered[f"k8s/examples/{example}"])
    sidecar = spec["initContainers"][-1]

    assert (sidecar["name"], sidecar["restartPolicy"]) == ("tfserving", "Always")
    for probe in ("startupProbe", "readinessProbe"):
        assert sidecar[probe]["httpGet"]["path"] == "/v1/models/visits/metadata"
