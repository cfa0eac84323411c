"""Our policy for model servers with agents: each rule, broken in what the example really renders to, is said."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from rigs.deploycheck.findings import ToolMissing
from rigs.deploycheck.manifests import built_trees
from rigs.deploycheck.policy import judge

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = {
    "k8s/examples/triton-agent": "triton",
    "k8s/examples/mlserver-agent": "mlserver",
    "k8s/examples/tfserving-agent": "tfserving",
}
Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rendered() -> Mapping[str, Objects]:
    try:
        return {tree: [dict(one) for one in objects] for tree, objects in built_trees(ROOT) if tree in EXAMPLES}
    except ToolMissing as reason:
        pytest.skip(f"NOT CHECKED: {reason}")


@pytest.fixture
def example(rendered) -> Objects:
    return copy.deepcopy(rendered["k8s/examples/triton-agent"])


def one_of(objects: Objects, name: str, *kinds: str) -> dict[str, Any]:
    (found,) = [one for one in objects if one["kind"] in kinds and one["metadata"]["name"] == name]
    return found


def pod(objects: Objects, name: str = "triton") -> dict[str, Any]:
    found: dict[str, Any] = one_of(objects, name, "Deployment", "StatefulSet")["spec"]["template"]["spec"]
    return found


def agent(objects: Objects, name: str = "triton") -> dict[str, Any]:
    (found,) = [one for one in pod(objects, name)["initContainers"] if one["name"] == "agent"]
    return cast("dict[str, Any]", found)


def server(objects: Objects, name: str = "triton") -> dict[str, Any]:
    found: dict[str, Any] = pod(objects, name)["containers"][0]
    return found


def variable(objects: Objects, name: str) -> dict[str, Any]:
    (found,) = [entry for entry in agent(objects)["env"] if entry["name"] == name]
    return cast("dict[str, Any]", found)


def mount(container: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in container["volumeMounts"] if one["name"] == name]
    return cast("dict[str, Any]", found)


def without(objects: Objects, name: str) -> None:
    agent(objects)["env"].remove(variable(objects, name))


def ingress(objects: Objects) -> dict[str, Any]:
    found: dict[str, Any] = one_of(objects, "understudy-agent", "NetworkPolicy")["spec"]["ingress"][0]
    return found


def stage(objects: Objects) -> dict[str, Any]:
    (found,) = [one for one in pod(objects)["volumes"] if one["name"] == "stage"]
    return cast("dict[str, Any]", found)


def start_the_agent_beside(objects: Objects) -> None:
    spec = pod(objects)
    found = agent(objects)
    spec["initContainers"].remove(found)
    del found["restartPolicy"]
    spec["containers"].append(found)


def refer_forwards(objects: Objects) -> None:
    environment = agent(objects)["env"]
    address = variable(objects, "POD_IP")
    environment.remove(address)
    environment.append(address)


def share_the_stage(objects: Objects) -> None:
    found = stage(objects)
    del found["emptyDir"]
    found["persistentVolumeClaim"] = {"claimName": "stage"}


BROKEN: list[tuple[str, Callable[[Objects], Any]]] = [
    ("starts its agent beside or after the server", start_the_agent_beside),
    ("has an agent without UNDERSTUDY_SERVER_GROUP", lambda o: without(o, "UNDERSTUDY_SERVER_GROUP")),
    ("may read no artifact", lambda o: without(o, "UNDERSTUDY_ARTIFACT_STORES")),
    (
        "agents with one name",
        lambda o: (
            variable(o, "UNDERSTUDY_SERVER_NAME").pop("valueFrom"),
            variable(o, "UNDERSTUDY_SERVER_NAME").update(value="triton"),
        ),
    ),
    ("one address for all pods", lambda o: variable(o, "UNDERSTUDY_SERVER_TARGET").update(value="triton:8001")),
    ("a control beyond the pod", lambda o: variable(o, "UNDERSTUDY_SERVER_CONTROL").update(value="$(POD_IP):8001")),
    ("refers to $(POD_IP), which is no variable before it", refer_forwards),
    (
        "no process reads UNDERSTUDY_SERVER_NAMES",
        lambda o: agent(o)["env"].append(
            {"name": "UNDERSTUDY_SERVER_NAMES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        ),
    ),
    ("UNDERSTUDY_SERVER_KIND=trtion", lambda o: variable(o, "UNDERSTUDY_SERVER_KIND").update(value="trtion")),
    ("has an agent that cannot write", lambda o: mount(agent(o), "stage").update(readOnly=True)),
    ("has a server that does not see the stage", lambda o: mount(server(o), "stage").update(mountPath="/models")),
    ("a server that may change what was verified", lambda o: mount(server(o), "stage").update(readOnly=False)),
    ("has a stage that outlives its pod", share_the_stage),
    ("is evicted when its second version comes", lambda o: stage(o)["emptyDir"].update(sizeLimit="6Gi")),
    ("is evicted when its second version comes", lambda o: without(o, "UNDERSTUDY_ARTIFACT_BYTES")),
    ("leaves endpoints behind", lambda o: agent(o).pop("lifecycle")),
    (
        "preStop: understudy server has no command drian",
        lambda o: agent(o)["lifecycle"]["preStop"]["exec"]["command"].__setitem__(2, "drian"),
    ),
    ("ends while proxies call it", lambda o: server(o).pop("lifecycle")),
    ("ends while proxies call it", lambda o: server(o)["lifecycle"]["preStop"]["httpGet"].update(port=9090)),
    ("is killed after 60 s, and may need 85 s", lambda o: pod(o).update(terminationGracePeriodSeconds=60)),
    (
        "is killed after 90 s, and may need 145 s",
        lambda o: variable(o, "UNDERSTUDY_SERVER_DRAIN_SECONDS").update(value="120"),
    ),
    (
        "before the next ones have their versions",
        lambda o: agent(o)["readinessProbe"]["httpGet"].update(path="/livez"),
    ),
    (
        "knows the password of understudy-owner; the agent may know understudy-agent, understudy-artifacts",
        lambda o: pod(o)["volumes"].append({"name": "x", "secret": {"secretName": "understudy-owner"}}),
    ),
    ("may lose all its pods at once", lambda o: o.remove(one_of(o, "triton", "PodDisruptionBudget"))),
    ("may have all its pods on one node", lambda o: pod(o).pop("topologySpreadConstraints")),
    ("has no NetworkPolicy for", lambda o: o.remove(one_of(o, "understudy-agent", "NetworkPolicy"))),
    ("is reached by every pod", lambda o: ingress(o).pop("from")),
    ("is reached at 8002", lambda o: ingress(o)["ports"].append({"protocol": "TCP", "port": 8002})),
    ("is reached at every port", lambda o: ingress(o).pop("ports")),
]


@pytest.mark.parametrize(("said", "break_it"), BROKEN, ids=[said for said, _ in BROKEN])
def test_a_rule_that_is_broken_is_said(said, break_it, example):
    break_it(example)

    found = [f"{where}: {what}" for where, what in judge(example)]

    assert any(said in finding for finding in found), found
    assert len(found) <= 2, "one mistake is said once, or twice where two rules meet"


@pytest.mark.parametrize(("tree", "name"), EXAMPLES.items())
def test_every_example_has_its_agent_before_its_server_and_breaks_no_rule(tree, name, rendered):
    objects = rendered[tree]

    assert judge(objects) == []
    assert agent(objects, name)["restartPolicy"] == "Always"
    assert mount(server(objects, name), "stage") == {"name": "stage", "mountPath": "/stage", "readOnly": True}
    assert [volume["name"] for volume in pod(objects, name)["volumes"]].count("stage") == 1


@pytest.mark.parametrize(("tree", "name"), EXAMPLES.items())
def test_agents_are_scraped_under_the_name_that_their_rules_know(tree, name, rendered):
    objects = rendered[tree]
    metrics = one_of(objects, "understudy-agent-metrics", "Service")
    monitor = one_of(objects, "understudy", "ServiceMonitor")
    labels = one_of(objects, name, "Deployment", "StatefulSet")["spec"]["template"]["metadata"]["labels"]

    assert monitor["spec"]["selector"]["matchLabels"].items() <= metrics["metadata"]["labels"].items()
    assert metrics["metadata"]["labels"]["understudy/job"] == "understudy-agent"
    assert metrics["spec"]["selector"].items() <= labels.items()
