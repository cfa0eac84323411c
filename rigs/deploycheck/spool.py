"""Whether the rows of a proxy outlive its pod, or its manifest says that they need not."""

from collections.abc import Iterator, Mapping
from typing import Any

from rigs.deploycheck.pods import STANDING, Container, Pod, bytes_of, containers_of
from understudy.settings import Settings

STATE = "/var/lib/understudy"
"""``UNDERSTUDY_STATE_DIR`` of the image."""
ANNOTATION, ENDS = "understudy/spool", "ends-with-its-pod"
EVERYTHING_ELSE = 1.25
"""Of a volume: the segment that is being shipped, ``policy.json``, and what the file system itself needs."""


def keeps_its_spool(pod: Pod) -> Iterator[str]:
    """Yield what may cost rows that a proxy's pod has not shipped."""
    if pod.component != "proxy" or pod.owner["kind"] not in STANDING:
        return
    proxy = next(one for one in containers_of(pod) if one.spec["name"] == "proxy")
    mounted = [mount["name"] for mount in proxy.spec.get("volumeMounts", ()) if mount["mountPath"] == STATE]
    claims = {claim["metadata"]["name"]: claim["spec"] for claim in pod.owner["spec"].get("volumeClaimTemplates", ())}
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", ())}
    if not mounted:
        yield f"has its spool in the container, which every restart empties: a volume at {STATE}"
    elif mounted[0] in claims:
        yield from _of_claim(pod, claims[mounted[0]], proxy)
    else:
        yield from _of_volume(pod, volumes[mounted[0]], proxy)


def _of_claim(pod: Pod, claim: Mapping[str, Any], proxy: Container) -> Iterator[str]:
    if claim.get("accessModes") != ["ReadWriteOncePod"]:
        yield "may have two pods at one spool while a node is out of reach: accessModes: [ReadWriteOncePod]"
    if "Delete" in pod.owner["spec"].get("persistentVolumeClaimRetentionPolicy", {}).values():
        yield "loses what waits for Postgres when it is scaled or deleted: persistentVolumeClaimRetentionPolicy"
    yield from _room(claim["resources"]["requests"]["storage"], proxy)


def _of_volume(pod: Pod, volume: Mapping[str, Any], proxy: Container) -> Iterator[str]:
    if "persistentVolumeClaim" in volume:
        yield "has one volume for all pods, and a spool belongs to one: volumeClaimTemplates"
        return
    if pod.owner["metadata"].get("annotations", {}).get(ANNOTATION) != ENDS:
        yield f"loses what a pod has not shipped when it ends: components/spool-on-volumes, or say {ANNOTATION}: {ENDS}"
    size = (volume.get("emptyDir") or {}).get("sizeLimit")
    if size is not None:
        yield from _room(size, proxy)


def _room(size: str, proxy: Container) -> Iterator[str]:
    given = proxy.environment
    limit = int(given.get("UNDERSTUDY_SPOOL_LIMIT_BYTES") or Settings.model_fields["spool_limit_bytes"].default)
    needed = limit * int(given.get("UNDERSTUDY_WORKERS") or 1) * EVERYTHING_ELSE
    if bytes_of(size) < needed:
        yield f"has a volume of {size}, and its spool may need {needed / 2**20:.0f} Mi: a full volume drops rows"
