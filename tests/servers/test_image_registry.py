"""Artifacts in a real registry, Debian's ``docker-registry`` (``make test-registry``; REGISTRY names the binary)."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx2
import pytest
from loopback.oci_registry import BASIC, LOGINS_OF, MANIFEST, TAR, TITLE, USER, digest_of, tar_of

from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.artifacts.oci_origin import OciOrigin
from understudy.adapters.artifacts.oci_registry import OciAccess
from understudy.adapters.artifacts.origin import Limits
from understudy.adapters.artifacts.pin import pin_artifact
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.core.loading.oci_address import parse_logins
from understudy.errors import ArtifactForbidden

BINARY = os.environ.get("REGISTRY", "docker-registry")
HASHED = "$2b$04$Llpb3eyD1ba0cDA2erMoGugxmgQeaMvoaoQy5jEQLlv.YDPqCRi7S"
"""The test's password, as bcrypt: the registry takes nothing else."""
START_SECONDS = 30.0
WEIGHTS = b"weights" * 1_000_000


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Start the registry, which wants a login, and return its name."""
    name = f"127.0.0.1:{free_port()}"
    (tmp_path / "htpasswd").write_text(f"{USER}:{HASHED}\n")
    document = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "blobs")}},
        "http": {"addr": name},
        "auth": {"htpasswd": {"realm": "reg", "path": str(tmp_path / "htpasswd")}},
    }
    (tmp_path / "config.yml").write_text(json.dumps(document))
    with (tmp_path / "registry.log").open("wb") as log:
        server = subprocess.Popen([BINARY, "serve", str(tmp_path / "config.yml")], stdout=log, stderr=log)
    try:
        give_up = time.monotonic() + START_SECONDS
        while not _answers(name):
            assert server.poll() is None, (tmp_path / "registry.log").read_text()
            assert time.monotonic() < give_up
            time.sleep(0.1)
        yield name
    finally:
        server.terminate()
        server.wait(10)


def _answers(name: str) -> bool:
    try:
        return httpx2.get(f"http://{name}/v2/", timeout=5).status_code == 401
    except httpx2.HTTPError:
        return False


def push(registry: str, tag: str, *layers: tuple[bytes, str, Mapping[str, str]]) -> str:
    """Push blobs and their manifest, and return its digest."""
    base = f"http://{registry}/v2/models/visits"
    config: tuple[bytes, str, Mapping[str, str]] = (b"{}", "application/vnd.oci.empty.v1+json", {})
    described = []
    with httpx2.Client(timeout=30, headers={"authorization": BASIC}) as client:
        for content, media_type, annotations in (config, *layers):
            place = httpx2.URL(client.post(f"{base}/blobs/uploads/").headers["location"])
            done = client.put(place.copy_merge_params({"digest": digest_of(content)}), content=content)
            assert done.status_code == 201, done.text
            entry = {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}
            described.append({**entry, "annotations": annotations} if annotations else entry)
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
        content = json.dumps(document).encode()
        done = client.put(f"{base}/manifests/{tag}", content=content, headers={"content-type": MANIFEST})
        assert done.status_code == 201, done.text
    return digest_of(content)


async def test_files_and_layers_are_pinned_by_their_tag_and_staged_with_the_login_alone(registry, tmp_path):
    access = OciAccess(parse_logins(LOGINS_OF.format(registry)), frozenset())
    image = tar_of(("1/labels.txt", b"yes\nno\n"), gzipped=True)
    manifest = push(registry, "canary", (WEIGHTS, "any/kind", {TITLE: "model.onnx"}), (image, f"{TAR}+gzip", {}))
    uri = f"oci://{registry}/models/visits:canary"

    pinned = await pin_artifact(uri, None, {"oci": OciOrigin(access)}, Limits())
    push(registry, "canary", (b"other", "any/kind", {TITLE: "model.onnx"}))
    staged = await FolderStage(tmp_path / "stage", {"oci": OciOrigin(access)}).fetch(pinned.uri, None)

    assert pinned.uri == f"{uri}@{manifest}"
    assert (staged.folder / "model.onnx").read_bytes() == WEIGHTS
    assert (staged.folder / "1/labels.txt").read_bytes() == b"yes\nno\n"
    stranger = FolderStage(tmp_path / "other", {"oci": OciOrigin(OciAccess({}, frozenset()))})
    with pytest.raises(ArtifactForbidden, match="without a login: 401"):
        await stranger.fetch(pinned.uri, None)
