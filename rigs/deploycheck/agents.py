"""What we ask of a pod in which an agent loads into a model server: the two start, share files and end in order."""

from collections.abc import Iterator, Mapping, Sequence

from rigs.deploycheck.ours import is_ours
from rigs.deploycheck.pods import STANDING, Container, Object, Pod, bytes_of, containers_of, pod_of
from understudy.settings import Settings

SECRETS = frozenset({"understudy-agent", "understudy-artifacts"})
"""Its own login at the database, and one at the store of artifacts."""
ENDING_SECONDS = 20.0
"""What a model server may take to end once nothing calls it."""
NEEDED = ("UNDERSTUDY_SERVER_NAME", "UNDERSTUDY_SERVER_GROUP", "UNDERSTUDY_SERVER_TARGET", "UNDERSTUDY_SERVER_CONTROL")
_ITS_OWN = ("NAME", "TARGET", "CONTROL")
"""Of these, what no other pod may have too."""
SOURCES = ("UNDERSTUDY_ARTIFACT_STORES", "UNDERSTUDY_ARTIFACT_ROOT")
STAGE, DRAIN = "UNDERSTUDY_STAGE_DIR", ["understudy", "server", "drain", "--self"]
PREDICT_PORT = "predict"


def agent_of(pod: Pod) -> Container | None:
    """Return the container that is an agent."""
    agents = (one for one in containers_of(pod) if list(one.spec.get("args", ())) == ["serve", "agent"])
    return next((one for one in agents if is_ours(one.spec["image"])), None)


def serves_a_model_server(pod: Pod) -> Iterator[str]:
    """Yield what is wrong with an agent and its server in a pod."""
    agent = agent_of(pod)
    if agent is None or pod.owner["kind"] not in STANDING:
        return
    server = pod.spec["containers"][0]
    if agent.spec.get("restartPolicy") != "Always":
        yield "starts its agent beside or after the server: an init container with restartPolicy: Always"
        return
    yield from _is_set(agent)
    yield from _stage(pod, agent, server)
    yield from _end(pod, agent, server)
    if agent.spec.get("readinessProbe", {}).get("httpGet", {}).get("path") != "/readyz":
        yield "replaces pods before the next ones have their versions: the agent's readinessProbe asks /readyz"


def is_reached_by_proxies_alone(one: Object, objects: Sequence[Object], _pods: Sequence[Pod]) -> Iterator[str]:
    """Yield how others than proxies and monitors may reach a model server with an agent."""
    pod = pod_of(one)
    agent = None if pod is None else agent_of(pod)
    if pod is None or agent is None:
        return
    policies = [policy["spec"] for policy in objects if policy["kind"] == "NetworkPolicy" and _is_about(policy, pod)]
    for direction in ("Ingress", "Egress"):
        if not any(direction in spec["policyTypes"] for spec in policies):
            yield f"has no NetworkPolicy for {direction}: proxies call the server, and nothing else does"
    expected = {PREDICT_PORT, *(port["name"] for port in agent.spec.get("ports", ()))}
    for rule in (rule for spec in policies for rule in spec.get("ingress", ())):
        if "from" not in rule:
            yield "is reached by every pod: no NetworkPolicy says from where"
        ports = {port["port"] for port in rule.get("ports", ())}
        if not ports or ports - expected:
            named = ", ".join(sorted(map(str, ports - expected))) or "every port"
            yield f"is reached at {named}: the control is the pod's own, and callers need {PREDICT_PORT}"


def _is_about(policy: Object, pod: Pod) -> bool:
    wanted: Mapping[str, str] = policy["spec"]["podSelector"].get("matchLabels", {})
    return wanted.items() <= pod.labels.items()


def _is_set(agent: Container) -> Iterator[str]:
    given = {entry["name"]: entry for entry in agent.spec.get("env", ())}
    for name in (name for name in NEEDED if name not in given):
        yield f"has an agent without {name}"
    if not any(name in given for name in SOURCES):
        yield f"has an agent that may read no artifact: {' or '.join(SOURCES)}"
    name, target, control = (given.get(f"UNDERSTUDY_SERVER_{one}", {}).get("value") for one in _ITS_OWN)
    if name is not None:
        yield "has agents with one name, of which one alone works: UNDERSTUDY_SERVER_NAME from metadata.name"
    if target is not None and "$(" not in target:
        yield "has one address for all pods: UNDERSTUDY_SERVER_TARGET with $(POD_IP)"
    if control is not None and not control.startswith("127.0.0.1:"):
        yield "has a control beyond the pod: UNDERSTUDY_SERVER_CONTROL at 127.0.0.1"


def _stage(pod: Pod, agent: Container, server: Object) -> Iterator[str]:
    path = agent.environment.get(STAGE, "")
    own = _mount(agent.spec, path)
    shared = _mount(server, path)
    if own is None or own.get("readOnly"):
        yield f"has an agent that cannot write {STAGE}={path}: a volume there"
        return
    if shared is None or shared["name"] != own["name"]:
        yield f"has a server that does not see the stage: the volume {own['name']} at {path} in {server['name']}"
    elif shared.get("readOnly") is not True:
        yield f"has a server that may change what was verified: the volume {own['name']} readOnly in {server['name']}"
    volume: Object = next((one for one in pod.spec.get("volumes", ()) if one["name"] == own["name"]), {})
    if "emptyDir" not in volume:
        yield f"has a stage that outlives its pod or is shared: the volume {own['name']} as emptyDir"
        return
    given = agent.environment.get("UNDERSTUDY_ARTIFACT_BYTES") or Settings.model_fields["artifact_bytes"].default
    size = (volume["emptyDir"] or {}).get("sizeLimit", 0)
    if size and bytes_of(size) < 2 * int(given):
        yield f"is evicted when its second version comes: a stage of {size}, and artifacts of {int(given) / 2**30:g} Gi"


def _mount(container: Object, path: str) -> Object | None:
    mounts: Sequence[Object] = container.get("volumeMounts", ())
    return next((mount for mount in mounts if mount["mountPath"] == path), None)


def _end(pod: Pod, agent: Container, server: Object) -> Iterator[str]:
    ports = [port["containerPort"] for port in agent.spec.get("ports", ())]
    waits = server.get("lifecycle", {}).get("preStop", {}).get("httpGet", {})
    if agent.spec.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command") != DRAIN:
        yield f"leaves endpoints behind that proxies call: preStop of the agent, {' '.join(DRAIN)}"
    if waits.get("path") != "/drained" or waits.get("port") not in ports:
        yield f"ends while proxies call it: preStop of {server['name']}, with httpGet /drained at the agent's port"
    needed = ENDING_SECONDS + sum(_seconds(agent, name) for name in ("server_drain_seconds", "drain_seconds"))
    grace = float(pod.spec.get("terminationGracePeriodSeconds", 30))
    if grace < needed:
        yield f"is killed after {grace:.0f} s, and may need {needed:.0f} s to end: terminationGracePeriodSeconds"


def _seconds(agent: Container, field: str) -> float:
    return float(agent.environment.get(f"UNDERSTUDY_{field.upper()}") or Settings.model_fields[field].default)
