"""What we ask of every object that is deployed, beyond that its schema is right. Pure: objects in, findings out."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from rigs.deploycheck.agents import SECRETS, agent_of, is_reached_by_proxies_alone, serves_a_model_server
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
from rigs.deploycheck.pods import STANDING, Container, Object, Pod, bytes_of, containers_of, pod_of
from rigs.deploycheck.spool import keeps_its_spool
from understudy.settings import FILE_SUFFIX

Said = tuple[str, str]

SECRETS_OF: Mapping[str, frozenset[str]] = {
    "proxy": frozenset({"understudy-proxy"}),
    "monitor": frozenset({"understudy-monitor"}),
    "console": frozenset({"understudy-console"}),
    "migrate": frozenset({"understudy-owner"}),
    "partitions": frozenset({"understudy-monitor"}),
    "archive": frozenset({"understudy-retention", "understudy-archive"}),
}
"""Whose password each process may know: docs/reference/sql.md, Roles."""
ENDING_SECONDS = 8.0
"""Beside the drains of a proxy: the last calls (1 s), shadows (0.5 s), signing off (2 s), spans (2 s), closing."""
REFERENCE = re.compile(r"(?<!\$)\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
"""One variable in the value of another: ``$(POD_IP)``."""
CONFIG_KINDS = ("ConfigMap",)
SCALERS = ("HorizontalPodAutoscaler", "ScaledObject")


def judge(objects: Sequence[Object]) -> list[Said]:
    """Return where something is wrong, and what."""
    pods = [pod for one in objects if (pod := pod_of(one)) is not None]
    found = [said for pod in pods for rule in POD_RULES for said in ((pod.where, what) for what in rule(pod))]
    for pod in pods:
        for container in containers_of(pod):
            where = f"{pod.where} {container.spec['name']}"
            found += [(where, what) for rule in CONTAINER_RULES for what in rule(pod, container)]
    for one in objects:
        where = f"{one['kind']}/{one['metadata']['name']}"
        found += [(where, what) for rule in OBJECT_RULES for what in rule(one, objects, pods)]
    return found


# -- pods --------------------------------------------------------------------------------------------------------------


def _is_unprivileged(pod: Pod) -> Iterator[str]:
    security = pod.spec.get("securityContext", {})
    if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
        yield "may run as root: securityContext.runAsNonRoot and runAsUser"
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "may make any system call: securityContext.seccompProfile"
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.spec.get(name):
            yield f"{name} is the host's"


def _has_no_token(pod: Pod) -> Iterator[str]:
    if pod.spec.get("automountServiceAccountToken") is not False:
        yield "gets a token of the cluster's API: automountServiceAccountToken: false"


def _has_no_service_links(pod: Pod) -> Iterator[str]:
    if pod.spec.get("enableServiceLinks") is not False:
        yield "gets a variable for each Service, such as UNDERSTUDY_PORT: enableServiceLinks: false"


def _has_bounded_volumes(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.get("volumes", ()):
        if "hostPath" in volume:
            yield f"the volume {volume['name']} is a folder of the host"
        if "emptyDir" in volume and "sizeLimit" not in (volume["emptyDir"] or {}):
            yield f"the volume {volume['name']} may fill the node: emptyDir.sizeLimit"
        if "image" in volume and "@sha256:" not in volume["image"]["reference"]:
            yield f"the volume {volume['name']} is an image without a digest"


def _has_room_for_its_volumes(pod: Pod) -> Iterator[str]:
    """Kubernetes counts an ``emptyDir`` on disk as the pod's, whose limit is the sum of its containers' limits."""
    running = [*pod.spec["containers"], *(one for one in pod.spec.get("initContainers", ()) if "restartPolicy" in one)]
    limits = [one.get("resources", {}).get("limits", {}).get("ephemeral-storage") for one in running]
    if None in limits:
        return  # another rule says so
    room = sum(map(bytes_of, limits))
    volumes = [volume["emptyDir"] or {} for volume in pod.spec.get("volumes", ()) if "emptyDir" in volume]
    wanted = sum(bytes_of(one.get("sizeLimit", 0)) for one in volumes if one.get("medium") != "Memory")
    if wanted > room:
        yield (
            f"is evicted before its volumes are full: they may hold {wanted / 2**20:.0f} Mi, and the ephemeral-storage"
            f" of its containers is limited to {room / 2**20:.0f} Mi"
        )


def _knows_its_own_secrets(pod: Pod) -> Iterator[str]:
    name_of_process = pod.component if agent_of(pod) is None else "agent"
    allowed = {**SECRETS_OF, "agent": SECRETS}.get(name_of_process)
    if allowed is None:
        return
    mounted = [volume.get("secret", {}).get("secretName") for volume in pod.spec.get("volumes", ())]
    read = [
        entry.get("valueFrom", {}).get("secretKeyRef", {}).get("name")
        for container in containers_of(pod)
        for entry in container.spec.get("env", ())
    ]
    for name in (*mounted, *read):
        if name is not None and name not in allowed:
            yield f"knows the password of {name}; the {name_of_process} may know {', '.join(sorted(allowed))}"


def _ends_in_time(pod: Pod) -> Iterator[str]:
    if pod.owner["kind"] not in STANDING:
        return
    grace = float(pod.spec.get("terminationGracePeriodSeconds", 30))
    for container in containers_of(pod):
        drain = container.environment.get("UNDERSTUDY_DRAIN_SECONDS")
        if drain is None:
            continue
        pause = float(container.spec.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0))
        needed = pause + DRAINS_OF.get(pod.component, 1) * float(drain) + ENDING_SECONDS
        if grace < needed:
            yield f"is killed after {grace:.0f} s, and may need {needed:.0f} s to end: terminationGracePeriodSeconds"


# -- containers --------------------------------------------------------------------------------------------------------


def _image_is_said(_pod: Pod, container: Container) -> Iterator[str]:
    problem = image_problem(container.spec["image"])
    if problem is not None:
        yield problem


def _is_confined(_pod: Pod, container: Container) -> Iterator[str]:
    security = container.spec.get("securityContext", {})
    if security.get("readOnlyRootFilesystem") is not True:
        yield "has a root that can be written to: readOnlyRootFilesystem: true"
    if security.get("allowPrivilegeEscalation") is not False or security.get("privileged"):
        yield "may gain privileges: allowPrivilegeEscalation: false"
    if "ALL" not in security.get("capabilities", {}).get("drop", ()) or security.get("capabilities", {}).get("add"):
        yield "keeps capabilities: capabilities.drop: [ALL]"


def _has_limits(_pod: Pod, container: Container) -> Iterator[str]:
    resources = container.spec.get("resources", {})
    wanted = {"requests": ("cpu", "memory", "ephemeral-storage"), "limits": ("memory", "ephemeral-storage")}
    for group, names in wanted.items():
        for name in names:
            if name not in resources.get(group, {}):
                yield f"has no resources.{group}.{name}"
    if "cpu" in resources.get("limits", {}):
        yield "has a limit of CPU: a throttled event loop is a slow answer for everybody"


def _is_probed(_pod: Pod, container: Container) -> Iterator[str]:
    if not container.stays:
        return
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        if name not in container.spec:
            yield f"has no {name}"
    if container.spec.get("livenessProbe", {}).get("httpGet", {}).get("path") == "/readyz":
        yield "is restarted when a dependency is away: livenessProbe asks /readyz, not /livez"


def _lets_calls_end(pod: Pod, container: Container) -> Iterator[str]:
    is_proxy = pod.component == "proxy" and container.spec["name"] == "proxy"
    if is_proxy and not container.spec.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds"):
        yield "ends while it still gets calls: lifecycle.preStop.sleep"


def _is_understood(_pod: Pod, container: Container) -> Iterator[str]:
    if not is_ours(container.spec["image"]) or "command" in container.spec:
        return
    problem = command_problem(container.spec.get("args", ()))
    if problem is not None:
        yield problem
    referred = {name for value in container.environment.values() for name in REFERENCE.findall(value)}
    for entry in container.spec.get("env", ()):
        unknown = None if entry["name"] in referred else variable_problem(entry["name"], entry.get("value"))
        if unknown is not None:
            yield unknown
    hook = container.spec.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ())
    problem = command_problem(hook[1:]) if hook[:1] == ["understudy"] else None
    if problem is not None:
        yield f"preStop: {problem}"


def _refers_backwards(_pod: Pod, container: Container) -> Iterator[str]:
    """Kubernetes leaves ``$(NAME)`` as it is where NAME comes later."""
    known: set[str] = set()
    for entry in container.spec.get("env", ()):
        for name in REFERENCE.findall(str(entry.get("value", ""))):
            if name not in known:
                yield f"{entry['name']} refers to $({name}), which is no variable before it"
        known.add(entry["name"])


def _asks_for_a_login(_pod: Pod, container: Container) -> Iterator[str]:
    if is_redis(container.spec["image"]):
        problem = login_problem(container.spec.get("args", ()))
        if problem is not None:
            yield problem


def _shows_no_secret(_pod: Pod, container: Container) -> Iterator[str]:
    for name, value in container.environment.items():
        problem = secret_problem(name, value)
        if problem is not None:
            yield problem
    mounts = [mount["mountPath"] for mount in container.spec.get("volumeMounts", ())]
    for name, value in container.environment.items():
        if name.endswith(FILE_SUFFIX) and not any(value.startswith(f"{mount}/") for mount in mounts):
            yield f"{name}={value} is in no volume that is mounted"


# -- objects -----------------------------------------------------------------------------------------------------------


def _is_no_secret(one: Object, _objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    if one["kind"] == "Secret":
        yield "is a secret in a repository: name it, and make it elsewhere"
    for key, value in one.get("data", {}).items() if one["kind"] in CONFIG_KINDS else ():
        problem = secret_problem(key, str(value))
        if problem is not None:
            yield problem


def _selects_a_pod(one: Object, _objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    wanted = _selector_of(one)
    if wanted is not None and not any(wanted.items() <= pod.labels.items() for pod in pods):
        yield f"selects nobody: no pod is {', '.join(f'{name}={value}' for name, value in wanted.items())}"


def _selector_of(one: Object) -> Mapping[str, str] | None:
    if one["kind"] == "Service":
        return dict(one["spec"].get("selector", {}))
    if one["kind"] == "PodDisruptionBudget":
        return dict(one["spec"]["selector"]["matchLabels"])
    if one["kind"] == "NetworkPolicy":
        return dict(one["spec"]["podSelector"].get("matchLabels", {}))
    return None


def _reaches_a_port(one: Object, _objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    if one["kind"] != "Service":
        return
    chosen = [pod for pod in pods if one["spec"].get("selector", {}).items() <= pod.labels.items()]
    names = {
        port.get("name")
        for pod in chosen
        for container in containers_of(pod)
        for port in container.spec.get("ports", ())
    }
    for port in one["spec"].get("ports", ()):
        if port.get("targetPort") not in names:
            yield f"sends calls to the port {port.get('targetPort')}, which no container of its pods has"


def _is_in_a_network_of_its_own(one: Object, objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    pod = pod_of(one)
    if pod is None or not any(is_redis(container.spec["image"]) for container in containers_of(pod)):
        return
    policies = [other for other in objects if other["kind"] == "NetworkPolicy" and _selects(other, pod)]
    guards = [policy["spec"] for policy in policies if "Ingress" in policy["spec"]["policyTypes"]]
    if not guards or any("from" not in rule for spec in guards for rule in spec.get("ingress", ())):
        yield "is reached by every pod: no NetworkPolicy says from where"


def _is_scraped(one: Object, objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    if one["kind"] != "ServiceMonitor":
        return
    wanted = one["spec"]["selector"]["matchLabels"].items()
    services = [other for other in objects if other["kind"] == "Service"]
    chosen = [service for service in services if wanted <= service["metadata"].get("labels", {}).items()]
    if not chosen:
        yield "scrapes nobody: no Service has these labels"
    for endpoint in one["spec"]["endpoints"]:
        for service in chosen:
            if endpoint["port"] not in {port["name"] for port in service["spec"]["ports"]}:
                yield f"scrapes the port {endpoint['port']}, which {service['metadata']['name']} does not have"


def _may_be_disrupted_a_little(one: Object, objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    if one["kind"] == "PodDisruptionBudget":
        if one["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            yield "keeps a node from being drained by a pod that is not ready: unhealthyPodEvictionPolicy: AlwaysAllow"
        return
    pod = pod_of(one)
    if one["kind"] not in STANDING or pod is None:
        return
    if pod.component not in ("proxy", "monitor") and agent_of(pod) is None:
        return
    budgets = [other for other in objects if other["kind"] == "PodDisruptionBudget"]
    if not any(_selects(budget, pod) for budget in budgets):
        yield "may lose all its pods at once: no PodDisruptionBudget is about it"
    if not pod.spec.get("topologySpreadConstraints"):
        yield "may have all its pods on one node: topologySpreadConstraints"


def _selects(one: Object, pod: Pod) -> bool:
    wanted = _selector_of(one)
    return wanted is not None and wanted.items() <= pod.labels.items()


def _is_scaled_by_one(one: Object, objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    if one["kind"] not in ("Deployment", "StatefulSet"):
        return
    scalers = [other for other in objects if other["kind"] in SCALERS and _scaled_by(other) == _name_of(one)]
    if len(scalers) > 1:
        yield f"is scaled by {len(scalers)} autoscalers, which undo each other's work"
    if scalers and "replicas" in one["spec"]:
        yield "has a number of replicas beside an autoscaler: each apply would set it back"


def _scales_what_is_there(one: Object, objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    if one["kind"] in SCALERS and _scaled_by(one) not in map(_name_of, objects):
        yield f"scales {'/'.join(_scaled_by(one))}, which is not here"


def _scaled_by(scaler: Object) -> tuple[str, str]:
    target = scaler["spec"]["scaleTargetRef"]
    return target.get("kind", "Deployment"), target["name"]


def _name_of(one: Object) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def _has_its_own_service(one: Object, objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    if one["kind"] != "StatefulSet":
        return
    name = one["spec"].get("serviceName")
    if ("Service", name) not in map(_name_of, objects):
        yield f"names its pods by the Service {name}, which is not here"


def _job_ends(one: Object, _objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    if one["kind"] == "CronJob":
        if one["spec"].get("concurrencyPolicy") != "Forbid":
            yield "may run beside itself: concurrencyPolicy: Forbid"
        job = one["spec"]["jobTemplate"]["spec"]
    elif one["kind"] == "Job":
        job = one["spec"]
    else:
        return
    for name in ("activeDeadlineSeconds", "backoffLimit"):
        if name not in job:
            yield f"may try for ever: {name}"


def _is_in_a_namespace(one: Object, objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    if one["kind"] == "Namespace":
        if one["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce") != "restricted":
            yield "lets pods do anything: pod-security.kubernetes.io/enforce: restricted"
        return
    made = {other["metadata"]["name"] for other in objects if other["kind"] == "Namespace"}
    if one["metadata"].get("namespace") not in made:
        yield f"is in the namespace {one['metadata'].get('namespace')}, which is not made here"


POD_RULES: Sequence[Callable[[Pod], Iterator[str]]] = (
    _is_unprivileged,
    _has_no_token,
    _has_no_service_links,
    _has_bounded_volumes,
    _has_room_for_its_volumes,
    _knows_its_own_secrets,
    _ends_in_time,
    keeps_its_spool,
    serves_a_model_server,
)
CONTAINER_RULES: Sequence[Callable[[Pod, Container], Iterator[str]]] = (
    _image_is_said,
    _is_confined,
    _has_limits,
    _is_probed,
    _lets_calls_end,
    _is_understood,
    _refers_backwards,
    _asks_for_a_login,
    _shows_no_secret,
)
OBJECT_RULES: Sequence[Callable[[Object, Sequence[Object], Sequence[Pod]], Iterator[str]]] = (
    _is_no_secret,
    _selects_a_pod,
    _reaches_a_port,
    _is_in_a_network_of_its_own,
    is_reached_by_proxies_alone,
    _is_scraped,
    _may_be_disrupted_a_little,
    _is_scaled_by_one,
    _scales_what_is_there,
    _has_its_own_service,
    _job_ends,
    _is_in_a_namespace,
)
