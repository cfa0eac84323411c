"""What the page tells people to type on Kubernetes fits the manifests: there is no cluster here to try it on."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "deploy-kubernetes.md").read_text(encoding="utf-8")
OWN = re.search(r"exec --stdin --tty service/(\S+) --container (\S+) -- \\\n +env DATABASE_URL_FILE=(\S+)", PAGE)


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "k8s" / "base" / name).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def deployment() -> dict[str, Any]:
    return next(one for one in manifests("proxy.yaml") if one["kind"] == "Deployment")


def test_the_function_names_a_container_that_may_read_the_file(deployment):
    assert OWN is not None
    deployed, container_name, path = OWN.groups()
    pod = deployment["spec"]["template"]["spec"]
    container = next(one for one in pod["containers"] if one["name"] == container_name)
    mount = next(one for one in container["volumeMounts"] if path.startswith(f"{one['mountPath']}/"))
    volume = next(one for one in pod["volumes"] if one["name"] == mount["name"])

    assert deployment["metadata"]["name"] == deployed
    assert path.removeprefix(f"{mount['mountPath']}/") in keys_of(volume["secret"]["secretName"])
    # Its group may read it, and whoever execs is in that group.
    assert volume["secret"]["defaultMode"] & 0o040
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]


def test_the_file_is_the_one_that_the_proxy_reads_as_an_engineer(deployment):
    assert OWN is not None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = {variable["name"]: variable["value"] for variable in container["env"]}

    assert given["UNDERSTUDY_CONTROL_DATABASE_URL_FILE"] == OWN.group(3)
    # Both at once would be refused.
    assert "DATABASE_URL" not in given


def test_the_jobs_that_the_page_names_are_in_the_manifests():
    commands = PAGE.partition("## Commands")[2].partition("## Scaling")[0]

    named = set(re.findall(r"(?:cronjob/|the Job `)([a-z-]+)", commands))

    known = {one["metadata"]["name"] for name in ("migrate.yaml", "upkeep.yaml") for one in manifests(name)}
    assert named == {"understudy-migrate", "understudy-archive"}
    assert named <= known


def keys_of(secret: str) -> set[str]:
    """Return the keys that the page lists for a Secret."""
    row = re.search(rf"^ *\| `{secret}` \| ([^|]+) \|", PAGE, re.MULTILINE)
    assert row is not None
    return set(re.findall(r"`([a-z-]+)`", row.group(1)))
