"""``Origin`` of artifacts in OCI registries: the files that a manifest lists, each blob verified by its digest."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import orjson

from understudy.adapters.artifacts.artifact_tree import ArtifactTree
from understudy.adapters.artifacts.oci_registry import OciAccess, OciRegistry
from understudy.adapters.artifacts.patience import Passing, Patience
from understudy.adapters.artifacts.pin import Pinned
from understudy.adapters.artifacts.tar_layer import unpack
from understudy.core.loading.digest import PREFIX
from understudy.core.loading.oci_address import OciAddress, oci_address
from understudy.core.loading.oci_manifest import (
    ACCEPTED,
    MAX_MANIFEST_BYTES,
    Layer,
    Packing,
    annotations_of,
    is_list,
    layers_of,
    sole_manifest,
)
from understudy.errors import ArtifactDiffers, ArtifactNotTaken, ArtifactUnreachable

ACCEPT: Final = {"accept": ", ".join(ACCEPTED)}
_PARTIAL: Final = 206


class OciOrigin:
    """A :class:`understudy.adapters.artifacts.pin.RemoteOrigin` of ``oci://registry/repository:tag@sha256:…``.

    Its digest is that of the folder that its layers make up; that of the manifest is a part of the address.

    Args:
        access: Logins, and which registries need no TLS.
    """

    def __init__(self, access: OciAccess) -> None:
        self._access = access

    def copy(self, uri: str, tree: ArtifactTree) -> str:
        address = _address(uri)
        with OciRegistry(address.registry, address.repository, self._access, tree.given_up) as registry:
            pull = _Pull(registry, uri, tree, self._access.patience(tree.given_up))
            _, layers, _ = pull.layers(address)
            tree.expect_bytes(sum(layer.size for layer in layers))
            for layer in layers:
                pull.take(layer)
        return tree.digest()

    def pin(self, uri: str, tree: ArtifactTree) -> Pinned:
        """Return the address with the digest of the manifest that its tag names now, which can be loaded."""
        address = _address(uri)
        with OciRegistry(address.registry, address.repository, self._access, tree.given_up) as registry:
            pull = _Pull(registry, uri, tree, self._access.patience(tree.given_up))
            digest, layers, annotations = pull.layers(address)
        tree.expect_bytes(sum(layer.size for layer in layers))
        return Pinned(address.pinned(digest), None, annotations)


def _address(uri: str) -> OciAddress:
    try:
        return oci_address(uri)
    except ValueError as problem:
        raise ArtifactUnreachable(f"the artifact's address cannot be used: {problem}") from None


class _Pull:
    """Reads one artifact from its registry."""

    def __init__(self, registry: OciRegistry, uri: str, tree: ArtifactTree, patience: Patience) -> None:
        self._registry = registry
        self._uri = uri
        self._tree = tree
        self._patience = patience

    def layers(self, address: OciAddress) -> tuple[str, list[Layer], Mapping[str, str]]:
        """Return the digest of what an address names, and the layers and annotations of its manifest."""
        digest, manifest = self._manifest(address.digest or address.tag or "", address.digest)
        try:
            if is_list(manifest):
                sole = sole_manifest(manifest)
                _, manifest = self._manifest(sole, sole)
            return digest, list(layers_of(manifest)), annotations_of(manifest)
        except ValueError as problem:
            raise ArtifactNotTaken(f"{self._uri} {problem}") from None

    def take(self, layer: Layer) -> None:
        """Put the files of a layer into the artifact. A tar is unpacked once all of it is known to be the right one."""
        if layer.packing is Packing.FILE:
            self._tree.add(layer.title, self._blob(layer))
            return
        with self._tree.temporary_file() as file:
            for block in self._blob(layer):
                file.write(block)
            file.seek(0)
            unpack(file, self._tree, self._uri, is_gzip=layer.packing is Packing.TAR_GZIP)

    def _manifest(self, reference: str, expected: str | None) -> tuple[str, Any]:
        def read() -> bytes:
            with self._registry.opened(f"manifests/{reference}", ACCEPT) as response:
                return self._registry.body(response, MAX_MANIFEST_BYTES)

        content = self._patience.retry(read, self._uri)
        if len(content) > MAX_MANIFEST_BYTES:
            raise ArtifactNotTaken(f"{self._uri} has a manifest of more than {MAX_MANIFEST_BYTES:,} bytes")
        digest = PREFIX + sha256(content).hexdigest()
        if expected is not None and digest != expected:
            raise ArtifactDiffers(f"{self._uri}: the registry gives a manifest that is {digest}, not {expected}")
        try:
            return digest, orjson.loads(content)
        except orjson.JSONDecodeError:
            raise ArtifactNotTaken(f"{self._uri} has a manifest that is not JSON") from None

    def _blob(self, layer: Layer) -> Iterator[bytes]:
        """Read a blob to its end; after a break, from where it broke.

        Raises:
            ArtifactDiffers: It is not the one that the manifest names.
        """
        hashed, at = sha256(), 0
        while at < layer.size:
            try:
                for block in self._rest(layer, at):
                    at += len(block)
                    self._patience.renew()
                    hashed.update(block)
                    yield block
                if at < layer.size:
                    raise Passing(f"{layer.digest} ends after {at:,} of {layer.size:,} bytes")  # noqa: TRY301 - as a break
            except Passing as problem:
                self._patience.wait(problem, self._uri)
        if PREFIX + hashed.hexdigest() != layer.digest:
            found = PREFIX + hashed.hexdigest()
            raise ArtifactDiffers(f"{self._uri}: the registry gives a blob that is {found}, not {layer.digest}")

    def _rest(self, layer: Layer, at: int) -> Iterator[bytes]:
        headers = {"range": f"bytes={at}-{layer.size - 1}"} if at else {}
        with self._registry.opened(f"blobs/{layer.digest}", headers) as response:
            skipped = at if response.status_code != _PARTIAL else 0  # one that begins anew is read over
            came = at - skipped
            for block in self._registry.blocks(response):
                came += len(block)
                if came > layer.size:
                    raise ArtifactDiffers(
                        f"{self._uri}: the registry sends more than {layer.size:,} bytes of {layer.digest}"
                    )
                rest = block[skipped:]
                skipped -= min(skipped, len(block))
                if rest:
                    yield rest
