"""An OCI registry of a test on 127.0.0.1: the pull half of the distribution-spec, with logins, tokens and faults."""

import base64
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from loopback.scripted_server import Answering, ScriptedServer, a_scripted_server

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
TAR = "application/vnd.oci.image.layer.v1.tar"
TITLE = "org.opencontainers.image.title"
USER, PASSWORD, TOKEN = "puller", "a-password-that-none-may-see", "a-token-that-none-may-see"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
LOGINS_OF = '{{"auths": {{"{}": {{"auth": "' + BASIC.removeprefix("Basic ") + '"}}}}}}'
Fault = Callable[[Answering, bytes], object]


def digest_of(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def tar_of(*entries: tuple[str, bytes] | tarfile.TarInfo, gzipped: bool = False) -> bytes:
    """Return a tar of files, and of entries of any other kind."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
            else:
                member = tarfile.TarInfo(entry[0])
                member.size = len(entry[1])
                archive.addfile(member, io.BytesIO(entry[1]))
    return gzip.compress(made.getvalue(), mtime=0) if gzipped else made.getvalue()


class Registry:
    """What the registry has, and how it asks for logins."""

    def __init__(self, login: Literal["none", "basic", "token"] = "none") -> None:
        self.login = login
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        """By tag and by digest: media type and content."""
        self.faults: dict[str, list[Fault]] = {}
        """What goes wrong with the next requests for a path, by its end."""
        self.server: ScriptedServer

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def push_blob(self, content: bytes) -> str:
        self.blobs[digest_of(content)] = content
        return digest_of(content)

    def push(self, tag: str, layers: Sequence[Mapping[str, Any]], **fields: Any) -> str:
        """Push a manifest with these layers, and return its digest."""
        empty = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest_of(b"{}"), "size": 2}
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": empty, "layers": list(layers), **fields}
        return self.push_document(tag, document)

    def push_document(self, tag: str, document: Any) -> str:
        content = json.dumps(document).encode()
        media_type = document.get("mediaType", MANIFEST) if isinstance(document, dict) else MANIFEST
        self.manifests[tag] = self.manifests[digest_of(content)] = (media_type, content)
        return digest_of(content)

    def layer(self, content: bytes, media_type: str = TAR, **annotations: str) -> dict[str, Any]:
        """Push a blob, and return its descriptor."""
        described = {"mediaType": media_type, "digest": self.push_blob(content), "size": len(content)}
        return {**described, "annotations": annotations} if annotations else described

    def file(self, title: str, content: bytes) -> dict[str, Any]:
        return self.layer(content, **{TITLE: title})

    def __call__(self, answering: Answering) -> None:
        path = urlsplit(answering.asked.path)
        if path.path == "/token":
            self._give_token(answering, path.query)
        elif not self._is_let_in(answering):
            realm = f'Bearer realm="{self.server.url}/token",service="reg",scope="repository:models/visits:pull"'
            answering.send(401, headers={"www-authenticate": 'Basic realm="reg"' if self.login == "basic" else realm})
        else:
            self._give(answering, path.path)

    def _is_let_in(self, answering: Answering) -> bool:
        shown = {"none": None, "basic": BASIC, "token": f"Bearer {TOKEN}"}[self.login]
        return shown is None or answering.asked.headers.get("authorization") == shown

    def _give_token(self, answering: Answering, query: str) -> None:
        scope = parse_qs(query).get("scope")
        if answering.asked.headers.get("authorization") == BASIC and scope == ["repository:models/visits:pull"]:
            answering.send(200, json.dumps({"token": TOKEN}).encode())
        else:
            answering.send(401)

    def _give(self, answering: Answering, path: str) -> None:
        kind, _, reference = path.removeprefix("/v2/models/visits/").partition("/")
        media_type, content = self.manifests.get(reference, ("", b"")) if kind == "manifests" else ("", b"")
        if kind == "blobs":
            media_type, content = "application/octet-stream", self.blobs.get(reference, b"")
        faults = next((found for end, found in self.faults.items() if path.endswith(end) and found), None)
        if faults is not None:
            faults.pop(0)(answering, content)
        elif not media_type or (kind == "blobs" and reference not in self.blobs):
            answering.send(404)
        elif "range" in answering.asked.headers:
            first = int(answering.asked.headers["range"].removeprefix("bytes=").partition("-")[0])
            answering.send(206, content[first:], {"content-range": f"bytes {first}-{len(content) - 1}/{len(content)}"})
        else:
            named = {} if kind == "blobs" else {"docker-content-digest": digest_of(content)}
            answering.send(200, content, {"content-type": media_type, **named})


@contextmanager
def a_registry(login: Literal["none", "basic", "token"] = "none") -> Iterator[Registry]:
    registry = Registry(login)
    with a_scripted_server(registry) as server:
        registry.server = server
        yield registry
