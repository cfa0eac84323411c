"""The pods and containers that objects of Kubernetes make, as values."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Object = Mapping[str, Any]

COMPONENT = "app.kubernetes.io/component"
STANDING = ("Deployment", "StatefulSet", "DaemonSet")
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class Pod(NamedTuple):
    """A pod that an object makes."""

    owner: Object
    labels: Mapping[str, str]
    spec: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The object, as ``Deployment/understudy-proxy``."""
        return f"{self.owner['kind']}/{self.owner['metadata']['name']}"

    @property
    def component(self) -> str:
        """Which of our processes it is; empty for anything else."""
        return self.labels.get(COMPONENT, "")


class Container(NamedTuple):
    """A container, and whether it runs as long as its pod."""

    spec: Mapping[str, Any]
    stays: bool

    @property
    def environment(self) -> dict[str, str]:
        """Its variables; those without a value in the manifest are empty."""
        return {entry["name"]: str(entry.get("value", "")) for entry in self.spec.get("env", ())}


def pod_of(one: Object) -> Pod | None:
    """Return the pod that an object makes, if it makes any."""
    spec = one.get("spec", {})
    if one["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    template = spec.get("template") if one["kind"] in (*STANDING, "Job", "CronJob") else None
    return None if template is None else Pod(one, template["metadata"].get("labels", {}), template["spec"])


def containers_of(pod: Pod) -> Iterator[Container]:
    """Yield a pod's containers, those that run before it included."""
    stands = pod.owner["kind"] in STANDING
    for spec in pod.spec.get("initContainers", ()):
        yield Container(spec, stands and spec.get("restartPolicy") == "Always")
    for spec in pod.spec["containers"]:
        yield Container(spec, stands)


def bytes_of(quantity: str | int) -> float:
    """Return a quantity such as ``512Mi`` in bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(\w*)", str(quantity))
    assert found is not None, f"{quantity!r} is no quantity that this reads"
    return float(found[1]) * _BYTES[found[2]]
